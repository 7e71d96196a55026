"""Compile beforehand what a long stream would compile on its way."""

import numpy as np

from orfit.learners.onestep import WORTH_ROWS
from orfit.learners.orfit import ORFit
from orfit.memory.principal import kernels
from orfit.models import Linear


def warm_up() -> None:
    """Compile the row loop now: else a learner does so in the midst of its stream.

    It takes half a minute for each dtype, once on a machine; later it is loaded in a second or two.
    Without numba nothing happens.
    """
    if kernels() is None:
        return
    for dtype in (np.float64, np.float32):
        learner = ORFit(Linear(4), 2, w0=np.zeros(4, dtype))
        learner._seen = WORTH_ROWS  # as if the stream were long
        learner.learn_each(np.eye(4), np.zeros(4))
        learner.predict(np.eye(4))
