"""Writes the options table of the README anew, from the one table in the code."""

from __future__ import annotations

import interrupt

if __name__ == "__main__":
    interrupt.end_quietly()

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from addon.options import OPTIONS  # noqa: E402

HEAD = "| option | default | takes | what it does |\n|---|---|---|---|\n"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    readme = ROOT / "README.md"
    before, found, rest = readme.read_text().partition(HEAD)
    if not found:
        raise SystemExit("README.md has no options table")
    after = rest[rest.index("\n\n") :]
    rows = [
        f"| `{row.name}` | {row.default and f'`{row.default}`'} | {row.kind.expects} | {row.help} |" for row in OPTIONS
    ]
    readme.write_text(before + HEAD + "\n".join(rows) + after)


if __name__ == "__main__":
    main()
