"""Features by name, as river has them, become places in a row of numbers.

A row is in the units of the stream, and NaN where a feature is absent. Names come and go; each
keeps the place that it got when it was first seen.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from orfit.validation import Array

PLAIN = frozenset({float, int, bool})  # what needs no second look


class Columns:
    """Which feature is where, and how large it was when it came."""

    def __init__(self) -> None:
        self.places: dict[Any, int] = {}
        self.first: list[float] = []  # of each feature, the size of its first value; 1 if that is 0
        self._usual: Callable[[Any], tuple[Any, ...]] | None = None  # gets all of them, in order

    def __len__(self) -> int:
        return len(self.places)

    def read(self, x: Mapping[Any, Any], *, new: bool) -> tuple[Any, Any]:
        """Places and values of the features of x that are known; or of all, where new ones join.

        The places are `...` where the values are those of all features, in order.
        """
        if self._usual is not None and len(x) == len(self.places):
            try:
                values = self._usual(x)
                if PLAIN.issuperset(map(type, values)) and math.isfinite(sum(values)):
                    return ..., values
            except (KeyError, TypeError, OverflowError):
                return self._read(x, new)
        return self._read(x, new)

    def _read(self, x: Mapping[Any, Any], new: bool) -> tuple[Any, Any]:
        places, values = [], []
        try:
            named = x.items()
        except AttributeError:
            raise ValueError(f"x must be a dictionary of features; it is {x!r}") from None
        numbers = {name: number(name, value) for name, value in named if value is not None}
        for name, value in numbers.items():
            if math.isnan(value):  # absent, as None is
                continue
            place = self.places.get(name)
            if place is None:
                if not new:
                    continue
                place = self._join(name, value)
            places.append(place)
            values.append(value)
        return places, values

    def _join(self, name: Any, value: float) -> int:
        place = self.places[name] = len(self.places)
        self.first.append(abs(value) or 1.0)
        self._usual = itemgetter(*self.places) if place else None
        return place

    def join(self, names: Iterable[Any], X: Array) -> list[int]:
        """The places of a table's columns, new ones too; a column of NaN alone has none: -1."""
        made = []
        for name, column in zip(names, X.T, strict=True):
            place = self.places.get(name, -1)
            if place < 0:
                known = np.flatnonzero(~np.isnan(column))
                place = self._join(name, float(column[known[0]])) if len(known) else -1
            made.append(place)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_usual": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._usual = itemgetter(*self.places) if len(self.places) > 1 else None


def number(name: Any, value: Any) -> float:
    """A value of a feature; NaN where it is missing."""
    if isinstance(value, str | bytes):
        raise ValueError(
            f"x[{name!r}] is {value!r}, which is text: put river.compose.Select({name!r}) | "
            "river.preprocessing.OneHotEncoder() before the model, beside the numbers (+ "
            "river.compose.SelectType(int, float)), or leave text out with the latter alone"
        )
    try:
        made = float(value)
    except OverflowError:
        raise ValueError(f"x[{name!r}] must be finite; it is too large for a float") from None
    except (TypeError, ValueError):
        raise ValueError(f"x[{name!r}] must be a number; it is {value!r}") from None
    if math.isinf(made):
        raise ValueError(f"x[{name!r}] must be finite; it is {made}")
    return made
