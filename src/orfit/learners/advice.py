"""Warnings that name a remedy, and the eye on inputs that one of them needs."""

import sys
import warnings

import numpy as np

from orfit.door import Array

ROWS = 100  # after which columns are judged
ROUNDING = 1e-12  # of the largest column: one below is rounding, and says nothing
APART = 1e4  # a ratio of columns that raw units have, and standardised ones have not


class SaturationWarning(UserWarning):
    """The memory spans every parameter: without noise nothing more can be fitted."""


class InterpolationWarning(UserWarning):
    """Without noise, w takes steps that only noise explains, and explodes."""


class ScaleWarning(UserWarning):
    """Columns of x have units so different that the small ones are hardly learned."""


def advise(message: str, category: type[UserWarning]) -> None:
    """Warn at the line of the caller's own code."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("orfit."):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, category, stacklevel=depth + 1)


class Columns:
    """How large the columns of the first rows are; when they were enough, they are judged once."""

    def __init__(self, compared: bool) -> None:
        """compared: whether columns of x are what parameters of one prior belong to."""
        self.rows, self._largest = 0 if compared else ROWS, np.zeros(0)

    @property
    def waits(self) -> bool:
        return self.rows < ROWS

    def look(self, X: Array) -> None:
        """See inputs that were learned, n×d; others have no columns to compare."""
        if not isinstance(X, np.ndarray) or X.ndim != 2 or not X.size:
            return
        self.rows += len(X)
        largest = np.abs(X).max(axis=0)
        self._largest = np.maximum(largest, self._largest) if self._largest.size else largest
        if not self.waits:
            self._judge()

    def _judge(self) -> None:
        known = np.flatnonzero(self._largest > ROUNDING * self._largest.max())
        if not len(known):
            return
        sizes = self._largest[known].astype(float)
        least, most = sizes.argmin(), sizes.argmax()
        if sizes[most] / APART > sizes[least]:
            advise(
                f"column {known[most]} of x reaches {sizes[most]:.1g}, column {known[least]} only "
                f"{sizes[least]:.1g}: what a small column says is hardly learned. Divide each by "
                "its usual size, so that none is far from 1.",
                ScaleWarning,
            )
