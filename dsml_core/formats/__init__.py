"""The wires, by name and by path. A new one is one file here and one line in each table."""

from __future__ import annotations

from dsml_core.formats.anthropic import Anthropic
from dsml_core.formats.chat import Chat
from dsml_core.formats.ollama import Ollama
from dsml_core.formats.responses import Responses
from dsml_core.formats.wire import Wire

WIRES: dict[str, type[Wire]] = {wire.NAME: wire for wire in (Chat, Responses, Anthropic, Ollama)}

PATHS = {
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
    "/messages": "anthropic",
    "/api/chat": "ollama",
}


def wire_of(path: str) -> str | None:
    """The name of the wire a request path speaks (a query is ignored), None for any other path."""
    path = path.partition("?")[0].rstrip("/")
    return next((wire for suffix, wire in PATHS.items() if path.endswith(suffix)), None)
