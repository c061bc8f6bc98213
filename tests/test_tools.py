"""Declarations of every wire -> `Tool`; the type a schema declares."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsml_core.tools import Schema, Tool, as_tools, declared_type

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("weather", {"city": {"type": "string"}}, frozenset({"city"}), PARAMETERS)


@pytest.mark.parametrize(
    "declaration",
    [
        {"type": "function", "function": {"name": "weather", "description": "d", "parameters": PARAMETERS}},
        {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False},
        {"name": "weather", "input_schema": PARAMETERS},
        {"type": "custom", "name": "weather", "input_schema": PARAMETERS},
        {"name": "weather", "parameters": PARAMETERS},
        WEATHER,
    ],
    ids=["chat", "responses", "anthropic", "anthropic-typed", "functions", "tool"],
)
def test_every_wire_declares_the_same_tool(declaration: Any) -> None:
    assert as_tools([declaration]) == {"weather": WEATHER}
    assert WEATHER.schema("city") == Schema({"type": "string"}, PARAMETERS)
    assert WEATHER.schema("days") is None


def test_unknown_is_not_none_at_all() -> None:
    assert as_tools(None) is None
    assert as_tools(5) is None
    assert as_tools("bash") is None
    assert as_tools([]) == {}
    assert as_tools({}) == {}


def test_names_and_mappings() -> None:
    assert as_tools(["bash", "", WEATHER]) == {"bash": Tool("bash"), "weather": WEATHER}
    assert as_tools({"weather": WEATHER, "x": 1}) == {"weather": WEATHER}
    assert as_tools(name for name in ("a", "b")) == {"a": Tool("a"), "b": Tool("b")}


def test_namespaces_hold_tools_under_their_own_names() -> None:
    nested = {"type": "function", "name": "weather", "parameters": PARAMETERS}
    patch = {"type": "custom", "name": "patch", "format": {"type": "grammar"}}
    group = {"type": "namespace", "name": "mcp__geo", "description": "d", "tools": [nested, patch]}
    tools = as_tools([group, {"type": "web_search"}])
    assert tools == {
        "weather": Tool("weather", WEATHER.properties, WEATHER.required, PARAMETERS, "mcp__geo"),
        "patch": Tool("patch", {"input": {"type": "string"}}, frozenset({"input"}), None, "mcp__geo", custom=True),
    }


def test_a_chat_custom_tool_takes_free_text() -> None:
    tools = as_tools([{"type": "custom", "custom": {"name": "patch"}}])
    assert tools is not None
    assert tools["patch"].custom
    assert tools["patch"].required == {"input"}


def test_malformed_entries_are_left_out() -> None:
    loop: dict[str, Any] = {"type": "namespace", "name": "n"}
    loop["tools"] = [loop, {"name": "deep"}]
    entries: list[Any] = [
        None,
        5,
        [],
        {},
        {"name": 5},
        {"function": {"name": ""}},
        {"function": 5},
        {"name": "ok", "parameters": 5},
    ]
    assert as_tools([*entries, loop]) == {"ok": Tool("ok"), "deep": Tool("deep", namespace="n")}


def test_the_first_of_a_name_counts() -> None:
    tools = as_tools([{"name": "a", "parameters": PARAMETERS}, {"name": "a"}])
    assert tools is not None
    assert tools["a"].required == {"city"}


@pytest.mark.parametrize(
    ("schema", "declared"),
    [
        ({"type": "string"}, "string"),
        ({"type": "INTEGER"}, "integer"),
        ({"type": ["integer", "string"]}, "string"),
        ({"type": ["null", "array"]}, "array"),
        ({"type": ["integer", "number"]}, "number"),
        ({"type": ["integer", "boolean"]}, None),
        ({"type": "boolean", "nullable": True}, "boolean"),
        ({"type": "null"}, None),
        ({"type": "file"}, None),
        ({"type": []}, None),
        ({"type": 5}, None),
        ({}, None),
        (True, None),
        (None, None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
        ({"oneOf": [{"type": "object"}, {"type": "string"}]}, "string"),
        ({"anyOf": [{"type": "integer"}, {}]}, None),
        ({"anyOf": [{"type": "integer"}, {"type": "array"}]}, None),
        ({"anyOf": []}, None),
        ({"allOf": [{"description": "d"}, {"type": "integer"}]}, "integer"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"enum": [1, 2]}, "integer"),
        ({"enum": [True, False]}, "boolean"),
        ({"enum": [1, "a"]}, "string"),
        ({"const": "a"}, "string"),
        ({"const": 1.5}, "number"),
        ({"anyOf": [{"const": "a"}, {"const": "b"}]}, "string"),
        ({"properties": {}}, "object"),
        ({"items": {}}, "array"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, "integer"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}, "integer"),
        ({"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}], "$defs": {"n": {"enum": ["x"]}}}, "string"),
        ({"$ref": "#/anyOf/1", "anyOf": [{}, {"type": "array"}]}, "array"),
        ({"$ref": "#/anyOf/99", "anyOf": [{}]}, None),
        ({"$ref": "#"}, None),
        ({"$ref": "http://example.org/x"}, None),
        ({"anyOf": [{"$ref": "#"}, {"type": "integer"}]}, "integer"),
    ],
)
def test_declared_type(schema: Any, declared: str | None) -> None:
    assert declared_type(schema) == declared


def test_references_point_into_the_tools_parameters() -> None:
    root = {
        "$defs": {"Todo": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
        "properties": {
            "todos": {"type": "array", "items": {"$ref": "#/$defs/Todo"}},
            "again": {"$ref": "#/properties/todos"},
            "one": {"anyOf": [{"$ref": "#/$defs/Todo"}, {"type": "null"}]},
        },
    }
    tools = as_tools([{"name": "todo", "parameters": root}])
    assert tools is not None
    for name in ("todos", "again"):
        todos = tools["todo"].schema(name)
        assert todos is not None and todos.type == "array"
        item = todos.items()
        assert item is not None and item.type == "object"
        text = item.property("text")
        assert text is not None and text.type == "string"
        assert item.required() == {"text"}
    one = tools["todo"].schema("one")
    assert one is not None and one.type == "object"
    assert one.properties().keys() == {"text"}


def test_composed_parameters() -> None:
    root = {
        "allOf": [PARAMETERS, {"properties": {"days": {"type": "integer"}}, "required": ["days"]}],
        "anyOf": [{"properties": {"units": {}}, "required": ["units"]}],
    }
    tools = as_tools([{"name": "weather", "parameters": root}])
    assert tools is not None
    assert tools["weather"].properties.keys() == {"city", "days", "units"}
    assert tools["weather"].required == {"city", "days"}


def test_a_branching_schema_takes_no_branching_time() -> None:
    definitions = {str(at): {"anyOf": [{"$ref": f"#/$defs/{at + 1}"}] * 20} for at in range(100)}
    assert declared_type({"$defs": {**definitions, "100": {"type": "integer"}}, "$ref": "#/$defs/0"}) == "integer"


def test_a_deep_schema_has_no_type() -> None:
    schema: Any = {"type": "integer"}
    for _ in range(5000):
        schema = {"anyOf": [schema]}
    assert declared_type(schema) is None


keys = st.sampled_from(["type", "function", "custom", "name", "tools", "parameters", "properties", "required", "$ref"])
garbage = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.sampled_from(["namespace", "string", "#/a", "weather"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(garbage)
def test_garbage_is_no_exception(spec: Any) -> None:
    declared_type(spec)
    for tool in (as_tools(spec) or {}).values():
        for name in tool.properties:
            schema = tool.schema(name)
            assert schema is not None
            _ = schema.type, schema.items(), schema.properties()
