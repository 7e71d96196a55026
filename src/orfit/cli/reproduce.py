"""`orfit reproduce`: the paper's experiments."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

NAMES = ("limited", "full", "rls")


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help=f"{', '.join(NAMES)} (default: all)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for results.")] = Path("results"),
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, a run of seconds.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the initial parameters (0).")] = None,
    runs: Annotated[int | None, typer.Option(help="Number of runs with different seeds.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting, such as m=20, of the experiments that have it. Can be repeated. An "
            "unknown name lists the settings.",
        ),
    ] = None,
) -> None:
    """Run the paper's experiments.

    Each prints its tables and writes its figure (PNG, SVG) and curves.csv to a folder of its own.
    """
    chosen = names or NAMES
    unknown = [name for name in chosen if name not in NAMES]
    if unknown:
        raise ValueError(f"there is no experiment {unknown[0]}; there are {', '.join(NAMES)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("this needs matplotlib: pip install '.[experiments]' in orfit's folder")
    from rich.console import Console

    from orfit.reproduce.run import EXPERIMENTS, run_experiments

    changes = dict(_parse_pair(text) for text in settings or [])
    for name, value in (("seed", seed), ("runs", runs)):
        if value is not None:
            if name in changes:
                raise ValueError(f"{name} is given twice: by --{name} and by --set")
            changes[name] = str(value)
    experiments = {name: EXPERIMENTS[name] for name in chosen}
    console = Console()
    paths = run_experiments(experiments, out, quick, changes, console.print)
    console.print("written: " + ", ".join(map(str, paths)), soft_wrap=True)


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set takes NAME=VALUE, such as m=20; it was given {text}")
    return name, value
