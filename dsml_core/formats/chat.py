"""OpenAI Chat Completions (`/chat/completions`): chunks with `choices[].delta`, or a body with `choices[].message`."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from dsml_core.atoms import Atom, Call, Delta, Failed, Finish, Key, Native, Say
from dsml_core.events import End, ToolCall
from dsml_core.formats.wire import Body, Wire, dicts, end_of, make_id
from dsml_core.parts import Part
from dsml_core.tools import Tools

_REASONING = ("reasoning_content", "reasoning")  # DeepSeek's name and the gateways'
_SAID = (*_REASONING, "content", "tool_calls", "function_call")
_BASE = ("id", "object", "created", "model", "system_fingerprint", "provider")
_TOOL_FINISH = "tool_calls"


class Chat(Wire):
    """A part is `(choice, field)`, a native call `(choice, index)`; the legacy `function_call` is one too."""

    NAME: ClassVar[str] = "openai-chat"

    def __init__(self, tools: Tools | None) -> None:
        super().__init__(tools)
        self._refused: set[int] = set()  # choices in which the model refused to answer

    def speaks(self, body: Body) -> bool:
        return "choices" in body or bool(body.get("error"))

    def read(self, body: Body) -> list[Atom]:
        self._remember(body)
        if body.get("error"):
            return [Failed(0)]
        atoms: list[Atom] = []
        for choice in dicts(body.get("choices")):
            said, index = choice.get("delta"), _index(choice)
            if isinstance(said, dict):
                atoms += self._said(index, said, ends=False)
            if reason := choice.get("finish_reason"):
                atoms.append(Finish(index, end=self._end(index, reason)))
        return atoms

    def write(self, body: Body, atoms: Sequence[Atom], *, first: bool, last: bool) -> list[Body]:
        choices = []
        for choice in dicts(body.get("choices")):
            mine = [atom for atom in atoms if atom.choice == _index(choice)]
            if mine or first:
                choices.append(self._reduced(choice, mine, first))
        return [{key: value for key, value in body.items() if last or key != "usage"} | {"choices": choices}]

    def say(self, choice: int, part: Part | None, text: str) -> list[Body]:
        fields = part.fields if part is not None else ("content",)
        return [self._chunk(choice, dict.fromkeys(fields, text))]

    def call(self, choice: int, index: int, call: ToolCall) -> list[Body]:
        return [self._chunk(choice, {"tool_calls": [{"index": index, **self._tool_call(choice, index, call)}]})]

    def stop(self, choice: int) -> list[Body]:
        return [self._chunk(choice, {}, _TOOL_FINISH)]

    def noop(self, choice: int) -> Body:
        return self._chunk(choice, {"content": ""})

    def read_body(self, body: Body) -> list[Atom]:
        self._remember(body)
        atoms: list[Atom] = []
        for index, choice in [] if body.get("error") else _numbered(body):
            said = choice.get("message")
            if isinstance(said, dict):
                atoms += self._said(index, said, ends=True)
                atoms.append(Finish(index, end=self._end(index, choice.get("finish_reason"))))
        return atoms

    def write_body(self, body: Body, atoms: Sequence[Atom]) -> Body:
        choices = []
        for index, choice in _numbered(body):
            mine = [atom for atom in atoms if atom.choice == index]
            if not mine:
                choices.append(choice)
                continue
            said = _put(choice["message"], mine)
            inserts = [insert for atom in mine for insert in atom.before]
            calls = [
                self._tool_call(index, insert.index, insert.call) for insert in inserts if isinstance(insert, Call)
            ]
            texts = [insert.text for insert in inserts if isinstance(insert, Say)]
            if calls:
                said |= {"content": said.get("content") or None, "tool_calls": calls}
            elif texts:
                said["content"] = "".join(texts)
            choices.append(_put_finish({**choice, "message": said}, mine))
        return body | {"choices": choices}

    # -- the shapes of this wire

    def _said(self, choice: int, said: Body, ends: bool) -> list[Atom]:
        if said.get("refusal"):
            self._refused.add(choice)
        return _read_said(choice, said, ends)

    def _end(self, choice: int, reason: Any) -> End:
        return End.REFUSAL if choice in self._refused else end_of(reason)

    def _remember(self, body: Body) -> None:
        if not self.base and body.get("choices"):
            self.base = {key: body[key] for key in _BASE if key in body}

    def _chunk(self, choice: int, delta: Body, finish: str | None = None) -> Body:
        return self.base | {"choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}

    def _tool_call(self, choice: int, index: int, call: ToolCall) -> Body:
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        made = make_id("call_", self.base.get("id"), self.base.get("created"), choice, index, call.name, arguments)
        return {"id": made, "type": "function", "function": {"name": call.name, "arguments": arguments}}

    def _reduced(self, choice: Body, atoms: Sequence[Atom], first: bool) -> Body:
        """A choice of a chunk with these atoms only; what is no atom stays with the first run."""
        delta = _put(choice.get("delta"), atoms)
        mine = {field for atom in atoms if isinstance(atom, Delta) for field in atom.fields}
        if any(isinstance(atom, Native) for atom in atoms):
            mine |= {"tool_calls", "function_call"}
        for field in list(delta):
            if field not in mine and (not first or (field in _SAID and delta[field])):
                del delta[field]
        return _put_finish({**choice, "delta": delta}, atoms)


def _index(item: Body, default: int = 0) -> int:
    index = item.get("index")
    return index if isinstance(index, int) else default


def _numbered(body: Body) -> list[tuple[int, Body]]:
    """The choices of a whole response; those without a number are numbered by their place."""
    return [(_index(choice, place), choice) for place, choice in enumerate(dicts(body.get("choices")))]


def _read_said(choice: int, said: Body, ends: bool) -> list[Atom]:
    """The atoms of a delta or message."""
    atoms: list[Atom] = []
    for field in _REASONING:
        if (text := said.get(field)) and isinstance(text, str):
            if atoms and text == said.get(_REASONING[0]):
                atoms = [Delta(choice, (choice, _REASONING[0]), text, reasoning=True, fields=_REASONING)]
            else:
                atoms.append(Delta(choice, (choice, field), text, reasoning=True, fields=(field,)))
    if (text := said.get("content")) and isinstance(text, str):
        atoms.append(Delta(choice, (choice, "content"), text, fields=("content",)))
    if said.get("tool_calls") or said.get("function_call"):
        for key, function in _functions(choice, said):
            name, arguments = function.get("name"), function.get("arguments")
            atoms.append(Native(choice, key, name or None, arguments if isinstance(arguments, str) else "", ends=ends))
    return atoms


def _functions(choice: int, said: Body) -> list[tuple[Key, Body]]:
    """The structured calls of a delta or message, by key: those of `tool_calls` and the legacy one."""
    functions: list[tuple[Key, Body]] = []
    for position, item in enumerate(dicts(said.get("tool_calls"))):
        functions.append(((choice, _index(item, position)), item.get("function") or {}))
    if isinstance(legacy := said.get("function_call"), dict):
        functions.append(((choice, "function_call"), legacy))
    return functions


def _put(said: Any, atoms: Sequence[Atom]) -> Body:
    """A copy of a delta or message with what the engine decided."""
    new: Body = dict(said) if isinstance(said, dict) else {}
    for atom in atoms:
        if isinstance(atom, Delta) and atom.shown is not None:
            new |= dict.fromkeys(atom.fields, atom.shown)
    better = {atom.key: atom.shown for atom in atoms if isinstance(atom, Native) and atom.shown is not None}
    if better:
        new = copy.deepcopy(new)
        for key, function in _functions(atoms[0].choice, new):
            if key in better:
                function["arguments"] = better[key]
    return new


def _put_finish(choice: Body, atoms: Sequence[Atom]) -> Body:
    finish = next((atom for atom in atoms if isinstance(atom, Finish)), None)
    reason = choice.get("finish_reason") if finish is not None else None
    if finish is not None and finish.called:
        legacy = reason == "function_call" and not any(isinstance(insert, Call) for insert in finish.before)
        reason = reason if legacy else _TOOL_FINISH
    new = {**choice, "finish_reason": reason}
    if new.get("logprobs") and any(isinstance(atom, Delta) and atom.shown is not None for atom in atoms):
        new["logprobs"] = None  # they tell the tokens of the text that is gone
    return new
