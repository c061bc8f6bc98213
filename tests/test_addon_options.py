"""The options table: read, checked, declared."""

import re
from pathlib import Path
from typing import Any

import pytest

from addon import options
from addon.options import OPTIONS, Settings


def test_the_defaults_are_what_their_text_says() -> None:
    assert options.read({option.name: option.default for option in OPTIONS}) == Settings()


def test_the_settings_of_the_core_are_those_of_its_policy() -> None:
    from dsml_core.policy import Policy

    shared = ["profile", "values", "undeclared", "candidate_limit", "hold_limit", "declared_hold_limit"]
    assert [getattr(Settings(), name) for name in shared] == [getattr(Policy(), name) for name in shared]


def read(**given: str | None) -> Settings:
    return options.read({option.name: option.default for option in OPTIONS} | given)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("mode", "observe", "observe"),
        ("mode", " OFF ", "off"),
        ("mode", "Repair", "repair"),
        ("stream", "off", False),
        ("stream", "True", True),
        ("body", "false", False),
        ("capture_redact", "no", False),
        ("log_content", "YES", True),
        ("profile", "strict", "strict"),
        ("values", "literals", "literals"),
        ("undeclared", "reject", "reject"),
        ("candidate_limit", "1", 1),
        ("hold_limit", "131072", 131072),
        ("declared_hold_limit", "1073741824", 1 << 30),
        ("models", "deep.?seek|chimera", re.compile("deep.?seek|chimera", re.IGNORECASE)),
        ("directive", "off", False),
        ("nudge_limit", "1", 1),
        ("resume", "2", 2),
        ("resume_channel", "User", "user"),
        ("hoist_tools", "on", True),
        ("idle_flush", "0", 0.0),
        ("idle_flush", "2.5", 2.5),
    ],
)
def test_reads(name: str, text: str, value: Any) -> None:
    assert getattr(read(**{f"dsml_{name}": text}), name) == value


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("dsml_mode", "on", "dsml_mode must be repair, observe or off; it is 'on'"),
        ("dsml_stream", "maybe", "dsml_stream must be on or off (or true, false, yes, no); it is 'maybe'"),
        ("dsml_stream", "", "dsml_stream must be on or off (or true, false, yes, no); it is ''"),
        ("dsml_body", None, "dsml_body must be on or off (or true, false, yes, no); it has no value"),
        ("dsml_values", "json", "dsml_values must be schema or literals; it is 'json'"),
        ("dsml_hold_limit", "64k", "dsml_hold_limit must be a whole number from 1 to 1073741824; it is '64k'"),
        ("dsml_hold_limit", "0", "dsml_hold_limit must be a whole number from 1 to 1073741824; it is '0'"),
        ("dsml_hold_limit", "-5", "dsml_hold_limit must be a whole number from 1 to 1073741824; it is '-5'"),
        ("dsml_hold_limit", "1.5", "dsml_hold_limit must be a whole number from 1 to 1073741824; it is '1.5'"),
        ("dsml_models", "(deep", "dsml_models must be a regular expression; it is '(deep'"),
        ("dsml_directive", "y", "dsml_directive must be on or off (or true, false, yes, no); it is 'y'"),
        ("dsml_sanitize", "1", "dsml_sanitize must be on or off (or true, false, yes, no); it is '1'"),
        ("dsml_nudge", "", "dsml_nudge must be on or off (or true, false, yes, no); it is ''"),
        ("dsml_nudge_limit", "0", "dsml_nudge_limit must be a whole number from 1 to 1000; it is '0'"),
        ("dsml_resume", "on", "dsml_resume must be a whole number from 0 to 10; it is 'on'"),
        ("dsml_resume_channel", "tool", "dsml_resume_channel must be system or user; it is 'tool'"),
        ("dsml_hoist_tools", "all", "dsml_hoist_tools must be on or off (or true, false, yes, no); it is 'all'"),
        ("dsml_capture", "a\0b", "dsml_capture must be a path, or empty; it is 'a\\x00b'"),
        ("dsml_idle_flush", "nan", "dsml_idle_flush must be a number of seconds from 0 to 3600; it is 'nan'"),
        ("dsml_idle_flush", "-1", "dsml_idle_flush must be a number of seconds from 0 to 3600; it is '-1'"),
        ("dsml_idle_flush", "1s", "dsml_idle_flush must be a number of seconds from 0 to 3600; it is '1s'"),
    ],
)
def test_refuses(name: str, text: str | None, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(**{name: text})
    assert str(caught.value) == sentence


@pytest.mark.parametrize("option", OPTIONS, ids=[option.name for option in OPTIONS])
def test_every_option_refuses_nonsense(option: options.Option) -> None:
    with pytest.raises(ValueError, match=option.name):
        option.read("(nonsense\0")


def test_names_an_option_that_is_not_there() -> None:
    assert options.unknown([option.name for option in OPTIONS]) is None
    assert options.unknown(["other", "dsmlish"]) is None
    assert options.unknown(["dsml_xyzzy"]) == "there is no option dsml_xyzzy"
    assert options.unknown(["dsml_hold_limits"]) == "there is no option dsml_hold_limits; did you mean dsml_hold_limit?"
    assert options.unknown(["DSML_mode"]) == "there is no option DSML_mode; did you mean dsml_mode?"
    assert options.unknown(["dsml-mode"]) == "there is no option dsml-mode; did you mean dsml_mode?"


class Unconverted:
    """As mitmproxy keeps what the command line gave for an option that is not yet declared."""

    def __init__(self, *val: str) -> None:
        self.val = list(val)


def test_what_a_configuration_file_gives_becomes_text() -> None:
    once = Unconverted("on")
    deferred: dict[str, Any] = {
        "dsml_stream": False,
        "dsml_body": True,
        "dsml_hold_limit": 2048,
        "dsml_idle_flush": 0.25,
        "dsml_mode": once,
        "dsml_values": "literals",
        "other": 7,
    }
    assert options.settle_deferred(deferred) == []
    assert deferred == {
        "dsml_stream": "off",
        "dsml_body": "on",
        "dsml_hold_limit": "2048",
        "dsml_idle_flush": "0.25",
        "dsml_mode": once,
        "dsml_values": "literals",
        "other": 7,
    }


def test_what_mitmproxy_would_refuse_silently_is_said() -> None:
    deferred: dict[str, Any] = {"dsml_stream": Unconverted("on", "off"), "dsml_body": ["on"]}
    assert options.settle_deferred(deferred) == [
        "dsml_stream is given 2 times",
        "dsml_body must be on or off (or true, false, yes, no); it is ['on']",
    ]
    assert deferred == {}


def test_the_readme_has_the_table_as_it_is_in_the_code() -> None:
    rows = [
        f"| `{row.name}` | {row.default and f'`{row.default}`'} | {row.kind.expects} | {row.help} |" for row in OPTIONS
    ]
    assert "\n".join(rows) in (Path(__file__).resolve().parent.parent / "README.md").read_text()
