"""`orfit reproduce`: the paper's experiments, and those that go beyond it."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

# What the paper shows first, then what goes beyond it; and the demo's comparison.
PAPER = ("limited", "full", "memory", "rls")
# These need torch.
NETWORKS = ("deep", "classes", "permuted", "rotated20", "cnn", "pretrained")
NAMES = (*PAPER, "tail", "duffing", "digits", "split", *NETWORKS)


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help=f"Which: {', '.join(NAMES)} (default: {' '.join(PAPER)}).",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for results.")] = Path("results"),
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, a run of seconds.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of the initial parameters (0).")] = None,
    runs: Annotated[
        int | None, typer.Option(help="How often, from different initial parameters.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any setting, such as m=20, for those that have it; may be given again. A name "
            "that none has lists them.",
        ),
    ] = None,
) -> None:
    """Run the paper's experiments, and those that go beyond it: tables, figures, curves.

    Each prints tables and leaves figures (PNG, SVG) and curves.csv in its own folder.
    """
    names = names or []
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"there is no experiment {unknown[0]}; there are {', '.join(NAMES)}")
    needed = ["matplotlib", "sklearn"]
    if any(name in NETWORKS for name in names):
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

    changes = dict(_pair(text) for text in settings or [])
    for name, value in (("seed", seed), ("runs", runs)):
        if value is not None:
            if name in changes:
                raise ValueError(f"{name} is given twice: by --{name} and by --set")
            changes[name] = str(value)
    chosen = names or PAPER
    of_each = split_changes(chosen, changes)
    plans = [(name, settings_of(name, quick, of_each[name])) for name in chosen]
    console = Console()
    for name, plan in plans:
        paths = run_one(name, out, plan, console.print)
        console.print("written: " + ", ".join(map(str, paths)), soft_wrap=True)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set takes NAME=VALUE, such as m=20; it was given {text}")
    return name, value
