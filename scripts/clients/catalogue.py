"""The clients, as data.

In `command`, `files` and `environ` these are replaced: $program (what is run), $packages (the folder they are in),
$base (the origin the client is told, without a path), $home, $work (the folder it works in) and $question.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

AI_SDK = Path(__file__).with_name("ai_sdk.mjs")
NODE_TRUST = ("NODE_EXTRA_CA_CERTS",)


@dataclass(frozen=True)
class Client:
    """A client, the one of its own tools that reads the note, and what it takes to run it once without questions."""

    name: str
    folder: str  # where its packages are installed
    packages: tuple[str, ...]  # for npm, with versions
    program: str  # a glob in node_modules; "" for node
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


OPENCODE_CONFIG = {
    "provider": {
        "deepseek": {
            # Known to OpenCode itself when it may fetch its list of models.
            "npm": "@ai-sdk/openai-compatible",
            "models": {"deepseek-chat": {}},
            "options": {"baseURL": "$base/v1"},
        }
    }
}

CODEX_CONFIG = """
model = "deepseek-chat"
model_provider = "deepseek"
check_for_update_on_startup = false

[model_providers.deepseek]
name = "DeepSeek"
base_url = "$base/v1"
wire_api = "responses"
env_key = "DEEPSEEK_API_KEY"

[analytics]
enabled = false
"""


def _ai_sdk(provider: str, package: str, wire: str, path: str, ask: str) -> Client:
    return Client(
        name=f"ai-{provider}" + ("" if ask == "streamText" else "-whole"),
        folder=f"ai-{provider}",
        packages=(package, "ai@6.0.325", "undici@7.30.2"),
        program="",
        wire=wire,
        tool="read_file",
        arguments={"path": "$work/note.txt"},
        command=("$program", str(AI_SDK), "$packages", provider, ask, f"$base{path}", "$question"),
        trust="NODE_EXTRA_CA_CERTS",
        environ={"DEEPSEEK_API_KEY": "none"},
    )


CLIENTS = (
    Client(
        name="opencode",
        folder="opencode",
        packages=("opencode-ai@1.18.33",),
        program="opencode-*/bin/opencode",
        wire="openai-chat",
        tool="read",
        arguments={"filePath": "$work/note.txt"},
        command=("$program", "run", "--model", "deepseek/deepseek-chat", "$question"),
        trust="NODE_EXTRA_CA_CERTS",
        files={"$work/opencode.json": json.dumps(OPENCODE_CONFIG)},
        environ={
            "DEEPSEEK_API_KEY": "none",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        },
    ),
    Client(
        name="codex",
        folder="codex",
        packages=("@openai/codex@0.171.0",),
        program="@openai/codex-*/vendor/*/bin/codex",
        wire="openai-responses",
        tool="exec_command",
        arguments={"cmd": "cat note.txt"},
        command=(
            *("$program", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
            "$question",
        ),
        trust="SSL_CERT_FILE",
        files={"$home/.codex/config.toml": CODEX_CONFIG},
        environ={"DEEPSEEK_API_KEY": "none"},
    ),
    Client(
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
            "ANTHROPIC_MODEL": "deepseek-chat",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    ),
    *(
        _ai_sdk(provider, package, wire, path, ask)
        for provider, package, wire, path in (
            ("openai-compatible", "@ai-sdk/openai-compatible@2.0.92", "openai-chat", "/v1"),
            ("deepseek", "@ai-sdk/deepseek@2.0.69", "openai-chat", "/v1"),
            ("openai", "@ai-sdk/openai@3.0.141", "openai-responses", "/v1"),
            ("anthropic", "@ai-sdk/anthropic@3.0.140", "anthropic", "/anthropic/v1"),
        )
        for ask in ("streamText", "generateText")
    ),
)
