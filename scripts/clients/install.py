"""Fetches clients from npm into a folder of this project."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from clients.catalogue import Client

CACHE = Path(__file__).resolve().parents[2] / ".clients"
SECONDS = 600


class NotInstalled(Exception):
    """A client cannot be run here. The message is for the user."""


@dataclass(frozen=True)
class Installed:
    folder: Path  # its node_modules hold the packages
    program: Path


def install(client: Client) -> Installed:
    """The client, fetched unless it is there in these versions.

    Scripts of the packages are not run: the binaries stand in the packages themselves.
    """
    folder = CACHE / client.folder
    stamp = folder / "fetched.json"
    if not stamp.exists() or json.loads(stamp.read_text()) != list(client.packages):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _fetch(folder, client.packages)
        stamp.write_text(json.dumps(client.packages))
    return Installed(folder, _program(client, folder))


def _fetch(folder: Path, packages: tuple[str, ...]) -> None:
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    command = [_found("npm"), "install", "--prefix", str(folder), *quiet, *packages]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    if done.returncode:
        raise NotInstalled(f"npm could not fetch {' '.join(packages)}:\n{done.stdout}")


def _program(client: Client, folder: Path) -> Path:
    """Of several builds for one system the last by name, which asks least of the processor."""
    if not client.program:
        return Path(_found("node"))
    builds = sorted((folder / "node_modules").glob(client.program))
    if not builds:
        raise NotInstalled("npm brought no build for this system")
    return builds[-1]


def _found(command: str) -> str:
    path = shutil.which(command)
    if path is None:
        raise NotInstalled(f"there is no {command} on this machine (node 20 or later is needed, with npm)")
    return path
