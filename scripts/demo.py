"""Usage: scripts/run --demo

Shows leaked tool calls before and after the repair: a provider that leaks them, a client that asks it directly, and
the same client with mitmdump and the addon in between. All of it is on this machine, without a key.
Status 0 only if every call arrived and the harmless answer was not touched.
"""

from __future__ import annotations

import interrupt

if __name__ == "__main__":
    interrupt.end_quietly()

import argparse
import contextlib
import http.client
import json
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ADDON = Path(__file__).resolve().parent.parent / "addon" / "dsml.py"
BAR = chr(0xFF5C)  # a marker written out here could be taken for a call by the tools this project is for
MARK = BAR + "DS" + "ML" + BAR
SHOWN_BAR = "\u00a6"
SECONDS = 30

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["path"],
            },
        },
    }
]


@dataclass(frozen=True)
class Scene:
    """What the model writes (@ is the marker), and what a client should get."""

    title: str
    markup: str
    text: str
    calls: list[tuple[str, dict[str, Any]]]

    @property
    def written(self) -> str:
        return self.markup.replace("@", MARK)


SCENES = [
    Scene(
        "Official markup that the provider did not turn into a call",
        'Let me look at it.\n\n<@tool_calls>\n<@invoke name="read_file">\n'
        '<@parameter name="path" string="true">src/main.py</@parameter>\n'
        '<@parameter name="limit" string="false">40</@parameter>\n</@invoke>\n</@tool_calls>',
        "Let me look at it.",
        [("read_file", {"path": "src/main.py", "limit": 40})],
    ),
    Scene(
        "The same with a space in every tag, the closing tags damaged, and no type on the number",
        '<@ calls>\n<@ invoke name="read_file">\n<@ parameter name="path" string="true">a.txt</@ parameter>\n'
        '<@ parameter name="limit">7</parameter>\n</invoke>\n</@ calls>',
        "",
        [("read_file", {"path": "a.txt", "limit": 7})],
    ),
    Scene(
        "An answer that only looks a little like it",
        "Write `a < b`, then close the <div>. Nothing to run here.",
        "Write `a < b`, then close the <div>. Nothing to run here.",
        [],
    ),
]


# --- The provider -----------------------------------------------------------------------------------------------------


def stream(text: str) -> bytes:
    """A Chat Completions stream of `text`, four characters a chunk."""
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": text[start : start + 4]}, None) for start in range(0, len(text), 4)]
    deltas.append(({}, "stop"))
    head = {"id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": 1, "model": "deepseek-demo"}
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} for delta, finish in deltas]
    events = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


class Provider(BaseHTTPRequestHandler):
    """Answers with the scene whose number is the last message."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in stream(SCENES[int(asked["messages"][-1]["content"])].written).splitlines(keepends=True):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def provider() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


# --- The proxy --------------------------------------------------------------------------------------------------------


class Proxy:
    """A mitmdump that is running; `lines` is what it has said."""

    def __init__(self, upstream: int, folder: str) -> None:
        self.lines: list[str] = []
        self.port = 0
        self._up = threading.Event()
        run = "from mitmproxy.tools.main import mitmdump; mitmdump()"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-u", "-c", run, "-s", str(ADDON), "--set", f"confdir={folder}"),
                *("--mode", f"reverse:http://127.0.0.1:{upstream}", "--listen-host", "127.0.0.1", "-p", "0"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            if listening := re.search(r"listening at \S+:(\d+)", line):
                self.port = int(listening[1])
                self._up.set()
        self._up.set()

    def wait(self) -> None:
        self._up.wait(SECONDS)
        if not self.port:
            sys.exit("mitmdump did not start:\n" + "\n".join(self.lines))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)
        self._reader.join(SECONDS)


@contextlib.contextmanager
def proxy(upstream: int) -> Iterator[Proxy]:
    with tempfile.TemporaryDirectory() as folder:
        running = Proxy(upstream, folder)
        try:
            running.wait()
            yield running
        finally:
            running.stop()


# --- The client -------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """What a client makes of a stream."""

    raw: bytes
    text: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    finish: str | None = None


def ask(port: int, number: int) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    body = {
        "model": "deepseek-demo",
        "stream": True,
        "tools": TOOLS,
        "messages": [{"role": "user", "content": str(number)}],
    }
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    answer = Answer(connection.getresponse().read())
    connection.close()
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for line in answer.raw.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line.removeprefix("data: "))["choices"]:
            answer.finish = choice["finish_reason"] or answer.finish
            answer.text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or []:
                function = call["function"]
                names[call["index"]] = names.get(call["index"], "") + (function.get("name") or "")
                arguments[call["index"]] = arguments.get(call["index"], "") + (function.get("arguments") or "")
    answer.calls = [(names[index], json.loads(arguments[index])) for index in sorted(names)]
    return answer


# --- The show ---------------------------------------------------------------------------------------------------------


def show(label: str, answer: Answer) -> None:
    rows = [("text", line) for line in answer.text.replace(BAR, SHOWN_BAR).strip().splitlines() or ["(none)"]]
    rows += [("call", f"{name} {json.dumps(arguments)}") for name, arguments in answer.calls]
    rows.append(("finish", str(answer.finish)))
    shown = ""
    for kind, line in rows:
        print(f"  {label:8}{'' if kind == shown else kind:8}{line}")
        label, shown = "", kind


def is_right(scene: Scene, before: Answer, after: Answer) -> bool:
    if not scene.calls:
        return after.raw == before.raw
    return (after.calls, after.text.strip(), after.finish) == (scene.calls, scene.text, "tool_calls")


def main() -> int:
    argparse.ArgumentParser(usage=__doc__.removeprefix("Usage: ")).parse_args()
    print("A provider leaks tool calls into its text. Before: a client asks it directly. After: through the proxy.")
    wrong = 0
    with provider() as upstream, proxy(upstream) as running:
        for number, scene in enumerate(SCENES):
            before, after = ask(upstream, number), ask(running.port, number)
            right = is_right(scene, before, after)
            wrong += not right
            print(f"\n{number + 1}. {scene.title}")
            show("before", before)
            show("after", after)
            good = "the call arrived" if scene.calls else "not a byte was changed"
            print(f"  {'->':8}{good if right else 'WRONG'}")
    print("\nWhat the proxy said:")
    for line in running.lines:
        if "dsml: " in line:
            print(textwrap.indent(line[line.index("dsml: ") :], "  "))
    print(f"\n(The full-width bars of the markup are shown as {SHOWN_BAR}.)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
