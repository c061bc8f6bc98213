"""The fixed texts a model gets to read: the same bytes every time, never a live marker, tags spelled in words."""

from __future__ import annotations

import re

# Right for all three grammars: it names neither the wrapper nor the white space after the marker.
DIRECTIVE = (
    "Tool call format: write each tool call as one complete block. First the outer opening tag, then for every call "
    "one invoke tag with the tool's name, inside it all parameters of that call, each of them closed, then the closing "
    "invoke tag, and last the outer closing tag. Every opening and closing tag carries the marker word between single "
    'bars, never doubled ones. Mark raw text with string="true" and JSON with string="false". Never leave out the '
    "outer block, and never put call markup into prose."
)

NUDGE = (
    "Your last tool call was malformed: its outer block was missing or broken, so nothing was executed. Issue that "
    "call again now, exactly once, as one complete block: outer tags around it, one invoke per call, every parameter "
    "inside its invoke and closed, single bars in every tag."
)

WAKE = "The last tool call did not get through. Issue it again."

# What may stand in a note: a name as the grammar accepts it, never text a model made up in its place.
_NAME = re.compile(r"[\w./:-]{1,64}")


def note(name: str | None, *, malformed: bool = True) -> str:
    """The short note that stands where a call was removed: `[removed malformed NAME call]`, without what is not known.

    `malformed=False` is for a call that was written well and not allowed.
    """
    known = name if name is not None and _NAME.fullmatch(name) else None
    return f"[{' '.join(filter(None, ('removed', 'malformed' if malformed else None, known, 'call')))}]"
