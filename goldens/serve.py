"""A provider on this machine that answers with goldens, in their own pieces and at their own pace."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dsml_core.formats import PATHS, wire_of
from goldens.format import Golden

_ADDRESS = "127.0.0.1"
_KINDS = {"ollama": "application/x-ndjson"}


class Provider(ThreadingHTTPServer):
    """Serves on `port` of this machine (0: any). Requests of one wire get its goldens in turn, beginning anew."""

    daemon_threads = True

    def __init__(self, goldens: Sequence[Golden], port: int) -> None:
        self._turns = {
            wire: itertools.cycle([golden for golden in goldens if golden.wire == wire])
            for wire in {golden.wire for golden in goldens}
        }
        self._taking = threading.Lock()
        asked = [golden.request for golden in goldens if golden.request is not None]
        self.models = sorted({str(request["model"]) for request in asked if "model" in request})
        self.wires = sorted(self._turns)
        super().__init__((_ADDRESS, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def next(self, wire: str | None) -> Golden | None:
        """The golden for the next request, None where there is none of that wire."""
        with self._taking:
            return next(self._turns[wire]) if wire in self._turns else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Provider

    def do_GET(self) -> None:
        """Clients may ask for the models first."""
        models = self.server.models
        path = self.path.partition("?")[0]
        if path.endswith("/models"):
            self._json(200, {"object": "list", "data": [{"id": model, "object": "model"} for model in models]})
        elif path.endswith("/api/tags"):
            self._json(200, {"models": [{"name": model, "model": model} for model in models]})
        else:
            self._json(404, _error(f"nothing is served at {path}"))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        wire = wire_of(self.path)
        golden = self.server.next(wire)
        if golden is None:
            self._json(404, _error(f"there is no golden for {wire or self.path}"))
            return
        kind = "application/json" if not golden.stream else _KINDS.get(golden.wire, "text/event-stream")
        self.send_response(200)
        self.send_header("content-type", golden.content_type or kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for piece in _paced(golden):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if golden.clean:
                self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self.close_connection = True
        self.close_connection = self.close_connection or not golden.clean

    def _json(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        print(f"{self.command} {self.path.partition('?')[0]}: {args[1] if len(args) > 1 else ''}", flush=True)


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "not_found"}}


def _paced(golden: Golden) -> Iterator[bytes]:
    """The pieces, each when its time has come."""
    due = time.monotonic()
    for step in golden.steps:
        due += step.ms / 1000
        time.sleep(max(0.0, due - time.monotonic()))
        if step.data:
            yield step.data


def run(goldens: Sequence[Golden], port: int) -> int:
    """Serve until interrupted; the status. Raises `OSError` where the port is taken."""
    with Provider(goldens, port) as provider:
        print(f"serving {len(goldens)} on http://{_ADDRESS}:{provider.port} (Ctrl-C ends it)", flush=True)
        for path, wire in PATHS.items():
            if wire in provider.wires:
                print(f"  {wire:18}...{path}", flush=True)
        try:
            provider.serve_forever()
        except KeyboardInterrupt:
            print("", file=sys.stderr)
    return 0
