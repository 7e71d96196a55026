"""Units in which features are learned: found in the first rows, then kept.

What was learned stays exact only in units that stay. So the scale of the first rows is frozen;
until there are enough of them, they are kept, and learned again whenever their number has doubled.

After scaling, an absent feature is 0. One that was in all of the first rows is centred there: where
it is absent later, its mean stands for it. Any other, which is mostly absent or came later, is only
divided by its usual size: where it is absent, it is 0. So are all where nothing is to be centred,
because a model without a constant is to stay without one.
"""

from collections.abc import Sequence

import numpy as np

from orfit.validation import Array

ROUNDING = 1e-9  # of its size: a feature that varies by less does not


class Scale:
    """z = (x − mean) / size for each feature."""

    def __init__(self, mean: Array, size: Array) -> None:
        self.mean, self.size = mean, size

    @classmethod
    def none(cls, columns: int) -> "Scale":
        """Units as they are."""
        return cls(np.zeros(columns), np.ones(columns))

    @classmethod
    def of(cls, X: Array, share: Array, first: Sequence[float], *, centred: bool) -> "Scale":
        """Of the first rows, NaN where a feature is absent; and the size of each one's first value.

        share: how much each row counts; together 1.
        Those that were in none of these rows came later, and are more than X has columns or NaN.
        """
        size = np.array(first)
        mean = np.zeros(len(size))
        seen = ~np.isnan(X)
        count = seen.sum(axis=0)
        complete = (count == len(X)) & centred
        dense, sparse = np.flatnonzero(complete), np.flatnonzero((count > 0) & ~complete)
        mean[dense] = share @ X[:, dense]
        size[dense] = spread(X[:, dense], share)
        squares = np.where(seen[:, sparse], X[:, sparse], 0.0) ** 2
        usual = np.sqrt(share @ squares / (share @ seen[:, sparse]))
        size[sparse] = np.where(usual > 0, usual, 1.0)
        return cls(mean, size)

    def grown(self, first: Sequence[float]) -> "Scale":
        """With features that came later."""
        more = first[len(self.size) :]
        return Scale(np.append(self.mean, np.zeros(len(more))), np.append(self.size, more))

    def apply(self, X: Array, most: float = np.inf) -> Array:
        """Z of X, both with a column for each feature; what is absent, and so NaN, becomes 0."""
        Z: Array = (X - self.mean) / self.size
        if np.isnan(Z.sum()):
            Z[np.isnan(Z)] = 0.0
        return Z if most == np.inf else np.clip(Z, -most, most)


def spread(X: Array, share: Array) -> Array:
    """The standard deviation of each column, where rows have such shares.

    Of one that does not vary yet, what others have.
    """
    if not X.size:
        return np.ones(X.shape[1])
    largest = np.abs(X).max(axis=0)
    deviation = np.sqrt(share @ (X - share @ X) ** 2)
    varies = deviation > ROUNDING * largest
    if not varies.any():
        return np.where(largest > 0, largest, 1.0)
    usual = float(np.median(deviation[varies]))
    return np.where(varies, deviation, np.where(largest > 0, largest, usual))
