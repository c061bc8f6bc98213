import re

import pytest

from dsml_core import prompts
from dsml_core.parser import parse

from .markers import WORD

TEXTS = {"directive": prompts.DIRECTIVE, "nudge": prompts.NUDGE, "wake": prompts.WAKE}
# 4 characters or 0.73 words a token: what tokenizers of this family need for English, rounded up.
CHARACTERS_PER_TOKEN, TOKENS_PER_WORD = 4, 1.37


@pytest.mark.parametrize(("name", "tokens"), [("directive", 130), ("nudge", 80), ("wake", 20)])
def test_length(name: str, tokens: int) -> None:
    assert len(TEXTS[name]) <= tokens * CHARACTERS_PER_TOKEN
    assert len(TEXTS[name].split()) * TOKENS_PER_WORD <= tokens


@pytest.mark.parametrize("text", [*TEXTS.values(), prompts.note("edit"), prompts.note(None)])
def test_no_live_marker(text: str) -> None:
    assert text.isascii()
    assert WORD.lower() not in text.lower()
    assert not set("<>|") & set(text)
    parsed = parse(text)
    assert (parsed.text, parsed.saw_syntax) == (text, False)


def test_directive_says_the_whole_envelope_and_names_no_grammar() -> None:
    for word in ("outer", "invoke", "parameters", "closed", "single bars", 'string="true"'):
        assert word in prompts.DIRECTIVE
    assert not re.search("tool_calls|function_calls| calls>", prompts.DIRECTIVE)


@pytest.mark.parametrize(
    ("name", "malformed", "note"),
    [
        ("edit", True, "[removed malformed edit call]"),
        ("edit", False, "[removed edit call]"),
        (None, True, "[removed malformed call]"),
        (None, False, "[removed call]"),
        ("mcp__files.read/v2:x-y", True, "[removed malformed mcp__files.read/v2:x-y call]"),
        ("", True, "[removed malformed call]"),
        ("edit {", True, "[removed malformed call]"),
        ("a\nb", True, "[removed malformed call]"),
        ("edit\n", True, "[removed malformed call]"),
        ("n" * 65, True, "[removed malformed call]"),
    ],
)
def test_note(name: str | None, malformed: bool, note: str) -> None:
    assert prompts.note(name, malformed=malformed) == note
