"""Warnings that name a remedy, and the statistics of inputs that one of them needs."""

import sys
import warnings
from dataclasses import dataclass, replace

import numpy as np

from orfit.validation import Array

ROWS = 100  # after which columns are compared
ROUNDING = 1e-12  # of the largest column: a smaller one is rounding and is ignored
APART = 1e4  # a ratio of columns that occurs in raw units, not with standardised columns


class SaturationWarning(UserWarning):
    """The memory spans every parameter: without noise nothing more can be fitted.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     updates = orfit.ORFit(orfit.Linear(1)).learn_each([[1.0], [1.0]], [1.0, 2.0])
        >>> caught[0].category is orfit.SaturationWarning
        True
    """


class InterpolationWarning(UserWarning):
    """Without noise, w makes steps that only noise explains, and diverges.

    Examples:
        >>> import warnings
        >>> rng = np.random.default_rng(0)
        >>> X = 1 + 1e-8 * rng.standard_normal((300, 6))
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     updates = orfit.ORFit(orfit.Linear(6), 3).learn_each(X, rng.standard_normal(300))
        >>> caught[0].category is orfit.InterpolationWarning
        True
    """


class ScaleWarning(UserWarning):
    """Columns of x have units so different that the small ones are hardly learned.

    Examples:
        >>> import warnings
        >>> X = np.outer(np.arange(1, 101), [1.0, 1e6])
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     updates = orfit.ORFit(orfit.Linear(2), noise=1.0).learn_each(X, X[:, 0])
        >>> caught[0].category is orfit.ScaleWarning
        True
    """


def advise(message: str, category: type[UserWarning]) -> None:
    """Warn at the line of the caller's own code."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("orfit."):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, category, stacklevel=depth + 1)


@dataclass(frozen=True)
class Columns:
    """The largest values of columns of the first rows; after enough rows they are compared once."""

    rows: int
    largest: Array
    judged: bool = True  # or there are not enough rows yet

    @classmethod
    def before(cls, compared: bool) -> "Columns":
        """compared: whether each column of x has a parameter, all with the same prior."""
        return cls(0 if compared else ROWS, np.zeros(0))

    @property
    def waits(self) -> bool:
        return self.rows < ROWS

    @property
    def left(self) -> int:
        """How many more rows there must be."""
        return ROWS - self.rows

    def with_rows(self, X: Array) -> "Columns":
        """With more inputs, n×d; inputs of another shape have no columns to compare."""
        if not isinstance(X, np.ndarray) or X.ndim != 2 or not X.size:
            return self
        rows = self.rows + len(X)
        # No n×p copy, and one new array of p numbers for a single row.
        one = len(X) == 1
        largest = np.abs(X[0]) if one else np.maximum(X.max(axis=0), -X.min(axis=0))
        if self.largest.size:
            np.maximum(largest, self.largest, out=largest)
        return Columns(rows, largest, rows < ROWS)

    def grown(self, columns: int) -> "Columns":
        """With so many more columns, which were zero so far."""
        if not self.largest.size:
            return self
        return replace(self, largest=np.append(self.largest, np.zeros(columns)))

    def as_judged(self) -> "Columns":
        return replace(self, judged=True)

    def judge(self) -> None:
        """Warn if small columns are hardly learned."""
        most, bound = int(self.largest.argmax()), ROUNDING * self.largest.max()
        least = int(np.where(self.largest > bound, self.largest, np.inf).argmin())
        low, high = float(self.largest[least]), float(self.largest[most])
        if high / APART > low > bound:
            advise(
                f"column {most} of x reaches {high:.1g}, column {least} only "
                f"{low:.1g}: what a small column says is hardly learned. Divide each by "
                "its usual size, so that none is far from 1.",
                ScaleWarning,
            )
