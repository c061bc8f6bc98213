"""What scripts/try_client runs."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import textwrap

from clients.catalogue import CLIENTS, Client
from clients.install import NotInstalled
from clients.trial import Mode, trial

SHOWN_LINES = 40
MEANING = {
    Mode.OFF: "the markup was shown, nothing ran",
    Mode.REVERSE: "the tool ran, its result came back, the answer was shown",
    Mode.REGULAR: "the same, over TLS",
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/try_client", add_help=False, allow_abbrev=False)
    parser.add_argument("clients", nargs="*", metavar="client")
    parser.add_argument("--mode", action="append", type=Mode)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(arguments)
    if given.list:
        for client in CLIENTS:
            print(f"{client.name:24} {' '.join(client.packages)}")
        return 0
    named = {client.name: client for client in CLIENTS}
    if unknown := [name for name in given.clients if name not in named]:
        parser.error(f"no client {', '.join(unknown)}; there are {', '.join(named)}")
    chosen = [named[name] for name in given.clients] or list(CLIENTS)
    return asyncio.run(_try_all(chosen, given.mode or list(Mode)))


async def _try_all(clients: list[Client], modes: list[Mode]) -> int:
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    wrong = 0
    for client in clients:
        for mode in modes:
            wrong += not await _try(client, mode)
    return 1 if wrong else 0


async def _try(client: Client, mode: Mode) -> bool:
    """Tries, and says in a line what came of it, with all that was seen where it was wrong."""
    label = f"{client.name:24} {client.version:9} {mode:8}"
    try:
        outcome = await trial(client, mode)
    except NotInstalled as missing:
        print(f"{label} NOT TRIED: {missing}", flush=True)
        return False
    verdict = f"FAILED: {'; '.join(outcome.faults)}" if outcome.faults else f"ok: {MEANING[mode]}"
    print(f"{label} {outcome.seconds:4.1f} s  {verdict}", flush=True)
    if outcome.faults:
        seen = (("client", outcome.output), ("proxy", outcome.proxy_log), ("refused", "\n".join(outcome.elsewhere)))
        for title, text in seen:
            print(f"  {title}:\n" + textwrap.indent("\n".join(text.splitlines()[-SHOWN_LINES:]), "    "))
    return not outcome.faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
