import io
import sys

from stores.cli import main

# Names of files may hold anything, and a terminal may know few characters.
if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(errors="backslashreplace")
try:
    sys.exit(main())
except KeyboardInterrupt:
    print("interrupted: each store is whole, as it was or repaired with its backup beside it", file=sys.stderr)
    sys.exit(130)
