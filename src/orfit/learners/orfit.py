"""ORFit and the baselines that differ from it by the memory alone."""

import warnings
from typing import Any

from orfit import door
from orfit.door import Array
from orfit.learners.onestep import OneStep
from orfit.learners.update import Update
from orfit.memory import Basis, Nothing, Principal, Unlimited
from orfit.models import Model


class SaturationWarning(UserWarning):
    """The memory spans every parameter: without noise nothing more can be fitted."""


class ORFit(OneStep):
    """Orthogonal recursive fitting: fit each datapoint, move only where the past does not look.

    memory: None remembers every direction (alg:orfit1_infmem, alg:borfit_infmem), a number m the
        principal m (alg:orfit_ipca, alg:borfit_ipca), or any memory of `orfit.memory`:
        `Latest(m)` is the paper's ORFit-latest, `Random(m)` its ORFit-random.
    noise: R, the variance of the noise in y, against a prior of variance 1 on w. With 0 each
        datapoint is interpolated; with R > 0 and an unlimited memory this is ridge regression,
        that is RLS, exactly, and with m directions RLS in m·p memory instead of p².
    forgetting: λ in (0, 1]: before each step the past counts λ times less. Unlike in EW-RLS the
        prior keeps its weight: what the data lose goes to the present w, so P does not wind up.

    While the memory has dropped nothing, past predictions of a linear model do not move (lem:step)
    and w is the interpolator nearest to w0 (thm:implicit_bias). O(m c p) a step.
    """

    def __init__(
        self,
        model: Model,
        memory: Basis | int | None = None,
        *,
        w0: object = None,
        noise: float = 0.0,
        forgetting: float = 1.0,
    ) -> None:
        super().__init__(
            model,
            as_basis(memory),
            w0,
            door.nonnegative("noise", noise),
            door.fraction("forgetting", forgetting),
        )

    def _learn_block(self, X: Array, Y: Array) -> Update:
        before = self.memory.rank
        update = super()._learn_block(X, Y)
        if self.noise == 0 and before < self.model.size <= self.memory.rank:
            warnings.warn(
                f"the memory spans all {self.model.size} parameters: no further datapoint can be "
                "fitted without forgetting. With noise > 0 ORFit goes on as RLS does.",
                SaturationWarning,
                stacklevel=3,
            )
        return update

    def settings(self) -> dict[str, Any]:
        return {"memory": self.memory, "noise": self.noise, "forgetting": self.forgetting}


class OneStepSGD(OneStep):
    """One gradient step that fits the datapoint (eq:stepsize), with nothing remembered.

    The paper's baseline One-Step SGD; known in adaptive filtering as the projection algorithm, or
    NLMS with step size 1.
    """

    def __init__(self, model: Model, *, w0: object = None) -> None:
        super().__init__(model, Nothing(), w0)


def as_basis(memory: Basis | int | None) -> Basis:
    """The memory that the argument stands for."""
    if memory is None:
        return Unlimited()
    if isinstance(memory, Basis):
        return memory
    return Principal(door.count("memory", memory))
