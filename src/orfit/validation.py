"""Validation of arguments: done once, at the public API, before any state changes.

Internal code trusts its arguments. Every message names the argument and what is wrong with it.
"""

import math
import reprlib
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
LONG = 1 << 13  # numbers, from which on to call a function is not what takes the time
MOST = 1 << 53  # a count beyond is none, and a float, or JSON elsewhere, could not hold it


def numbers(
    name: str, value: object, dtype: npt.DTypeLike = np.float64, *, missing: bool = False
) -> Array:
    """`value` as an array of finite numbers of type `dtype`; or NaN, where some may be missing."""
    if type(value) is np.ndarray and value.dtype == dtype and finite(value):
        return value  # nothing to convert: the common case
    if isinstance(value, float) and dtype is np.float64 and math.isfinite(value):
        return np.array(value)  # the common case of a label
    array = converted(name, value, dtype)
    check_finite(name, array, missing=missing)
    return array


def converted(name: str, value: object, dtype: npt.DTypeLike) -> Array:
    """`value` as an array of type `dtype`, whose numbers may be NaN or infinite."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} has masked values; leave those rows out, or fill them")
    if hasattr(value, "detach"):  # a tensor, which may be on another device or want gradients
        value = value.detach().cpu()
    try:
        given = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} is not a rectangular array of numbers: {error}") from None
    if given.dtype.kind not in "fiub":
        advice = f" (if they are numbers all the same, np.asarray({name}, float) makes them so)"
        text = given.dtype.kind in "OSU" and given.ndim
        raise ValueError(
            f"{name} must hold real numbers; it holds {given.dtype} values{advice if text else ''}"
        )
    with np.errstate(over="ignore"):  # too large for float32: inf
        return given.astype(dtype, copy=False)


def finite(array: Array) -> bool:
    """Whether no number of `array` is NaN or infinite."""
    if array.size == 1:
        return math.isfinite(array.item())
    # One fast read that misses nothing: NaN and inf spread.
    with np.errstate(all="ignore"):
        if 0 < array.size < LONG:
            numbers = array if array.ndim == 1 else array.ravel("K")
            total = np.dot(numbers, numbers)
        else:
            total = array.sum()
    return math.isfinite(total) or bool(np.isfinite(array).all())  # or finite numbers overflowed


def check_finite(name: str, array: Array, *, missing: bool = False) -> None:
    """Raise if a NaN or an infinity is in `array`, saying how many and where the first one is.

    missing: NaN may be there.
    """
    if finite(array):
        return
    bad = np.isinf(array) if missing else ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        at = f", the first at index {where[0] if len(where) == 1 else where}" if where else ""
        raise ValueError(
            f"{name} must be finite in {array.dtype}; {int(bad.sum())} of its {bad.size} values "
            f"are NaN or infinite{at}"
        )


def fraction(name: str, value: object, *, zero: bool = False) -> float:
    """A number in (0, 1], or in [0, 1] where `zero` is allowed."""
    number = scalar(name, value)
    if not (0 <= number <= 1) or (number == 0 and not zero):
        raise ValueError(f"{name} must be in {'[' if zero else '('}0, 1]; it is {number:g}")
    return number


def nonnegative(name: str, value: object) -> float:
    """A number that is zero or more."""
    number = scalar(name, value)
    if number < 0:
        raise ValueError(f"{name} must not be negative; it is {number:g}")
    return number


def positive(name: str, value: object) -> float:
    """A number above zero."""
    number = scalar(name, value)
    if number <= 0:
        raise ValueError(f"{name} must be positive; it is {number:g}")
    return number


def scalar(name: str, value: object) -> float:
    """A single finite number."""
    if isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be a number; it is {value}")
    array = numbers(name, value)
    if array.ndim:
        raise ValueError(f"{name} must be a single number; it has shape {array.shape}")
    return float(array)


def count(name: str, value: object, *, least: int = 1, most: int = MOST) -> int:
    """A whole number, at least `least` and at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number; it is {reprlib.repr(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; it is {value}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}; it is {value}")
    return int(value)


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False; it is {reprlib.repr(value)}")
    return bool(value)


def weights(weight: object, rows: int) -> Array:
    """The argument `weight` for so many rows: one for each."""
    given = numbers("weight", weight)
    if given.ndim and given.shape != (rows,):
        raise ValueError(
            f"weight must be a number, or one for each of {rows} rows; it has shape {given.shape}"
        )
    if given.min(initial=0.0) < 0:
        raise ValueError(f"weight must not be negative; it is {given.min():g}")
    return np.broadcast_to(given, (rows,))


def symmetric(matrix: Array) -> bool:
    """Whether a square matrix equals its transpose, up to rounding of its largest entry."""
    return bool(
        np.abs(matrix - matrix.T).max(initial=0.0) <= 1e-12 * np.abs(matrix).max(initial=0.0)
    )
