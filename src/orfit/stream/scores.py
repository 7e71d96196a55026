"""How well rows were predicted before they were learned: over all, and lately.

One board for amounts and one for classes, with the same face: rows come in blocks, each with what
every method made of it, and a method's measures can be read at any time.
"""

from typing import Any, ClassVar

import numpy as np

from orfit import schema
from orfit.schema import DOUBLE, Fields, Layout
from orfit.validation import Array

LARGEST = 1e140  # errors count as this at most: squares can be added up


class AmountScores:
    """RMSE, MAE, R² of each method for each target; of the first, the share inside its interval."""

    measures = ("rmse", "mae", "r2")

    def __init__(self, methods: list[str], targets: int, window: int) -> None:
        self.methods, self.window, self.rows = methods, window, 0
        self.sums = np.zeros((2, len(methods), targets))  # of squares, and of absolute errors
        self.spread = np.zeros((2, targets))  # mean of y, and sum of (y − mean)²
        self.inside = np.zeros(targets)
        self.recent = np.zeros((len(methods) + 2, 0, targets))  # errors, y, whether inside

    def add(self, Y: Array, made: list[Array], inside: Array) -> None:
        """Y: n×q. made: of each method, n×q. inside: n×q, whether Y was in its interval."""
        n, errors = len(Y), Y - np.stack(made)
        sizes = np.abs(errors)
        if not sizes.max(initial=0.0) <= LARGEST:
            errors = np.fmax(np.fmin(errors, LARGEST), -LARGEST)  # which NaN becomes
            sizes = np.abs(errors)
        self.sums = self.sums + np.stack([np.sum(errors * errors, 1), np.sum(sizes, 1)])
        # Means of two parts, joined: no digits are lost where y is far from zero.
        mean, (known, total) = Y.mean(axis=0), self.spread
        joined = known + (mean - known) * (n / (self.rows + n))
        between = (mean - known) ** 2 * (self.rows * n / (self.rows + n))
        self.spread = np.stack([joined, total + np.sum((Y - mean) ** 2, axis=0) + between])
        self.inside, self.rows = self.inside + inside.sum(axis=0), self.rows + n
        latest = np.concatenate([errors, Y[None], inside[None]])[:, -self.window :]
        self.recent = np.concatenate([self.recent, latest], axis=1)[:, -self.window :]

    def read(self, lately: bool = False) -> dict[str, dict[str, Array]]:
        """Of each method its measures, one number for each target; NaN before the first row."""
        if lately:
            errors, y = self.recent[:-2], self.recent[-2]
            rows, squares, absolute = len(y), np.sum(errors**2, axis=1), np.abs(errors).sum(axis=1)
            total = np.sum((y - y.mean(axis=0)) ** 2, axis=0) if rows else np.zeros(y.shape[1])
            inside = self.recent[-1].sum(axis=0)
        else:
            rows, (squares, absolute), total = self.rows, self.sums, self.spread[1]
            inside = self.inside
        with np.errstate(invalid="ignore", divide="ignore"):
            made = np.sqrt(squares / rows), absolute / rows, 1 - squares / total
            told = {
                name: dict(zip(self.measures, of_it, strict=True))
                for name, *of_it in zip(self.methods, *made, strict=True)
            }
            told[self.methods[0]]["inside"] = inside / rows
        return told

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays = {"sums": self.sums, "spread": self.spread, "inside": self.inside}
        return arrays | {"recent": self.recent}, {"rows": self.rows}

    def layout(self) -> Layout:
        _, methods, q = self.sums.shape
        sides: dict[str, tuple[Any, ...]] = {
            "sums": (2, methods, q),
            "spread": (2, q),
            "inside": (q,),
            "recent": (methods + 2, "window", q),
        }
        return {name: (DOUBLE, *of_it) for name, of_it in sides.items()}

    fields: ClassVar[Fields] = {"rows": schema.counter}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        self.sums, self.spread, self.inside, self.recent = (arrays[n] for n in self.layout())
        self.rows = values["rows"]


class ClassScores:
    """Accuracy and Cohen's kappa of each method."""

    measures = ("accuracy", "kappa")

    def __init__(self, methods: list[str], targets: int, window: int) -> None:
        self.methods, self.window, self.rows = methods, window, 0
        self.hits = np.zeros(len(methods))
        self.counts = np.zeros(
            (len(methods) + 1, 1)
        )  # of each class: predicted, and in the end true
        self.recent = np.zeros((0, len(methods) + 1))

    def add(self, Y: Array, made: list[Array], inside: Array) -> None:
        """Y: n×1, the index of the class. made: of each method, n×1."""
        found = np.hstack([*made, Y])
        self.hits = self.hits + np.sum(found[:, :-1] == Y, axis=0)
        self.counts = _counted(self.counts, found)
        self.rows += len(Y)
        self.recent = np.concatenate([self.recent, found])[-self.window :]

    def read(self, lately: bool = False) -> dict[str, dict[str, Array]]:
        """Of each method its measures, as arrays of one number; NaN before the first row."""
        if lately:
            rows, hits = (
                len(self.recent),
                np.sum(self.recent[:, :-1] == self.recent[:, -1:], axis=0),
            )
            counts = _counted(np.zeros((len(self.methods) + 1, 1)), self.recent)
        else:
            rows, hits, counts = self.rows, self.hits, self.counts
        told = {}
        with np.errstate(invalid="ignore", divide="ignore"):
            for i, name in enumerate(self.methods):
                agreed = np.float64(hits[i]) / rows
                chance = np.float64(counts[i] @ counts[-1]) / rows / rows
                kappa = (agreed - chance) / (1 - chance)
                told[name] = {"accuracy": np.array([agreed]), "kappa": np.array([kappa])}
        return told

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays = {"hits": self.hits, "counts": self.counts, "recent": self.recent}
        return arrays, {"rows": self.rows}

    def layout(self) -> Layout:
        methods = len(self.methods)
        sides: dict[str, tuple[Any, ...]] = {
            "hits": (methods,),
            "counts": (methods + 1, "classes"),
            "recent": ("window", methods + 1),
        }
        return {name: (DOUBLE, *of_it) for name, of_it in sides.items()}

    fields: ClassVar[Fields] = {"rows": schema.counter}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        self.hits, self.counts, self.recent = (arrays[n] for n in self.layout())
        self.rows = values["rows"]


def _counted(counts: Array, found: Array) -> Array:
    """How often each class was found in each column, added to what is known."""
    classes = max(counts.shape[1], int(found.max(initial=0)) + 1)
    made = [np.bincount(column.astype(int), minlength=classes) for column in found.T]
    return np.pad(counts, ((0, 0), (0, classes - counts.shape[1]))) + made
