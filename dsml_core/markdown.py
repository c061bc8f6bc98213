"""Where markup is only quoted: code fences, inline code, block quotes, inline thinking (PATTERNS Q1 to Q6).

Text is read once, a line at a time, and only when somebody asks: prose without a possible tag costs nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from enum import Enum
from typing import Final

# What may stand before a line's own text: indentation, quote marks, list markers, and where a value begins, CDATA.
_START: Final = r"(?:[ \t]*<!\[CDATA\[)?(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t])))*[ \t]*"
_PREFIX: Final = re.compile(_START)
_FENCE: Final = re.compile(rf"({_START})(`{{3,}}|~{{3,}})([^\n]*)")
_INLINE: Final = re.compile(r"`+|</?think>")
# A line that starts a block of its own, and so ends the paragraph before it.
_BLOCK: Final = re.compile(r"[ \t]*(?:\#{1,6}[ \t]|[-*+][ \t]|\d{1,9}[.)][ \t]|>|`{3}|~{3})")
_BLOCK_START: Final = re.compile(r"[ \t]*(?:\#{0,6}|[-*+]|\d{1,9}[.)]?|`{1,2}|~{1,2})")
_HALF: Final = re.compile(r"(?<!`)`{3,}[\w+#.-]*[ \t\r]*\Z")
_FENCE_SIGN: Final = re.compile("```|~~~")
# Text without fences and `<think>`, its inline code closed in the line.
_UNCHANGED: Final = re.compile("(?:[^`~<]++|`[^`\n]++`(?!`)|~(?!~~)|<(?!/?think>))*+")
_LINE_LIMIT: Final = 512  # characters; a longer line opens and closes no fence
_RUN_LIMIT: Final = 512  # a run of so many backticks is no code
_LONG_RUN: Final = "`" * _RUN_LIMIT


class Quote(Enum):
    """What the place just after the text read so far is quoted by."""

    NONE = "none"
    QUOTED = "quoted"  # a fence or a block quote
    CODE = "code"  # a backtick run that is still open: inline code if it closes in this paragraph
    THINK = "think"  # an open inline <think>


class Fences:
    """Code fences of a text that arrives in pieces; `opened` counts them."""

    def __init__(self) -> None:
        self.opened = 0
        self._fence: str | None = None
        self._fence_indent = 0
        self._fence_quoted = False
        self._line = ""  # the start of the line that is not complete yet

    @property
    def inside(self) -> bool:
        """True in a fence, and on the very line that opens one."""
        fenced = self._fence is not None and not self._quote_is_over(self._line)
        return fenced or self._opens(self._line) is not None

    def closes_here(self, suffix: str = "") -> bool:
        """True where the line so far, without `suffix`, closes the fence: a value may end right behind it."""
        return self._fence is not None and self._closes(self._line.rstrip().removesuffix(suffix))

    def advance(self, text: str) -> None:
        """Read on. A piece may end anywhere but inside a run of backticks or tildes, or a `<think>`."""
        start = 0 if self._line else self._skip(text, 0)
        while (stop := text.find("\n", start)) >= 0:
            self._read(text[start:stop])
            self._close_line(self._line)
            self._line = ""
            start = self._skip(text, stop + 1)
        self._read(text[start:])

    def _skip(self, text: str, start: int) -> int:
        """Skip whole lines in which nothing can change, from one that starts at `start`."""
        if self._fence_quoted:
            return start
        change = self._change(text, start) if self._fence is None else text.find(self._fence, start)
        return text.rfind("\n", start, change if change >= 0 else len(text)) + 1 or start

    def _change(self, text: str, start: int) -> int:
        """The next place that may change anything while nothing is open, or -1."""
        match = _FENCE_SIGN.search(text, start)
        return match.start() if match else -1

    def _read(self, part: str) -> None:
        if len(self._line) <= _LINE_LIMIT:
            self._line += part[: _LINE_LIMIT + 1]

    def _close_line(self, line: str) -> None:
        if self._fence is not None and not self._quote_is_over(line):
            if self._closes(line):
                self._fence, self._fence_quoted = None, False
            return
        self._fence, self._fence_quoted = None, False
        opener = self._opens(line)
        if opener is not None:
            prefix, self._fence = opener[1], opener[2]
            self._fence_indent, self._fence_quoted = len(prefix), ">" in prefix
            self.opened += 1

    def _opens(self, line: str) -> re.Match[str] | None:
        match = _fence(line)
        if match is None or len(line) > _LINE_LIMIT or (match[2][0] == "`" and "`" in match[3]):
            return None
        return match

    def _quote_is_over(self, line: str) -> bool:
        """The fence of a block quote ends with the quote."""
        return self._fence_quoted and not _is_quoted(line)

    def _closes(self, line: str) -> bool:
        assert self._fence is not None
        match = _fence(line)
        if match is None or match[3].strip() or len(match[1]) > self._fence_indent + 3:
            return False
        return match[2][0] == self._fence[0] and len(match[2]) >= len(self._fence)


def _fence(line: str) -> re.Match[str] | None:
    """A fence in `line`: what stands before it, itself, what stands behind."""
    return _FENCE.match(line) if "```" in line or "~~~" in line else None


def _is_quoted(line: str) -> bool:
    prefix = _PREFIX.match(line) if ">" in line else None
    return prefix is not None and ">" in prefix[0]


class Quoting(Fences):
    """All that quotes in the visible text of one message. Offsets are those of the message."""

    def __init__(self) -> None:
        super().__init__()
        self.run = 0  # length of the backtick run that is open
        self._think = False
        self._at = 0
        self._quoted_line = False
        self._after_markup = False
        self._long_run = False
        self._unread = ""  # of a line that opens a fence, unless a backtick follows
        self._known: dict[int, list[int]] = {}
        self._known_before = 0
        self._half = 0  # length of an open run that stands where a fence would, but in the middle of its line

    def read(self, text: str, at: int) -> None:
        """Read visible text that starts at offset `at`."""
        self._at = at
        self.advance(text)

    @property
    def place(self) -> Quote:
        """What quotes the place after the text read."""
        if self.inside or _is_quoted(self._line):
            return Quote.QUOTED
        if self.run:
            return Quote.CODE
        return Quote.THINK if self._think else Quote.NONE

    @property
    def at_line_start(self) -> bool:
        """True where only blanks stand before this place in its line, and no markup did."""
        return not self._after_markup and not self._line.strip(" \t")

    def skip(self, markup: str) -> None:
        """Markup that was removed stood here."""
        self._after_markup = not markup.endswith("\n")

    def unmatched(self, text: str, at: int) -> None:
        """The open run was never closed: its paragraph ends with `text`, which starts at `at`.

        From now to the paragraph's end a run opens code only if its partner stands there.
        """
        self.run = 0
        self._known = {}
        for match in re.finditer("`+", text):
            self._known.setdefault(len(match[0]), []).append(at + match.start())
        self._known_before = at + len(text)

    def _skip(self, text: str, start: int) -> int:
        if self.run:
            return start
        end = super()._skip(text, start)
        self._at += end - start
        self._after_markup = self._after_markup and end == start
        return end

    def _change(self, text: str, start: int) -> int:
        if self._at < self._known_before:
            return start
        match = _UNCHANGED.match(text, start)
        return match.end() if match else start

    def _read(self, part: str) -> None:
        if part and not self._line:
            self._start_line(part)
        super()._read(part)
        part, at = self._unread + part, self._at - len(self._unread)
        self._at = at + len(part)
        self._unread = part if self._fence is None and self.inside else ""
        if not self.inside:
            for match in _INLINE.finditer(part, self._rest_of_run(part)):
                self._inline(match[0], at + match.start())

    def _rest_of_run(self, part: str) -> int:
        """Of a run of backticks too long to be code: the end, where `part` goes on with it."""
        rest = len(part) - len(part.lstrip("`")) if self._long_run else 0
        self._long_run = rest == len(part) if self._long_run else part.endswith(_LONG_RUN)
        return rest

    def _start_line(self, part: str) -> None:
        quoted = _is_quoted(part)
        if self.run and _BLOCK.match(part) and not (quoted and self._quoted_line):
            self.run = 0
        self._quoted_line = quoted

    def _opens(self, line: str) -> re.Match[str] | None:
        """The end of a fence that was opened in the middle of a line opens none."""
        return None if self._half and line.strip(" \t\r") == "`" * self._half else super()._opens(line)

    def _close_line(self, line: str) -> None:
        super()._close_line(line)
        self._half = self.run if self.run >= 3 and (self._half or _half_fence(line)) else 0
        self._at += 1
        self._after_markup = self._long_run = False
        self._unread = ""
        if not line.strip():
            self.run = 0
            self._quoted_line = False

    def _inline(self, token: str, at: int) -> None:
        if token[0] == "<":
            if not self.run:
                self._think = token == "<think>"
        elif len(token) >= _RUN_LIMIT:
            return
        elif self.run == len(token):
            self.run = 0
        elif not self.run and self._has_partner(len(token), at):
            self.run = len(token)

    def _has_partner(self, length: int, at: int) -> bool:
        if at >= self._known_before:
            return True
        known = self._known.get(length, [])
        return bisect_right(known, at) < len(known)


def _half_fence(line: str) -> bool:
    """True where a line ends in what would open a fence, were it at its start."""
    return len(line) <= _LINE_LIMIT and _HALF.search(line) is not None


def settled(line: str) -> int:
    """How much of a long line can be read before the rest of it is there: not the start of a run, or of a tag."""
    run = len(line) - len(line.rstrip("`"))
    if run:
        return len(line) - run if run < _RUN_LIMIT else len(line)
    tag = line.rfind("<", -len("</think"))
    return tag if tag >= 0 and "</think>".startswith(line[tag:].replace("<t", "</t")) else len(line)


class CodeSpan:
    """Looks for the end of an inline code span from offset `start` inside it, once over the text."""

    def __init__(self, run: int, start: int) -> None:
        self.start = start
        self._close = re.compile(rf"(?<!`)`{{{run}}}(?=[^`])")
        # A fence that was opened in the middle of a line, which is none: its end shows what was meant.
        self._fence = re.compile(rf"[ \t]*`{{{run}}}[ \t\r]*") if run >= 3 else None
        self._line_start = -1  # of a line that may not be of the paragraph; the first one has begun before
        self._scanned = 0

    def end(self, text: str, final: bool) -> tuple[bool, int] | int:
        """(True, offset after the closing run), (False, offset where the paragraph ends), or, while neither is known,
        the offset from which the text is still needed: there it starts the next time.

        `final` says that nothing will follow.
        """
        if final:
            text += "\n\n"
        while True:
            stop = text.find("\n", self._scanned)
            whole = stop >= 0
            if self._line_start >= 0:
                line_end = stop if whole else len(text)
                fence = self._fence.fullmatch(text, self._line_start, line_end) if self._fence else None
                if not whole and (fence is not None or self._may_break(text, line_end)):
                    return self._needs(self._line_start)
                if fence is not None:
                    return True, fence.end()
                if self._breaks(text, line_end):
                    return False, min(self._line_start, len(text) - 2 * final)
                self._line_start = -1
            match = self._close.search(text, max(self._scanned - 1, 0), stop + 1 if whole else len(text))
            if match is not None:
                return True, match.end()
            if not whole:
                self._scanned = max(self._scanned, len(text.rstrip("`")))
                return self._needs(max(self._scanned - 1, 0))
            self._line_start = self._scanned = stop + 1

    def _needs(self, offset: int) -> int:
        self._scanned -= offset
        self._line_start = 0 if self._line_start >= 0 else -1
        return offset

    def _may_break(self, text: str, end: int) -> bool:
        """True where not enough of the line is there to tell what it is."""
        begun = _BLOCK_START.fullmatch(text, self._line_start, end) is not None
        return begun or not text[self._line_start : end].strip()

    def _breaks(self, text: str, end: int) -> bool:
        """True where the line, or as much as tells what it is, is blank or starts a block."""
        return not text[self._line_start : end].strip() or _BLOCK.match(text, self._line_start, end) is not None
