"""What the model is linear in, of rows in the units of the stream."""

import math
from collections.abc import Sequence

import numpy as np

from orfit.river.columns import Columns
from orfit.river.scale import Scale
from orfit.river.settings import Settings
from orfit.validation import Array

FAR = 20.0  # standard deviations: beyond, a value has left the scale of so few rows
MORE = 8  # columns at least, by which there are more at a time


class Inputs:
    """φ = [1·c, waves, z]: a constant, features of the map, and the scaled columns, last.

    Columns that come later are behind all that there was, so that a learner can grow. They are 0 in
    all rows before, and the map does not see them: nothing of what was learned changes.

    c is as long as the rest of a row usually is: so the intercept is shrunk no more than the whole
    of a prediction is, however many columns there are.
    """

    def __init__(
        self, X: Array, share: Array, columns: Columns, settings: Settings, few: bool
    ) -> None:
        """X: the first rows, NaN where a feature is absent, and what share each has in all of them.

        few: more are to come.
        """
        sizes = columns.first
        self.columns = len(sizes)  # that are known
        # Those that the map sees, by name: in which order a row has them does not matter.
        self._mapped = sorted(range(self.columns), key=[*map(repr, columns.places)].__getitem__)
        self._scales = settings.scaling
        self._scale = Scale.none(self.columns)
        if self._scales:
            self._scale = Scale.of(X, share, sizes, centred=settings.fit_intercept)
        self._most = FAR if few and self._scales else math.inf
        self._map = settings.map()
        self._constant = np.zeros(int(settings.fit_intercept))
        self._front = len(self._constant) + (0 if self._map is None else self._map.count)
        self.room = self.columns  # for columns, of which the last may wait to be used
        Z = self._scale.apply(X, self._most)
        if self._map is not None:
            self._map.learn(Z[:, self._mapped])
        phi = self.make(X)
        self._blank = np.zeros(0)  # a row with nothing but its constant
        self._constant[:] = float(np.sqrt(share @ np.sum(phi * phi, axis=1))) or 1.0

    @property
    def size(self) -> int:
        """How many numbers a row becomes."""
        return self._front + self.room

    def grow(self, sizes: Sequence[float]) -> None:
        """Take columns that came later, and have room for some more, so that not each one costs."""
        sizes = sizes if self._scales else [1.0] * len(sizes)
        if len(sizes) > self.room:
            self.room = len(sizes) + max(MORE, len(sizes) // 2)
        self._scale, self.columns = self._scale.grown(sizes), len(sizes)

    def make_one(self, x: Array) -> Array:
        """φ (size,) of one row: in the common case, by as few steps as there can be."""
        if self._map is None and self._most == math.inf:
            if len(self._blank) != self.size:
                self._blank = np.zeros(self.size)
                self._blank[: len(self._constant)] = self._constant
            phi = self._blank.copy()
            Z = phi[self._front : self._front + self.columns]
            np.subtract(x, self._scale.mean, out=Z)
            Z /= self._scale.size
            if math.isfinite(Z.sum()):
                return phi
        row: Array = self.make(x[None])[0]
        return row

    def make(self, X: Array) -> Array:
        """φ (n, size) of rows with the columns that are known."""
        Z = self._scale.apply(X, self._most)
        phi = np.zeros((len(Z), self.size))
        constants = len(self._constant)
        phi[:, :constants] = self._constant
        if self._map is not None:
            d = len(self._mapped)
            phi[:, constants : self._front] = self._map.make(Z[:, self._mapped])[:, d:]
            Z /= math.sqrt(d or 1)
        phi[:, self._front : self._front + Z.shape[1]] = Z
        return phi
