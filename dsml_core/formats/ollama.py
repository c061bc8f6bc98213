"""Ollama (`/api/chat`): one JSON object a line, each with a piece of `message`; or one with all of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from dsml_core.atoms import Atom, Call, Delta, Failed, Finish, Native, Say
from dsml_core.events import ToolCall
from dsml_core.formats.wire import Body, Wire, dicts, end_of
from dsml_core.framing import loads
from dsml_core.parts import Part

_BASE = ("model", "created_at")
_TOOL_FINISH = "stop"  # there is no other


class Ollama(Wire):
    """A part is named after its field, a native call by its number. Calls come whole, their arguments an object."""

    NAME: ClassVar[str] = "ollama"
    LINES: ClassVar[bool] = True
    VARYING: ClassVar[tuple[str, ...]] = ("created_at",)

    def speaks(self, body: Body) -> bool:
        return isinstance(body.get("message"), dict) or bool(body.get("error"))

    def read(self, body: Body) -> list[Atom]:
        self._remember(body)
        if body.get("error"):
            return [Failed(0)]
        atoms = self._read_said(body)
        if body.get("done"):
            atoms.append(_read_finish(body))
        return atoms

    def write(self, body: Body, atoms: Sequence[Atom], *, first: bool, last: bool) -> list[Body]:
        said = _put(body, atoms) if first else {"role": "assistant", "content": ""}
        if not last:
            return [self.base | {"message": said, "done": False}]
        return [_put_finish(body, atoms) | {"message": said}]

    def say(self, choice: int, part: Part | None, text: str) -> list[Body]:
        fields = part.fields if part is not None else ("content",)
        return [self._line({"content": ""} | dict.fromkeys(fields, text))]

    def call(self, choice: int, index: int, call: ToolCall) -> list[Body]:
        return [self._line({"content": "", "tool_calls": [_tool_call(call)]})]

    def stop(self, choice: int) -> list[Body]:
        return [self._line({"content": ""}) | {"done": True, "done_reason": _TOOL_FINISH}]

    def noop(self, choice: int) -> Body:
        return self._line({"content": ""})

    def read_body(self, body: Body) -> list[Atom]:
        self._remember(body)
        return [*self._read_said(body), _read_finish(body)] if isinstance(body.get("message"), dict) else []

    def write_body(self, body: Body, atoms: Sequence[Atom]) -> Body:
        said = _put(body, atoms)
        inserts = [insert for atom in atoms for insert in atom.before]
        if calls := [_tool_call(insert.call) for insert in inserts if isinstance(insert, Call)]:
            said["tool_calls"] = calls
        if texts := [insert.text for insert in inserts if isinstance(insert, Say)]:
            said["content"] = "".join(texts)
        return _put_finish(body, atoms) | {"message": said}

    # -- the shapes of this wire

    def _remember(self, body: Body) -> None:
        if not self.base:
            self.base = {key: body[key] for key in _BASE if key in body}

    def _line(self, said: Body) -> Body:
        return self.base | {"message": {"role": "assistant", **said}, "done": False}

    def _read_said(self, body: Body) -> list[Atom]:
        said = body.get("message")
        if not isinstance(said, dict):
            return []
        atoms: list[Atom] = []
        if (thinking := said.get("thinking")) and isinstance(thinking, str):
            atoms.append(Delta(0, "thinking", thinking, reasoning=True, fields=("thinking",)))
        if (content := said.get("content")) and isinstance(content, str):
            atoms.append(Delta(0, "content", content, fields=("content",)))
        for item in dicts(said.get("tool_calls")):
            function = item.get("function") or {}
            self.natives += 1
            arguments = json.dumps(function.get("arguments"), ensure_ascii=False)
            atoms.append(Native(0, self.natives, function.get("name"), arguments, ends=True))
        return atoms


def _read_finish(body: Body) -> Finish:
    return Finish(0, end=end_of(body.get("done_reason", "stop")))  # old ones give no reason


def _tool_call(call: ToolCall) -> Body:
    return {"function": {"name": call.name, "arguments": call.arguments}}


def _put(body: Body, atoms: Sequence[Atom]) -> Body:
    """A copy of the message with what the engine decided."""
    said = body.get("message")
    new: Body = dict(said) if isinstance(said, dict) else {"role": "assistant", "content": ""}
    for atom in atoms:
        if isinstance(atom, Delta) and atom.shown is not None:
            new |= dict.fromkeys(atom.fields, atom.shown)
    natives = [atom for atom in atoms if isinstance(atom, Native)]
    if any(native.shown is not None for native in natives):
        items = zip(dicts(new.get("tool_calls")), natives, strict=True)
        new["tool_calls"] = [
            item if native.shown is None else item | {"function": item["function"] | {"arguments": loads(native.shown)}}
            for item, native in items
        ]
    return new


def _put_finish(body: Body, atoms: Sequence[Atom]) -> Body:
    if any(isinstance(atom, Finish) and atom.called for atom in atoms):
        return body | {"done_reason": _TOOL_FINISH}
    return dict(body)
