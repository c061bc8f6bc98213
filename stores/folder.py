"""What stores lie in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from stores.backup import INFIX
from stores.base import StoreError, Unsupported, Wanted
from stores.claude_jsonl import ClaudeJsonl
from stores.message_lists import MessageList, form_of
from stores.opencode_files import OpenCodeFiles, storage_in
from stores.opencode_sqlite import OpenCodeSqlite

CODEX: Final = "Codex or Responses, not supported"
_DATABASE: Final = "opencode.db"
_OTHER_DATABASE: Final = "another database"


def stores_in(folder: Path, *, all_sessions: bool) -> tuple[dict[str, list[Path]], list[str]]:
    """The paths of stores by kind, and what could not be looked at, each with the reason.

    JSONL files are found at any depth, others right in the folder. Of OpenCode's folder only what lies right in it is
    looked at, as there may be a million files below; unless `all_sessions`.
    """
    found: dict[str, list[Path]] = {}
    faults: list[str] = []
    if _DATABASE in os.listdir(folder) and (folder / _DATABASE).is_file():
        found[OpenCodeSqlite.kind] = [folder / _DATABASE]
    if (storage := storage_in(folder)) is not None:
        found[OpenCodeFiles.kind] = [storage]
    for file in _files(folder, faults, deep=all_sessions or not found):
        try:
            kind = _kind_of(file) if file.is_file() else ""
        except OSError as error:
            faults.append(_fault(error))
            continue
        if kind:
            found.setdefault(kind, []).append(file)
    return found, faults


def _files(folder: Path, faults: list[str], *, deep: bool) -> list[Path]:
    found = []
    for place, folders, names in os.walk(folder, onerror=lambda error: faults.append(_fault(error))):
        folders[:] = [name for name in folders if deep and INFIX not in name]
        suffixes = (".jsonl", ".json", ".db") if Path(place) == folder else (".jsonl",)
        found += [Path(place, name) for name in names if name.endswith(suffixes) and INFIX not in name]
    return sorted(file for file in found if file != folder / _DATABASE)


def _fault(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}"


def _kind_of(file: Path) -> str:
    """Empty for what is no store."""
    if file.suffix == ".db":
        return _OTHER_DATABASE if OpenCodeSqlite.recognises(file) else ""
    if file.suffix == ".jsonl" and ClaudeJsonl.recognises(file):
        return ClaudeJsonl.kind
    if not MessageList.recognises(file):
        return ""
    try:
        store = form_of(file)
        messages = store(file).messages(Wanted())
        return store.kind if any(not message.fault for message in messages) else ""
    except Unsupported:
        return CODEX
    except StoreError:
        return ""
