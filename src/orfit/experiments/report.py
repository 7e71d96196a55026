"""What every experiment leaves behind: curves in a tidy CSV, a table, figures."""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orfit import terminal
from orfit.door import Array

Tick = Callable[[], None]

IN_DEGREES = {"test_rmse", "train_rmse", "sample_error"}

LABELS = {
    "orfit": "ORFit",
    "orfit-random": "ORFit-random",
    "orfit-latest": "ORFit-latest",
    "one-step-sgd": "One-Step SGD",
    "greedy": "Greedy",
    "sgd": "SGD",
}
COLOURS = {
    "orfit": "tab:blue",
    "orfit-random": "tab:green",
    "orfit-latest": "tab:purple",
    "one-step-sgd": "tab:orange",
    "greedy": "tab:gray",
    "sgd": "tab:brown",
}


@dataclass(frozen=True)
class Curve:
    """One quantity of one method: a row of `values` for each run, a column for each step."""

    method: str
    quantity: str
    steps: Array
    values: Array

    @property
    def mean(self) -> Array:
        return np.asarray(self.values.mean(axis=0))

    @property
    def std(self) -> Array:
        return np.asarray(self.values.std(axis=0))

    def at(self, step: float) -> tuple[float, float]:
        """Mean and standard deviation over the runs at the last step up to `step`."""
        i = max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)
        return float(self.mean[i]), float(self.std[i])


class Curves:
    """All curves of an experiment, by method and quantity."""

    def __init__(self) -> None:
        self._curves: dict[tuple[str, str], Curve] = {}
        self.facts: dict[str, Array] = {}  # what else was found, for the tables alone

    def add(self, method: str, quantity: str, steps: Array, values: Array) -> None:
        """values: (runs, steps)."""
        values = np.atleast_2d(values)
        self._curves[method, quantity] = Curve(method, quantity, np.asarray(steps), values)

    def __getitem__(self, key: tuple[str, str]) -> Curve:
        return self._curves[key]

    def __iter__(self) -> Iterator[Curve]:
        return iter(self._curves.values())

    def of(self, quantity: str) -> list[Curve]:
        return [curve for curve in self if curve.quantity == quantity]

    def write(self, path: Path) -> None:
        """Tidy, nine digits, and none of errors below 1e-9°: rounding depends on the machine."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["method", "run", "step", "quantity", "value"])
            for curve in self:
                values_of = curve.values
                if curve.quantity in IN_DEGREES:
                    values_of = np.round(values_of, 9)
                for run, values in enumerate(values_of):
                    for step, value in zip(curve.steps, values, strict=True):
                        row = [curve.method, run, f"{step:g}", curve.quantity, f"{value:.9g}"]
                        writer.writerow(row)


def table(title: str, columns: list[str], rows: list[list[str]]) -> Any:
    """A rich table: names to the left, numbers to the right."""
    made = terminal.table(title)
    for i, name in enumerate(columns):
        made.add_column(name, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def at_steps(curves: list[Curve], steps: list[int], form: str = ".1f") -> list[list[str]]:
    """Rows of a table: mean ± std of each curve at some steps."""
    rows = []
    for curve in curves:
        one = len(curve.values) == 1  # no spread to tell
        told = map(curve.at, steps)
        cells = [f"{mean:{form}}" + ("" if one else f" ± {std:{form}}") for mean, std in told]
        rows.append([LABELS.get(curve.method, curve.method), *cells])
    return rows


def shaded(axis: Any, curve: Curve, **style: Any) -> None:
    """A line, and its standard deviation over the runs as a shade."""
    style = {"color": COLOURS.get(curve.method), "label": LABELS.get(curve.method)} | style
    (line,) = axis.plot(curve.steps, curve.mean, **style)
    low, high = curve.mean - curve.std, curve.mean + curve.std
    axis.fill_between(curve.steps, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def mark(axis: Any, step: int) -> None:
    """The step at which the watched image is learned."""
    style = {"color": "red", "linestyle": "--", "linewidth": 1}
    axis.axvline(step, label="the image is learned", **style)


def say_runs(figure: Any, runs: int) -> None:
    figure.supxlabel(f"lines: mean over {runs} runs; shades: ± one standard deviation", fontsize=8)


def panels(
    count: int = 2, width: float = 5.2, height: float = 4.0, rows: int = 1
) -> tuple[Any, Any]:
    """A figure of panels side by side, in one row or more."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    size = width * count, height * rows
    return plt.subplots(rows, count, figsize=size, layout="constrained")


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """As PNG and SVG, the same bytes each time."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with plt.rc_context({"svg.hashsalt": "orfit"}):
        figure.savefig(paths[0], dpi=150)
        figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


@contextmanager
def progress(description: str, total: int) -> Iterator[Tick]:
    """A bar; what it yields moves it on by one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda: bar.advance(task)
