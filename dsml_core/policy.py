"""What a user may decide about the repair of one response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Policy:
    """Defaults are those of the addon's options (README). Limits count characters.

    `calls=False` is the request's `tool_choice: none`: markup is removed, nothing runs.
    `quoted` holds the texts of the request's user, tool and system messages for the echo guard.
    """

    profile: Literal["relaxed", "strict"] = "relaxed"
    values: Literal["schema", "literals"] = "schema"
    undeclared: Literal["keep", "reject"] = "keep"
    candidate_limit: int = 1024
    hold_limit: int = 64 * 1024
    declared_hold_limit: int = 4 * 1024 * 1024
    calls: bool = True
    quoted: tuple[str, ...] = ()
