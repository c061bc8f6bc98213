"""scripts/run from where it starts mitmdump: the base URLs are shown when they answer, and only then."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.proxy import ROOT
from tests.test_scripts import RUN

pytestmark = pytest.mark.slow

MITMDUMP = Path(sys.executable).with_name("mitmdump")
SHOWN = "Base URL to give the client"


@contextmanager
def started(confdir: Path, *given: str) -> Iterator[subprocess.Popen[str]]:
    """What scripts/run starts when it is given these arguments."""
    launch = [sys.executable, str(ROOT / "scripts" / "launch.py"), str(MITMDUMP)]
    command = [*launch, *RUN.plan([*given, "--set", f"confdir={confdir}"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_they_are_shown_with_the_port_that_was_found(confdir: Path) -> None:
    with started(confdir, "-p", "0") as process:
        assert process.stdout
        said = ""
        while "/anthropic\n" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        port = re.findall(r"listening at 127\.0\.0\.1:(\d+)\.", said)[0]
        assert re.findall(r"http://\S+", said[said.index(SHOWN) :]) == [
            f"http://127.0.0.1:{port}{path}" for path in ("", "/v1", "/anthropic")
        ]
        with socket.create_connection(("127.0.0.1", int(port))):
            pass
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "dsml: 0 responses seen" in rest and "Traceback" not in rest


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["-p", "abc"], "invalid int value: 'abc'"),
        (["-p", "BUSY"], "address already in use"),
        (["-p", "0", "--set", "dsml_stream=maybe"], "dsml_stream must be on or off"),
        (["-p", "0", "--set", "no_such_option=1", "--nonsense"], "unrecognized arguments: --nonsense"),
    ],
    ids=["no port", "a busy port", "a bad option", "a bad argument"],
)
def test_they_are_not_shown_where_it_does_not_start(given: list[str], reason: str, confdir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        words = [word.replace("BUSY", str(busy.getsockname()[1])) for word in given]
        with started(confdir, *words) as process:
            said, _ = process.communicate(timeout=30)
    assert process.returncode not in (0, None)
    assert reason in said
    assert SHOWN not in said and "Traceback" not in said
