"""The clients, as data.

In `arguments`, `command`, `files` and `environ` these are replaced: $program (what is run), $packages (the folder they
are in), $base (the origin the client is given, without a path), $home, $work (the folder it works in) and $question.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

AI_SDK = Path(__file__).with_name("ai_sdk.mjs")
KEY = {"DEEPSEEK_API_KEY": "none"}


@dataclass(frozen=True)
class Client:
    """A client, the one of its own tools that can read the note, and what it takes to run it once, unattended."""

    name: str
    folder: str  # in the cache
    packages: tuple[str, ...]  # for npm, with versions
    program: str  # a glob in node_modules; "" for node itself
    wire: str
    tool: str
    arguments: Mapping[str, str]
    command: tuple[str, ...]
    trust: str  # the variable that names the proxy's authority
    files: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        return self.packages[0].rpartition("@")[2]


OPENCODE_CONFIG = {"provider": {"deepseek": {"options": {"baseURL": "$base"}}}}
# What OpenCode would fetch from its makers: the models it knows.
OPENCODE_MODELS = {
    "deepseek": {
        "id": "deepseek",
        "name": "DeepSeek",
        "env": ["DEEPSEEK_API_KEY"],
        "npm": "@ai-sdk/openai-compatible",
        "api": "https://api.deepseek.com",
        "models": {
            "deepseek-flash": {
                "id": "deepseek-flash",
                "name": "DeepSeek",
                "release_date": "2026-01-01",
                "attachment": False,
                "reasoning": False,
                "temperature": True,
                "tool_call": True,
                "limit": {"context": 128000, "output": 8192},
            }
        },
    }
}
OPENCODE = Client(
    name="opencode",
    folder="opencode",
    packages=("opencode-ai@1.18.33",),
    program="opencode-*/bin/opencode",
    wire="openai-chat",
    tool="read",
    arguments={"filePath": "$work/note.txt"},
    command=("$program", "run", "--model", "deepseek/deepseek-flash", "$question"),
    trust="NODE_EXTRA_CA_CERTS",
    files={"$work/opencode.json": json.dumps(OPENCODE_CONFIG), "$home/models.json": json.dumps(OPENCODE_MODELS)},
    environ={
        **KEY,
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_MODELS_PATH": "$home/models.json",
    },
)

CODEX_CONFIG = """
model = "deepseek-flash"
model_provider = "deepseek"
check_for_update_on_startup = false

[model_providers.deepseek]
name = "DeepSeek"
base_url = "$base"
wire_api = "responses"
env_key = "DEEPSEEK_API_KEY"

[analytics]
enabled = false

[features]
plugins = false
"""
CODEX_MODEL = {
    "slug": "deepseek-flash",
    "display_name": "DeepSeek",
    "supported_reasoning_levels": [],
    "shell_type": "unified_exec",
    "tool_mode": "code_mode_only",
    "visibility": "list",
    "supported_in_api": True,
    "priority": 1,
    "support_verbosity": False,
    "supports_parallel_tool_calls": False,
    "truncation_policy": {"mode": "tokens", "limit": 10000},
    "experimental_supported_tools": [],
    "base_instructions": "Be brief.",
}
CODEX = Client(
    name="codex",
    folder="codex",
    packages=("@openai/codex@0.171.0",),
    program="@openai/codex-*/vendor/*/bin/codex",
    wire="openai-responses",
    tool="exec_command",
    arguments={"cmd": "cat note.txt"},
    # The sandbox is the client's own affair, and does not start inside every container.
    command=("$program", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "$question"),
    trust="SSL_CERT_FILE",
    files={"$home/.codex/config.toml": CODEX_CONFIG},
    environ=KEY,
)
# Here the only tool takes free text, a program, and not JSON.
CODEX_CODE_MODE = replace(
    CODEX,
    name="codex-code-mode",
    tool="exec",
    arguments={"input": 'text((await tools.exec_command({cmd: "cat note.txt"})).output)'},
    files={
        "$home/.codex/config.toml": 'model_catalog_json = "$home/models.json"\n' + CODEX_CONFIG,
        "$home/models.json": json.dumps({"models": [CODEX_MODEL]}),
    },
)

CLAUDE_CODE = Client(
    name="claude-code",
    folder="claude-code",
    packages=("@anthropic-ai/claude-code@2.1.332",),
    program="@anthropic-ai/claude-code-*/claude",
    wire="anthropic",
    tool="Read",
    arguments={"file_path": "$work/note.txt"},
    command=("$program", "--print", "$question"),
    trust="NODE_EXTRA_CA_CERTS",
    environ={
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_BASE_URL": "$base/anthropic",
        "ANTHROPIC_MODEL": "deepseek-flash",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    },
)


def _ai_sdk(provider: str, package: str, wire: str, path: str) -> tuple[Client, Client]:
    """The SDK with a provider package, once for its streams and once for whole answers."""
    streamed = Client(
        name=f"ai-{provider}",
        folder=f"ai-{provider}",
        packages=(package, "ai@6.0.325", "undici@7.30.2"),
        program="",
        wire=wire,
        tool="read_file",
        arguments={"path": "$work/note.txt"},
        command=("$program", str(AI_SDK), "$packages", provider, "streamText", f"$base{path}", "$question"),
        trust="NODE_EXTRA_CA_CERTS",
        environ=KEY,
    )
    whole = tuple("generateText" if part == "streamText" else part for part in streamed.command)
    return streamed, replace(streamed, name=f"{streamed.name}-whole", command=whole)


CLIENTS = (
    OPENCODE,
    CODEX,
    CODEX_CODE_MODE,
    CLAUDE_CODE,
    *_ai_sdk("openai-compatible", "@ai-sdk/openai-compatible@2.0.92", "openai-chat", ""),
    *_ai_sdk("deepseek", "@ai-sdk/deepseek@2.0.69", "openai-chat", ""),
    *_ai_sdk("openai", "@ai-sdk/openai@3.0.141", "openai-responses", ""),
    *_ai_sdk("anthropic", "@ai-sdk/anthropic@3.0.140", "anthropic", "/anthropic/v1"),
)
