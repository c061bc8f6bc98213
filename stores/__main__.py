import sys

from stores.cli import main

sys.exit(main())
