"""Goldens of what leaks while it leaks: the option `dsml_capture` and the command `dsml.capture`.

Making one takes as long as repairing the response a few times over, and writing it can take any time at all: both
happen in a thread of their own, after the response has passed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mitmproxy.types
from mitmproxy import command, exceptions, flow, flowfilter
from mitmproxy.http import HTTPFlow

from addon.options import Settings
from addon.report import place
from goldens import making, store
from goldens.flows import from_flow
from goldens.seen import Seen

logger = logging.getLogger("dsml")

_UNSET = mitmproxy.types.Path()
_NOT_KEPT = "its body was not kept (dsml_keep_limit)"
_NO_FOLDER = "no folder is given: dsml.capture FLOWS FOLDER, or set dsml_capture"


class Capture:
    """An addon with one command; the rest of it is called by the addon it belongs to."""

    name = "dsml_goldens"

    def __init__(self) -> None:
        self._settings = Settings()
        self._matches: Callable[[flow.Flow], bool] | None = None
        self._worker: ThreadPoolExecutor | None = None

    def use(self, settings: Settings) -> None:
        """Capture as these settings say. Raises `ValueError` with a sentence for the user."""
        matches = None
        if settings.capture_filter:
            try:
                matches = flowfilter.parse(settings.capture_filter)
            except ValueError as error:
                raise ValueError(f"dsml_capture_filter: {error}") from None
        if settings.capture and settings.capture != self._settings.capture:
            _prepare(settings.capture)
        self._settings, self._matches = settings, matches

    def take(self, one: HTTPFlow) -> None:
        """The response of a flow has passed, and there was something to decide."""
        if not self._settings.capture or (self._matches is not None and not self._matches(one)):
            return
        seen = from_flow(one)
        if seen is None:
            logger.warning("dsml: not captured: %s", _NOT_KEPT)
            return
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "dsml capture")
        self._worker.submit(self._keep, seen, place(self._settings.capture), self._settings.capture_redact)

    def end(self) -> None:
        """Returns when all that was taken is written."""
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None

    def _keep(self, seen: Seen, folder: Path, redact: bool) -> None:
        try:
            logger.info("dsml: captured: %s", _write(seen, folder, redact))
        except (making.RefusedError, OSError) as reason:
            logger.warning("dsml: not captured: %s", _sentence(reason))
        except Exception:
            logger.warning("dsml: not captured: fault in it", exc_info=True)

    @command.command("dsml.capture")  # type: ignore[untyped-decorator]
    def capture(self, flows: Sequence[flow.Flow], folder: mitmproxy.types.Path = _UNSET) -> Sequence[str]:
        """Write golden fixtures of responses into a folder, that of dsml_capture if none is given."""
        path = folder or self._settings.capture
        if not path:
            raise exceptions.CommandError(_NO_FOLDER)
        try:
            where = _prepare(path)
        except ValueError as error:
            raise exceptions.CommandError(str(error)) from None
        return [self._capture(one, where) for one in flows] or ["No flow is selected."]

    def _capture(self, one: flow.Flow, folder: Path) -> str:
        seen = from_flow(one) if isinstance(one, HTTPFlow) else None
        if not isinstance(one, HTTPFlow) or seen is None:
            return f"not captured: {_why_not(one)}"
        try:
            return _write(seen, folder, self._settings.capture_redact)
        except (making.RefusedError, OSError) as reason:
            return f"not captured: {_sentence(reason)}"


def _prepare(folder: str) -> Path:
    """The folder, which can be written to. Raises `ValueError` with a sentence for the user."""
    try:
        where = place(folder)
        store.prepare(where)
    except OSError as error:
        raise ValueError(f"cannot write to {error.filename or folder}: {error.strerror}") from None
    return where


def _write(seen: Seen, folder: Path, redact: bool) -> str:
    """The file that was written, and what is in it."""
    golden = making.make(seen.golden, emitted=seen.emitted, redact=redact)
    name = making.file_name(golden)
    new = store.write(folder, name, golden)
    return f"{folder / name}{'' if new else ' (was there already)'}: {golden.about}"


def _sentence(reason: Exception) -> str:
    if isinstance(reason, OSError):
        return f"cannot write to {reason.filename or 'the folder'}: {reason.strerror}"
    return str(reason)


def _why_not(one: flow.Flow) -> str:
    if not isinstance(one, HTTPFlow) or one.response is None:
        return "there is no response"
    return _NOT_KEPT if one.response.raw_content is None else "it is no response that is repaired here"
