"""Past values beside present ones, for series: the last N of the targets and of each column."""

import numpy as np

from orfit.validation import Array


class Lags:
    """The present columns, those of the `count` rows before, and their targets.

    What is before the first row counts as the mean.
    """

    def __init__(self, count: int, columns: int, targets: int) -> None:
        self.count, self.columns, self.targets = count, columns, targets
        self.past = np.zeros((count, columns + targets))  # the latest last

    @property
    def size(self) -> int:
        return self.columns + self.count * (self.columns + self.targets)

    def make(self, X: Array, Y: Array) -> Array:
        """n×d and the targets that follow, n×q → n×size; the rows are the past of what comes next.

        No row sees its own target.
        """
        rows = np.vstack([self.past, np.hstack([X, Y])])
        n, count = len(X), self.count
        before = [rows[count - lag : count - lag + n] for lag in range(1, count + 1)]
        self.past = rows[n:].copy()
        return np.hstack([X, *before])

    def present(self, x: Array) -> Array:
        """A single row, d → size, which is not seen yet."""
        return np.concatenate([x, *self.past[::-1]])

    def see(self, x: Array, y: Array) -> None:
        """Let a row be the past of the next."""
        self.past = np.vstack([self.past, np.concatenate([x, y])])[1:]
