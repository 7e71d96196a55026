"""Validation of the arguments of the estimators: frames, labels and weights."""

import math
from typing import Any

import numpy as np
from river.utils import dataframe

from orfit import validation
from orfit.validation import Array


def label(y: Any) -> float:
    """A label that is a number; of a bool, 0 or 1."""
    if type(y) is float and math.isfinite(y):
        return y
    return validation.scalar("y", float(y) if isinstance(y, bool | np.bool_) else y)


def named(y: Any) -> Any:
    """A label that names a class."""
    try:
        hash(y)
    except TypeError:
        raise ValueError(
            f"y must name a class, by a value that can be hashed, such as text; it is {y!r}"
        ) from None
    if y is None or _missing(y):
        raise ValueError(f"y must name a class; it is {y!r}: leave out rows that have no label")
    return y


def _missing(y: Any) -> bool:
    """Whether it is NaN, or what pandas has for that, which is not even equal to itself."""
    try:
        return bool(y != y)  # noqa: PLR0124
    except TypeError:
        return True


def weight(w: Any) -> float:
    """How many rows a row counts as."""
    return 1.0 if type(w) is float and w == 1.0 else validation.nonnegative("w", w)


def table(X: Any) -> tuple[Any, list[Any], Array]:
    """A frame of pandas, polars or another that narwhals knows: itself, its names, its numbers.

    Of a number that is missing there is NaN.
    """
    frame = dataframe.into_frame(X)
    try:
        numbers = dataframe.to_numpy(frame)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"X must hold numbers ({error}): make text numbers by river.compose.Select(...) | "
            "river.preprocessing.OneHotEncoder() before the model, or leave such columns out"
        ) from None
    if np.isinf(numbers).any():
        raise ValueError("X must be finite; some of its values are infinite")
    return frame, list(frame.columns), numbers


def labels(y: Any, rows: int) -> Any:
    """A series of labels, as a list."""
    made = dataframe.into_series(y).to_list()
    if len(made) != rows:
        raise ValueError(f"X has {rows} rows, but y has {len(made)} labels")
    return made


def weights(w: Any, rows: int) -> Array | None:
    """Of so many rows, a number for all or a series; None where each counts as one."""
    if isinstance(w, int | float):
        return None if w == 1 else np.full(rows, weight(w))
    made = validation.numbers("w", dataframe.into_series(w).to_numpy())
    if made.shape != (rows,) or (made < 0).any():
        raise ValueError(f"w must be a number, or {rows} of them, and not negative")
    return made
