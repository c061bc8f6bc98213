#!/usr/bin/env python3
"""Usage: scripts/replay.py PATH... [--check | --update] [--chunks N|exhaustive]
       scripts/replay.py PATH... --serve PORT
       scripts/replay.py --from FILE --to DIR

Sets up .venv if need be, then replays recorded responses, or makes goldens of
them. docs/GOLDENS.md tells of it, --help of its options.
"""

import interrupt

if __name__ == "__main__":
    interrupt.end_quietly()

import sys

import bootstrap

if __name__ == "__main__":
    bootstrap.ensure()
    bootstrap.launch("goldens", *sys.argv[1:])
