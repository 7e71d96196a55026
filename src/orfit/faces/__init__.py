"""Which learner stands behind a face that other libraries know, `orfit.sklearn` for one.

Up to EXACT times as many parameters as a memory has directions, the whole P takes about as much as
the directions do, and drops nothing: then it is recursive least squares.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from orfit import validation
from orfit.learners.gain import GainLearner
from orfit.learners.orfit import ORFit
from orfit.learners.rls import RLS
from orfit.models import Linear

WINDOW = 1000  # rows, which tell a learner's scale
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
) -> GainLearner:
    """The learner of a linear model with so many features: exact, or ORFit with m directions.

    size, heads, bias: as for `Linear`. noise: R, beside a prior of variance 1 on each parameter; a
    number > 0 makes the exact one an `RLS`, else it is an `ORFit` that keeps all p directions.
    growing: there may be more features later (`grown`). Where it begins exact, and is no `RLS`, it
    is an `ORFit` of EXACT m directions: exact up to so many parameters, and from there on no p×p.
    """
    model = Linear(size, heads=heads, bias=bias)
    directions = validation.count("memory", memory)
    settings: dict[str, Any] = {"forgetting": forgetting}
    settings["w0"] = np.zeros(model.initial().shape, dtype)
    if exact(model.size, directions):
        number = not isinstance(noise, str) and validation.nonnegative("noise", noise) > 0
        if number and (forgetting == 1 or not growing):
            return RLS(model, prior=noise, **settings)
        directions = EXACT * directions if growing else model.size
    return ORFit(model, directions, noise=noise, **settings)


def grown(learner: GainLearner, size: int, heads: int | None, memory: int) -> GainLearner:
    """A learner that `learner_for` made growing, with more features or heads.

    An `RLS` is exchanged for an `ORFit` of EXACT m directions before it would have more parameters
    than that: there both know the same, exactly.
    """
    if isinstance(learner, RLS) and not exact(size, memory):
        learner = _limited(learner, EXACT * memory)
    learner.grow(size=size, heads=heads)
    return learner


def _limited(learner: RLS, directions: int) -> ORFit:
    """An `ORFit` that knows what this learner does; p ≤ directions, without a bias."""
    made = ORFit(learner.model, directions, noise=float(learner.memory.prior))
    if learner.seen:
        made.learn_batch(*learner.rows())
        # Rows that say nothing of w, and how far labels are from what is expected.
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (WINDOW, *np.shape(learner.scale)))
        made.learn_each(np.zeros((WINDOW, learner.model.size)), signs * np.sqrt(learner.scale))
    return made
