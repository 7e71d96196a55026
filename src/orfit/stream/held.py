"""Rows that are set aside, never learned: to test on in the end."""

from typing import Any

import numpy as np

from orfit.meter.signs import GOLDEN, mixed
from orfit.schema import DOUBLE, Layout
from orfit.validation import Array

MOST = 10_000  # rows that are kept: of more, a random choice
WORD = np.uint64


def drawn(numbers: Array, seed: int) -> Array:
    """64 random bits for each number, the same wherever a stream is taken up again."""
    return mixed((numbers.astype(WORD) + WORD(1)) * WORD(GOLDEN) + WORD(seed % 2**64))


class Held:
    """A share of all rows, chosen by their number; of many, at most `MOST` are kept."""

    def __init__(self, share: float, seed: int, width: int, targets: int) -> None:
        self.share, self.seed, self.count = share, seed, 0
        self.X, self.Y = np.zeros((0, width)), np.zeros((0, targets))

    def chosen(self, first: int, rows: int) -> Array:
        """Which of so many rows, the first of this number, are set aside."""
        if not self.share:
            return np.zeros(rows, bool)
        numbers = np.arange(first, first + rows)
        return np.asarray(drawn(numbers, self.seed) < WORD(min(self.share, 0.999) * 2**64))

    def keep(self, X: Array, Y: Array) -> None:
        """Set these aside."""
        room = MOST - len(self.X)
        self.X, self.Y = np.vstack([self.X, X[:room]]), np.vstack([self.Y, Y[:room]])
        numbers = np.arange(self.count, self.count + len(X))
        for i, draw in enumerate(drawn(numbers, self.seed + 1)[room:], room):  # of many, each alike
            place = int(draw % WORD(self.count + i + 1))
            if place < MOST:
                self.X[place], self.Y[place] = X[i], Y[i]
        self.count += len(X)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"X": self.X, "Y": self.Y}, {"count": self.count}

    def layout(self) -> Layout:
        return {"X": (DOUBLE, "held", self.X.shape[1]), "Y": (DOUBLE, "held", self.Y.shape[1])}

    def restore(self, arrays: dict[str, Array], count: int) -> None:
        self.X, self.Y, self.count = arrays["X"], arrays["Y"], count
