"""Requests, streams and bodies of every wire, in the shape each API documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.markers import live

PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/anthropic/v1/messages",
    "ollama": "/api/chat",
}
any_wire = pytest.mark.parametrize("wire", PATHS)
KINDS = {wire: "application/x-ndjson" if wire == "ollama" else "text/event-stream" for wire in PATHS}
MODEL = "deepseek-test"
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["path"],
}
CALL = ("read_file", {"path": "a.txt", "limit": 7})
# The number has no type of its own: that it arrives as one shows that the request's tools were read.
LEAK = live(
    '<{M}tool_calls>\n<{M}invoke name="read_file">\n<{M}parameter name="path" string="true">a.txt</{M}parameter>\n'
    '<{M}parameter name="limit">7</{M}parameter>\n</{M}invoke>\n</{M}tool_calls>'
)
PROSE = "Compare a < b, <div> and a <|x|> of \u20ac and \U0001f600; `<` ends it <"


def tools(wire: str) -> list[dict[str, Any]]:
    function = {"name": "read_file", "description": "Read a file", "parameters": PARAMETERS}
    if wire == "anthropic":
        return [{"name": "read_file", "description": "Read a file", "input_schema": PARAMETERS}]
    return [
        {"type": "function", **function} if wire == "openai-responses" else {"type": "function", "function": function}
    ]


def request(wire: str, *, stream: bool = True, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": "Read a.txt"}]
    asked = {"input" if wire == "openai-responses" else "messages": said}
    return {"model": MODEL, "stream": stream, "tools": tools(wire), **asked, **more}


def cut(text: str, size: int = 4) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def sse(value: Any, event: str = "") -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def stream(wire: str, text: str) -> list[bytes]:
    """The frames of a stream that says `text`, four characters a frame."""
    return list(_STREAMS[wire](text))


def body(wire: str, text: str) -> bytes:
    """The whole response that says `text`."""
    return json.dumps(_BODIES[wire](text), ensure_ascii=False, indent=1).encode()


def _chat_stream(text: str) -> Iterator[bytes]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    yield sse({**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
    for piece in cut(text):
        yield sse({**head, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
    yield sse({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    yield sse({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _chat_body(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
    }


def _responses_body(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": MODEL,
        "status": "completed",
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "usage": {
            "input_tokens": 5,
            "output_tokens": 7,
            "total_tokens": 12,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _responses_stream(text: str) -> Iterator[bytes]:
    complete = _responses_body(text)
    (item,) = complete["output"]
    (part,) = item["content"]
    early = {**complete, "status": "in_progress", "output": [], "usage": None}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": early},
        {"type": "response.in_progress", "response": early},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []} for piece in cut(text)),
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": complete},
    ]
    for number, event in enumerate(events):
        yield sse({"type": event["type"], "sequence_number": number, **event}, event["type"])


def _anthropic_body(text: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 7},
    }


def _anthropic_stream(text: str) -> Iterator[bytes]:
    start = {
        **_anthropic_body(""),
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 5, "output_tokens": 1},
    }
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    deltas = ({"type": "text_delta", "text": piece} for piece in cut(text))
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    for event in events:
        yield sse(event, event["type"])


def _ollama_body(text: str, done: bool = True) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    head = {"model": MODEL, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done}
    return {**head, "done_reason": "stop", "total_duration": 1, "eval_count": 7} if done else head


def _ollama_stream(text: str) -> Iterator[bytes]:
    for piece in cut(text):
        yield json.dumps(_ollama_body(piece, done=False), ensure_ascii=False).encode() + b"\n"
    yield json.dumps(_ollama_body("")).encode() + b"\n"


_STREAMS = {
    "openai-chat": _chat_stream,
    "openai-responses": _responses_stream,
    "anthropic": _anthropic_stream,
    "ollama": _ollama_stream,
}
_BODIES = {
    "openai-chat": _chat_body,
    "openai-responses": _responses_body,
    "anthropic": _anthropic_body,
    "ollama": _ollama_body,
}
