"""`python -m goldens`: see scripts/replay.py."""

import sys

from goldens.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
