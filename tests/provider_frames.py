"""What a provider sends: one answer, told in the frames or in the body of any wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
WIRES = ("openai-chat", "openai-responses", "anthropic", "ollama")


@dataclass(frozen=True)
class Says:
    """A part of an answer: text or reasoning, in the pieces it arrives in."""

    pieces: Sequence[str]
    reasoning: bool = False


@dataclass(frozen=True)
class Calls:
    """A structured call, its arguments in the pieces they arrive in."""

    name: str
    pieces: Sequence[str]


Answer = Sequence[Says | Calls]


def pieces(text: str, size: int = 4) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def says(text: str, size: int = 4, reasoning: bool = False) -> Says:
    return Says(pieces(text, size), reasoning)


def sse(value: Any, event: str | None = None) -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def stream(wire: str, answer: Answer, finish: str = "stop") -> list[bytes]:
    """The frames of a streamed answer; `finish` is stop, length or content_filter."""
    return list(_STREAMS[wire](answer, finish))


def body(wire: str, answer: Answer, finish: str = "stop") -> bytes:
    """The answer as one JSON document, laid out as no serialiser of ours would."""
    return json.dumps(_BODIES[wire](answer, finish), ensure_ascii=False, indent=1).encode()


def _finish(answer: Answer, finish: str) -> str:
    return "tool_calls" if finish == "stop" and any(isinstance(step, Calls) for step in answer) else finish


# -- Chat Completions

_CHAT = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "deepseek-test"}
_USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}


def chat_chunk(delta: Body, finish: str | None = None, choice: int = 0) -> bytes:
    return sse({**_CHAT, "choices": [{"index": choice, "delta": delta, "finish_reason": finish}]})


def _chat_stream(answer: Answer, finish: str) -> Iterator[bytes]:
    yield chat_chunk({"role": "assistant", "content": ""})
    index = 0
    for step in answer:
        if isinstance(step, Says):
            for piece in step.pieces:
                yield chat_chunk({"reasoning_content" if step.reasoning else "content": piece})
            continue
        head = {"index": index, "id": f"call_n{index}", "type": "function"}
        yield chat_chunk({"tool_calls": [{**head, "function": {"name": step.name, "arguments": ""}}]})
        for piece in step.pieces:
            yield chat_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        index += 1
    yield chat_chunk({}, _finish(answer, finish))
    yield sse({**_CHAT, "choices": [], "usage": _USAGE})
    yield b"data: [DONE]\n\n"


def _chat_body(answer: Answer, finish: str) -> Body:
    message: Body = {"role": "assistant", "content": _joined(answer, reasoning=False)}
    if reasoning := _joined(answer, reasoning=True):
        message["reasoning_content"] = reasoning
    calls = [
        {"id": f"call_n{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(_calls(answer))
    ]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer, finish)}
    return {**_CHAT, "object": "chat.completion", "choices": [choice], "usage": _USAGE}


def _joined(answer: Answer, reasoning: bool) -> str:
    parts = [step for step in answer if isinstance(step, Says) and step.reasoning == reasoning]
    return "".join("".join(part.pieces) for part in parts)


def _calls(answer: Answer) -> list[tuple[str, str]]:
    return [(step.name, "".join(step.pieces)) for step in answer if isinstance(step, Calls)]


# -- Responses


def _responses_body(answer: Answer, finish: str) -> Body:
    reason = {"length": "max_output_tokens"}.get(finish, finish)
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "deepseek-test",
        "status": "completed" if finish == "stop" else "incomplete",
        "output": [_item(number, step) for number, step in enumerate(answer)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None if finish == "stop" else {"reason": reason},
        "usage": {
            "input_tokens": 5,
            "output_tokens": 7,
            "total_tokens": 12,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _item(number: int, step: Says | Calls) -> Body:
    if isinstance(step, Calls):
        return {
            "type": "function_call",
            "id": f"fc_n{number}",
            "call_id": f"call_n{number}",
            "name": step.name,
            "arguments": "".join(step.pieces),
            "status": "completed",
        }
    text = "".join(step.pieces)
    if step.reasoning:
        return {"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": text}]}
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}


def _responses_stream(answer: Answer, finish: str) -> Iterator[bytes]:
    complete = _responses_body(answer, finish)
    early = {**complete, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events: list[Body] = [
        {"type": "response.created", "response": early},
        {"type": "response.in_progress", "response": early},
    ]
    for index, (step, item) in enumerate(zip(answer, complete["output"], strict=True)):
        events += _item_events(index, step, item)
    events.append({"type": "response.completed" if finish == "stop" else "response.incomplete", "response": complete})
    for number, event in enumerate(events):
        yield sse({"type": event["type"], "sequence_number": number, **event}, event["type"])


def _item_events(index: int, step: Says | Calls, item: Body) -> Iterator[Body]:
    at: Body = {"item_id": item["id"], "output_index": index}
    if isinstance(step, Calls):
        kind = "response.function_call_arguments"
        yield _added(index, {**item, "arguments": "", "status": "in_progress"})
        yield from ({"type": f"{kind}.delta", **at, "delta": piece} for piece in step.pieces)
        yield {"type": f"{kind}.done", **at, "name": step.name, "arguments": item["arguments"]}
    else:
        holder = "summary" if step.reasoning else "content"
        at |= {f"{holder}_index": 0}
        (part,) = item[holder]
        kind = "response.reasoning_summary_text" if step.reasoning else "response.output_text"
        part_kind = "response.reasoning_summary_part" if step.reasoning else "response.content_part"
        yield _added(index, {**item, holder: []})
        yield {"type": f"{part_kind}.added", **at, "part": {**part, "text": ""}}
        yield from ({"type": f"{kind}.delta", **at, "delta": piece} for piece in step.pieces)
        yield {"type": f"{kind}.done", **at, "text": part["text"]}
        yield {"type": f"{part_kind}.done", **at, "part": part}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _added(index: int, item: Body) -> Body:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


# -- Anthropic Messages

_STOPS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use"}


def _anthropic_body(answer: Answer, finish: str) -> Body:
    content: list[Body] = []
    for number, step in enumerate(answer):
        if isinstance(step, Calls):
            made = json.loads("".join(step.pieces) or "{}")
            content.append({"type": "tool_use", "id": f"toolu_n{number}", "name": step.name, "input": made})
        elif step.reasoning:
            content.append({"type": "thinking", "thinking": "".join(step.pieces), "signature": "sig"})
        else:
            content.append({"type": "text", "text": "".join(step.pieces)})
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "deepseek-test",
        "content": content,
        "stop_reason": _STOPS[_finish(answer, finish)],
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 7},
    }


def _anthropic_stream(answer: Answer, finish: str) -> Iterator[bytes]:
    message = {**_anthropic_body([], finish), "stop_reason": None, "usage": {"input_tokens": 5, "output_tokens": 1}}
    events: list[Body] = [{"type": "message_start", "message": message}]
    for index, step in enumerate(answer):
        block, deltas = _block(index, step)
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "ping"}] if index == 0 else []
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": _STOPS[_finish(answer, finish)], "stop_sequence": None}
    events += [{"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}}, {"type": "message_stop"}]
    for event in events:
        yield sse(event, event["type"])


def _block(index: int, step: Says | Calls) -> tuple[Body, list[Body]]:
    if isinstance(step, Calls):
        block: Body = {"type": "tool_use", "id": f"toolu_n{index}", "name": step.name, "input": {}}
        return block, [{"type": "input_json_delta", "partial_json": piece} for piece in step.pieces]
    if step.reasoning:
        deltas: list[Body] = [{"type": "thinking_delta", "thinking": piece} for piece in step.pieces]
        signed = {"type": "signature_delta", "signature": "sig"}
        return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in step.pieces]


# -- Ollama

_OLLAMA = {"model": "deepseek-test", "created_at": "2026-01-01T00:00:00Z"}
_TIMES = {"total_duration": 1, "eval_count": 7}


def ollama_line(said: Body, **more: Any) -> bytes:
    line = {**_OLLAMA, "message": {"role": "assistant", "content": "", **said}, "done": False, **more}
    return (json.dumps(line, ensure_ascii=False) + "\n").encode()


def _ollama_stream(answer: Answer, finish: str) -> Iterator[bytes]:
    for step in answer:
        if isinstance(step, Calls):
            yield ollama_line({"tool_calls": [_function(step)]})
        else:
            yield from (ollama_line({"thinking" if step.reasoning else "content": piece}) for piece in step.pieces)
    yield ollama_line({}, done=True, done_reason=finish, **_TIMES)


def _ollama_body(answer: Answer, finish: str) -> Body:
    said: Body = {"role": "assistant", "content": _joined(answer, reasoning=False)}
    if reasoning := _joined(answer, reasoning=True):
        said["thinking"] = reasoning
    if calls := [_function(step) for step in answer if isinstance(step, Calls)]:
        said["tool_calls"] = calls
    return {**_OLLAMA, "message": said, "done": True, "done_reason": finish, **_TIMES}


def _function(step: Calls) -> Body:
    return {"function": {"name": step.name, "arguments": json.loads("".join(step.pieces) or "{}")}}


_STREAMS: dict[str, Callable[[Answer, str], Iterator[bytes]]] = {
    "openai-chat": _chat_stream,
    "openai-responses": _responses_stream,
    "anthropic": _anthropic_stream,
    "ollama": _ollama_stream,
}
_BODIES: dict[str, Callable[[Answer, str], Body]] = {
    "openai-chat": _chat_body,
    "openai-responses": _responses_body,
    "anthropic": _anthropic_body,
    "ollama": _ollama_body,
}
