"""Results of an experiment: curves in a tidy CSV file, tables, figures."""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orfit import terminal
from orfit.validation import Array

Advance = Callable[[], None]

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
    """One quantity of one method. values: (runs, steps)."""

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
        """Return mean and standard deviation over the runs at the last step up to `step`."""
        i = max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)
        return float(self.mean[i]), float(self.std[i])


class Curves:
    """All curves of an experiment, by method and quantity."""

    def __init__(self) -> None:
        self._curves: dict[tuple[str, str], Curve] = {}
        self.extras: dict[str, Array] = {}  # results for the tables that are no curves

    def add(self, method: str, quantity: str, steps: Array, values: Array) -> None:
        """Add a curve. values: (runs, steps), or (steps,) for one run."""
        values = np.atleast_2d(values)
        self._curves[method, quantity] = Curve(method, quantity, np.asarray(steps), values)

    def __getitem__(self, key: tuple[str, str]) -> Curve:
        return self._curves[key]

    def __iter__(self) -> Iterator[Curve]:
        return iter(self._curves.values())

    def select(self, quantity: str) -> list[Curve]:
        """Return the curves of one quantity, a curve for each method."""
        return [curve for curve in self if curve.quantity == quantity]

    def write(self, path: Path) -> None:
        """Write a tidy CSV file with nine digits.

        Errors below 1e-9° are written as 0: they are rounding errors, which differ between
        machines.
        """
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["method", "run", "step", "quantity", "value"])
            for curve in self:
                rounded = np.round(curve.values, 9)
                runs = rounded if curve.quantity in IN_DEGREES else curve.values
                for run, values in enumerate(runs):
                    for step, value in zip(curve.steps, values, strict=True):
                        row = [curve.method, run, f"{step:g}", curve.quantity, f"{value:.9g}"]
                        writer.writerow(row)


def make_table(title: str, columns: list[str], rows: list[list[str]]) -> Any:
    """Return a rich table with left-aligned names and right-aligned numbers."""
    table = terminal.table(title)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def format_rows(curves: list[Curve], steps: list[int]) -> list[list[str]]:
    """Return the rows of a table: mean ± std of each curve at the given steps."""
    rows = []
    for curve in curves:
        several = len(curve.values) > 1
        cells = [
            f"{mean:.1f} ± {std:.1f}" if several else f"{mean:.1f}"
            for mean, std in map(curve.at, steps)
        ]
        rows.append([LABELS.get(curve.method, curve.method), *cells])
    return rows


def plot_band(axis: Any, curve: Curve, **style: Any) -> None:
    """Plot the mean over the runs, with a band of ± one standard deviation."""
    style = {"color": COLOURS.get(curve.method), "label": LABELS.get(curve.method)} | style
    (line,) = axis.plot(curve.steps, curve.mean, **style)
    low, high = curve.mean - curve.std, curve.mean + curve.std
    axis.fill_between(curve.steps, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def mark_step(axis: Any, step: int) -> None:
    """Mark the step at which the sample is learned, as the paper's figures do."""
    style = {"color": "red", "linestyle": "--", "linewidth": 1}
    axis.axvline(step, label="the image is learned", **style)


def add_caption(figure: Any, runs: int) -> None:
    figure.supxlabel(f"lines: mean over {runs} runs; shades: ± one standard deviation", fontsize=8)


def make_panels(
    count: int = 2, width: float = 5.2, height: float = 4.0, rows: int = 1
) -> tuple[Any, Any]:
    """Return a figure with `rows` rows of `count` panels, and its axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    size = width * count, height * rows
    return plt.subplots(rows, count, figsize=size, layout="constrained")


def save_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write PNG and SVG files. Equal figures give equal bytes."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with plt.rc_context({"svg.hashsalt": "orfit"}):
        figure.savefig(paths[0], dpi=150)
        figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


@contextmanager
def show_progress(description: str, total: int) -> Iterator[Advance]:
    """Show a progress bar; yield the function that advances it by one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda: bar.advance(task)
