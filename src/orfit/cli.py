"""The command line: `orfit`, or `python -m orfit`."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import orfit

# What the paper shows first, then what goes beyond it; and the demo's comparison.
PAPER = ("limited", "full", "memory", "rls")
NETWORKS = ("deep", "classes", "permuted")  # these need torch
NAMES = (*PAPER, "tail", "duffing", "digits", *NETWORKS)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="orfit", description="Learn from a stream in one pass, without forgetting."
    )
    made.add_argument("--version", action="version", version=f"orfit {orfit.__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser(
        "reproduce",
        help="run the paper's experiments: tables, figures, curves",
        description="Run the paper's experiments, and those that go beyond it. Each prints tables "
        "and leaves figures (PNG, SVG) and curves.csv in its own folder.",
    )
    command.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which: {', '.join(NAMES)} (default: {' '.join(PAPER)})",
    )
    command.add_argument("--out", type=Path, default=Path("results"), help="folder (results)")
    command.add_argument("--quick", action="store_true", help="small sizes, a run of seconds")
    command.add_argument("--seed", type=int, help="of the initial parameters (0)")
    command.add_argument("--runs", type=int, help="how often, from different initial parameters")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any setting, such as m=20, for those that have it; may be given again. A name that "
        "none has lists them",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return reproduce(options)
    except (ValueError, LookupError, OSError) as error:
        print(f"orfit: {error}", file=sys.stderr)
        return 2


def reproduce(options: argparse.Namespace) -> int:
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        raise ValueError(f"there is no experiment {unknown[0]}; there are {', '.join(NAMES)}")
    needed = ["rich", "matplotlib"]
    if any(name in NETWORKS for name in options.names):
        needed.append("torch")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        extra = "experiments,torch" if "torch" in missing else "experiments"
        raise ValueError(
            f"this needs {' and '.join(missing)}: pip install '.[{extra}]' in orfit's folder"
        )
    from rich.console import Console

    from orfit.experiments.reproduce import reproduce as run_one
    from orfit.experiments.reproduce import settings_of, split_changes

    changes = dict(_pair(text) for text in options.set)
    for name in ("seed", "runs"):
        if getattr(options, name) is not None:
            if name in changes:
                raise ValueError(f"{name} is given twice: by --{name} and by --set")
            changes[name] = str(getattr(options, name))
    names = options.names or PAPER
    of_each = split_changes(names, changes)
    plans = [(name, settings_of(name, options.quick, of_each[name])) for name in names]
    console = Console()
    for name, settings in plans:
        paths = run_one(name, options.out, settings, console.print)
        console.print("written: " + ", ".join(map(str, paths)), soft_wrap=True)
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set takes NAME=VALUE, such as m=20; it was given {text}")
    return name, value
