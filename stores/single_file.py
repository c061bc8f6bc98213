"""Stores that are one file: read record by record, written anew beside it, then put in its place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from stores import files
from stores.backup import Backup
from stores.base import InUse, Message, NotWritten, Session, Store, Unreadable, Wanted
from stores.fixing import Fixer, fixes


@dataclass(frozen=True, slots=True)
class Piece:
    """What becomes of one record: its bytes as they were, and those it is replaced by (more records may be in them)."""

    old: bytes
    new: bytes


class SingleFile(Store):
    """A store in one file of JSON records, each a line or the whole."""
