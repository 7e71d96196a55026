"""Compile beforehand what a long stream would compile on its way."""

from importlib.util import find_spec
from typing import Any

import numpy as np

from orfit.learners.fleet import Fleet
from orfit.learners.orfit import ORFit
from orfit.learners.rls import RLS
from orfit.models import Linear


def warm_up() -> None:
    """Compile the row loops now: else a learner does so in the midst of its stream.

    It takes two minutes or so, once on a machine; later they are loaded in seconds. Learners that
    begin afterwards use them from their first row on. Without numba nothing happens.

    Examples:
        >>> orfit.warm_up()  # when a service starts, before its stream does
    """
    if find_spec("numba") is None:
        return
    for dtype in (np.float64, np.float32):
        settings: dict[str, Any] = {"w0": np.zeros(4, dtype), "rows": "compiled"}
        for learner in (ORFit(Linear(4), 2, **settings), RLS(Linear(4), **settings)):
            learner.learn_each(np.eye(4), np.zeros(4))
    Fleet(1, Linear(4), 2, noise=1.0).learn(np.zeros(4, np.int64), np.eye(4), np.zeros(4))
