#!/usr/bin/env python3
"""Usage: scripts/repair_transcript.py PATH... [--write]
       scripts/repair_transcript.py --undo BACKUP

Sets up .venv if need be, then repairs stored sessions. docs/TRANSCRIPTS.md
tells of it, --help of its options.
"""

import interrupt

if __name__ == "__main__":
    interrupt.end_quietly()

import sys

import bootstrap

if __name__ == "__main__":
    bootstrap.ensure()
    bootstrap.launch("stores", *sys.argv[1:])
