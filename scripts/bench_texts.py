"""Texts to measure with, made at run time: a marker that stands in a file could be run by what reads the file.

A part of bench.py.
"""

from __future__ import annotations

from typing import Any

BAR = chr(0xFF5C)
MARK = BAR + "DS" + "ML" + BAR
NOISY = "| DS" + "ML |"  # ASCII bars with spaces

_STRING = {"type": "string"}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in (
        ("write", {"path": _STRING, "content": _STRING}),
        ("look", {"path": _STRING, "line": {"type": "integer"}}),
    )
]

_PROSE = """\
The loader reads the index first, then each shard in order, so a missing shard shows up as a gap and not as an error.
I would keep the retry in one place: the client already backs off, and a second loop around it only hides the cause.
What remains is the cache. It is keyed by path, which is fine until two roots hold the same file under different names.

"""
_CHINESE = """\
\u52a0\u8f7d\u5668\u5148\u8bfb\u53d6\u7d22\u5f15\uff0c\u7136\u540e\u6309\u987a\u5e8f\u8bfb\u53d6\u6bcf\u4e2a\u5206\u7247\u3002\u7f13\u5b58\u4ee5\u8def\u5f84\u4e3a\u952e\uff0c\u4e24\u4e2a\u6839\u76ee\u5f55\u4e0d\u4f1a\u51b2\u7a81\u3002

"""
_TSX = """\
export function Row({ item, depth, onPick }: RowProps): JSX.Element {
  const [open, setOpen] = useState<boolean>(depth < 2);
  const children = useMemo(() => item.children.filter((child) => child.depth <= depth), [item, depth]);
  return (
    <li key={item.id} className={open ? "row open" : "row"}>
      <button type="button" onClick={() => setOpen((value) => !value)}>{item.title}</button>
      {open && children.length > 0 ? <ul>{children.map((child) => <Row key={child.id} item={child} />)}</ul> : null}
      <p className="hint"><Hint<Item> of={item} /> {"a < b && c > d"}</p>
      <input type="checkbox" checked={item.done} onChange={() => onPick(item)} />
    </li>
  );
}

"""
_MARKDOWN = """\
## What changed

- `load()` takes a `root`, and **no** default
- the cache is keyed by `(root, path)`

```ts
const key = `${root}:${path}`;
if (cache.size < limit) cache.set(key, value);
```

| option | default | note |
| --- | --- | --- |
| `limit` | 64 | entries |

> It was `path` alone before.

"""
_FENCED = """\
```ts
const limit = 64;
```
"""


def fill(sample: str, length: int) -> str:
    """`sample` over and over, `length` characters."""
    return (sample * (length // len(sample) + 1))[:length]


def prose(length: int) -> str:
    return fill(_PROSE, length)


def chinese(length: int) -> str:
    return fill(_CHINESE, length)


def tsx(length: int) -> str:
    return fill(_TSX, length)


def markdown(length: int) -> str:
    return fill(_MARKDOWN, length)


def fenced(length: int) -> str:
    """Nothing but short code blocks, each closed."""
    return _FENCED * (length // len(_FENCED))


def call(value: str, mark: str = MARK, name: str = "write", first: str = "a.txt") -> str:
    """One block with one call, in the V4 grammar with `mark` for its marker."""
    return (
        f'\n\n<{mark}tool_calls>\n<{mark}invoke name="{name}">\n'
        f'<{mark}parameter name="path" string="true">{first}</{mark}parameter>\n'
        f'<{mark}parameter name="content" string="true">{value}</{mark}parameter>\n'
        f"</{mark}invoke>\n</{mark}tool_calls>"
    )


def calls(count: int, mark: str = MARK) -> str:
    """`count` small calls in one block."""
    invokes = (
        f'<{mark}invoke name="look">\n<{mark}parameter name="path" string="true">src/{number}.ts</{mark}parameter>\n'
        f'<{mark}parameter name="line" string="false">{number}</{mark}parameter>\n</{mark}invoke>\n'
        for number in range(count)
    )
    return f"\n\n<{mark}tool_calls>\n{''.join(invokes)}</{mark}tool_calls>"


def wrapped_calls(count: int, mark: str = MARK) -> str:
    """As `calls`, but each call is wrapped in a parameter named after the tool (row V26)."""
    invokes = (
        f'<{mark}parameter name="look">\n<{mark}parameter name="path" string="true">src/{number}.ts</{mark}parameter>\n'
        f'<{mark}parameter name="line" string="false">{number}</{mark}parameter>\n</{mark}parameter>\n'
        for number in range(count)
    )
    return f"\n\n<{mark}tool_calls>\n{''.join(invokes)}</{mark}tool_calls>"


def quoted_calls(count: int) -> str:
    """Small calls that are only shown, each in a code fence."""
    shown = calls(1).strip()
    return "".join(f"Number {number}:\n\n```\n{shown}\n```\n\n" for number in range(count))


def deltas(text: str, size: int = 4) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
