"""`python -m orfit`."""

import sys

from orfit.cli import main

if __name__ == "__main__":
    sys.exit(main())
