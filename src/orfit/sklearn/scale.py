"""The units of columns and targets, which the first rows tell."""

from dataclasses import dataclass

import numpy as np

from orfit.faces.rows import Rows
from orfit.validation import Array

CONSTANT = 1e-12  # of a column's mean: what varies by less is rounding


@dataclass(frozen=True)
class Scale:
    """(A − mean) / unit has mean 0 and variance 1 in the rows that it was learned from."""

    mean: Array
    unit: Array

    @classmethod
    def of(cls, rows: Rows, centred: bool, targets: bool = False) -> "Scale":
        """Of the columns of X, or of the targets. A row of weight v counts as v rows.

        centred: else the mean is 0, and the unit the root of the mean square. A column that has one
        value has that for its unit, and 1 where that is 0.
        """
        width = (rows.Y if targets else rows.X).shape[1]
        mean, square, largest = np.zeros(width), np.zeros(width), np.zeros(width)
        for part in rows.blocks():
            largest = np.maximum(largest, np.abs(part.Y if targets else part.X).max(axis=0))
        # A power of two, by which to divide rounds nothing: so that squares are finite.
        size = np.ldexp(1.0, np.frexp(np.where(largest > 0, largest, 1.0))[1] - 1)
        if centred:
            for part in rows.blocks():
                mean += part.counts @ ((part.Y if targets else part.X) / size) / rows.mass
        for part in rows.blocks():
            off = (part.Y if targets else part.X) / size - mean
            square += part.counts @ off**2 / rows.mass
        mean, unit = mean * size, np.sqrt(square) * size
        unit = np.where(unit > CONSTANT * np.abs(mean), unit, np.abs(mean))
        return cls(mean, np.where(unit > 0, unit, 1.0))

    @classmethod
    def none(cls, width: int) -> "Scale":
        """That leaves everything as it is."""
        return cls(np.zeros(width), np.ones(width))

    def applied(self, A: Array) -> Array:
        return np.asarray((A - self.mean) / self.unit)

    def undone(self, A: Array) -> Array:
        return np.asarray(A * self.unit + self.mean)

    def grown(self, width: int) -> "Scale":
        """With more columns, which are left as they are."""
        more = width - len(self.mean)
        return Scale(np.append(self.mean, np.zeros(more)), np.append(self.unit, np.ones(more)))
