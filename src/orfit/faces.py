"""Which learner stands behind a face that other libraries know, `orfit.sklearn` for one.

Up to EXACT times as many parameters as a memory has directions, the whole P takes about as much as
the directions do, and drops nothing: then it is recursive least squares.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from orfit import door
from orfit.learners.onestep import OneStep
from orfit.learners.orfit import ORFit
from orfit.learners.rls import RLS
from orfit.models import Linear

EXACT = 5  # parameters for each direction, up to which nothing is dropped


def exact(parameters: int, memory: int) -> bool:
    """Whether that many parameters are learned with all directions, where m may be kept."""
    return parameters <= EXACT * memory


def learner_for(
    size: int,
    heads: int | None,
    memory: int,
    *,
    noise: float | str = "auto",
    forgetting: float | str = 1.0,
    bias: bool = True,
    growing: bool = False,
    dtype: npt.DTypeLike = np.float64,
) -> OneStep:
    """The learner of a linear model with so many features: exact, or ORFit with m directions.

    size, heads, bias: as for `Linear`. noise: R, beside a prior of variance 1 on each parameter; a
    number > 0 makes the exact one an `RLS`, else it is an `ORFit` that keeps all p directions.
    growing: there may be more features later. Where it begins exact it is an `ORFit` of EXACT m
    directions, whatever the noise: exact up to so many parameters, and from there on no p×p.
    """
    model = Linear(size, heads=heads, bias=bias)
    directions = door.count("memory", memory)
    settings: dict[str, Any] = {"forgetting": forgetting}
    settings["w0"] = np.zeros(model.initial().shape, dtype)
    if exact(model.size, directions):
        if not growing and not isinstance(noise, str) and door.nonnegative("noise", noise):
            return RLS(model, prior=noise, **settings)
        directions = EXACT * directions if growing else model.size
    return ORFit(model, directions, noise=noise, **settings)
