"""Rows as scikit-learn hands them in: dense or sparse inputs, targets, weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit.validation import Array

NUMBERS = 1 << 22  # of inputs that are looked at at a time: sparse ones are made dense


@dataclass(frozen=True)
class Rows:
    """X: n×d, an array or a sparse matrix. Y: n×q. weight: (n,), or None where each counts once."""

    X: Any
    Y: Array
    weight: Array | None = None

    def __len__(self) -> int:
        return len(self.Y)

    def __getitem__(self, rows: Any) -> "Rows":
        weight = None if self.weight is None else self.weight[rows]
        return Rows(self.X[rows], self.Y[rows], weight)

    @property
    def counts(self) -> Array:
        """For how many rows each stands."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @property
    def mass(self) -> float:
        return float(self.counts.sum())

    def begun(self, learned: int) -> "Rows":
        """The first of them, of which so many were learned: those of weight 0 never are."""
        if not learned:
            return self[:0]
        return self[: int(np.flatnonzero(self.counts > 0)[learned - 1]) + 1]

    def blocks(self, width: int = 1) -> Iterator["Rows"]:
        """The same, dense, some at a time. width: of what is made of each, where that is wider."""
        for rows in slices(self.X, width):
            part = self[rows]
            yield Rows(dense(part.X), part.Y, part.weight)

    def copied(self) -> "Rows":
        """The same, dense, which the caller's arrays do not change."""
        weight = None if self.weight is None else self.weight.copy()
        return Rows(np.array(dense(self.X)), self.Y.copy(), weight)

    def followed_by(self, others: "Rows") -> "Rows":
        """These, then those; dense. A target that these had not was 0."""
        Y = np.pad(self.Y, ((0, 0), (0, others.Y.shape[1] - self.Y.shape[1])))
        alike = self.weight is None and others.weight is None
        weight = None if alike else np.append(self.counts, others.counts)
        X = np.vstack([dense(self.X), dense(others.X)])
        return Rows(X, np.vstack([Y, others.Y]), weight)


def slices(X: Any, width: int = 1) -> Iterator[slice]:
    """Where to cut the rows of X, so that each part has few numbers."""
    step = max(1, NUMBERS // max(1, width, X.shape[1]))
    return (slice(start, start + step) for start in range(0, X.shape[0], step))


def dense(X: Any) -> Array:
    """X as an array."""
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)
