"""What the meter shows."""

import functools
import math
from dataclasses import dataclass

import numpy as np
import scipy

from orfit.validation import Array

OUTSIDE = 0.025  # of the cases, on either side of an interval


@dataclass(frozen=True)
class Reading:
    """An estimate, and where it lies in 95 of 100 cases.

    Of a sum over labels; `mean` and `rms` are over as many.

    Examples:
        >>> reading = orfit.Reading(200.0, 128.0, 338.0, labels=50)
        >>> print(reading.mean, "|", reading.rms)
        4 (2.56 to 6.76) | 2 (1.6 to 2.6)
    """

    value: float
    low: float
    high: float
    labels: int = 1  # that the value is a sum over

    @classmethod
    def of(cls, sums: Array, labels: int) -> "Reading":
        """From what each probe makes of each head, r×q: the mean square.

        Each sum is nearly normal, so a mean of squares is to its expectation as χ² is to its
        degrees of freedom, r for each head that goes its own way. Where few rows have moved, the
        sums vary less than normal ones, and the interval is too wide.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(np.sum(sums * sums)) / len(sums)
        if not 0 < value < math.inf:
            return cls(value, value, value, labels)
        low, high = _ends(len(sums) / _shared(sums))
        return cls(value, value * low, value * high, labels)

    @property
    def mean(self) -> "Reading":
        """For each label; NaN where there is none yet."""
        n = self.labels or math.nan
        return Reading(self.value / n, self.low / n, self.high / n)

    @property
    def rms(self) -> "Reading":
        """The root of that mean: in the units of y."""
        mean = self.mean
        return Reading(math.sqrt(mean.value), math.sqrt(mean.low), math.sqrt(mean.high))

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@functools.lru_cache(16)
def _ends(degrees: float) -> tuple[float, float]:
    """Of the interval of a mean of so many squares that is found to be 1."""
    low, high = degrees / scipy.special.chdtri(degrees, [OUTSIDE, 1 - OUTSIDE])
    return float(low), float(high)


def _shared(sums: Array) -> float:
    """How much heads go together, from 1 / q, where each goes its own way, to 1: tr C² / (tr C)².

    C, q×q, is the covariance of the heads' sums; that of r probes has more spread than C has.
    """
    r, q = sums.shape
    if q == 1:
        return 1.0
    sums = sums / np.abs(sums).max()
    C = sums.T @ sums / r if q < r else sums @ sums.T / r  # which has the same traces
    ratio = float(np.sum(C * C) / np.trace(C) ** 2)
    spread = 1 + 1 / r - 2 * ratio / r
    return min(1.0, max(1 / q, (ratio - 1 / r) / spread)) if spread > 0 else 1.0


@dataclass(frozen=True)
class Readings:
    """How the predictions of everything that was learned have changed.

    change: of Σ (f(x) now − f(x) when it was learned)², over all labels so far.
    error: of Σ (y − f(x) now)².

    Each is a `Reading`: its `mean` is for one label, its `rms` the root of that, in the units of y.

    Examples:
        >>> learner = orfit.SGD(orfit.Linear(1), lr=0.5, meter=orfit.Meter())
        >>> updates = learner.learn_each([[1.0], [1.0]], [1.0, 3.0])
        >>> print(learner.meter.change.value, learner.meter.error.value)  # it was 1, and is 3
        4.0 4.0
    """

    change: Reading
    error: Reading

    @property
    def labels(self) -> int:
        """How many were learned: rows, times outputs."""
        return self.change.labels

    def __str__(self) -> str:
        return (
            f"Past predictions have changed by {self.change.rms} since they were learned, and are "
            f"off by {self.error.rms} (root mean square of {self.labels}, 95 % intervals)."
        )
