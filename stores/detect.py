"""Which stores there are at a path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from stores.backup import read_about
from stores.base import Progress, Store, Unreadable, Unsupported
from stores.claude_jsonl import ClaudeJsonl
from stores.folder import CODEX, stores_in
from stores.message_lists import AnthropicList, MessageList, OpenAIList, form_of
from stores.opencode_files import OpenCodeFiles
from stores.opencode_sqlite import OpenCodeSqlite
from stores.unsupported import UNSUPPORTED, is_rollout
from stores.words import many

KINDS: Final[dict[str, type[Store]]] = {
    store.kind: store for store in (OpenCodeSqlite, OpenCodeFiles, ClaudeJsonl, AnthropicList, OpenAIList)
}
_OF_A_FOLDER: Final = (OpenCodeSqlite.kind, OpenCodeFiles.kind, ClaudeJsonl.kind)  # the first one there is read


def find(
    path: Path, kind: str | None, progress: Progress, note: Callable[[str], None] = lambda _: None
) -> Iterator[Store]:
    """The stores at a file or folder, told by their content, or of the given kind.

    A folder is OpenCode's, or holds sessions of Claude Code at any depth, each a store. `note` hears of what else lies
    in it. `Unreadable` if there is no store, and at the end if something in the folder could not be looked at.
    """
    path = path.resolve()
    if not path.exists():
        raise Unreadable(f"{path}: there is nothing")
    if path.is_dir():
        yield from _in_folder(path, kind, progress, note)
    elif path.is_file():
        yield _kind_of(path, kind)(path, progress)
    else:
        raise Unreadable(f"{path}: neither a file nor a folder")


def undo(backup: Path) -> tuple[Path, int]:
    """Undo a repair by its backup: the store, and how many changes were left since the client changed them again."""
    about = read_about(backup.resolve())
    kind = KINDS.get(about["kind"])
    if kind is None:
        raise Unreadable(f"{backup}: a backup of another version of this program")
    return Path(about["store"]), kind.undo(backup.resolve(), about)


def _kind_of(file: Path, kind: str | None) -> type[Store]:
    if file.stat().st_size == 0:
        raise Unreadable(f"{file}: the file is empty")
    if kind == ClaudeJsonl.kind and is_rollout(file):
        raise Unsupported(f"{file}: {UNSUPPORTED}")
    if kind is not None:
        return KINDS[kind]
    for store in (OpenCodeSqlite, ClaudeJsonl):
        if store.recognises(file):
            return store
    if MessageList.recognises(file):
        return form_of(file)
    raise Unreadable(f"{file}: not a store this program knows")


def _in_folder(folder: Path, kind: str | None, progress: Progress, note: Callable[[str], None]) -> Iterator[Store]:
    found, faults = stores_in(folder, all_sessions=kind == ClaudeJsonl.kind)
    used = next((one for one in _OF_A_FOLDER if one in found and kind in (None, one)), None)
    others = ", ".join(
        f"{one} ({paths[0]}{f' and {len(paths) - 1} more' if paths[1:] else ''})"
        for one, paths in sorted(found.items())
        if one != used
    )
    if used is not None:
        if others:
            note(f"{folder} holds other stores too: {used} is read, {others} not; {_CHOOSE}")
        yield from (KINDS[used](path, progress) for path in found[used])
    if faults:
        more = f" (and {many(len(faults) - 1, 'other place')})" if faults[1:] else ""
        raise Unreadable(f"{faults[0]}{more}")
    if used is None:
        if list(found) == [CODEX]:
            raise Unsupported(f"{found[CODEX][0]}: {UNSUPPORTED}")
        wanted = f"a folder, and no store of the kind {kind}" if kind else "no store this program knows"
        there = f"; it holds {others}; {_CHOOSE}" if others else ""
        raise Unreadable(f"{folder}: {wanted}{there}")


_CHOOSE: Final = "to choose, give the path of one, or this folder and --store KIND"
