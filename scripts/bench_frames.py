"""The whole core on bytes: cost of one frame of each wire through `Repairer`, four characters of text in each.

A part of bench.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import bench_texts as texts

from dsml_core import Repairer

WIRES = ("openai-chat", "openai-responses", "anthropic", "ollama")


@dataclass
class Row:
    """Microseconds a frame: through `Repairer`, and for `json.loads` of its data alone."""

    wire: str
    text: str
    frames: int
    repairer: float
    loads: float


def _sse(value: dict[str, Any], named: bool = False) -> bytes:
    head = f"event: {value['type']}\n" if named else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _chat(deltas: list[str]) -> Iterator[bytes]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "deepseek-v4"}

    def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _sse({**base, "system_fingerprint": "fp_1", "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk({"content": delta}) for delta in deltas)
    yield chunk({}, "stop")
    yield b"data: [DONE]\n\n"


def _responses(deltas: list[str]) -> Iterator[bytes]:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "deepseek-v4", "status": "in_progress"}
    part = {"type": "output_text", "text": "", "annotations": []}
    full = {**part, "text": "".join(deltas)}
    done = {**item, "status": "completed", "content": [full]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **place, "part": part},
        *({"type": "response.output_text.delta", **place, "delta": delta} for delta in deltas),
        {"type": "response.output_text.done", **place, "text": full["text"]},
        {"type": "response.content_part.done", **place, "part": full},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {**response, "status": "completed", "output": [done]}},
    ]
    for number, event in enumerate(events):
        yield _sse({**event, "sequence_number": number}, named=True)


def _anthropic(deltas: list[str]) -> Iterator[bytes]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "deepseek-v4", "content": []}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield _sse({"type": "message_start", "message": start}, named=True)
    block = {"type": "text", "text": ""}
    yield _sse({"type": "content_block_start", "index": 0, "content_block": block}, named=True)
    for delta in deltas:
        said = {"type": "text_delta", "text": delta}
        yield _sse({"type": "content_block_delta", "index": 0, "delta": said}, named=True)
    yield _sse({"type": "content_block_stop", "index": 0}, named=True)
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _sse({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}, named=True)
    yield _sse({"type": "message_stop"}, named=True)


def _ollama(deltas: list[str]) -> Iterator[bytes]:
    base = {"model": "deepseek-v4", "created_at": "2026-01-01T00:00:00Z"}
    for delta in deltas:
        line = {**base, "message": {"role": "assistant", "content": delta}, "done": False}
        yield (json.dumps(line, ensure_ascii=False) + "\n").encode()
    last = {"role": "assistant", "content": ""}
    yield (json.dumps({**base, "message": last, "done": True, "done_reason": "stop"}) + "\n").encode()


_FRAMES = {"openai-chat": _chat, "openai-responses": _responses, "anthropic": _anthropic, "ollama": _ollama}


def frames(wire: str, text: str, size: int = 4) -> list[bytes]:
    """What a provider streams on `wire` to say `text`, `size` characters a frame."""
    return list(_FRAMES[wire](texts.deltas(text, size)))


def measure(length: int = 40_000, rounds: int = 5) -> list[dict[str, Any]]:
    said = {"prose": texts.prose(length), "tsx": texts.tsx(length), "value": texts.call(texts.prose(length))}
    rows = []
    for wire in WIRES:
        for name, text in said.items():
            parts = frames(wire, text)
            best = min(_repair(wire, parts) for _ in range(rounds))
            least = min(_load(parts) for _ in range(rounds))
            rows.append(Row(wire, name, len(parts), best / len(parts) * 1e6, least / len(parts) * 1e6))
    return [asdict(row) for row in rows]


def _repair(wire: str, parts: list[bytes]) -> float:
    repairer = Repairer(wire, stream=True, tools=texts.TOOLS)
    start = time.process_time()
    for part in parts:
        repairer.feed(part)
    repairer.close()
    return time.process_time() - start


def _load(parts: list[bytes]) -> float:
    data = [part[part.find(b"{") : part.rfind(b"}") + 1] for part in parts]
    start = time.process_time()
    for value in data:
        if value:
            json.loads(value)
    return time.process_time() - start
