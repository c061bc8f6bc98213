"""Sessions that real clients stored after a leak: repaired, opened by the client again, and sent on repaired.

Run where the clients have been fetched already, or when asked for as in tests/e2e/test_real_agents.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any

import pytest
from clients.catalogue import CLAUDE_CODE, OPENCODE, Client
from clients.install import CACHE, install
from clients.provider import ANSWER, LeakingProvider, leaking_provider

from stores import detect
from stores.base import INTERRUPTED, InUse, NoProgress, Store, Wanted
from stores.fixing import fixes
from tests.e2e.test_real_agents import ASKED
from tests.markers import WORD

ALL = Wanted()
SECONDS = 120
FIRST, SECOND = "What does the note say?", "And now?"
PROVIDER = {
    "npm": "@ai-sdk/openai-compatible",
    "options": {"baseURL": "$base/v1", "apiKey": "none"},
    "models": {"deepseek-flash": {"name": "DeepSeek"}},
}
CONFIG = {"autoupdate": False, "share": "disabled", "provider": {"deepseek": PROVIDER}}
NEW = replace(OPENCODE, files={"$work/opencode.json": json.dumps(CONFIG)})
# A version with files. npm brings its builds for musl too, which come last by name.
OLD = replace(NEW, folder="opencode-1.1", packages=("opencode-ai@1.1.58",), program="opencode-*64/bin/opencode")


class Talk:
    """A client with a home of its own, and the provider it talks to."""

    def __init__(self, client: Client, folder: Path, provider: LeakingProvider) -> None:
        self.client, self.provider = client, provider
        self.home, self.work = folder / "home", folder / "work"
        self.names = {"home": str(self.home), "work": str(self.work), "base": f"http://127.0.0.1:{provider.port}"}
        self.program = install(client).program
        for made in (self.home, self.work):
            made.mkdir()
        for name, content in client.files.items():
            Path(self._filled(name)).write_text(self._filled(content))

    async def run(self, *arguments: str) -> str:
        """What it printed."""
        process = await self.start(*arguments)
        output, _ = await asyncio.wait_for(process.communicate(), SECONDS)
        assert process.returncode == 0, output.decode()
        return output.decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        proxy = self.names["base"]
        environ = {
            **{"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "dumb"},
            **{"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": "127.0.0.1,localhost"},
            **{name: self._filled(value) for name, value in self.client.environ.items()},
        }
        return await asyncio.create_subprocess_exec(
            self.program,
            *arguments,
            cwd=self.work,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )

    @property
    def last_asked(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.provider.main[-1]["messages"]
        return messages

    def _filled(self, text: str) -> str:
        return Template(text).substitute(self.names)


@asynccontextmanager
async def talk(client: Client, folder: Path) -> AsyncIterator[Talk]:
    arguments = {name: Template(value).substitute(work=folder / "work") for name, value in client.arguments.items()}
    async with leaking_provider(client, arguments) as provider:
        yield Talk(client, folder, provider)


def needs(client: Client) -> pytest.MarkDecorator:
    here = (CACHE / client.folder / "fetched.json").exists() or os.environ.get(ASKED) == "1"
    reason = f"{client.packages[0]} has not been fetched from npm; set {ASKED}=1 to do it"
    return pytest.mark.skipif(not here or shutil.which("npm") is None, reason=reason)


def the_store(path: Path) -> Store:
    (store,) = detect.find(path, None, NoProgress())
    (fix,) = fixes(store.messages(ALL))
    assert len(fix.calls) == 1
    return store


async def opencode(
    client: Client, folder: Path, kind: str, look: Callable[[Talk, str], Coroutine[Any, Any, None]]
) -> None:
    async with talk(client, folder) as it:
        assert WORD in await it.run("run", "--model", "deepseek/deepseek-flash", FIRST)
        store = the_store(it.home / ".local" / "share" / "opencode")
        assert store.kind == kind
        (session,) = store.sessions()
        backup = store.rewrite(ALL)
        await look(it, session.id)
        assert ANSWER in await it.run("run", "--model", "deepseek/deepseek-flash", "--continue", SECOND)
        assert WORD not in json.dumps(it.last_asked)
        *_, said, result, asked = it.last_asked
        (call,) = said["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"filePath": str(it.work / "note.txt")}
        assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", call["id"], INTERRUPTED)
        assert SECOND in json.dumps(asked)
        assert detect.undo(backup) == (store.path, 0)
        the_store(store.path)  # it leaks again, and what came since is there
        assert ANSWER in await it.run("run", "--model", "deepseek/deepseek-flash", "--continue", SECOND)
        assert json.dumps(it.last_asked).count(ANSWER) == 1
        assert WORD in json.dumps(it.last_asked)


async def open_again(it: Talk, session: str) -> None:
    assert session in await it.run("session", "list")
    exported = json.loads(await it.run("export", session))
    parts = [part for message in exported["messages"] for part in message["parts"]]
    (call,) = [part for part in parts if part["type"] == "tool"]
    assert (call["tool"], call["state"]["status"], call["state"]["error"]) == ("read", "error", INTERRUPTED)
    assert WORD not in json.dumps(exported)


@pytest.mark.slow
@needs(NEW)
def test_opencode(tmp_path: Path) -> None:
    asyncio.run(opencode(NEW, tmp_path, "opencode", open_again))


@pytest.mark.slow
@needs(OLD)
def test_opencode_with_files(tmp_path: Path) -> None:
    asyncio.run(opencode(OLD, tmp_path, "opencode-files", open_again))


@pytest.mark.slow
@needs(NEW)
def test_opencode_that_runs_is_noticed(tmp_path: Path) -> None:
    async def trial() -> None:
        async with talk(NEW, tmp_path) as it:
            await it.run("run", "--model", "deepseek/deepseek-flash", FIRST)
            store = the_store(it.home / ".local" / "share" / "opencode")
            server = await it.start("serve", "--port", "0")
            assert server.stdout
            async for line in server.stdout:
                if b"listening" in line:
                    break
            try:
                with pytest.raises(InUse):
                    store.rewrite(ALL)
                assert the_store(store.path)
            finally:
                server.kill()
                await server.wait()
            store.rewrite(ALL)

    asyncio.run(trial())


@pytest.mark.slow
@needs(CLAUDE_CODE)
def test_claude_code(tmp_path: Path) -> None:
    async def trial() -> None:
        async with talk(CLAUDE_CODE, tmp_path) as it:
            assert WORD in await it.run("--print", FIRST)
            the_store(it.home / ".claude" / "projects").rewrite(ALL)
            assert ANSWER in await it.run("--print", "--continue", SECOND)
            assert WORD not in json.dumps(it.last_asked)
            # Claude Code itself puts a turn of the model between a result and the next question.
            said, result, *_, asked = it.last_asked[2:]
            text, call = said["content"]
            assert (text["type"], call["type"], call["name"]) == ("text", "tool_use", "Read")
            assert call["input"] == {"file_path": str(it.work / "note.txt")}
            (answer,) = result["content"]
            assert (answer["tool_use_id"], answer["content"]) == (call["id"], INTERRUPTED)
            assert SECOND in json.dumps(asked)

    asyncio.run(trial())
