"""Which stores there are at a path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stores.backup import INFIX, read_about
from stores.base import Progress, Store, Unreadable
from stores.claude_jsonl import ClaudeJsonl
from stores.message_lists import AnthropicList, OpenAIList
from stores.opencode_files import OpenCodeFiles
from stores.opencode_sqlite import OpenCodeSqlite

KINDS: Final[dict[str, type[Store]]] = {
    store.kind: store for store in (OpenCodeSqlite, OpenCodeFiles, ClaudeJsonl, AnthropicList, OpenAIList)
}
_DATABASE: Final = "opencode.db"


def find(path: Path, kind: str | None, progress: Progress) -> Iterator[Store]:
    """The stores at a file or folder, told by their content, or of the given kind.

    A folder is OpenCode's, or holds sessions of Claude Code at any depth, each a store. `Unreadable` if there is none.
    """
    path = path.resolve()
    if not path.exists():
        raise Unreadable(f"{path}: there is nothing")
    if kind == OpenCodeFiles.kind or (path.is_dir() and not _database(path) and OpenCodeFiles.recognises(path)):
        yield OpenCodeFiles(path, progress)
    elif path.is_file() or _database(path):
        file = path if path.is_file() else path / _DATABASE
        yield (KINDS[kind] if kind else _kind_of(file))(file, progress)
    elif kind in (None, ClaudeJsonl.kind):
        yield from _sessions(path, progress)
    else:
        raise Unreadable(f"{path}: a folder, and no store of the kind {kind}")


def undo(backup: Path) -> tuple[Path, int]:
    """Undo a repair by its backup: the store, and how many changes were left since the client changed them again."""
    about = read_about(backup.resolve())
    kind = KINDS.get(about["kind"])
    if kind is None:
        raise Unreadable(f"{backup}: a backup of another version of this program")
    return Path(about["store"]), kind.undo(backup.resolve(), about)


def _database(folder: Path) -> bool:
    return (folder / _DATABASE).is_file()


def _kind_of(file: Path) -> type[Store]:
    for store in KINDS.values():
        if store is not OpenCodeFiles and store.recognises(file):
            return store
    raise Unreadable(f"{file}: not a store this program knows")


def _sessions(folder: Path, progress: Progress) -> Iterator[Store]:
    found = False
    for file in sorted(folder.rglob("*.jsonl")):
        if INFIX not in str(file.relative_to(folder)) and ClaudeJsonl.recognises(file):
            found = True
            yield ClaudeJsonl(file, progress)
    if not found:
        raise Unreadable(f"{folder}: no store this program knows")
