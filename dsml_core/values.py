"""Parameter text -> JSON value.

What decides, in this order: the `string` attribute, then the declared schema, then the policy `literals`.
Every function here is pure and never raises on text or schemas; every value it returns is accepted by
`json.dumps(value, allow_nan=False)`. Texts and offsets are characters. All of it is linear in the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dsml_core.fragment import DEPTH, Element, read_fragment
from dsml_core.tools import Schema, Tool, json_type

NOT_JSON: Any = object()

_EXACT = 2**53  # integers a float holds exactly
_WRAPPERS = ("arguments", "input")
_ARGUMENTS = ("arguments", "parameters", "input")
# Parameters that hold a text which may look like markup (ds2api keeps the same ones); compared without `_` and case.
_RAW_NAMES = {
    *("content", "filecontent", "text", "prompt", "query", "command", "cmd", "script", "code"),
    *("oldstring", "newstring", "pattern", "path", "filepath"),
}

_CDATA = "<![CDATA["
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ENTITY = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,8})|#x([0-9A-Fa-f]{1,6}));")
_BARE = re.compile(r"[<>]|&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,8}|#x[0-9A-Fa-f]{1,6});)")
_BREAK = re.compile(r"<br[ \t]*/?>", re.IGNORECASE)
_FENCE = re.compile(r"(?:`{3,}|~{3,})[^\n`~]*\n")
_BETWEEN = re.compile(r"[\s,;]+")
_STRING_ATTRIBUTE = re.compile(r"""string\s*=\s*["']?(true|false)["']?""", re.IGNORECASE)


def read_value(
    raw: str, string_attr: bool | None, schema: Any | None, *, literals: bool = False, name: str = ""
) -> Any:
    """The value a parameter's text stands for.

    `raw` is all text between the parameter's tags, `string_attr` its `string` attribute (None: absent or
    neither true nor false), `schema` its declared JSON schema or `Schema`, `name` the parameter's name.

    - A newline (LF or CRLF) at the start is dropped, then one at the end; CDATA around the whole value is syntax.
    - `string` true: the text. False: JSON, else the text. Absent: the declared type decides; without one the
      text, or with `literals` any JSON value.
    - A declared string takes the text whatever JSON it looks like, but a JSON string and null are read.
      Another declared type takes the text as what it says when that is of this type (`5`, `true`, `["a"]`,
      and 5.0 for an integer); `007`, `True` or `yes` stay text.
    - An array or object may be written as an XML fragment (see `_read_structure`).
    - Entities are decoded once, in a text without bare `<`, `>`, `&`; not in JSON and not in CDATA.
    """
    schema = _as_schema(schema)
    declared = schema.type if schema else None
    text, quoted = _unwrap_text(raw)
    plain = text if quoted else decode_entities(text)
    if string_attr is not False and (declared == "string" or (declared is None and (string_attr or not literals))):
        return plain
    for candidate in dict.fromkeys((text, plain)):
        if (value := read_json(candidate)) is NOT_JSON:
            continue
        if declared == "string":
            return value if isinstance(value, str | None) else plain
        value = _fit(value, schema)
        if not string_attr or _is(value, declared):
            return value
    if declared in ("array", "object") or (declared is None and not _is_raw_name(name)):
        for candidate in dict.fromkeys((text, plain)):
            if (value := _read_structure(candidate, schema, declared, literals)) is not NOT_JSON:
                return value
    return plain


def build_arguments(
    params: Iterable[tuple[str, str, bool | None]], tool: Tool | None, *, literals: bool = False
) -> dict[str, Any]:
    """The arguments of a call from its parameters: name, raw text, `string` attribute.

    Names are trimmed and a parameter without one is left out; of two with one name the last counts.
    """
    arguments: dict[str, Any] = {}
    for name, raw, string_attr in params:
        if name := name.strip():
            arguments[name] = read_value(raw, string_attr, _schema(tool, name), literals=literals, name=name)
    return unwrap(arguments, tool)


def read_body(raw: str, tool: Tool | None) -> dict[str, Any] | None:
    """The arguments of an invoke whose whole body is a JSON object, None if it is anything else (V25)."""
    value = _read_json_body(raw)
    return unwrap(value, tool) if isinstance(value, dict) else None


def read_children(raw: str, tool: Tool | None, *, literals: bool = False) -> dict[str, Any] | None:
    """The arguments of a body of elements `<name>value</name>`, None if it is anything else.

    Each element is read like a parameter; of attributes only `string` may stand there.
    """
    root = read_fragment(raw)
    if root is None:
        return None
    params: list[tuple[str, str, bool | None]] = []
    for child in root.children:
        attribute = _STRING_ATTRIBUTE.fullmatch(child.attributes)
        if child.attributes and not attribute:
            return None
        string_attr = attribute.group(1).lower() == "true" if attribute else None
        params.append((child.name, raw[child.start : child.end], string_attr))
    return build_arguments(params, tool, literals=literals)


def read_calls(raw: str) -> list[tuple[str, dict[str, Any]]] | None:
    """The calls, name and arguments, of a block body that holds them as JSON; None if there are none.

    A call is `{"name", "arguments"}` (also `parameters` or `input`, also inside `"function"`), its arguments
    an object or the JSON text of one. The body is one, several in sequence, or an array; what else stands
    among them is left out, but a body that is not JSON throughout holds no call. Arguments are as written:
    `unwrap` fits them to a tool.
    """
    calls = [call for value in _read_sequence(_unfence(raw)) if (call := _as_call(value)) is not None]
    return calls or None


def unwrap(arguments: dict[str, Any], tool: Tool | None) -> dict[str, Any]:
    """`arguments` as the tool's schema declares them.

    A lone `arguments` or `input` (beside it at most the tool's own `name`) that the tool does not declare
    and that holds an object, or the JSON text of one, with declared members only, gives way to that
    object. Each member whose type contradicts its schema is converted where there is exactly one way.
    """
    if tool is None:
        return arguments
    inner = next((arguments[key] for key in _WRAPPERS if _only(arguments, key, tool)), None)
    if isinstance(inner, str):
        inner = read_json(inner)
    if isinstance(inner, dict) and inner.keys() <= tool.properties.keys():
        arguments = inner
    return {name: _fit(value, tool.schema(name)) for name, value in arguments.items()}


def read_json(text: str) -> Any:
    """The JSON value of a text, or `NOT_JSON`.

    Control characters are allowed in strings. NaN, Infinity, numbers beyond the range of Python's, and
    nesting deeper than `DEPTH` are no JSON. Integers keep all their digits.
    """
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return NOT_JSON
    return value if _is_shallow(value) else NOT_JSON


def decode_entities(text: str) -> str:
    """The text with its entities decoded once, if it has no bare `<`, `>` or `&`: it was escaped as a whole."""
    if "&" not in text or _BARE.search(text):
        return text
    if any(_character(match) is None for match in _ENTITY.finditer(text)):
        return text
    return _ENTITY.sub(lambda match: _character(match) or "", text)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _finite(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise ValueError(digits)
    return value


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse, parse_float=_finite)


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH + 1):
        level = [node for node in level if isinstance(node, dict | list)]
        if not level:
            return True
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node)]
    return False


def _character(entity: re.Match[str]) -> str | None:
    """The character of an entity, None for a number that is no XML character."""
    named, decimal, hexadecimal = entity.groups()
    if named:
        return _NAMED[named]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    if code in (0x9, 0xA, 0xD) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF:
        return chr(code)
    return None


def _unwrap_text(raw: str) -> tuple[str, bool]:
    """The text without hugging newlines and CDATA, and whether it stood in CDATA.

    The section ends at the end of the value, closed or not: a text about markup may hold `]]>`. Sections
    that follow each other directly are one, which is how XML writes `]]>` in CDATA.
    """
    start = raw.lstrip()
    if start[: len(_CDATA)].upper() != _CDATA:
        return _unhug(raw), False
    section = start[len(_CDATA) :]
    if (closed := section.rstrip()).endswith("]]>"):
        section = closed[:-3].replace("]]>" + _CDATA, "")
    elif "]]>" in section:
        return _unhug(raw), False
    return _unhug(section), True


def _unhug(text: str) -> str:
    if not text.startswith(("\n", "\r\n")):
        return text
    text = text.removeprefix("\r").removeprefix("\n")
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _as_schema(schema: Any) -> Schema | None:
    return schema if schema is None or isinstance(schema, Schema) else Schema(schema, schema)


def _schema(tool: Tool | None, name: str) -> Schema | None:
    return tool.schema(name) if tool else None


def _is(value: Any, declared: str | None) -> bool:
    actual = json_type(value)
    return actual == declared or (actual, declared) == ("integer", "number")


def _fit(value: Any, schema: Schema | None) -> Any:
    """`value` as the declared type, if it contradicts it and there is exactly one way; else as it is."""
    declared = schema.type if schema else None
    if value is NOT_JSON or declared is None or _is(value, declared):
        return value
    if declared == "string":
        # A float or an object could be written in more than one way.
        return json.dumps(value) if isinstance(value, int) else value
    meant = read_json(value) if isinstance(value, str) else value
    if declared == "integer" and isinstance(meant, float) and meant.is_integer() and abs(meant) < _EXACT:
        return int(meant)
    return meant if meant is not NOT_JSON and _is(meant, declared) else value


def _is_raw_name(name: str) -> bool:
    return name.replace("_", "").lower() in _RAW_NAMES


def _read_structure(text: str, schema: Schema | None, declared: str | None, literals: bool) -> Any:
    """The array or object written as an XML fragment, or `NOT_JSON` (ds2api's grammar).

    `<item>` elements only are an array, other elements an object, repeated ones an array in it. Without a
    declared type (and then only with `literals`) a single flat element is inline markup of a text.
    """
    if declared is None and not literals:
        return NOT_JSON
    root = read_fragment(text) if text.lstrip().startswith("<") else None
    if root is None or not root.structured:
        return NOT_JSON
    if declared is None:
        only = root.children[0] if len(root.children) == 1 else None
        flat = only is not None and only.name.lower() != "item" and not only.children
        return NOT_JSON if flat else _members(root, text, None)
    if declared == "array" and not _elements(root, declared) and len(root.children) == 1:
        root = root.children[0]  # the parameter's name once more, around its items
    if not root.structured:
        return NOT_JSON
    value = _members(root, text, schema)
    return value if _is(value, declared) else NOT_JSON


def _elements(element: Element, declared: str | None) -> bool:
    """Whether the children are the elements of an array."""
    names = {child.name.lower() for child in element.children}
    return names == {"item"} or (declared == "array" and len(names) == 1 < len(element.children))


def _members(element: Element, text: str, schema: Schema | None) -> Any:
    if _elements(element, schema.type if schema else None):
        items = schema.items() if schema else None
        return [_node(child, text, items) for child in element.children]
    groups: dict[str, list[Element]] = {}
    for child in element.children:
        groups.setdefault(child.name, []).append(child)
    members: dict[str, Any] = {}
    for name, group in groups.items():
        inner = schema.property(name) if schema else None
        if len(group) == 1:
            members[name] = _node(group[0], text, inner)
        else:
            items = inner.items() if inner else None
            members[name] = [_node(child, text, items) for child in group]
    return members


def _node(element: Element, text: str, schema: Schema | None) -> Any:
    source = text[element.start : element.end]
    declared = schema.type if schema else None
    raw = declared == "string" or (declared is None and _is_raw_name(element.name))
    if element.structured and not raw:
        return _members(element, text, schema)
    if declared is not None or raw or element.children:
        return read_value(source, None, schema)
    content, quoted = _unwrap_text(source)
    if quoted:
        return content
    content = decode_entities(_BREAK.sub("\n", content)).strip()
    value = read_json(content)
    return content if value is NOT_JSON or isinstance(value, str) else value


def _unfence(raw: str) -> str:
    text = _unwrap_text(raw)[0].strip()
    if fence := _FENCE.match(text):
        text = text[fence.end() :].rstrip("`~ \t\r\n")
    return text


def _read_json_body(raw: str) -> Any:
    text = _unfence(raw)
    value = read_json(text)
    return read_json(decode_entities(text)) if value is NOT_JSON else value


def _read_sequence(text: str) -> list[Any]:
    """The JSON values of a text, those of an array one by one; none if any part of it is not JSON."""
    values: list[Any] = []
    at = 0
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        if not _is_shallow(value):
            return []
        values.extend(value if isinstance(value, list) else [value])
        if between := _BETWEEN.match(text, at):
            at = between.end()
    return values


def _as_call(value: Any) -> tuple[str, dict[str, Any]] | None:
    if not isinstance(value, dict):
        return None
    body = value["function"] if isinstance(value.get("function"), dict) else value
    name = body.get("name")
    given = [body[key] for key in _ARGUMENTS if key in body]
    arguments = read_json(given[0]) if len(given) == 1 and isinstance(given[0], str) else (given or [None])[0]
    if len(given) != 1 or not isinstance(name, str) or not name.strip() or not isinstance(arguments, dict):
        return None
    return name.strip(), arguments


def _only(arguments: Mapping[str, Any], key: str, tool: Tool) -> bool:
    """Whether `key` is an undeclared wrapper around everything else."""
    if key not in arguments or key in tool.properties:
        return False
    beside = {name: value for name, value in arguments.items() if name != key}
    return not beside or beside == {"name": tool.name}
