"""Recursive least squares, linear and linearised: the whole P."""

from typing import Any

from orfit import door
from orfit.learners.onestep import OneStep
from orfit.memory import Dense
from orfit.models import Model


class NTKRLS(OneStep):
    """NTK-RLS (eq:rls_update_general): RLS on the model linearised where each datapoint finds it.

    prior: Π: a positive number, p of them, or a p×p matrix.
    forgetting: λ in (0, 1] (eq:weighted_ls_ntk). The recursion is normalised, P/λⁱ in place of P,
        so that no power of λ is formed. λ = 0 is the limit λ → 0, in which it equals ORFit with
        unlimited memory (thm:implicit_bias_ntk).

    With λ < 1, P grows along directions that the stream has left; so that rounding does not drown
    the rest, it is held below eps^(-3/4), 5e11 in float64, times the prior (or λ^(-i) while each of
    i rows points in a direction never seen). A direction left for longer than that takes, 1,300
    steps at λ = 0.98, is known a little less well than the textbook says.

    O(p²) time and memory a step. `ORFit(model, m, noise=1)` is the same in m·p as long as m
    directions span what was seen, for prior = 1 and λ = 1.
    """

    def __init__(
        self, model: Model, *, w0: object = None, prior: object = 1.0, forgetting: float = 1.0
    ) -> None:
        self._lambda = door.fraction("forgetting", forgetting, zero=True)
        # In the limit λ → 0 the noise vanishes against P, which then is a projector.
        noise, fading = (1.0, self._lambda) if self._lambda else (0.0, 1.0)
        super().__init__(model, Dense(prior), w0, noise, fading)

    def settings(self) -> dict[str, Any]:
        return {"forgetting": self._lambda}


class RLS(NTKRLS):
    """Recursive least squares, plain and exponentially weighted (eq:rls_update), exactly:

        w = argmin Σ λ^(i−k) (y_k − φ_kᵀ w)² + λ^i |w − w0|²_Π      (eq:weighted_ls)

    For linear models; `NTKRLS` takes the others and explains the arguments. λ = 0 is the limit in
    which RLS and ORFit meet (prop:compare_RLS). `memory.P` is P.
    """

    def __init__(
        self, model: Model, *, w0: object = None, prior: object = 1.0, forgetting: float = 1.0
    ) -> None:
        if not model.linear:
            raise ValueError("RLS needs a linear model; for this one there is NTKRLS")
        super().__init__(model, w0=w0, prior=prior, forgetting=forgetting)
