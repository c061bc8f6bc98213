"""A tolerant reader of XML fragments: how some models write arrays and objects instead of JSON.

It knows elements, CDATA and comments, no entities, namespaces or document types, and works in time linear
to the text. What is no markup (a lone `<`, an opener without its closer) is prose of the element it stands in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

DEPTH = 100  # levels of nesting, in XML as in JSON

_TAG = re.compile(r"<(/?)([^\W\d][\w.:-]*+)([\s/][^<>]*+)?>")


@dataclass(slots=True)
class Element:
    """An element; `text[start:end]` is its content, `prose` tells of anything there but elements and space."""

    name: str
    attributes: str
    start: int
    end: int = -1
    children: list[Element] = field(default_factory=list)
    prose: bool = False

    @property
    def structured(self) -> bool:
        """Whether the content is elements only, and none has attributes: data, not a marked-up text."""
        return bool(self.children) and not self.prose and not any(child.attributes for child in self.children)


def read_fragment(text: str) -> Element | None:
    """The text as the content of a nameless element, None if it is not one or several complete elements.

    `<br>` in any form is white space. Deeper than `DEPTH` levels, or with an open CDATA section or comment,
    a text is no fragment.
    """
    root = Element("", "", 0)
    stack = [root]
    at = 0
    while (start := text.find("<", at)) != -1:
        if start > at and not text[at:start].isspace():
            stack[-1].prose = True
        if text.startswith("<![CDATA[", start) or text.startswith("<!--", start):
            closer = "-->" if text[start + 2] == "-" else "]]>"
            if (end := text.find(closer, start + 4)) == -1:
                return None
            stack[-1].prose |= closer == "]]>"
            at = end + 3
        elif (tag := _TAG.match(text, start)) is None:
            stack[-1].prose = True
            at = start + 1
        else:
            at = tag.end()
            _take(tag, stack)
            if root.prose or len(stack) > DEPTH:
                return None
    if len(stack) > 1 or text[at:].strip():
        return None
    root.end = len(text)
    return root if root.children and not root.prose else None


def _take(tag: re.Match[str], stack: list[Element]) -> None:
    closing, name, rest = tag.group(1), tag.group(2), tag.group(3) or ""
    if name.lower() == "br":
        return
    if closing:
        _close(stack, name, tag.start())
        return
    element = Element(name, rest.strip("/ \t\r\n"), tag.end(), tag.end())
    stack[-1].children.append(element)
    if not rest.endswith("/"):
        stack.append(element)


def _close(stack: list[Element], name: str, end: int) -> None:
    for depth in range(len(stack) - 1, 0, -1):
        if stack[depth].name == name:
            stack[depth].prose |= depth < len(stack) - 1
            stack[depth].end = end
            del stack[depth:]
            return
    stack[-1].prose = True
