"""The command line: `orfit`, or `python -m orfit`. One file for each command."""

import importlib.util
import sys
from collections.abc import Sequence

from orfit.version import __version__

NEEDED = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. What is wrong with the input is one sentence, and 2."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given == ["--version"]:  # which needs nothing
        print(f"orfit {__version__}")
        return 0
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        needed = f"the command line needs {' and '.join(missing)}"
        print(f"orfit: {needed}: pip install '.[cli]' in orfit's folder", file=sys.stderr)
        return 2
    from orfit.cli.app import run

    return run(given)
