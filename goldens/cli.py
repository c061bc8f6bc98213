"""Replays goldens, flows and dumped responses through the repair, and makes goldens of them (docs/GOLDENS.md)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dsml_core.formats import WIRES
from goldens import cuts, making, replay, serve, show, store
from goldens.format import Golden, GoldenError, Outcome, Step
from goldens.sources import Source, sources

SAME, DIFFERENT, FAILED = 0, 1, 2

_EPILOG = """A PATH is a golden, a folder of goldens, a file of flows (mitmdump -w), an HTTP archive (HAR) or the bytes
of a response. Status: 0 if all is well, 1 if something differs, 2 if a file or an argument cannot be used."""


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the status."""
    given = _arguments(arguments)
    try:
        if given.source:
            return _capture(given.source, given.to, given.wire, redact=not given.no_redact)
        found = [source for path in given.paths for source in sources(path, given.wire)]
        if given.serve is not None:
            return serve.run([source.seen.golden for source in found], given.serve)
        return _replay_all(found, given)
    except GoldenError as error:
        print(show.tame(str(error)), file=sys.stderr)
    except OSError as error:
        where = error.filename or ("cannot go on" if given.serve is None else f"port {given.serve}")
        print(f"{where}: {error.strerror or error}", file=sys.stderr)
    return FAILED


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("scripts/replay.py", description=__doc__, epilog=_EPILOG, allow_abbrev=False)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="what to replay")
    parser.add_argument("--check", action="store_true", help="only say what differs from what is expected")
    parser.add_argument("--update", action="store_true", help="say what differs, and expect that from now on")
    parser.add_argument(
        "--chunks",
        type=_chunks,
        metavar="N|exhaustive",
        help=f"also cut the bytes anew: into N each, or twice anywhere (of more than {cuts.EXHAUSTIVE} bytes: in "
        f"{cuts.SAMPLES} places)",
    )
    parser.add_argument("--serve", type=_port, metavar="PORT", help="be a provider that streams them as they came")
    parser.add_argument("--wire", choices=sorted(WIRES), help="the wire of dumped bytes, if their look does not tell")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="make goldens of what FILE holds")
    parser.add_argument("--to", type=Path, metavar="DIR", help="with --from: the folder for them")
    parser.add_argument("--no-redact", action="store_true", help="with --from: keep every word as it is")
    given = parser.parse_args(arguments)
    if bool(given.source) == bool(given.paths):
        parser.error("give paths to replay, or a file with --from")
    if bool(given.source) != bool(given.to):
        parser.error("--from and --to need each other")
    if sum(map(bool, (given.check, given.update, given.source, given.serve is not None))) > 1:
        parser.error("--check, --update, --serve and --from are different things to do")
    return given


def _chunks(text: str) -> int | str:
    if text == "exhaustive":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a number of bytes, or exhaustive")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError("must be a port, 0 for any that is free")
    return int(text)


# --- Replay -----------------------------------------------------------------------------------------------------------


def _replay_all(found: Sequence[Source], given: argparse.Namespace) -> int:
    wrong = 0
    for source in found:
        outcome = replay.run(source.seen.golden)
        differs = list(_difference(source, outcome, given))
        if not (given.check or given.update):
            _print([f"== {source.place}", *_told(source.seen.golden, outcome)])
            if differs:
                _print(["This is not what is expected of it: --check shows the difference."])
        elif differs:
            _print([f"== {source.place}", *differs])
        if differs and given.update:
            _update(source, outcome)
        uncut = list(_recut(source.seen.golden, outcome, given.chunks))
        _print(uncut and [f"== {source.place}", *uncut])
        wrong += bool(uncut) or bool(differs and given.check)
    print(f"{len(found)} replayed, {wrong} wrong" if given.check or given.chunks else f"{len(found)} replayed")
    return DIFFERENT if wrong else SAME


def _told(golden: Golden, outcome: Outcome) -> Iterator[str]:
    yield from show.decisions(outcome)
    lines = list(show.changes(golden, outcome))
    yield from lines or ["not a byte was changed"]


def _difference(source: Source, outcome: Outcome, given: argparse.Namespace) -> Iterator[str]:
    """How the outcome differs from what is expected, nothing where it does not."""
    golden = source.seen.golden
    if golden.expected is not None:
        if golden.expected != outcome:
            yield from show.difference(golden, outcome)
    elif given.update or (given.check and source.seen.emitted is None):
        raise GoldenError(f"{source.place}: nothing is expected of it; make a golden with --from")
    elif source.seen.emitted not in (None, outcome.emitted):
        yield "The bytes that left the repair when it was recorded were others."


def _update(source: Source, outcome: Outcome) -> None:
    assert source.path is not None  # only a golden expects something
    golden = store.read(source.path)
    store.overwrite(source.path, making.expecting(golden, outcome))


def _recut(golden: Golden, outcome: Outcome, chunks: int | str | None) -> Iterator[str]:
    """Cuts that give something else than the golden's own pieces."""
    if chunks is None:
        return
    ways: Iterable[list[Step]] = (
        cuts.two_cuts(golden.steps) if chunks == "exhaustive" else [cuts.pieces(golden.steps, int(chunks))]
    )
    for steps in ways:
        other = replay.run(golden, steps)
        if other.decided != outcome.decided or not replay.same_bytes(golden, other.emitted, outcome.emitted):
            sizes = ", ".join(str(len(step.data)) for step in steps[:3] if step.data is not None)
            yield f"Cut into pieces of {sizes}{' ...' if len(steps) > 3 else ''} bytes it gives something else:"
            yield from show.difference(making.expecting(golden, outcome), other)
            return


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(show.tame(line))


# --- Capture ----------------------------------------------------------------------------------------------------------


def _capture(path: Path, folder: Path, wire: str | None, *, redact: bool) -> int:
    """Goldens of the responses in a file that leaked."""
    store.prepare(folder)
    refused = 0
    for source in sources(path, wire):
        try:
            golden = making.make(source.seen.golden, emitted=source.seen.emitted, redact=redact)
        except making.RefusedError as reason:
            refused += 1
            _print([f"{source.place}: not kept: {reason}"])
            continue
        if golden.expected is None or not replay.leaked(golden.expected):
            _print([f"{source.place}: nothing leaked"])
            continue
        name = making.file_name(golden)
        new = store.write(folder, name, golden)
        pieces = "" if golden.recorded else "; the pieces it arrived in are not known, it is one chunk"
        _print([f"{source.place}: {folder / name}{'' if new else ' was there already'}: {golden.about}{pieces}"])
    return DIFFERENT if refused else SAME
