"""Compile beforehand what a long stream would compile on its way."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from orfit import door
from orfit.learners.fleet import Fleet
from orfit.learners.orfit import ORFit
from orfit.learners.rls import RLS
from orfit.models import Linear


def warm_up(dtype: npt.DTypeLike | None = None) -> None:
    """Compile the row loops now: else a learner does so in the midst of its stream.

    It takes two minutes or so, once on a machine; later they are loaded in seconds. Learners that
    begin afterwards use them from their first row on. Without numba nothing happens.

    Args:
        dtype: float64 or float32, where one is enough: the other is not compiled. None: both.

    Examples:
        >>> orfit.warm_up()  # when a service starts, before its stream does
    """
    wanted = door.DTYPES if dtype is None else (_known(dtype),)
    if find_spec("numba") is None:
        return
    for each in wanted:
        settings: dict[str, Any] = {"w0": np.zeros(4, each), "rows": "compiled"}
        for learner in (ORFit(Linear(4), 2, **settings), RLS(Linear(4), **settings)):
            learner.learn_each(np.eye(4), np.zeros(4))
    if np.float64 in wanted:  # a fleet has no other numbers
        Fleet(1, Linear(4), 2, noise=1.0).learn(np.zeros(4, np.int64), np.eye(4), np.zeros(4))


def _known(dtype: npt.DTypeLike) -> np.dtype[Any]:
    try:
        known = np.dtype(dtype)
    except TypeError:
        known = None
    if known is None or known not in door.DTYPES:
        raise ValueError(f"dtype must be float64, float32 or None; it is {dtype!r}")
    return known
