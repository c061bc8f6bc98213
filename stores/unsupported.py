"""What looks like a history, and is in a form that is not repaired: the Responses API's, in which Codex keeps sessions
too.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, Final

from stores.jsontext import read_lines

UNSUPPORTED: Final = "sessions of Codex and bodies of the Responses API are not supported"
_LOOK: Final = 20  # lines of a file, items of a list
_ROLLOUT: Final = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_ITEMS: Final = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
_TEXTS: Final = ("input_text", "output_text")


def is_rollout(path: Path) -> bool:
    """Whether a JSONL file is a session of Codex."""
    with path.open("rb") as lines:
        return any(is_of_responses(line.value) for line in read_lines(islice(lines, _LOOK), str(path)))


def is_of_responses(value: Any) -> bool:
    """Whether a JSON value is a body of the Responses API, items of one, or a line of a session of Codex."""
    if isinstance(value, list):
        return any(map(_is_item, value[:_LOOK]))
    if not isinstance(value, dict) or "messages" in value:
        return False
    is_line = value.get("type") in _ROLLOUT and isinstance(value.get("payload"), dict)
    is_first_line = {"id", "timestamp", "instructions"} <= value.keys()  # of older versions
    is_body = value.get("object") == "response" or isinstance(value.get("input"), str | list)
    return is_line or is_first_line or is_body or _is_item(value)


def _is_item(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    content = value.get("content")
    parts = content[:1] if isinstance(content, list) else []
    has_text = any(isinstance(part, dict) and part.get("type") in _TEXTS for part in parts)
    return value.get("type") in _ITEMS or has_text
