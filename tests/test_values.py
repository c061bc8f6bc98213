"""Parameter text -> JSON value: the table of rules, and what holds for any text and any schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsml_core.fragment import DEPTH, read_fragment
from dsml_core.tools import Tool, as_tools
from dsml_core.values import (
    NOT_JSON,
    build_arguments,
    decode_entities,
    read_body,
    read_calls,
    read_children,
    read_json,
    read_value,
    unwrap,
)

ANY: dict[str, Any] = {}
STRING, INTEGER, NUMBER, BOOLEAN, ARRAY, OBJECT = (
    {"type": name} for name in ("string", "integer", "number", "boolean", "array", "object")
)
ANSWERS = {
    "type": "array",
    "items": {"type": "object", "properties": {"text": STRING, "votes": INTEGER, "tags": ARRAY}},
}


def typed(value: Any) -> Any:
    """The value in a form in which 1, 1.0 and True differ."""
    return json.dumps(value, allow_nan=False, sort_keys=True)


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("raw", "string_attr", "schema", "value"),
    [
        # string="true": the text
        ("5", True, None, "5"),
        ("5", True, ANY, "5"),
        ("null", True, STRING, "null"),
        ('{"a": 1}', True, STRING, '{"a": 1}'),
        ("   ", True, STRING, "   "),
        ("", True, None, ""),
        # ... but a declared type is met where there is exactly one way
        ("5", True, INTEGER, 5),
        ("5.0", True, INTEGER, 5),
        ("5.5", True, INTEGER, "5.5"),
        ("1e400", True, NUMBER, "1e400"),
        ("2.50", True, NUMBER, 2.5),
        ("7", True, NUMBER, 7),
        ("007", True, INTEGER, "007"),
        ("+5", True, INTEGER, "+5"),
        ("true", True, BOOLEAN, True),
        ("True", True, BOOLEAN, "True"),
        ("1", True, BOOLEAN, "1"),
        ('["a"]', True, ARRAY, ["a"]),
        ('{"a": 1}', True, OBJECT, {"a": 1}),
        ('{"a": 1}', True, ARRAY, '{"a": 1}'),
        ("null", True, INTEGER, "null"),
        # string="false": JSON, else the text
        ("5", False, None, 5),
        ("12345678901234567890", False, None, 12345678901234567890),
        ("1.5e-7", False, None, 1.5e-7),
        (" true ", False, None, True),
        ("null", False, STRING, None),
        ("null", False, INTEGER, None),
        ('"quoted"', False, STRING, "quoted"),
        ('"quoted"', False, None, "quoted"),
        ("5", False, STRING, "5"),
        ("-0", False, STRING, "-0"),
        (' {"a": 1} ', False, STRING, ' {"a": 1} '),
        ('"5"', False, INTEGER, 5),
        ("5.0", False, INTEGER, 5),
        ("5.5", False, INTEGER, 5.5),
        ('{"a": 1, "a": 2}', False, OBJECT, {"a": 2}),
        ('{"a": "x\ny\tz"}', False, OBJECT, {"a": "x\ny\tz"}),
        ("main", False, None, "main"),
        ("", False, INTEGER, ""),
        ("NaN", False, NUMBER, "NaN"),
        ("[1, Infinity]", False, ARRAY, "[1, Infinity]"),
        ("1e400", False, NUMBER, "1e400"),
        ("9" * 5000, False, INTEGER, "9" * 5000),
        (deep(DEPTH), False, ARRAY, json.loads(deep(DEPTH))),
        (deep(DEPTH + 1), False, ARRAY, deep(DEPTH + 1)),
        (deep(100_000), False, ARRAY, deep(100_000)),
        # no attribute: the declared type decides
        ("5", None, INTEGER, 5),
        ("5", None, STRING, "5"),
        ("null", None, STRING, "null"),
        ("null", None, INTEGER, None),
        ("5", None, None, "5"),
        ("5", None, ANY, "5"),
        ('["x"]', None, ARRAY, ["x"]),
        ("main", None, INTEGER, "main"),
        ("5", None, {"type": ["integer", "string"]}, "5"),
        ("5", None, {"type": ["integer", "null"]}, 5),
        # hugging newlines
        ("\na\n", True, None, "a"),
        ("\n\na\n\n", True, None, "\na\n"),
        ("\r\na\r\nb\r\n", True, None, "a\r\nb"),
        ("a\n", True, None, "a\n"),
        ("\na", True, None, "a"),
        ("\n", True, None, ""),
        ("\n  a\n  ", True, None, "  a\n  "),
        # CDATA around the whole value
        ("<![CDATA[a < b && c]]>", True, STRING, "a < b && c"),
        ("\n  <![CDATA[a]]>\n", None, None, "a"),
        ("<![CDATA[256]]>", None, INTEGER, 256),
        ("<![CDATA[256]]>", None, STRING, "256"),
        ('<![CDATA[{"a": 1}]]>', False, None, {"a": 1}),
        ("<![CDATA[&lt;b&gt;]]>", True, None, "&lt;b&gt;"),
        ("<![CDATA[\na\n]]>", True, None, "a"),
        ("<![CDATA[a]]> b ]]>", True, None, "a]]> b "),
        ("<![CDATA[a]]]]><![CDATA[>b]]>", True, None, "a]]>b"),
        ("<![CDATA[ls -la\n", True, None, "ls -la\n"),
        ("<![CDATA[a]]> and more", True, None, "<![CDATA[a]]> and more"),
        ("see <![CDATA[a]]>", True, None, "see <![CDATA[a]]>"),
        # entities
        ("a &amp;&amp; echo &quot;q&quot; &lt;f&gt;", True, None, 'a && echo "q" <f>'),
        ("&amp;lt;b&amp;gt; &#39;x&#39; &#x41; &apos;", True, None, "&lt;b&gt; 'x' A '"),
        ("<p>&lt;div&gt; &amp;</p>", True, None, "<p>&lt;div&gt; &amp;</p>"),
        ("a & b &amp; c", True, None, "a & b &amp; c"),
        ("&amp &nosuch;", True, None, "&amp &nosuch;"),
        ("&lt; &#0;", True, None, "&lt; &#0;"),
        ("&lt; &#xD800;", True, None, "&lt; &#xD800;"),
        ("&lt; &#9999999;", True, None, "&lt; &#9999999;"),
        ('{"a": "&lt;"}', False, None, {"a": "&lt;"}),
        ('{"a": "&lt;"}', True, OBJECT, {"a": "&lt;"}),
        ("{&quot;a&quot;: 1}", True, OBJECT, {"a": 1}),
        ("a &lt; b", False, None, "a < b"),
    ],
)
def test_value(raw: str, string_attr: bool | None, schema: Any, value: Any) -> None:
    assert typed(read_value(raw, string_attr, schema)) == typed(value)


@pytest.mark.parametrize(
    ("raw", "string_attr", "schema", "value"),
    [
        ("5", None, None, 5),
        ("true", None, None, True),
        ("null", None, None, None),
        ('{"a": [1]}', None, None, {"a": [1]}),
        ("<![CDATA[256]]>", None, None, 256),
        ("007", None, None, "007"),
        ("5", True, None, "5"),
        ("5", None, STRING, "5"),
        ("5", None, INTEGER, 5),
    ],
)
def test_literals(raw: str, string_attr: bool | None, schema: Any, value: Any) -> None:
    assert typed(read_value(raw, string_attr, schema, literals=True)) == typed(value)


QUESTION = (
    "<item><question><![CDATA[What next?]]></question>"
    "<options><item><label>A</label></item><item><label>B</label></item></options><multi>false</multi></item>"
)
ASKED = [{"question": "What next?", "options": [{"label": "A"}, {"label": "B"}], "multi": False}]


@pytest.mark.parametrize(
    ("raw", "schema", "value"),
    [
        (QUESTION, ARRAY, ASKED),
        (f"\n{QUESTION}\n", ARRAY, ASKED),
        (f"<![CDATA[{QUESTION}]]>", ARRAY, ASKED),
        (f"<br>  {QUESTION}<br/>", ARRAY, ASKED),
        (QUESTION.replace("<![CDATA[", "").replace("]]>", "").replace("<", "&lt;").replace(">", "&gt;"), ARRAY, ASKED),
        (f"<questions>{QUESTION}</questions>", ARRAY, ASKED),
        (QUESTION, OBJECT, QUESTION),
        ("<item>one</item>", ARRAY, ["one"]),
        ("<item>1</item><item>x &amp; y</item><item/><item>a<br>b</item>", ARRAY, [1, "x & y", "", "a\nb"]),
        ("<todo>a</todo><todo>b</todo>", ARRAY, ["a", "b"]),
        ("<todo>a</todo>", ARRAY, "<todo>a</todo>"),
        ("<a>1</a><b><c>x</c></b>", OBJECT, {"a": 1, "b": {"c": "x"}}),
        ("<a>1</a>", OBJECT, {"a": 1}),
        ("<a>1</a><a>2</a><b/>", OBJECT, {"a": [1, 2], "b": ""}),
        ("<!-- note --><a>1</a>", OBJECT, {"a": 1}),
        # texts inside: raw names and declared strings are kept as they are
        ("<item><content>\n  <b>x</b> 5\n</content></item>", ARRAY, [{"content": "  <b>x</b> 5"}]),
        ("<item><command>5</command></item>", ARRAY, [{"command": "5"}]),
        ("<item><note>see <b>this</b></note></item>", ARRAY, [{"note": "see <b>this</b>"}]),
        ("<item><note>a <T> b</note></item>", ARRAY, [{"note": "a <T> b"}]),
        ('<item><note>"Really?"</note></item>', ARRAY, [{"note": '"Really?"'}]),
        ("<item><n><![CDATA[5]]></n></item>", ARRAY, [{"n": "5"}]),
        (
            "<item><text>5</text><votes>5</votes><tags>[1]</tags></item>",
            ANSWERS,
            [{"text": "5", "votes": 5, "tags": [1]}],
        ),
        ("<item><text> <b>5</b> </text></item>", ANSWERS, [{"text": " <b>5</b> "}]),
        # no complete fragment
        ("see <item>1</item>", ARRAY, "see <item>1</item>"),
        ("<item>1</item> etc", ARRAY, "<item>1</item> etc"),
        ("<item>1", ARRAY, "<item>1"),
        ("<item>1</itm>", ARRAY, "<item>1</itm>"),
        ('<item id="1">x</item>', ARRAY, '<item id="1">x</item>'),
        ("<item><![CDATA[x</item>", ARRAY, "<item><![CDATA[x</item>"),
        ("<item>1</item>", STRING, "<item>1</item>"),
        ("<item>1</item>", None, "<item>1</item>"),
    ],
)
def test_structure(raw: str, schema: Any, value: Any) -> None:
    assert typed(read_value(raw, None, schema)) == typed(value)


@pytest.mark.parametrize(
    ("raw", "name", "value"),
    [
        ("<item>1</item>", "todos", [1]),
        ("<a>1</a><b>2</b>", "opts", {"a": 1, "b": 2}),
        ("<a><b>2</b></a>", "opts", {"a": {"b": 2}}),
        ("<b>urgent</b>", "title", "<b>urgent</b>"),
        ("<a>1</a><b>2</b>", "content", "<a>1</a><b>2</b>"),
        ("<a>1</a><b>2</b>", "newString", "<a>1</a><b>2</b>"),
        ("<a>1</a><b>2</b>", "new_string", "<a>1</a><b>2</b>"),
    ],
)
def test_structure_without_a_schema(raw: str, name: str, value: Any) -> None:
    assert typed(read_value(raw, None, None, literals=True, name=name)) == typed(value)
    assert read_value(raw, None, None, name=name) == raw


def test_a_fragment_has_a_depth_limit() -> None:
    levels = DEPTH - 1
    assert read_fragment("<a>" * levels + "</a>" * levels) is not None
    assert read_fragment("<a>" * (levels + 1) + "</a>" * (levels + 1)) is None


def test_entities_need_a_text_escaped_as_a_whole() -> None:
    assert decode_entities("&#60;&#x3c;&lt;") == "<<<"
    assert decode_entities("&lt;<") == "&lt;<"


WEATHER = Tool("weather", {"city": STRING, "days": INTEGER, "units": ANY}, frozenset({"city"}))


def test_arguments_last_name_wins_and_names_are_trimmed() -> None:
    params = [("city", "Nice", True), (" days ", "1", None), ("", "x", True), ("city", "Metz", True)]
    assert build_arguments(params, WEATHER) == {"city": "Metz", "days": 1}
    assert build_arguments(params, None) == {"city": "Metz", "days": "1"}
    assert build_arguments(params, None, literals=True) == {"city": "Metz", "days": 1}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"arguments": {"city": "Graz"}}, {"city": "Graz"}),
        ({"input": {"city": "Graz", "days": "2"}}, {"city": "Graz", "days": 2}),
        ({"arguments": '{"city": "Graz"}'}, {"city": "Graz"}),
        ({"arguments": {}}, {}),
        ({"name": "weather", "arguments": {"city": "Graz"}}, {"city": "Graz"}),
        ({"name": "other", "arguments": {"city": "Graz"}}, {"name": "other", "arguments": {"city": "Graz"}}),
        ({"arguments": {"town": "Graz"}}, {"arguments": {"town": "Graz"}}),
        ({"arguments": "ls -la"}, {"arguments": "ls -la"}),
        ({"arguments": {"city": "Graz"}, "days": 1}, {"arguments": {"city": "Graz"}, "days": 1}),
        ({"city": 5, "days": "3"}, {"city": "5", "days": 3}),
        ({"city": True, "days": "x"}, {"city": "true", "days": "x"}),
        ({"city": 1.5, "days": None}, {"city": 1.5, "days": None}),
        ({"city": {"a": 1}, "units": "5"}, {"city": {"a": 1}, "units": "5"}),
    ],
)
def test_unwrap(arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    assert typed(unwrap(arguments, WEATHER)) == typed(expected)
    assert unwrap(arguments, None) == arguments


def test_a_declared_wrapper_stays() -> None:
    tool = Tool("run", {"input": STRING, "city": STRING})
    assert unwrap({"input": '{"city": "Graz"}'}, tool) == {"input": '{"city": "Graz"}'}


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('\n{\n  "city": "Graz",\n  "days": 4\n}\n', {"city": "Graz", "days": 4}),
        ('```json\n{"city": "Graz"}\n```', {"city": "Graz"}),
        ('~~~~\n{"city": "Graz"}\n~~~~\n', {"city": "Graz"}),
        ('<![CDATA[{"city": "Graz"}]]>', {"city": "Graz"}),
        ("{&quot;city&quot;: &quot;Graz&quot;}", {"city": "Graz"}),
        ('{"arguments": {"city": "Graz"}}', {"city": "Graz"}),
        ('{"city": "Graz", "days": "4"}', {"city": "Graz", "days": 4}),
        ('{"city": "&lt;"}', {"city": "&lt;"}),
        ("{}", {}),
        ('["Graz", 4]', None),
        ('{"city": "Graz"', None),
        ('{"city": "Graz"} {"city": "Metz"}', None),
        ('{"city": NaN}', None),
        ('Here: {"city": "Graz"}', None),
        ("", None),
    ],
)
def test_body(raw: str, arguments: dict[str, Any] | None) -> None:
    assert typed(read_body(raw, WEATHER)) == typed(arguments)


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ("\n<city>Graz</city>\n<days>2</days>\n", {"city": "Graz", "days": 2}),
        ("<city>a?b=1&amp;c=2</city><mode>text</mode>", {"city": "a?b=1&c=2", "mode": "text"}),
        ("<city><![CDATA[<Graz>]]></city>", {"city": "<Graz>"}),
        ("<city>use <T> here</city>", {"city": "use <T> here"}),
        ('<city string="true">5</city><days string="false">2</days>', {"city": "5", "days": 2}),
        ('<city lang="de">Graz</city>', None),
        ("<city>Graz</city> etc", None),
        ("<city>Graz", None),
        ("Graz", None),
        ("", None),
    ],
)
def test_children(raw: str, arguments: dict[str, Any] | None) -> None:
    assert read_children(raw, WEATHER) == arguments


CALL = '{"name": "bash", "arguments": {"command": "ls"}}'
BASH = ("bash", {"command": "ls"})


@pytest.mark.parametrize(
    ("raw", "calls"),
    [
        (CALL, [BASH]),
        (f"\n{CALL}\n{CALL}\n", [BASH, BASH]),
        (f"{CALL},{CALL}", [BASH, BASH]),
        (f"[{CALL}, {CALL}]", [BASH, BASH]),
        (f"```json\n{CALL}\n```", [BASH]),
        ('{"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}', [BASH]),
        ('{"id": "1", "type": "function", "function": ' + CALL + "}", [BASH]),
        ('{"name": " bash ", "parameters": {"command": "ls"}}', [BASH]),
        ('{"type": "tool_use", "name": "bash", "input": {"command": "ls"}}', [BASH]),
        (f'[{CALL}, {{"note": 1}}]', [BASH]),
        (f"[{CALL}, 5]", [BASH]),
        (CALL + deep(DEPTH + 1), None),
        (f'{CALL} {{"name":', None),
        (f"{CALL} done", None),
        ('{"name": "bash"}', None),
        ('{"name": "", "arguments": {}}', None),
        ('{"name": "bash", "arguments": ["ls"]}', None),
        ('{"name": "bash", "arguments": {}, "input": {}}', None),
        ('{"command": "ls"}', None),
        ("", None),
    ],
)
def test_calls(raw: str, calls: list[tuple[str, dict[str, Any]]] | None) -> None:
    assert read_calls(raw) == calls


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
TAGS = ("<item>", "</item>", "<a>", "</a>", "<br>", "<a b='c'>", "<![CDATA[", "]]>", "<!--", "-->", "&lt;", "&", "<")
SPACE = ("\n", "\r\n", " ")
JSON = ('"', "{", "}", "[", "]", ":", ",", '"name":', "1", "e999", "true", "\\", "```", "x")
markup = st.lists(st.sampled_from([*TAGS, *SPACE, *JSON]) | st.text(max_size=3), max_size=25).map("".join)
schemas = st.none() | st.recursive(
    json_values | st.sampled_from([STRING, INTEGER, NUMBER, BOOLEAN, ARRAY, OBJECT, ANSWERS]),
    lambda inner: (
        st.fixed_dictionaries({"anyOf": st.lists(inner)})
        | st.fixed_dictionaries({"type": inner, "items": inner, "properties": st.dictionaries(st.text(), inner)})
        | st.fixed_dictionaries({"$ref": st.sampled_from(["#", "#/a", "#/anyOf/0", "#/%", "x"]), "allOf": inner})
    ),
    max_leaves=6,
)
attributes = st.sampled_from([None, True, False])


@given(json_values)
def test_any_json_value_survives(value: Any) -> None:
    assert typed(read_value(json.dumps(value), False, None)) == typed(value)
    assert typed(read_value(json.dumps(value), None, None, literals=True)) == typed(value)


@given(st.text())
def test_a_string_survives_but_for_the_named_exceptions(text: str) -> None:
    """The exceptions: a newline first, CDATA around it, and a text that could be escaped as a whole."""
    if text.startswith(("\n", "\r\n")) or text.lstrip()[:9].upper() == "<![CDATA[" or "&" in text:
        return
    for schema in (None, STRING):
        assert read_value(text, True, schema) == text
        assert read_value(text, None, schema) == text


@given(markup, attributes, schemas, st.booleans())
def test_nothing_raises_and_all_is_json(raw: str, string_attr: bool | None, schema: Any, literals: bool) -> None:
    tool = Tool("t", {"a": schema, "item": schema}, frozenset(), schema)
    json.dumps(read_value(raw, string_attr, schema, literals=literals, name="a"), allow_nan=False)
    json.dumps(build_arguments([("a", raw, string_attr)], tool, literals=literals), allow_nan=False)
    json.dumps([read_body(raw, tool), read_children(raw, tool), read_calls(raw)], allow_nan=False)
    declared = as_tools([{"name": "t", "parameters": schema}])
    assert declared is not None
    json.dumps(read_body(raw, declared["t"]), allow_nan=False)


def test_json_beyond_reach_is_none() -> None:
    assert read_json("[1] x") is NOT_JSON
    assert read_json('{"a": -Infinity}') is NOT_JSON
