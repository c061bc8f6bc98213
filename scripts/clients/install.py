"""Fetches clients from npm into a folder of this project."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from clients.catalogue import Client

CACHE = Path(__file__).resolve().parents[2] / ".clients"
STAMP = "installed.json"
SECONDS = 600


class NotInstalled(Exception):
    """npm is missing or could not fetch a client. The message is for the user."""


def installed(client: Client) -> Path:
    """The folder whose `node_modules` holds the client's packages, fetched first if need be.

    Scripts of the packages are not run: the binaries stand in the packages themselves.
    """
    folder = CACHE / client.folder
    stamp = folder / STAMP
    if stamp.exists() and json.loads(stamp.read_text()) == list(client.packages):
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("npm is not on this machine; the clients come from there (node 20 or later)")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    command = [npm, "install", "--prefix", str(folder), *quiet, *client.packages]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    if done.returncode:
        raise NotInstalled(f"npm could not fetch {' '.join(client.packages)}:\n{done.stdout}")
    stamp.write_text(json.dumps(client.packages))
    return folder


def program(client: Client, folder: Path) -> Path:
    """The client's executable. Of several builds for this system the last by name, which asks least of the processor."""
    found = sorted((folder / "node_modules").glob(client.program))
    if not found:
        raise NotInstalled(f"{client.name} has no build for this system")
    return found[-1]
