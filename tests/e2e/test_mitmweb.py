"""mitmweb and the page to share in a real browser.

`DSML_SCREENSHOTS=FOLDER` keeps what was seen, for a person to look at.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from addon.report import page
from dsml_core.policy import Policy
from tests.e2e.browser import Page, browser, find
from tests.e2e.client import once
from tests.e2e.provider import Reply, provider
from tests.e2e.proxy import mitmdump
from tests.e2e.wires import LEAK, PATHS, request, stream
from tests.flows import addon, answered

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find() is None, reason="no Chromium found: install chromium, or name it in $CHROMIUM"),
]

CHAT = "openai-chat"
FIRST_FLOW = "document.querySelector('.flow-table tbody td.col-path')"
VIEW = "document.querySelector('.contentview').innerText"


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("DSML_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def kept(shown: Page, path: Path) -> None:
    """A screenshot, which is an image with something on it."""
    await shown.screenshot(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 20_000


def test_a_repaired_flow_in_mitmweb(confdir: Path, tmp_path: Path, screenshots: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])

    async def check() -> None:
        async with (
            provider(Reply(stream(CHAT, "Let me look.\n\n" + LEAK))) as upstream,
            mitmdump(confdir, upstream.port, "--no-web-open-browser", "--web-port", port, tool="mitmweb") as running,
            browser(tmp_path / "profile") as shown,
        ):
            await once(await running.port(), PATHS[CHAT], request(CHAT))
            address = (await running.says(r"Web server listening at (\S+)"))[1]
            await shown.size(1400, 1000)
            await shown.open(address)
            await shown.until(f"!!{FIRST_FLOW}")
            assert "\U0001f527" in await shown.text()  # the marker
            await shown.evaluate(f"{FIRST_FLOW}.click()")

            await shown.click("Response", ".nav-tabs a")
            message = await shown.until(f"{VIEW}.includes('recovered call') && {VIEW}")
            assert "recovered 1 call: read_file (V1, 183 characters)" in message
            assert "[taken out, characters 14 to 197, V1: a tool call]" in message
            assert "data:" not in message
            await kept(shown, screenshots / "mitmweb_dsml.png")

            await shown.click("View: auto", ".contentview a, .contentview button")
            await shown.click("dsml diff", "a, li, button")
            diff = await shown.until(f"{VIEW}.includes('the provider sent') && {VIEW}")
            assert "tool call: read_file" in diff
            assert "finish: tool_calls" in diff
            await kept(shown, screenshots / "mitmweb_diff.png")

            await shown.click("Request", ".nav-tabs a")
            await shown.click("View: auto", ".contentview a, .contentview button")
            await shown.click("dsml", "a, li, button")
            asked = await shown.until(f"{VIEW}.includes('== 2 user ==') && {VIEW}")
            assert "[added by dsml: the directive]" in asked
            await kept(shown, screenshots / "mitmweb_request.png")
            await shown.click("View: dsml", ".contentview a, .contentview button")
            await shown.click("dsml diff", "a, li, button")
            await shown.until(f"{VIEW}.includes('the provider got')")

            await shown.click("Comment", ".nav-tabs a")
            await shown.until("document.body.innerText.includes('dsml: recovered 1 call: read_file')")

    asyncio.run(check())


SIZES = {"desk": (1200, 900, False), "phone": (360, 740, False), "dark": (1200, 900, True)}
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
# The lowest contrast of a text against what is behind it (WCAG 2.2), over all elements with a text of their own.
CONTRAST = """
(() => {
  const light = color => {
    const part = color.match(/[\\d.]+/g).slice(0, 3).map(Number).map(
      value => value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const behind = one => {
    for (; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (color !== 'rgba(0, 0, 0, 0)') return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const texts = [...document.body.querySelectorAll('*')].filter(
    one => [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()));
  return Math.min(...texts.map(one => {
    const both = [light(getComputedStyle(one).color), light(behind(one))].sort((a, b) => b - a);
    return (both[0] + 0.05) / (both[1] + 0.05);
  }));
})()
"""


@pytest.mark.parametrize(("width", "height", "dark"), SIZES.values(), ids=SIZES)
def test_the_page_to_share(width: int, height: int, dark: bool, tmp_path: Path, screenshots: Path) -> None:
    flows = [
        answered(CHAT, "Let me look at `src/main.py` first, and compare a < b.\n\n" + LEAK),
        answered("anthropic", "I will remove it.\n\n" + LEAK.replace("read_file", "rm -rf /home")),
        answered("openai-responses", LEAK, addon(mode="observe")),
        answered("ollama", LEAK[:90], streamed=False),
    ]
    file = tmp_path / "page.html"
    file.write_text(page(flows, Policy()))

    async def check() -> None:
        async with browser(tmp_path / "profile") as shown:
            await shown.size(width, height, dark=dark)
            await shown.open(file.as_uri())
            assert "4. refused: ollama, deepseek-test" in await shown.text()
            assert await shown.evaluate(WIDER) is False
            assert await shown.evaluate(CONTRAST) >= 4.5
            await kept(shown, screenshots / f"page_{width}{'_dark' if dark else ''}.png")

    asyncio.run(check())
