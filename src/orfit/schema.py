"""Checks of the plain values and arrays of a file.

A part of a file declares `fields`, its plain values, each with a check of `validation` or one
composed here; and `layout`, its arrays: dtype and sides, with a letter for a side that must be the
same wherever it occurs. `restore` relies on these checks. Every error is a ValueError that names
the place.
"""

import functools
import inspect
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np

from orfit import validation
from orfit.validation import Array

Check = Callable[[str, Any], Any]
Fields = dict[str, Check]
Layout = dict[str, tuple[Any, ...]]

DOUBLE = np.dtype(np.float64)
ANY = "*"  # in place of all sides
DIMENSIONS = 31  # of an input: NumPy has at least one more

counter = functools.partial(validation.count, least=0)


def text(name: str, value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text; it is {reprlib.repr(value)}")
    return value


def one_of(*known: str) -> Check:
    """One of these strings."""

    def checked(name: str, value: Any) -> str:
        if text(name, value) not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; it is {value!r:.200}")
        return str(value)

    return checked


def optional(check: Check) -> Check:
    """None, or a value that passes that check."""
    return lambda name, value: None if value is None else check(name, value)


def listed(check: Check, least: int = 0, most: int = validation.MOST) -> Check:
    """A list of so many values that pass that check."""

    def checked(name: str, value: Any) -> list[Any]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise ValueError(f"{name} is not the list that it should be: {reprlib.repr(value)}")
        return [check(f"{name}[{i}]", each) for i, each in enumerate(value)]

    return checked


shape = listed(counter, most=DIMENSIONS)


def record(fields: Fields) -> Check:
    """A dictionary of exactly these fields."""

    def checked(name: str, value: Any) -> dict[str, Any]:
        if mapping(name, value).keys() != fields.keys():
            odd = ", ".join(sorted(value.keys() ^ fields.keys()))
            raise ValueError(f"{name} lacks fields, or has some that it should not: {odd:.200}")
        return {key: check(f"{name}.{key}", value[key]) for key, check in fields.items()}

    return checked


def mapping(name: str, value: Any) -> dict[str, Any]:
    """Any dictionary."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} must have fields; it is {reprlib.repr(value)}")
    return value


def made(kind: type, settings: dict[str, Any], *given: Any) -> Any:
    """Call kind(*given, **settings) if it has arguments of these names; it checks their values."""
    try:
        inspect.signature(kind).bind(*given, **settings)
    except TypeError as error:
        raise ValueError(f"such settings {kind.__name__} has not: {error!s:.200}") from None
    return kind(*given, **settings)


def arranged(arrays: dict[str, Array], layout: Layout) -> None:
    """Raise unless the arrays are those of the layout; a name that ends in ? is optional."""
    names = {name.removesuffix("?"): sides for name, sides in layout.items()}
    needed = {name for name in layout if not name.endswith("?")}
    if not needed <= arrays.keys() <= names.keys():
        odd = sorted((needed - arrays.keys()) | (arrays.keys() - names.keys()))
        raise ValueError(f"it lacks arrays, or has some that it should not: {odd!s:.200}")
    known: dict[Any, int] = {}
    for name, (dtype, *sides) in names.items():
        if name not in arrays:
            continue
        array = arrays[name]
        if array.dtype != dtype:
            raise ValueError(f"{name} must be {dtype}; it is {array.dtype}")
        if sides != [ANY]:
            found = array.shape
            wanted = tuple(known.get(side, side) for side in sides)
            known |= {s: n for s, n in zip(wanted, found, strict=False) if isinstance(s, str)}
            if found != tuple(known.get(side, side) for side in sides):
                raise ValueError(f"{name} must have shape {wanted}; it has {found}")
        validation.check_finite(name, array)
