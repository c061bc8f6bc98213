"""What scripts/try_client runs."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import textwrap

from clients.catalogue import CLIENTS, Client
from clients.install import NotInstalled, install
from clients.trial import Mode, Outcome, trial
from tests.markers import BAR

SHOWN_LINES = 40
SHOWN_BAR = "\u00a6"  # a marker on a terminal could be taken for a call by an agent that reads it
MEANING = {
    Mode.OFF: "it showed the markup and ran nothing",
    Mode.REVERSE: "it ran the tool, sent the result, showed the answer",
    Mode.REGULAR: "the same, over TLS",
}


def main(arguments: list[str]) -> int:
    for end in (signal.SIGINT, signal.SIGTERM):
        signal.signal(end, lambda number, _: sys.exit(128 + number))  # an exception, so that all is cleaned up
    parser = argparse.ArgumentParser(prog="scripts/try_client", add_help=False, allow_abbrev=False)
    parser.add_argument("clients", nargs="*", metavar="client")
    parser.add_argument("--mode", action="append", choices=[*Mode])
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(arguments)
    if given.list:
        for client in CLIENTS:
            print(f"{client.name:28} {' '.join(client.packages)}")
        return 0
    named = {client.name: client for client in CLIENTS}
    if unknown := [name for name in given.clients if name not in named]:
        parser.error(f"no client {', '.join(unknown)}; there are {', '.join(named)}")
    chosen = [named[name] for name in given.clients] or CLIENTS
    modes = [Mode(mode) for mode in given.mode or Mode]
    right = [tried(client, mode) for client in chosen for mode in modes]
    return 0 if all(right) else 1


def tried(client: Client, mode: Mode) -> bool:
    """Whether all went as it should. Says so in a line, and shows what was seen when it did not."""
    label = f"{client.name:28} {client.version:8} {mode:8}"
    try:
        outcome = asyncio.run(trial(client, install(client), mode))
    except NotInstalled as missing:
        print(f"{label} NOT TRIED: {missing}", flush=True)
        return False
    verdict = f"FAILED: {'; '.join(outcome.faults)}" if outcome.faults else f"ok: {MEANING[mode]}"
    print(f"{label} {outcome.seconds:5.1f} s  {verdict}".replace(BAR, SHOWN_BAR), flush=True)
    if outcome.faults:
        print(seen(outcome).replace(BAR, SHOWN_BAR), flush=True)
    return not outcome.faults


def seen(outcome: Outcome) -> str:
    """The last of what the client and the proxy said, and what else the client asked for."""
    parts = {"client": outcome.output, "proxy": outcome.proxy_log, "asked besides": "\n".join(outcome.elsewhere)}
    return "\n".join(
        f"  {title}:\n" + textwrap.indent("\n".join(text.splitlines()[-SHOWN_LINES:]), "    ")
        for title, text in parts.items()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
