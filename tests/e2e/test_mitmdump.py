"""The addon in a real mitmdump, mitmweb and mitmproxy: loading, options, reloading, the demo."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.e2e.asking import calls_in
from tests.e2e.client import Client, once
from tests.e2e.provider import Reply, provider
from tests.e2e.proxy import ADDON, ROOT, mitmdump
from tests.e2e.wires import CALL, LEAK, PATHS, request, stream

pytestmark = pytest.mark.slow

CHAT = PATHS["openai-chat"]


def leak() -> Reply:
    return Reply(stream("openai-chat", LEAK))


def test_by_absolute_path_from_any_folder(confdir: Path, tmp_path: Path) -> None:
    async def check() -> None:
        async with provider(leak()) as upstream, mitmdump(confdir, upstream.port, cwd=tmp_path) as running:
            received = await once(await running.port(), CHAT, request("openai-chat"))
            assert calls_in(received.body) == [CALL]
            await running.says("dsml: recovered 1 call: read_file")
            assert await running.stop() == 0
            assert "dsml: 1 response seen, 1 leaked, 1 call recovered" in running.log
            assert "Traceback" not in running.log

    asyncio.run(check())


def test_by_relative_path(confdir: Path) -> None:
    async def check() -> None:
        async with (
            provider(leak()) as upstream,
            mitmdump(confdir, upstream.port, script="dsml.py", cwd=ROOT / "addon") as running,
        ):
            received = await once(await running.port(), CHAT, request("openai-chat"))
            assert calls_in(received.body) == [CALL]

    asyncio.run(check())


def start(confdir: Path, *arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str]:
    """A mitmdump that should refuse to start: its status and what it said."""

    async def check() -> tuple[int, str]:
        async with mitmdump(confdir, 1, *arguments, environ=environ) as running:
            return await running.ends(), running.log

    return asyncio.run(check())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["dsml_hold_limit=64k"], "dsml_hold_limit must be a whole number from 1 to 1073741824; it is '64k'"),
        (["dsml_stream=maybe"], "dsml_stream must be on or off (or true, false, yes, no); it is 'maybe'"),
        (["dsml_stream"], "dsml_stream must be on or off (or true, false, yes, no); it has no value"),
        (["dsml_mode=on", "dsml_body=off"], "dsml_mode must be repair, observe or off; it is 'on'"),
        (["dsml_stream=on", "dsml_stream=off"], "dsml_stream is given 2 times"),
        (["dsml_hold_limits=64"], "there is no option dsml_hold_limits; did you mean dsml_hold_limit?"),
    ],
)
def test_a_bad_option_stops_it_with_one_sentence(settings: list[str], sentence: str, confdir: Path) -> None:
    status, said = start(confdir, *(word for setting in settings for word in ("--set", setting)))
    assert status == 1
    assert f"dsml: {sentence}\n" in said
    assert "Traceback" not in said


def test_options_from_a_configuration_file(confdir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "confdir"
    shutil.copytree(confdir, folder)
    (folder / "config.yaml").write_text("dsml_stream: false\ndsml_hold_limit: 4096\ndsml_idle_flush: 0.25\n")

    async def check() -> None:
        frames = stream("openai-chat", LEAK)
        async with provider(Reply(frames)) as upstream, mitmdump(folder, upstream.port) as running:
            received = await once(await running.port(), CHAT, request("openai-chat"))
            assert received.body == b"".join(frames)

    asyncio.run(check())


def test_without_regex_it_says_how_to_get_it(confdir: Path, tmp_path: Path) -> None:
    (tmp_path / "regex.py").write_text("raise ModuleNotFoundError('No module named regex', name='regex')\n")
    status, said = start(confdir, environ={"PYTHONPATH": str(tmp_path)})
    assert status == 1
    assert "uv tool install mitmproxy --with regex" in said
    assert "Traceback" not in said


def test_a_change_takes_effect_when_it_is_reloaded_and_no_exchange_breaks(confdir: Path, tmp_path: Path) -> None:
    for package in ("addon", "dsml_core", "goldens"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    script, changed = tmp_path / "addon" / "dsml.py", tmp_path / "addon" / "log.py"

    async def check() -> None:
        frames = stream("openai-chat", LEAK)
        slow = Reply([*frames[:20], 4.0, *frames[20:]])
        async with (
            provider(slow) as upstream,
            mitmdump(confdir, upstream.port, script=script, environ={"PYTHONDONTWRITEBYTECODE": "1"}) as running,
            Client(await running.port()) as in_the_air,
        ):
            begun = await in_the_air.begin(CHAT, request("openai-chat"))
            changed.write_text(changed.read_text().replace("recovered {counted", "got back {counted"))
            core = tmp_path / "dsml_core" / "formats" / "__init__.py"
            core.write_text(core.read_text().replace('"/chat/completions"', '"/chat/other"'))
            os.utime(script, (2_000_000_000, 2_000_000_000))
            await running.says(r"(?s)Loading script.*Loading script")
            await running.says("dsml: 0 responses seen")
            assert calls_in((await in_the_air.rest(begun)).body) == [CALL]
            await running.says("dsml: got back 1 call: read_file")  # the new log, the old exchange

            upstream.reply = Reply(frames)
            assert (await once(await running.port(), CHAT, request("openai-chat"))).body == b"".join(frames)
            after = await once(await running.port(), "/chat/other", request("openai-chat"))
            assert calls_in(after.body) == [CALL]
            assert "Traceback" not in running.log

    asyncio.run(check())


def test_mitmweb(confdir: Path) -> None:
    async def check() -> None:
        async with (
            provider(leak()) as upstream,
            mitmdump(confdir, upstream.port, "--no-web-open-browser", "--web-port", "0", tool="mitmweb") as running,
        ):
            received = await once(await running.port(), CHAT, request("openai-chat"))
            assert calls_in(received.body) == [CALL]

    asyncio.run(check())


def test_mitmproxy_in_a_terminal(confdir: Path) -> None:
    async def check() -> None:
        async with provider(leak()) as upstream:
            screen, terminal = pty.openpty()
            termios.tcsetwinsize(terminal, (40, 120))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", "from mitmproxy.tools.main import mitmproxy; mitmproxy()", "-s", str(ADDON)),
                *("--mode", f"reverse:http://127.0.0.1:{upstream.port}", "-p", str(port)),
                *("--listen-host", "127.0.0.1", "--set", f"confdir={confdir}"),
                env={**os.environ, "TERM": "xterm"},
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
            )
            drawn = asyncio.get_running_loop()
            drawn.add_reader(screen, lambda: os.read(screen, 65536))
            try:
                for _ in range(200):
                    try:
                        received = await once(port, CHAT, request("openai-chat"))
                        break
                    except OSError:
                        await asyncio.sleep(0.05)
                assert calls_in(received.body) == [CALL]
            finally:
                process.terminate()
                await process.wait()
                drawn.remove_reader(screen)
                os.close(screen)
                os.close(terminal)

    asyncio.run(check())


def test_the_demo() -> None:
    shown = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "demo.py")], capture_output=True, text=True, timeout=60, cwd="/"
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stdout.count("the call arrived") == 2
    assert shown.stdout.count("not a byte was changed") == 1
    assert re.search(r"after +text +Let me look at it\.\n +call +read_file ", shown.stdout)
    assert chr(0xFF5C) not in shown.stdout
