"""Redaction: nobody's words are left, and all that decides is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsml_core.formats import WIRES
from goldens import making, replay
from goldens.bodies import Body
from goldens.format import Golden, Step, dumps, loads
from goldens.request import reduce
from goldens.seen import seen
from goldens.words import WIRE_WORDS, Words
from tests.e2e.wires import body, request, sse, stream
from tests.goldens import GOLDENS
from tests.markers import live

CHAT = "openai-chat"

# Built from pieces, so that no scanner of repositories takes one for real.
SECRETS = {
    "OpenAI key": "sk-" + "proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6",
    "DeepSeek key": "sk-" + "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "Anthropic key": "sk-" + "ant-api03-Qw3-rT6-yU9-iO2-pA5",
    "OpenRouter key": "sk-" + "or-v1-9c8b7a6d5e4f3a2b1c0d",
    "GitHub token": "ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a",
    "GitLab token": "glpat" + "-Ab1-Cd2-Ef3-Gh4-Ij5",
    "Slack token": "xoxb" + "-123-456-789-abC-dEf-gHi",
    "AWS key id": "AKIA" + "IOSFODNN7EXAMPLE",
    "AWS secret": "wJalr" + "XUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "Google key": "AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
    "Hugging Face token": "hf" + "_QwErTyUiOpAsDfGhJkLzXcVbNm123456",
    "Stripe key": "rk_" + "live_51H8xY2eZvKYlo2C",
    "npm token": "npm" + "_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7",
    "JWT": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2huIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r",
    "private key": "-----BEGIN "
    + "PRIVATE KEY-----\nMIIEvQIBADANBg/k+q9hkiG/9w0B+AQE/FAA=\n-----END "
    + "PRIVATE KEY-----",
    "bearer header": "Authorization: Bearer " + "q7Zt1",
    "basic header": "Basic " + "Ym9iOng=",
    "password": "password=" + "x9Z",
    "connection string": "postgres://" + "bob:pw1@db.int:5432/crm",
    "URL with a query": "https://acme-intern.io/x?u=bob&k=a1",
    "home path": "/home/jo/tax/2023.ods",
    "Mac home path": "/Users/al/Desktop/plan.md",
    "Windows home path": "C:\\Users\\ida\\kunden.xlsx",
    "telephone": "+49 170 123 45 67",
    "US telephone": "(555) 010-42 17",
    "e-mail": "jo.li@ex-corp.de",
    "e-mail in Chinese text": "请联系张三zhang.san@例子.cn谢谢",
    "card number": "5425 2334 3010 9903",
    "IBAN": "DE89 3704 0044 0532 0130 00",
    "IPv4 address": "10.1.22.33",
    "IPv6 address": "fd00:12:a:7::1",
    "hardware address": "3c:22:fb:0a:91:de",
    "UUID": "3f2b8c1e-7a4d-4e0b-9c55-1d2e3f4a5b6c",
    "name": "Johnathan Featherstonehaugh",
    "Cyrillic name": "Дмитрий Каренин",
    "Korean name": "김민수",
    "percent-encoded": "%6A%6F%68%6E",
    "hex escapes": "\\x6a\\x6f\\x68\\x6e",
    "social security number": "078-05-1120",
    "commit": "9fceb02d0ae598e95dc970b74767f19372d61af8",
}
TOOLS = request(CHAT)["tools"]
LEAK = live(
    '<{M}tool_calls>\n<{M}invoke name="read_file">\n<{M}parameter name="path" string="true">%s</{M}parameter>\n'
    '<{M}parameter name="limit" string="false">40</{M}parameter>\n</{M}invoke>\n</{M}tool_calls>'
)


def fragments(secret: str) -> set[str]:
    """The secret, and each piece of it that says something by itself."""
    words = {word for word in re.findall(r"[^\W_]{4,}", secret) if word.lower() not in ("users", "basic", "bearer")}
    public = {"BEGIN", "PRIVATE", "home", "password", "Authorization", "https"}
    return {secret} | (words - public)


def decoded(value: Any) -> Iterator[str]:
    """Every string in a JSON value, and what it says where it is JSON or SSE itself."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from decoded(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from decoded(inner)
    elif isinstance(value, str):
        yield value
        for line in value.splitlines():
            try:
                yield from decoded(json.loads(line.removeprefix("data: ")))
            except ValueError:
                continue


def said(golden: Golden) -> str:
    """All that a golden says, however it is wrapped."""
    assert golden.expected
    whole = [golden.received.decode(), golden.expected.emitted.decode(), json.dumps(golden.request, ensure_ascii=False)]
    messages = [replay.message(golden, golden.received), golden.expected.decided]
    return "\n".join([dumps(golden), *whole, *decoded(json.loads(dumps(golden))), *decoded(messages)])


def chat(text: str, **more: Any) -> Golden:
    asked = json.dumps({**request(CHAT), **more}).encode()
    return replace(seen(CHAT, b"".join(stream(CHAT, text)), asked=asked), recorded=True)


# --- Secrets ----------------------------------------------------------------------------------------------------------


def test_there_are_thirty_kinds_or_more() -> None:
    assert len(SECRETS) >= 30


def planted(secret: str) -> dict[str, Callable[[], Golden]]:
    """The secret in every place of a response and of its request."""
    inline = secret.replace("\n", " ")
    quoted = json.dumps(secret, ensure_ascii=False)[1:-1]
    escaped = json.dumps(secret)[1:-1]
    frames = stream(CHAT, "So. " + LEAK % secret)
    native = {"index": 0, "id": inline, "function": {"name": "read_file", "arguments": f'{{"path": "{quoted}"}}'}}
    error = sse({"error": {"message": f"no quota for {secret}", "user": secret}})
    tokens = [{"token": piece, "bytes": list(piece.encode()), "logprob": -0.12345} for piece in secret]
    logs = sse({"choices": [{"index": 0, "delta": {"content": ""}, "logprobs": {"content": tokens}}]})
    tool = {"name": "read_file", "parameters": {"properties": {"path": {"enum": [secret], "description": secret}}}}
    return {
        "text": lambda: chat(f"I am {secret} and {LEAK % 'a'}"),
        "value": lambda: chat(LEAK % secret),
        "JSON value": lambda: chat(
            (LEAK % "a").replace('string="false">40', f'string="false">["{quoted}", "{escaped}"]')
        ),
        "quoted in the request": lambda: chat(
            LEAK % secret, messages=[{"role": "user", "content": (LEAK % secret) + secret}]
        ),
        "tool": lambda: chat(LEAK % "a", tools=[{"type": "function", "function": tool}]),
        "model": lambda: chat(LEAK % "a", model=secret),
        "native call": lambda: pieces(sse({"choices": [{"index": 0, "delta": {"tool_calls": [native]}}]}), *frames),
        "reasoning": lambda: pieces(sse({"choices": [{"index": 0, "delta": {"reasoning_content": secret}}]}), *frames),
        "error": lambda: pieces(*frames[:-3], error),
        "comment": lambda: pieces(f": hello {inline}\nid: {inline}\n\n".encode(), *frames),
        "id": lambda: pieces(sse({"id": inline, "system_fingerprint": inline, "choices": []}), *frames),
        "logprobs": lambda: pieces(logs, *frames),
        "no JSON": lambda: pieces(f"data: {{broken {inline}\n\n".encode(), *frames),
    }


def pieces(*frames: bytes) -> Golden:
    asked = reduce(CHAT, json.dumps(request(CHAT)).encode())
    return Golden(CHAT, True, tuple(Step(0, frame) for frame in frames), request=asked)


def some(first: Iterable[str], second: Iterable[str], fast: Callable[[str, str], bool]) -> list[Any]:
    """All pairs; those that are not `fast` are left out in a hurry."""
    return [pytest.param(one, two, marks=() if fast(one, two) else pytest.mark.slow) for one in first for two in second]


ALWAYS = ("e-mail in Chinese text",)


@pytest.mark.parametrize(("kind", "place"), some(SECRETS, planted("x"), lambda kind, _: kind in ALWAYS))
def test_no_secret_is_left(kind: str, place: str) -> None:
    golden = planted(SECRETS[kind])[place]()
    made = making.make(golden)
    text = said(made)
    assert made.redacted
    assert [word for word in fragments(SECRETS[kind]) if word in text] == []


def test_no_secret_is_left_where_all_stand() -> None:
    text = said(making.make(chat(" and ".join(SECRETS.values()) + LEAK % "a")))
    left = {kind: [word for word in fragments(secret) if word in text] for kind, secret in SECRETS.items()}
    assert {kind: words for kind, words in left.items() if words} == {}


@pytest.mark.parametrize(("kind", "wire"), some(SECRETS, WIRES, lambda kind, _: kind in ALWAYS))
def test_no_secret_is_left_on_any_wire(kind: str, wire: str) -> None:
    text = f"I am {SECRETS[kind]} and {LEAK % SECRETS[kind]}"
    asked = json.dumps(request(wire)).encode()
    for data in (b"".join(stream(wire, text)), body(wire, text)):
        made = making.make(seen(wire, data, asked=asked))
        assert [word for word in fragments(SECRETS[kind]) if word in said(made)] == []
        assert made.expected and made.expected.decided["recovered"]


def test_the_search_finds_what_is_left() -> None:
    """The two tests above can fail."""
    golden = making.make(chat(LEAK % SECRETS["commit"]), redact=False)
    assert not golden.redacted
    assert all(word in said(golden) for word in fragments(SECRETS["commit"]))


# --- Structure --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [name if len(GOLDENS[name].received) < 2000 else pytest.param(name, marks=pytest.mark.slow) for name in GOLDENS],
)
def test_every_golden_can_be_redacted_and_decides_the_same(name: str) -> None:
    golden = GOLDENS[name]
    made = making.make(replace(golden, expected=None, redacted=False))
    assert made.redacted
    assert golden.expected and made.expected
    for key in ("recovered", "removed", "rejected"):
        assert [{fact: span[fact] for fact in span if fact != "name"} for span in made.expected.decided[key]] == [
            {fact: span[fact] for fact in span if fact != "name"} for span in golden.expected.decided[key]
        ]
    assert made.expected.decided["message"]["finish"] == golden.expected.decided["message"]["finish"]
    assert [len(step.data or b"") for step in made.steps] == [len(step.data or b"") for step in golden.steps]
    assert [step.ms for step in made.steps] == [step.ms for step in golden.steps]
    assert loads(dumps(made)) == made


def redacted(*texts: str, names: tuple[str, ...] = ()) -> list[str]:
    words = Words(names)
    for text in texts:
        words.learn(text)
    return [words.apply(text) for text in texts]


KEPT = [
    "a is the of it, so be it: 7, 12, 345!",
    live('<{M}tool_calls>\n<{M}invoke name="">\n<{M}parameter name="" string="true">'),
    live("</{M} parameter>\n</{M} invoke>\n</{M} calls>"),
    live("<{B}end\u2581of\u2581sentence{B}>"),
    live("<{M}inv name>  </{M}param>"),
    live("<{B}DS" + "ML{B}toolcalls></DS" + "ML_invoke>"),
    "<![CDATA[]]> &quot;&amp;&lt; &#39; true false null",
    "```\n~~~\n> `\t\u3000\u2026",
    "\\n\\t\\u000a",
]


@pytest.mark.parametrize("text", KEPT, ids=range(len(KEPT)))
def test_markup_and_short_words_stay(text: str) -> None:
    assert redacted(text) == [text]


def test_names_stay_wherever_they_stand_whole() -> None:
    text = "read_file, the path: read_files(pathname) path\u8def"
    (made,) = redacted(text, names=("read_file", "path"))
    assert made.startswith("read_file, the path: ")
    assert "read_files" not in made and "pathname" not in made
    assert " path" in made[-6:]


def test_the_same_word_has_the_same_placeholder_everywhere() -> None:
    one, two, three = redacted("Secret plan", "the secret, SECRET", "plan")
    word = one.split()[0]
    assert word != "Secret" and word[0].isupper()
    assert two == f"the {word.lower()}, {word.upper()}"
    assert three == one.split()[1]


def test_a_word_that_tells_something_goes_everywhere_even_if_it_is_short() -> None:
    mail, alone = redacted("bob@x1.de", "bob")
    assert alone == mail[:3] != "bob"


def test_a_placeholder_tells_nothing_of_its_word() -> None:
    assert redacted("Hippopotamus") == redacted("Constantinop")


def test_a_date_stays_one() -> None:
    assert redacted("2026-03-04T05:06:07.89Z") == ["1111-11-11T11:11:11.11Z"]


@pytest.mark.parametrize("entity", ["&#106;", "&#74;", "&#x6a;", "&#24352;", "&#1080;"])
def test_an_entity_of_a_letter_becomes_another(entity: str) -> None:
    (made,) = redacted(entity + "1")
    assert made != entity + "1" and len(made) == len(entity) + 1
    assert re.fullmatch(r"&#x?[0-9a-f]+;1", made)


TEXTS = st.text(
    st.one_of(
        st.characters(codec="utf-8"), st.sampled_from("abcXYZ019 /\\.@:-_<>&#;\"'\n\u8bf7\uff5c\u00e9\U0001f600")
    ),
    max_size=80,
)


@given(TEXTS)
def test_any_text_keeps_its_shape(text: str) -> None:
    (made,) = redacted(text)
    assert [len(sign.encode()) for sign in made] == [len(sign.encode()) for sign in text]
    for old, new in zip(text, made, strict=True):
        if not old.isalnum():
            assert new == old
        assert (new.isascii(), new.isspace(), new.isalnum()) == (old.isascii(), old.isspace(), old.isalnum())


LONG = st.from_regex(r"[A-Za-z]{4,12}", fullmatch=True)


@given(st.lists(LONG, min_size=1, max_size=8), st.sampled_from([" ", ", ", "/", "_", "\n", "=", "\\n", "-"]))
def test_no_long_word_is_left(words: list[str], between: str) -> None:
    (made,) = redacted(between.join(words))
    meant = {"string", "true", "false", "null", "name", "item", "http", "https", "arguments", "input", "think"}
    inside = ("dsml", "inv", "param", "tool", "call", "func", "quot", "apos")
    for word in words:
        if word.lower() not in meant | WIRE_WORDS and not any(part in word.lower() for part in inside):
            assert word not in re.findall("[A-Za-z]+", made)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "text", "a b", "42"]), inner),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [(len(key), shape(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return len(value) if isinstance(value, str) else value if isinstance(value, bool) or value is None else "number"


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_any_json_keeps_its_shape(value: Any, ascii_only: bool, indent: int | None) -> None:
    data = json.dumps({"content": value}, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    words = Words()
    read = Body(CHAT, data, stream=False, lines=False)
    read.learn(words)
    made = read.apply(words)
    assert len(made) == len(data)
    assert shape(json.loads(made)) == shape(json.loads(data))


def test_a_word_cut_between_frames_is_one_word() -> None:
    whole, cut = (Body(CHAT, b"".join(stream(CHAT, text)), stream=True, lines=False) for text in ("Featherstone",) * 2)
    words = Words()
    whole.learn(words)
    text = "".join(re.findall(r'"content": "([^"]*)"', cut.apply(words).decode()))
    assert text == words.apply("Featherstone") != "Featherstone"


def test_data_in_several_lines_is_one_json_text() -> None:
    data = b'data: {"choices": [{"index": 0,\ndata: "delta": {"content": "Feather"}}]}\r\n\r\n'
    words = Words()
    read = Body(CHAT, data, stream=True, lines=False)
    read.learn(words)
    assert read.apply(words) == data.replace(b"Feather", words.apply("Feather").encode())


# --- Decisions --------------------------------------------------------------------------------------------------------


def test_an_echo_stays_an_echo() -> None:
    leak = LEAK % "notes/Featherstone.txt"
    golden = chat(leak, messages=[{"role": "user", "content": "What is this?\n" + leak}])
    made = making.make(golden)
    assert made.expected and made.request
    assert made.expected.decided["recovered"] == []
    assert [span["row"] for span in made.expected.decided["rejected"]] == ["G1"]
    assert "Featherstone" not in dumps(made)
    (asked,) = made.request["messages"]
    assert asked["content"].endswith(replay.message(made, made.received)["parts"][0]["text"])


def test_a_redaction_that_changes_a_decision_is_refused() -> None:
    """The exponent of a number cannot be told from a word."""
    golden = chat((LEAK % "a").replace('string="false">40', 'string="false">12e10'))
    with pytest.raises(making.RefusedError, match=r"would change what is decided, first at message\.parts\[\d\]\.arg"):
        making.make(golden)
    assert not making.make(golden, redact=False).redacted


def test_a_record_that_does_not_fit_what_left_is_refused() -> None:
    with pytest.raises(making.RefusedError, match="something else now"):
        making.make(chat(LEAK % "a"), emitted=b"something else")


def test_the_reason_holds_no_text_of_the_message() -> None:
    golden = chat((LEAK % "Featherstone").replace('string="false">40', 'string="false">12e10'))
    with pytest.raises(making.RefusedError) as refused:
        making.make(golden)
    assert "Feather" not in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "places"),
    [
        ({"row": "V1"}, {"row": "V2"}, ["row"]),
        ({"start": 3}, {"start": 4}, ["start"]),
        ([1, 2], [1], [""]),
        ({"finish": ["stop"]}, {"finish": ["length"]}, ["finish[0]"]),
        ({"text": "abc"}, {"text": "xyz"}, []),
        ({"text": "abc"}, {"text": "wxyz"}, ["text"]),
        ({"arguments": {"path": [1, "a"]}}, {"arguments": {"path": [9, "b"]}}, []),
        ({"arguments": {"path": 1}}, {"arguments": {"path": "1"}}, ["arguments.path"]),
        ({"arguments": {"path": True}}, {"arguments": {"path": False}}, ["arguments.path"]),
        ({"arguments": {"path": {}}}, {"arguments": {"paths": {}}}, ["arguments"]),
        ({"name": "me"}, {"name": "ME"}, []),
        ({"name": None}, {"name": "x"}, ["name"]),
    ],
)
def test_what_counts_as_a_difference(old: Any, new: Any, places: list[str]) -> None:
    assert list(making.differences(old, new, str.upper)) == places
