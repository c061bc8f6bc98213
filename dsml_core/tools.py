"""The tools a request declares, as one type for every wire."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_ANY: Mapping[str, Any] = {}
_HOPS = 16  # `$ref`s followed from one node; a longer chain is a loop
_NODES = 500  # nodes looked at for one type; no schema of a tool comes near, and the stack has an end
_NESTING = 4  # namespaces within namespaces


@dataclass(frozen=True, slots=True)
class Schema:
    """One node of a JSON schema, and the whole document into which its `$ref`s point."""

    node: Any
    root: Any

    @property
    def type(self) -> str | None:
        """The one type a value is to have (see `declared_type`), None where the schema leaves it open."""
        types = _types(self.node, self.root, set())
        if types is None:
            return None
        types = types - {"null"}
        if "string" in types:
            return "string"
        if types == {"integer", "number"}:
            return "number"
        return next(iter(types)) if len(types) == 1 else None

    def property(self, name: str) -> Schema | None:
        """The schema of one member of an object, None where it is not declared."""
        node = self.properties().get(name)
        return None if node is None else Schema(node, self.root)

    def properties(self) -> dict[str, Any]:
        """The members declared by this node and by the parts it is composed of."""
        merged: dict[str, Any] = {}
        for view in _views(self.node, self.root, ("allOf", "anyOf", "oneOf")):
            if isinstance(declared := view.get("properties"), Mapping):
                merged = {**declared, **merged}
        return {name: node for name, node in merged.items() if isinstance(name, str)}

    def required(self) -> frozenset[str]:
        """The members an object must have."""
        names: set[str] = set()
        for view in _views(self.node, self.root, ("allOf",)):
            if isinstance(declared := view.get("required"), list):
                names.update(name for name in declared if isinstance(name, str))
        return frozenset(names)

    def items(self) -> Schema | None:
        """The schema of an array's elements, None where it is not declared."""
        for view in _views(self.node, self.root, ("allOf", "anyOf", "oneOf")):
            if isinstance(declared := view.get("items"), Mapping):
                return Schema(declared, self.root)
        return None


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared tool.

    `properties` maps a parameter's name to its JSON schema; `root` is the document into which the
    `$ref`s of those schemas point. `namespace` is the group in which a Responses request declares the
    tool; its calls carry it beside the name. `custom` marks a Responses tool without a schema: its one
    parameter `input` is free text.
    """

    name: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    root: Any = None
    namespace: str | None = None
    custom: bool = False

    def schema(self, parameter: str) -> Schema | None:
        """The schema of a parameter, None where it is not declared."""
        if parameter not in self.properties:
            return None
        return Schema(self.properties[parameter], self.root)


Tools = Mapping[str, Tool]


def declared_type(schema: Any, root: Any = None) -> str | None:
    """The JSON type a schema declares: string, integer, number, boolean, object, array, or None.

    In a list of types (also one made by `anyOf`, `oneOf` or the values of an `enum`) `string` wins, else
    the one type that is not null. `$ref`s point into `root`, by default the schema itself.
    """
    return Schema(schema, schema if root is None else root).type


def as_tools(spec: Any) -> dict[str, Tool] | None:
    """The tools of `spec` by name; None is unknown and stays None, an empty result means there are none.

    `spec` is a mapping of names to `Tool`s, or an iterable of names, `Tool`s and declarations in any
    wire's form (Chat Completions, Responses with its namespaces and custom tools, Anthropic, Ollama, legacy
    `functions`). What has no name (a provider's own tools) and malformed entries are left out; of two
    tools with one name the first counts. Anything else than that is unreadable and therefore unknown.
    """
    if isinstance(spec, Mapping):
        return {name: tool for name, tool in spec.items() if isinstance(tool, Tool)}
    if not isinstance(spec, Iterable) or isinstance(spec, str | bytes):
        return None
    tools: dict[str, Tool] = {}
    for entry in spec:
        for tool in _declarations(entry, None, _NESTING):
            tools.setdefault(tool.name, tool)
    return tools


def _declarations(entry: Any, namespace: str | None, depth: int) -> Iterator[Tool]:
    if isinstance(entry, Tool):
        yield entry
    elif isinstance(entry, str) and entry.strip():
        yield Tool(entry)
    elif isinstance(entry, Mapping):
        nested = entry.get("tools")
        if isinstance(nested, list):
            group = entry.get("name")
            for inner in nested if depth else ():
                yield from _declarations(inner, group if isinstance(group, str) else namespace, depth - 1)
        elif (tool := _declaration(entry, namespace)) is not None:
            yield tool


def _declaration(entry: Mapping[str, Any], namespace: str | None) -> Tool | None:
    body: Any = next((inner for key in ("function", "custom") if isinstance(inner := entry.get(key), Mapping)), entry)
    name = body.get("name")
    if not isinstance(name, str) or not name.strip():
        return None
    for key in ("parameters", "input_schema", "inputSchema"):
        if isinstance(root := body.get(key), Mapping):
            schema = Schema(root, root)
            return Tool(name, schema.properties(), schema.required(), root, namespace)
    if entry.get("type") == "custom":
        return Tool(name, {"input": {"type": "string"}}, frozenset({"input"}), None, namespace, custom=True)
    return Tool(name, namespace=namespace)


def _types(node: Any, root: Any, seen: set[int]) -> set[str] | None:
    """The types a node allows, None for any. A node met again adds nothing: `seen` keeps this linear."""
    node = _resolve(node, root)
    if node is _ANY or len(seen) > _NODES:
        return None
    if id(node) in seen:
        return set()
    seen.add(id(node))
    declared = node.get("type")
    if isinstance(declared, str | list):
        given = [declared] if isinstance(declared, str) else declared
        names = {name.lower() for name in given if isinstance(name, str)}
        return names if names and names <= _TYPES else None
    for key in ("anyOf", "oneOf"):
        if isinstance(members := node.get(key), list) and members:
            union: set[str] = set()
            for member in members:
                if (types := _types(member, root, seen)) is None:
                    return None
                union |= types
            return union or None
    if isinstance(members := node.get("allOf"), list):
        for member in members:
            if types := _types(member, root, seen):
                return types
    if "const" in node:
        return {json_type(node["const"])}
    if isinstance(values := node.get("enum"), list) and values:
        return {json_type(value) for value in values}
    if isinstance(node.get("properties"), Mapping):
        return {"object"}
    return {"array"} if isinstance(node.get("items"), Mapping) else None


def json_type(value: Any) -> str:
    """The JSON schema name of a JSON value's type; an integer is `integer`, not `number`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _views(node: Any, root: Any, keys: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """The node and, level by level, the members of its compositions `keys`, each once."""
    seen: set[int] = set()
    waiting = [node]
    for candidate in waiting:
        view = _resolve(candidate, root)
        if id(view) in seen:
            continue
        seen.add(id(view))
        yield view
        for key in keys:
            if isinstance(members := view.get(key), list):
                waiting.extend(members)


def _resolve(node: Any, root: Any) -> Mapping[str, Any]:
    """The node a `$ref` means (only `#...` pointers into `root`); an empty schema where there is none."""
    for _ in range(_HOPS):
        if not isinstance(node, Mapping):
            return _ANY
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return node
        node = _pointer(reference, root)
    return _ANY


def _pointer(reference: str, root: Any) -> Any:
    target = root
    if reference.partition("/")[0] != "#":
        return None
    for step in reference.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(step)
        elif isinstance(target, list) and re.fullmatch(r"[0-9]{1,6}", step) and int(step) < len(target):
            target = target[int(step)]
        else:
            return None
    return target
