"""OpenAI Responses (`/responses`): typed events about output items and their parts, or one response with `output[]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, cast

from dsml_core.atoms import Atom, Call, Delta, Failed, Finish, Inner, Native, Open, Say
from dsml_core.events import End, ToolCall
from dsml_core.formats.wire import Body, Wire, dicts, end_of, make_id
from dsml_core.parts import Part

_TEXTS = {"output_text": False, "reasoning_text": True, "summary_text": True}  # type of a part: is it reasoning?
_HOLDERS = ("message", "reasoning")
_CALLS = ("custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call")
_LISTS = {"content": "content_index", "summary": "summary_index"}  # an item's lists of parts
_DELTAS = {"output_text.delta": False, "reasoning_text.delta": True, "reasoning_summary_text.delta": True}
_FINAL = ("response.completed", "response.incomplete")
_NOT_OVER = ("failed", "cancelled", "in_progress", "queued")  # of a body: no answer, or not all of one


class Responses(Wire):
    """A part is `(output index, list, index in it)`; an item and a native call are their output index.

    Items of ours have no index until they are written.
    """

    NAME: ClassVar[str] = "openai-responses"
    EVENTS: ClassVar[bool] = True
    NUMBERED: ClassVar[bool] = True
    TEXT: ClassVar[str] = "delta"
    ARGUMENTS: ClassVar[str] = "delta"
    VARYING: ClassVar[tuple[str, ...]] = ("sequence_number",)

    def __init__(self, tools: Any) -> None:
        super().__init__(tools)
        self._native_items: set[int] = set()
        self._ids: dict[int, str | None] = {}  # of the provider's items
        self._kinds: dict[int, str | None] = {}  # the same for their types
        self._refused = False
        self._done: dict[int, Body] = {}  # items that are complete, as written, by the client's index
        self._made: list[Body] = []  # items of ours
        self._indexes: dict[Any, int] = {}  # the provider's -> the client's
        self._written = 0  # items the client has seen
        self._parts_written: dict[Any, int] = {}  # the same for the parts of an item
        self._ours = 0  # client's index of the item we are writing
        self._sequence: int | None = None  # the last number, None where the provider gives none

    def speaks(self, body: Body) -> bool:
        return isinstance(body.get("type"), str) or body.get("object") == "response"

    def read(self, body: Body) -> list[Atom]:
        kind = body.get("type", "")
        if "output_index" in body:
            return self._read_item(kind, body["output_index"], body)
        if kind in _FINAL:
            return self._read_output(body["response"])
        if kind in ("response.failed", "error"):
            return [Failed(0)]
        if isinstance(response := body.get("response"), dict):
            self._remember(response)
        return []

    def write(self, body: Body, atoms: Sequence[Atom], *, first: bool, last: bool) -> list[Body]:
        atom = atoms[-1]
        kind = body["type"]
        if kind in _FINAL:
            return [self._write_final(body, atom.called)] if isinstance(atom, Finish) else []
        if isinstance(atom, Native):
            return self._write_native(body, atom)
        if isinstance(atom, Inner):
            return [self._write_inner(body, atom)]
        if not isinstance(atom, Delta) or atom.shown is None:
            return [body]
        if not atom.shown and not self.parts[atom.part].open:
            return [self.noop(0)]
        return [body | {"delta": atom.shown} | ({"logprobs": []} if "logprobs" in body else {})]

    def say(self, choice: int, part: Part | None, text: str) -> list[Body]:
        if part is not None and part.open:
            return [self._delta(part, text)]
        item = self._text_item(text)
        self._made.append(item)
        shown = item["content"][0]
        at = {"item_id": item["id"], "output_index": None, "content_index": 0}
        return [
            _event("output_item.added", output_index=None, item=item | {"status": "in_progress", "content": []}),
            _event("content_part.added", **at, part=shown | {"text": ""}),
            _event("output_text.delta", **at, delta=text, logprobs=[]),
            _event("output_text.done", **at, text=text, logprobs=[]),
            _event("content_part.done", **at, part=shown),
            _event("output_item.done", output_index=None, item=item),
        ]

    def call(self, choice: int, index: int, call: ToolCall) -> list[Body]:
        item = self._call_item(index, call)
        self._made.append(item)
        field = "input" if "input" in item else "arguments"
        event = "custom_tool_call_input" if "input" in item else "function_call_arguments"
        at = {"item_id": item["id"], "output_index": None}
        return [
            _event("output_item.added", output_index=None, item=item | {"status": "in_progress", field: ""}),
            _event(f"{event}.delta", **at, delta=item[field]),
            _event(f"{event}.done", **at, name=item["name"], **{field: item[field]}),
            _event("output_item.done", output_index=None, item=item),
        ]

    def stop(self, choice: int) -> list[Body]:
        output = [self._done[index] for index in sorted(self._done)]
        return [_event("completed", response=self.base | {"status": "completed", "output": output})]

    def noop(self, choice: int) -> Body:
        return _event("in_progress", response=self.base | {"instructions": None, "tools": []})

    def follow(self, last: dict[str, bytes]) -> None:
        if "sequence_number" in last:
            self._sequence = int(last["sequence_number"])

    @property
    def place(self) -> tuple[Any, ...]:
        return (self.moved, self._written, self._ours, self._sequence)

    @place.setter
    def place(self, place: tuple[Any, ...]) -> None:
        self.moved, self._written, self._ours, self._sequence = place

    def count(self) -> int | None:
        return self._sequence if self.moved else None

    def number(self, body: Body) -> bool:
        indexed = "output_index" in body and (self.moved or body["output_index"] is not None)
        changed = indexed and self.speaks(body) and self._number_item(body)
        if "sequence_number" not in body:
            return changed
        sequence = body["sequence_number"]
        if self.moved and self._sequence is not None:
            body["sequence_number"] = self._sequence + 1
        elif sequence is None:
            body.pop("sequence_number", None)
        number = body.get("sequence_number")
        self._sequence = number if isinstance(number, int) else None
        return changed or number != sequence

    def read_body(self, body: Body) -> list[Atom]:
        self._remember(body)
        return [] if body.get("status") in _NOT_OVER else self._read_output(body)

    def write_body(self, body: Body, atoms: Sequence[Atom]) -> Body:
        for insert in atoms[-1].before:
            if isinstance(insert, Call):
                self._made.append(self._call_item(insert.index, insert.call))
            elif isinstance(insert, Say):
                self._made.append(self._text_item(insert.text))
        return self._write_response(body, isinstance(atoms[-1], Finish) and atoms[-1].called)

    # -- the shapes of this wire

    def _remember(self, response: Body) -> None:
        if not self.base:
            self.base = response | {"output": []}

    def _read_item(self, kind: str, index: int, body: Body) -> list[Atom]:
        """The atoms of an event about an item or a part."""
        name = kind.removeprefix("response.")
        list_ = "content" if "content_index" in body else "summary"
        key = (index, list_, body[_LISTS[list_]]) if _LISTS[list_] in body else index
        if name in _DELTAS and body.get("delta"):
            return [Delta(0, key, body["delta"], reasoning=_DELTAS[name], fields=(name,), parent=index)]
        if name == "output_item.added":
            return self._read_added(index, body["item"]) if isinstance(body.get("item"), dict) else []
        if name == "output_item.done":
            return [Native(0, index, ends=True) if index in self._native_items else Inner(0, index, True, True)]
        if name.startswith("function_call_arguments."):
            return [Native(0, index, arguments=body.get("delta", ""), ends=name.endswith(".done"))]
        if name.endswith("part.added"):
            part = str((body.get("part") or {}).get("type"))
            self._refused = self._refused or part == "refusal"
            return [Open(0, key, parent=index, reasoning=_TEXTS.get(part, False), bare=part not in _TEXTS)]
        return [Inner(0, key, ends=name.endswith(".done"), closes=name.endswith("part.done"))]

    def _read_added(self, index: int, item: Body) -> list[Atom]:
        self._ids[index], self._kinds[index] = item.get("id"), item.get("type")
        if item.get("type") in _HOLDERS:
            return [Open(0, index, bare=True)]
        if item.get("type") == "function_call":
            self._native_items.add(index)
            return [Native(0, index, item.get("name"), item.get("arguments") or "")]
        return [Native(0, index)] if item.get("type") in _CALLS else []

    def _read_output(self, response: Body) -> list[Atom]:
        """The atoms of a whole response, without those that came in events before."""
        atoms: list[Atom] = []
        for position, item in enumerate(dicts(response.get("output"))):
            index = self._index(item, position)
            if item.get("type") == "function_call" and index not in self._native_items:
                atoms.append(Native(0, index, item.get("name"), item.get("arguments") or "", ends=True))
            elif item.get("type") in _CALLS:
                atoms.append(Native(0, index, ends=True))
            for name in _LISTS:
                for number, part in enumerate(dicts(item.get(name))):
                    key, kind = (index, name, number), str(part.get("type"))
                    self._refused = self._refused or kind == "refusal"
                    if key not in self.parts and kind in _TEXTS and part.get("text"):
                        atoms.append(Delta(0, key, part["text"], reasoning=_TEXTS[kind], parent=index))
        details = response.get("incomplete_details") or {}
        end = End.REFUSAL if self._refused else end_of(details.get("reason") or response.get("status"))
        return [*atoms, Finish(0, end=end)]

    def _index(self, item: Body, position: int) -> int:
        """The index an item of a whole response had in the stream; a negative one where it was not in it.

        Some providers give an item another id there, or none.
        """
        own = item.get("id")
        if not self._ids or (own is not None and self._ids.get(position) == own):
            return position
        known = [index for index, made in self._ids.items() if made == own and own is not None]
        if known:
            return known[0]
        return position if self._kinds.get(position, "") == item.get("type") else -1 - position

    def _write_native(self, body: Body, atom: Native) -> list[Body]:
        kind = body["type"].removeprefix("response.")
        if kind == "function_call_arguments.delta":
            return [body if atom.shown is None else body | {"delta": atom.shown}]
        if kind == "function_call_arguments.done":
            return [body | {"arguments": self.repaired[atom.key]}]
        if kind == "output_item.done":
            return [body | {"item": body["item"] | {"arguments": self.repaired[atom.key]}}]
        if atom.shown is None:
            return [body]
        item, index = body["item"] | {"arguments": ""}, body["output_index"]
        delta = _event("function_call_arguments.delta", item_id=item.get("id"), output_index=index, delta=atom.shown)
        return [body | {"item": item}, *([delta] if atom.shown else [])]

    def _write_inner(self, body: Body, atom: Inner) -> Body:
        if atom.part in self.items:
            item = body.get("item")
            return body | {"item": self._write_item(item, body["output_index"])} if isinstance(item, dict) else body
        part = self.parts.get(atom.part)
        if part is None:
            return body
        if "text" in body:
            return body | {"text": part.visible(body["text"])}
        if atom.closes:
            return body | {"part": body["part"] | {"text": part.visible(body["part"]["text"])}}
        return body

    def _write_item(self, item: Body, index: int) -> Body:
        """An item with what is to be seen of its parts."""
        new = dict(item)
        for name in _LISTS:
            if name not in item:
                continue
            new[name] = []
            for number, shown in enumerate(dicts(item[name])):
                part = self.parts.get((index, name, number))
                if part is not None and part.removed:
                    shown = shown | {"text": part.visible(shown["text"])}
                if part is None or not part.empty:
                    new[name].append(shown)
        return new

    def _write_final(self, body: Body, called: bool) -> Body:
        response = self._write_response(body["response"], called)
        return body | {"type": "response.completed" if called else body["type"], "response": response}

    def _write_response(self, response: Body, called: bool) -> Body:
        output = []
        for position, item in enumerate(dicts(response.get("output"))):
            index = self._index(item, position)
            if index in self.repaired:
                item = item | {"arguments": self.repaired[index]}
            new = self._write_item(item, index)
            if any(new.get(name) for name in _LISTS) or not any(item.get(name) for name in _LISTS):
                output.append(new)
        new = response | {"output": output + self._made}
        return new | {"status": "completed", "incomplete_details": None} if called else new

    def _delta(self, part: Part, text: str) -> Body:
        index, name, number = cast("tuple[int, str, int]", part.key)
        kind = "reasoning_summary_text" if name == "summary" else "reasoning_text" if part.reasoning else "output_text"
        at = {"item_id": self._ids.get(index), "output_index": index, _LISTS[name]: number}
        return _event(f"{kind}.delta", **at, delta=text)

    def _number_item(self, body: Body) -> bool:
        """Give an event about an item the client's indexes; True where they differ."""
        index, kind = body["output_index"], body["type"]
        if not self.moved and kind.endswith(".delta"):
            return False
        if kind == "response.output_item.added":
            number = self._written if self.moved else index
            self._written = number + 1
            if index is None:
                self._ours = number
            else:
                self._indexes[index] = number
        body["output_index"] = self._ours if index is None else self._indexes.get(index, index)
        changed: bool = body["output_index"] != index
        for field in _LISTS.values():
            if index is None or field not in body:
                continue
            key, place = (index, field), (index, field, body[field])
            if kind.endswith("part.added"):
                self._indexes[place] = self._parts_written.get(key, 0) if self.moved else body[field]
                self._parts_written[key] = self._indexes[place] + 1
            body[field] = self._indexes.get(place, body[field])
            changed = changed or body[field] != place[2]
        if kind == "response.output_item.done":
            self._done[body["output_index"]] = body["item"]
        return changed

    def _text_item(self, text: str) -> Body:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        made = make_id("msg_", self.base.get("id"), len(self._made), text)
        return {"type": "message", "id": made, "role": "assistant", "status": "completed", "content": [part]}

    def _call_item(self, index: int, call: ToolCall) -> Body:
        tool = (self.tools or {}).get(call.name)
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        facts = (self.base.get("id"), index, call.name, arguments)
        item: Body = {"call_id": make_id("call_", *facts), "name": call.name, "status": "completed"}
        if tool is not None and tool.namespace is not None:
            item["namespace"] = tool.namespace
        if tool is not None and tool.custom:
            text = call.arguments.get("input")
            free = text if isinstance(text, str) else arguments
            return {"type": "custom_tool_call", "id": make_id("ctc_", *facts), **item, "input": free}
        return {"type": "function_call", "id": make_id("fc_", *facts), **item, "arguments": arguments}


def _event(kind: str, **fields: Any) -> Body:
    return {"type": f"response.{kind}", "sequence_number": None, **fields}
