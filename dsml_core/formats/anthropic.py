"""Anthropic Messages (`/messages`): typed events about numbered content blocks, or one message with `content[]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from dsml_core.atoms import Atom, Call, Delta, Done, Failed, Finish, Inner, Native, Open, Say
from dsml_core.events import ToolCall
from dsml_core.formats.wire import Body, Wire, dicts, end_of, make_id
from dsml_core.framing import loads
from dsml_core.parts import Part

_TEXTS = {"text": False, "thinking": True}  # type of a block and name of its text: is it reasoning?
_TOOL_FINISH = "tool_use"


class Anthropic(Wire):
    """A part is the index of its block, and so is a native call. A block of ours has no index until it is written."""

    NAME: ClassVar[str] = "anthropic"
    EVENTS: ClassVar[bool] = True
    NUMBERED: ClassVar[bool] = True
    ARGUMENTS: ClassVar[str] = "partial_json"

    def __init__(self, tools: Any) -> None:
        super().__init__(tools)
        self._tool_blocks: set[int] = set()
        self._stopped = False
        self._indexes: dict[int, int] = {}  # the provider's -> the client's
        self._written = 0  # blocks the client has seen
        self._ours = 0  # client's index of the block we are writing

    def speaks(self, body: Body) -> bool:
        return isinstance(body.get("type"), str)

    def read(self, body: Body) -> list[Atom]:
        kind = body.get("type")
        if kind == "content_block_delta":
            return self._read_delta(body) if "index" in body and isinstance(body.get("delta"), dict) else []
        if kind == "content_block_start":
            return self._read_start(body) if isinstance(body.get("content_block"), dict) else []
        if kind == "content_block_stop":
            index = body["index"]
            if index in self._tool_blocks:
                return [Native(0, index, ends=True)]
            return [Inner(0, index, ends=True, closes=True)]
        if kind == "message_start":
            self._remember(body.get("message"))
        elif kind == "message_delta":
            reason = (body.get("delta") or {}).get("stop_reason")
            return [Finish(0, end=end_of(reason))] if reason else []
        elif kind == "message_stop":
            self._stopped = True
            return [Done(0)]
        elif kind == "error":
            return [Failed(0)]
        return []

    def write(self, body: Body, atoms: Sequence[Atom], *, first: bool, last: bool) -> list[Body]:
        atom = atoms[-1]
        if isinstance(atom, Finish):
            delta = body["delta"]
            return [body | {"delta": delta | {"stop_reason": _TOOL_FINISH if atom.called else delta["stop_reason"]}}]
        if not isinstance(atom, Delta | Native) or atom.shown is None:
            return [body]
        if isinstance(atom, Native):
            return self._write_native(body, atom.shown)
        if body["type"] == "content_block_start":
            return [body | {"content_block": body["content_block"] | {atom.fields[0]: atom.shown}}]
        if not atom.shown and not self.parts[atom.part].open:
            return [self.noop(0)]
        return [body | {"delta": body["delta"] | {atom.fields[0]: atom.shown}}]

    def say(self, choice: int, part: Part | None, text: str) -> list[Body]:
        if part is None or not part.open:  # one block is open at a time: what is open takes the text
            part = next((other for other in self.parts.values() if other.open), part)
        field = "thinking" if part is not None and part.reasoning else "text"
        delta = {"type": f"{field}_delta", field: text}
        if part is not None and part.open:
            return [{"type": "content_block_delta", "index": part.key, "delta": delta}]
        return _block({"type": field, field: ""} | ({"signature": ""} if field == "thinking" else {}), delta)

    def call(self, choice: int, index: int, call: ToolCall) -> list[Body]:
        block = self._tool_use(index, call)
        arguments = json.dumps(block["input"], ensure_ascii=False)
        return _block(block | {"input": {}}, {"type": "input_json_delta", "partial_json": arguments})

    def stop(self, choice: int) -> list[Body]:
        finish = {
            "type": "message_delta",
            "delta": {"stop_reason": _TOOL_FINISH, "stop_sequence": None},
            "usage": {"output_tokens": (self.base.get("usage") or {}).get("output_tokens", 0)},
        }
        return [finish] if self._stopped else [finish, {"type": "message_stop"}]

    def noop(self, choice: int) -> Body:
        return {"type": "ping"}

    @property
    def place(self) -> tuple[Any, ...]:
        return (self.moved, self._written, self._ours)

    @place.setter
    def place(self, place: tuple[Any, ...]) -> None:
        self.moved, self._written, self._ours = place

    def number(self, body: Body) -> bool:
        index = body.get("index", -1)
        if index == -1 or not self.speaks(body) or (index is None and not self.moved):
            return False
        if body["type"] == "content_block_start":
            number = self._written if self.moved else index
            self._written = number + 1
            if index is None:
                self._ours = number
            else:
                self._indexes[index] = number
        body["index"] = self._ours if index is None else self._indexes.get(index, index)
        return bool(body["index"] != index)

    def read_body(self, body: Body) -> list[Atom]:
        self._remember(body)
        atoms: list[Atom] = []
        for index, block in enumerate(dicts(body.get("content"))):
            kind = block.get("type")
            if kind in _TEXTS and block.get(kind):
                atoms.append(Delta(0, index, block[kind], reasoning=_TEXTS[kind], fields=(kind,)))
            elif kind == "tool_use":
                atoms.append(Native(0, index, block.get("name"), _arguments(block), ends=True))
        return [*atoms, Finish(0, end=end_of(body.get("stop_reason")))]

    def write_body(self, body: Body, atoms: Sequence[Atom]) -> Body:
        content = []
        decided = {
            atom.part if isinstance(atom, Delta) else atom.key: atom
            for atom in atoms
            if isinstance(atom, Delta | Native) and atom.shown is not None
        }
        for index, block in enumerate(dicts(body.get("content"))):
            atom = decided.get(index)
            if isinstance(atom, Native):
                block = block | {"input": loads(atom.shown or "")}
            elif isinstance(atom, Delta):
                block = block | {atom.fields[0]: atom.shown}
            if index not in self.parts or not self.parts[index].empty:
                content.append(block)
        for insert in atoms[-1].before:
            if isinstance(insert, Call):
                content.append(self._tool_use(insert.index, insert.call))
            elif isinstance(insert, Say):
                content.append({"type": "text", "text": insert.text})
        called = isinstance(atoms[-1], Finish) and atoms[-1].called
        return body | {"content": content, "stop_reason": _TOOL_FINISH if called else body.get("stop_reason")}

    # -- the shapes of this wire

    def _remember(self, message: Any) -> None:
        if isinstance(message, dict):
            self.base = {key: message.get(key) for key in ("id", "model", "usage")}

    def _read_start(self, body: Body) -> list[Atom]:
        index, block = body["index"], body["content_block"]
        kind = block.get("type")
        if kind == "tool_use":
            self._tool_blocks.add(index)
            return [Native(0, index, block.get("name"), _arguments(block) if block.get("input") else "")]
        if kind not in _TEXTS:
            return []
        atoms: list[Atom] = [Open(0, index, reasoning=_TEXTS[kind])]
        if block.get(kind):
            atoms.append(Delta(0, index, block[kind], reasoning=_TEXTS[kind], fields=(kind,)))
        return atoms

    def _read_delta(self, body: Body) -> list[Atom]:
        index, delta = body["index"], body["delta"]
        kind = str(delta.get("type")).removesuffix("_delta")
        if kind in _TEXTS and delta.get(kind):
            return [Delta(0, index, delta[kind], reasoning=_TEXTS[kind], fields=(kind,))]
        if index in self._tool_blocks:
            return [Native(0, index, arguments=delta.get("partial_json") or "")]
        return [Inner(0, index)]

    def _write_native(self, body: Body, arguments: str) -> list[Body]:
        delta = {"type": "input_json_delta", "partial_json": arguments}
        if body["type"] == "content_block_delta":
            return [body | {"delta": delta}]
        if not arguments:
            return [body]
        more = {"type": "content_block_delta", "index": body["index"], "delta": delta}
        return [body | {"content_block": body["content_block"] | {"input": {}}}, more]

    def _tool_use(self, index: int, call: ToolCall) -> Body:
        made = make_id("toolu_", self.base.get("id"), index, call.name, json.dumps(call.arguments))
        return {"type": "tool_use", "id": made, "name": call.name, "input": call.arguments}


def _arguments(block: Body) -> str:
    return json.dumps(block.get("input"), ensure_ascii=False)


def _block(block: Body, delta: Body) -> list[Body]:
    return [
        {"type": "content_block_start", "index": None, "content_block": block},
        {"type": "content_block_delta", "index": None, "delta": delta},
        {"type": "content_block_stop", "index": None},
    ]
