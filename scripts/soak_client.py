"""The clients of the soak: each asks for one answer, and says what is wrong with what it got.

A part of soak.py.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from soak_says import ERRORS, LINE, PATHS, Said, read
from soak_upstream import HTML, LEAKY, WHOLE, Fault

_SMALL = 1 << 16  # bytes of the buffer that the system has for a slow client
_SLOW_SIZE = 300 * LINE  # characters of a delta of what a slow client is told
_SLOW_REPEATS = 150_000  # so that it is more than all buffers hold
_SLOW_REPEATS_RESPONSES = 20_000  # this wire says it all three times again at the end
PATIENCE = 5.0  # seconds of silence after which a client gives up, where the provider stays half open
_BROKEN = (Fault.RESET_MID_FRAME, Fault.RESET_MID_HOLD, Fault.RESET_AFTER_FINISH, Fault.HALF_CLOSED, Fault.GZIP_CUT)
RESETS = (Fault.RESET_MID_FRAME, Fault.RESET_MID_HOLD, Fault.HALF_CLOSED)  # nothing is lost that was sent before


def said_for(number: int, wire: str, fault: Fault, leaks: bool) -> Said:
    """What is to be said to a client that meets this fault."""
    if fault is Fault.SLOW_CLIENT:
        repeats = _SLOW_REPEATS_RESPONSES if wire == "openai-responses" else _SLOW_REPEATS
        return Said(number, wire, False, repeats, _SLOW_SIZE)
    return Said(number, wire, leaks or fault in LEAKY)


@dataclass
class Answer:
    """What arrived. `complete`: it ended as HTTP says; `left`: the client went away by itself."""

    status: int = 0
    body: bytes = b""
    complete: bool = False
    left: bool = False
    pieces: list[bytes] = field(default_factory=list)


class _Left(Exception):
    """The client has had enough."""


async def ask(port: int, said: Said, fault: Fault, *, patience: float = PATIENCE, slow: float = 1.0) -> Answer:
    """One request over a connection of its own. `slow`: seconds for which a slow client reads nothing."""
    with socket.socket() as carrier:
        carrier.setblocking(False)
        if fault is Fault.SLOW_CLIENT:
            carrier.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
        await asyncio.get_running_loop().sock_connect(carrier, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=carrier.dup())
    answer = Answer()
    try:
        writer.write(_request(said, fault))
        await _receive(reader, answer, fault, patience, slow)
    except (ConnectionError, asyncio.IncompleteReadError, ValueError):
        pass
    except _Left:
        answer.left = True
        if said.number % 2:  # as a process does that is killed; else as one that closes
            held: socket.socket = writer.get_extra_info("socket")
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        writer.transport.abort()
    answer.body = b"".join(answer.pieces)
    return answer


def _request(said: Said, fault: Fault) -> bytes:
    body = said.request()
    head = [
        f"POST {PATHS[said.wire]} HTTP/1.1",
        "host: provider",
        "content-type: application/json",
        f"x-fault: {fault}",
        f"x-said: {said.header()}",
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


async def _receive(reader: asyncio.StreamReader, answer: Answer, fault: Fault, patience: float, slow: float) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    answer.status = int(head.split()[1])
    if fault is Fault.SLOW_CLIENT:
        await asyncio.sleep(slow)
    if b"transfer-encoding: chunked" not in head:
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        answer.pieces.append(await reader.readexactly(length))
        answer.complete = True
        return
    while True:
        try:
            async with asyncio.timeout(patience if fault is Fault.HALF_OPEN else None):
                size = int(await reader.readline(), 16)
                piece = (await reader.readexactly(size + 2))[:-2]
        except TimeoutError:
            raise _Left from None
        if not size:
            answer.complete = True
            return
        answer.pieces.append(piece)
        if fault is Fault.CLIENT_GONE:
            await asyncio.sleep(0.2)
            raise _Left


def judge(said: Said, fault: Fault, answer: Answer, *, strict: bool = False) -> list[str]:
    """What is wrong with an answer; nothing, where it is as it must be for this fault.

    `strict` is for a machine that is not busy. Else two things may be: mitmproxy loses what it has received and not
    read when a reset comes; and where the provider was silent for `dsml_idle_flush` in the middle of an opening tag,
    what had come of the tag is text.
    """
    return list(_complaints(said, fault, answer, strict))


def _complaints(said: Said, fault: Fault, answer: Answer, strict: bool) -> Iterator[str]:
    if fault is Fault.RESET_BEFORE_HEADERS:
        if answer.status != 502:
            yield f"status {answer.status}, not 502"
        return
    if fault is Fault.HTML_500:
        if (answer.status, answer.body, answer.complete) != (500, HTML, True):
            yield "the page of the error is another one"
        return
    if fault in WHOLE and not said.leaks and answer.complete and answer.body == b"".join(said.frames):
        return  # there is no need to read it
    seen = read(said.wire, answer.body)
    if answer.status != 200:
        yield f"status {answer.status}"
    if seen.tags() - {said.tag}:
        yield f"foreign tags: {sorted(seen.tags() - {said.tag})}"
    if seen.bad:
        yield f"{len(seen.bad)} frames that are no JSON"
    if fault in WHOLE or fault is Fault.RESET_AFTER_FINISH:
        yield from _whole(said, fault, answer, strict)
    else:
        yield from _part(said, fault, answer, strict)


def _whole(said: Said, fault: Fault, answer: Answer, strict: bool) -> Iterator[str]:
    """The finish has come, so all before it must be right."""
    seen = read(said.wire, answer.body)
    if not _is_prose(seen.text, said, strict):
        yield _different("text", seen.text, said.prose)
    calls = [("write", said.arguments)] if said.leaks else []
    if seen.calls != calls:
        yield f"calls {seen.calls}"
    if seen.finish != ("tool_calls" if said.leaks else "stop"):
        yield f"finish {seen.finish}"
    if answer.complete is not (fault in WHOLE):
        yield f"complete: {answer.complete}"
    if fault in WHOLE and not (seen.done and not seen.rest):
        yield "no end of the wire's own"
    if fault in WHOLE and not said.leaks and answer.body != b"".join(said.frames):
        yield "bytes that nothing had to change were changed"


def _part(said: Said, fault: Fault, answer: Answer, strict: bool) -> Iterator[str]:
    """The answer stopped in the middle: no call, no finish, and nothing that was not sent."""
    seen = read(said.wire, answer.body)
    before = said.frames[: said.frames_to(said.middle)]
    sent = read(said.wire, b"".join(before)).text
    if seen.calls or seen.finish:
        yield f"invented: calls {seen.calls}, finish {seen.finish}"
    if not said.text.startswith(seen.text):
        yield _different("text", seen.text, said.text)
    last = answer.body.rstrip(b"\n").rpartition(b"\n")[2]
    if fault is Fault.ERROR_EVENT and not (seen.error and b"overloaded" in last):
        yield "the error does not end it"
    if (fault is Fault.ERROR_EVENT or (strict and fault in RESETS)) and seen.text != sent:
        yield _different("text", seen.text, sent)
    if fault is Fault.HALF_OPEN and (not _is_prose(seen.text, said, strict) if said.leaks else seen.text != sent):
        yield _different("text", seen.text, said.prose if said.leaks else sent)
    if strict and fault is Fault.RESET_MID_FRAME and not seen.rest:
        yield "the frame that was cut is not there"
    ended = ERRORS[said.wire] if fault is Fault.ERROR_EVENT else b""
    if not said.leaks and not b"".join([*before, ended] if ended else said.frames).startswith(answer.body):
        yield "bytes that nothing had to change were changed"
    if answer.complete and fault in _BROKEN:
        yield "it ended as if all were well"


def _is_prose(text: str, said: Said, strict: bool) -> bool:
    """All of the prose and, if that may be, the beginning of the tag behind it."""
    prose, rest = text[: len(said.prose)], text[len(said.prose) :]
    return prose == said.prose and (not rest or (not strict and said.opener.startswith(rest)))


def _different(what: str, got: str, due: str) -> str:
    same = next((at for at, (one, other) in enumerate(zip(got, due, strict=False)) if one != other), None)
    at = min(len(got), len(due)) if same is None else same
    shown = f"{got[at : at + 40]!a}, {due[at : at + 40]!a}"
    return f"{what}: {len(got)} characters, {len(due)} were due; from {at}: {shown}"
