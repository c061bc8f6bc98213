"""No key gets into a file that is written, whoever sends it wherever; and each file is for its owner alone."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.asking import CHAT, ask
from tests.e2e.provider import Reply
from tests.e2e.proxy import Mitmdump
from tests.e2e.wires import LEAK, PATHS, stream
from tests.test_scripts import RUN

pytestmark = pytest.mark.slow

KEY = "sk-Zx81kQ-never-written"
ASKED = {
    "authorization": f"Bearer {KEY}",
    "proxy-authorization": f"Basic {KEY}",
    "x-api-key": KEY,
    "api-key": KEY,
    "cookie": f"session={KEY}",
    "x-goog-api-key": KEY,
}
ANSWERED = [("set-cookie", f"id={KEY}"), ("x-account", KEY), ("location", f"https://a.example/?token={KEY}")]


@pytest.fixture
def permissive() -> Iterator[None]:
    """A user whose new files anybody may read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("permissive")
@pytest.mark.parametrize("content", ["on", "off"])
def test_files_hold_no_key_and_are_for_their_owner_alone(content: str, confdir: Path, tmp_path: Path) -> None:
    log, page, captures = tmp_path / "log", tmp_path / "page.html", tmp_path / "captures"
    options = {
        "dsml_log": str(log),
        "dsml_report": str(page),
        "dsml_capture": str(captures),
        "dsml_log_content": content,
        "dsml_capture_redact": "off" if content == "on" else "on",
    }
    reply = Reply(stream(CHAT, "Look: " + LEAK), headers=ANSWERED)
    received = asyncio.run(ask(confdir, reply, f"{PATHS[CHAT]}?key={KEY}", headers=ASKED, **options))
    assert received.complete
    (golden,) = captures.iterdir()
    for file in (log, page, golden):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "read_file" in file.read_text()
        assert "Zx81kQ" not in file.read_text()
    assert stat.S_IMODE(captures.stat().st_mode) == 0o700
    assert {path.name for path in tmp_path.iterdir()} == {"log", "page.html", "captures"}


def test_scripts_run_listens_on_loopback_only(confdir: Path) -> None:
    async def check() -> None:
        arguments = RUN.plan(["-p", "0", "--set", f"confdir={confdir}"])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-u", "-c", "from mitmproxy.tools.main import mitmdump; mitmdump()", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        running = Mitmdump(process)
        try:
            port = await running.port()
            listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            open_at = [address for _, address, _, state, *_ in listening if state == "0A"]
            assert [address for address in open_at if address.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]
            elsewhere = Path("/proc/net/tcp6")
            assert not elsewhere.exists() or f":{port:04X} 0000" not in elsewhere.read_text()
        finally:
            await running.stop()

    asyncio.run(check())
