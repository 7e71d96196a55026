"""What one would predict without learning anything: each row from those before it."""

from typing import Any, Protocol

import numpy as np

from orfit.validation import Array


class Baseline(Protocol):
    """Predicts rows, one after another, from the targets of those before."""

    name: str

    def made(self, Y: Array) -> Array:
        """What is predicted of each row, which then is seen."""

    def state(self) -> list[float]:
        """The numbers to go on from."""

    def restore(self, numbers: list[float]) -> None: ...


class RunningMean:
    """The mean of all before."""

    name = "running mean"

    def __init__(self, targets: int) -> None:
        self.total, self.rows = np.zeros(targets), 0

    def made(self, Y: Array) -> Array:
        totals = np.zeros((len(Y) + 1, len(self.total)))
        np.cumsum(Y, axis=0, out=totals[1:])
        totals += self.total
        rows = self.rows + np.arange(len(Y))
        self.total, self.rows = totals[-1], self.rows + len(Y)
        return np.asarray(totals[:-1] / np.maximum(rows, 1)[:, None])

    def state(self) -> list[float]:
        return [float(self.rows), *self.total.tolist()]

    def restore(self, numbers: list[float]) -> None:
        _check(len(numbers) == 1 + len(self.total) and numbers[0] >= 0)
        self.rows, self.total = int(numbers[0]), np.array(numbers[1:])


class LastValue:
    """What came last."""

    name = "last value"

    def __init__(self, targets: int) -> None:
        self.last = np.zeros(targets)

    def made(self, Y: Array) -> Array:
        before = np.vstack([self.last, Y])
        self.last = before[-1]
        return before[:-1]

    def state(self) -> list[float]:
        return [float(number) for number in self.last]

    def restore(self, numbers: list[float]) -> None:
        _check(len(numbers) == len(self.last))
        self.last = np.array(numbers)


class Majority:
    """The class that was most often seen, and of several the one that came first."""

    name = "majority"

    def __init__(self, targets: int) -> None:
        self.counts: list[float] = [0.0]
        self._most = 0

    def made(self, Y: Array) -> Array:
        predictions = []
        for found in Y[:, 0].astype(int).tolist():
            predictions.append(self._most)
            self.counts += [0.0] * (found + 1 - len(self.counts))
            self.counts[found] += 1
            if self.counts[found] > self.counts[self._most]:
                self._most = found
        return np.array(predictions, float)[:, None]

    def state(self) -> list[float]:
        return [float(self._most), *self.counts]

    def restore(self, numbers: list[float]) -> None:
        _check(0 <= numbers[0] < len(numbers) - 1)
        self._most, self.counts = int(numbers[0]), numbers[1:]


def baselines(classify: bool, targets: int) -> list[Any]:
    """Those to compare with."""
    kinds = [Majority, LastValue] if classify else [RunningMean, LastValue]
    return [kind(targets) for kind in kinds]


def _check(fits: bool) -> None:
    if not fits:
        raise ValueError("what a baseline has seen does not fit to the targets")
