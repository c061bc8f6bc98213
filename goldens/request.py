"""The parts of a request that decide how its response is repaired, and nothing else of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dsml_core.context import read_context

# What a JSON schema can say about the type of a value and about what must be there (see `dsml_core.tools`).
_SCHEMA = ("type", "required", "enum", "const", "$ref")
_SCHEMA_MAPS = ("properties", "$defs", "definitions")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf")
_TOOL_TEXTS = ("type", "name", "strict")
_SCHEMAS = ("parameters", "input_schema", "inputSchema")
_CHOICES = ("tool_choice", "function_call")


def reduce(wire: str, body: bytes | None) -> dict[str, Any] | None:
    """The request as a golden keeps it: model, tools, tool choice and the texts that markup may be quoted from.

    None for a body that is no JSON object. The result is a request of the same wire: `read_context` finds the same in
    it, but for the descriptions of the tools, which are gone.
    """
    try:
        asked = json.loads(body or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(asked, dict):
        return None
    reduced: dict[str, Any] = {key: asked[key] for key in ("model", "stream") if key in asked}
    for key in ("tools", "functions"):
        if key in asked:
            reduced[key] = _tools(asked[key])
    if more := list(_late_tools(asked)) if wire == "openai-responses" else []:
        reduced["tools"] = [*(reduced.get("tools") or []), *_tools(more)]
    reduced |= {key: asked[key] for key in _CHOICES if key in asked}
    turns = "input" if wire == "openai-responses" else "messages"
    reduced[turns] = [{"role": "user", "content": text} for text in read_context(wire, asked).quoted]
    return reduced


def names(request: Mapping[str, Any] | None) -> Iterator[str]:
    """The names of tools and parameters in a reduced request."""
    waiting: list[Any] = [request.get(key) for key in ("tools", "functions")] if request else []
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            if isinstance(item.get("name"), str):
                yield item["name"]
            for key in _SCHEMA_MAPS:
                yield from item[key] if isinstance(item.get(key), dict) else ()
            waiting += item.values()


def _late_tools(asked: dict[str, Any]) -> Iterator[Any]:
    items = asked.get("input")
    for item in items if isinstance(items, list) else ():
        for key in ("tools", "additional_tools"):
            given = item.get(key) if isinstance(item, dict) else None
            yield from given if isinstance(given, list) else ()


def _tools(given: Any) -> Any:
    return [_tool(entry) for entry in given] if isinstance(given, list) else given


def _tool(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    kept = {key: entry[key] for key in _TOOL_TEXTS if key in entry}
    for key in ("function", "custom"):
        if key in entry:
            kept[key] = _tool(entry[key])
    for key in _SCHEMAS:
        if key in entry:
            kept[key] = _schema(entry[key])
    if "tools" in entry:
        kept["tools"] = _tools(entry["tools"])
    return kept


def _schema(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    kept = {key: node[key] for key in _SCHEMA if key in node}
    for key in _SCHEMA_MAPS:
        if isinstance(found := node.get(key), dict):
            kept[key] = {name: _schema(inner) for name, inner in found.items()}
    for key in _SCHEMA_LISTS:
        if isinstance(found := node.get(key), list):
            kept[key] = [_schema(inner) for inner in found]
    if "items" in node:
        kept["items"] = _schema(node["items"])
    return kept
