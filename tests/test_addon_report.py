"""The page to share: what it shows, and above all what it does not."""

from __future__ import annotations

import stat
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from mitmproxy.http import HTTPFlow

from addon import report
from addon.report import page, redacted, save
from dsml_core.policy import Policy
from tests.e2e.wires import LEAK, PATHS, request
from tests.flows import addon, answered
from tests.markers import BAR, WORD, live

CHAT = "openai-chat"
BAD = LEAK.replace("read_file", "rm -rf /home/alice")
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """A page that is well formed: its elements in order, the text it shows, its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def of(*flows: HTTPFlow, content: bool = False) -> Page:
    return Page(page(flows, Policy(), content))


# --- What it shows ----------------------------------------------------------------------------------------------------


def test_a_repair_before_and_after() -> None:
    shown = of(answered(CHAT, "Look.\n\n" + LEAK), content=True)
    assert "Responses with something to decide: 1." in shown.text
    assert "1. recovered: openai-chat, deepseek-test" in shown.text
    assert "taken out V1" in shown.text
    assert LEAK[:60] in shown.text
    assert 'tool call: read_file{\n  "path": "a.txt",\n  "limit": 7\n}finish: tool_calls' in shown.text
    assert {"del", "ins"} <= set(shown.elements)


def test_what_was_only_observed_says_so() -> None:
    shown = of(answered(CHAT, LEAK, addon(mode="observe")))
    assert "recovered (observed only)" in shown.text
    assert "What the client would have got" in shown.text


@pytest.mark.parametrize("wire", list(PATHS))
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_every_wire(wire: str, streamed: bool) -> None:
    shown = of(answered(wire, LEAK, streamed=streamed))
    assert "tool call: read_file" in shown.text


def test_a_body_that_was_not_kept_and_an_empty_session() -> None:
    assert "The body was not kept." in of(answered(CHAT, LEAK, addon(keep_limit="0"))).text
    assert "Responses with something to decide: 0." in of().text


def test_left_markup_and_long_texts() -> None:
    shown = of(answered(CHAT, "word " * 2000 + LEAK[:100], streamed=False), content=True)
    assert "left as text V15" in shown.text
    assert "... 6000 characters ..." in shown.text
    assert "mark" in shown.elements


# --- A file that stands alone and can be read by anybody --------------------------------------------------------------


def test_it_asks_nothing_of_the_network_and_runs_nothing() -> None:
    html = page([answered(CHAT, LEAK)], Policy(), True)
    shown = Page(html)
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(shown.elements)
    assert not [name for name, _ in shown.attributes if name.startswith("on") or name == "src"]
    assert all(str(value).startswith("#") for name, value in shown.attributes if name == "href")
    assert "url(" not in html and "@import" not in html
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in shown.attributes


def test_it_can_be_read_on_a_phone_by_dark_and_by_a_screen_reader() -> None:
    html = page([answered(CHAT, LEAK)], Policy())
    shown = Page(html)
    assert ("lang", "en") in shown.attributes
    assert ("name", "viewport") in shown.attributes
    assert "prefers-color-scheme: dark" in html
    assert "caption" in shown.elements
    assert ("scope", "col") in shown.attributes and ("scope", "row") in shown.attributes
    headings = [int(element[1]) for element in shown.elements if element in ("h1", "h2", "h3")]
    assert headings[0] == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(headings))
    regions = [value for name, value in shown.attributes if name == "role"]
    assert len(regions) == len([value for name, value in shown.attributes if name == "aria-label"])


HOSTILE = '<script>alert(1)</script>"><img src=x onerror=y>\u0000 &amp; </pre>'


@pytest.mark.parametrize("content", [True, False])
def test_nothing_in_a_message_becomes_part_of_the_page(content: bool) -> None:
    leak = LEAK.replace("a.txt", HOSTILE).replace("read_file", "x")
    named = LEAK.replace("read_file", HOSTILE)
    flow = answered(CHAT, f"{HOSTILE}\n\n{leak}\n\n{named}")
    flow.metadata["dsml"]["model"] = HOSTILE
    shown = of(flow, content=content)
    assert not {"script", "img"} & set(shown.elements)


@pytest.mark.parametrize("content", [True, False])
def test_the_file_holds_no_marker_that_could_be_executed(content: bool) -> None:
    ascii_bars = LEAK.replace(BAR, "|")
    html = page([answered(CHAT, LEAK + "\n\n" + ascii_bars)], Policy(), content)
    assert BAR not in html
    assert f"|{WORD}" not in html and f"{WORD}|" not in html
    assert f"&#xff5c;{WORD}&#xff5c;" in html


# --- What it does not show --------------------------------------------------------------------------------------------

SECRETS = [
    "sk-proj-Zx81kQ",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3",
    "/home/alice/projects",
    "alice@example.org",
    "+49 170 1234567",
    "hunter2",
    "\u5f20\u4f1f",
    "\u041c\u043e\u0441\u043a\u0432\u0430",
    "https://internal.example/wiki?token=abc",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_is_in_it_unless_content_is_asked_for(secret: str) -> None:
    leak = LEAK.replace("a.txt", secret)
    in_attribute = live(
        f'<{{M}}invoke name="read_file" path="{secret}"><{{M}}parameter name="path" string="{secret}"/>'
    )
    text = f"Use {secret}.\n\n{leak}\n\n{BAD}\n\n{in_attribute}</x>"
    asked = request(CHAT, messages=[{"role": "user", "content": f"My key is {secret}"}])
    asked["tools"][0]["function"]["description"] = secret
    flow = answered(CHAT, text, asked=asked)
    flow.request.headers["authorization"] = f"Bearer {secret}"
    flow.request.path = f"{PATHS[CHAT]}?key={secret}"
    whole = max(secret.replace("/", " ").replace(".", " ").split(), key=len)
    assert whole not in page([flow], Policy())
    assert "alice" not in page([flow], Policy())
    assert whole in page([flow], Policy(), True).replace("&#x27;", "'").replace("&amp;", "&")


def test_redacted_text_keeps_its_shape_and_its_tags() -> None:
    text = live(
        'Open caf\u00e9 42, \u6f22\u5b57!\n<{M}invoke name="read_file">\n<{M}parameter name="path">a.txt</{M}parameter>'
    )
    assert redacted(text, ["read_file", "path"]) == live(
        'xxxx xxxx 00, xx!\n<{M}invoke name="read_file">\n<{M}parameter name="path">x.xxx</{M}parameter>'
    )
    assert 'name="xxxx_xxxx"' in redacted(text)
    assert "path" not in redacted("the path of a tool_calls name", ["path"])


# --- The file ---------------------------------------------------------------------------------------------------------


def test_it_is_written_whole_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    save(path, [answered(CHAT, LEAK)], Policy(), False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_text()
    monkeypatch.setattr(report, "_TEMPLATE", tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        save(path, [], Policy(), False)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("where", ["", "missing/page.html"])
def test_a_path_that_cannot_be_written(where: str, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        save(tmp_path / where, [], Policy(), False)
