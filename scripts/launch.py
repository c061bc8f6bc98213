"""Usage: .venv/bin/python scripts/launch.py NAME|PATH [argument ...]

What other scripts run their program by (`bootstrap.launch`): a module by its name, or a file by its path, as
`python -m NAME` or `python PATH` would, but that Ctrl-C leaves no traceback, from the first line on.
"""

import interrupt

if __name__ == "__main__":
    interrupt.end_quietly()

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    if sys.argv[1:2] in ([], ["--help"], ["-h"]):
        print(__doc__.strip())
        return
    del sys.argv[0]
    sys.path.insert(0, str(ROOT))
    if "/" in sys.argv[0]:
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
