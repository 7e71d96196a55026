"""Run experiments that are not in the paper: python benchmarks/experiments/run.py NAME.

Each prints its tables and writes figures and curves.csv, as `orfit reproduce` does. It needs the
extra `bench`. docs/reproduction.md shows the results.
"""

import argparse
import importlib
from pathlib import Path

from rich.console import Console

from orfit.reproduce.run import run_experiments

NAMES = (
    "memory", "tail", "duffing", "digits", "split",
    "deep", "classes", "permuted", "rotated20", "cnn", "pretrained",
)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for results")
    parser.add_argument("--quick", action="store_true", help="small sizes, a run of seconds")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="a setting, such as m=20; an unknown name lists them")  # fmt: skip
    arguments = parser.parse_args()
    experiments = {name: importlib.import_module(name) for name in arguments.names}
    changes = dict(text.split("=", 1) for text in arguments.set)
    show = Console().print
    for path in run_experiments(experiments, arguments.out, arguments.quick, changes, show):
        print(f"written: {path}")


if __name__ == "__main__":
    main()
