"""OpenAI Responses (`/responses`): typed events about output items and their parts, or one response with `output[]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from dsml_core.atoms import Atom, Call, Delta, Failed, Finish, Inner, Native, Open, Say
from dsml_core.events import End, ToolCall
from dsml_core.formats.wire import Body, Wire, dicts, make_id
from dsml_core.parts import Part

_ENDS = {"max_output_tokens": End.LENGTH, "content_filter": End.REFUSAL}
_TEXTS = {"output_text": False, "reasoning_text": True, "summary_text": True}  # type of a part: is it reasoning?
_HOLDERS = ("message", "reasoning")
_CALLS = ("custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call")
_LISTS = {"content": "content_index", "summary": "summary_index"}  # an item's lists of parts
_FINAL = ("response.completed", "response.incomplete")


class Responses(Wire):
    """A part is `(output index, list, index in it)`; an item and a native call are their output index.

    Items of ours have no index until they are written.
    """

    NAME: ClassVar[str] = "openai-responses"
    EVENTS: ClassVar[bool] = True

    def __init__(self, tools: Any) -> None:
        super().__init__(tools)
        self._native_items: set[int] = set()
        self._ids: dict[str, int] = {}  # of the provider's items
        self._done: dict[int, Body] = {}  # those that are complete, as written
        self._made: list[Body] = []  # items of ours
        self._indexes: dict[Any, int] = {}  # the provider's -> the client's
        self._began = 0  # items of the provider
        self._written = 0  # items the client has seen
        self._parts_written: dict[Any, int] = {}
        self._ours = 0  # client's index of the item we are writing
        self._sequence: int | None = None  # the last number, None where the provider gives none

    def speaks(self, body: Body) -> bool:
        return "type" in body or body.get("object") == "response"

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
        return [_event("completed", response=self.base | {"status": "completed", "output": [*output, *self._made]})]

    def noop(self, choice: int) -> Body:
        return _event("in_progress", response=self.base | {"instructions": None, "tools": []})

    def number(self, body: Body) -> bool:
        before = dict(body)
        if "output_index" in body:
            self._number_item(body)
        if self._sequence is None and not self.moved:
            self._sequence = body.get("sequence_number")
        elif self._sequence is None:
            body.pop("sequence_number", None)
        else:
            self._sequence = self._sequence + 1 if self.moved else body.get("sequence_number", self._sequence)
            body["sequence_number"] = self._sequence
        return body != before

    def shifted(self) -> bool:
        return self._written != self._began

    def read_body(self, body: Body) -> list[Atom]:
        self._remember(body)
        return self._read_output(body)

    def write_body(self, body: Body, atoms: Sequence[Atom]) -> Body:
        for insert in atoms[-1].before:
            if isinstance(insert, Call):
                self._made.append(self._call_item(insert.index, insert.call))
            elif isinstance(insert, Say):
                self._made.append(self._text_item(insert.text))
        return self._write_response(body, isinstance(atoms[-1], Finish) and atoms[-1].called)
