"""Recursive least squares, linear and linearised: the whole P."""

from orfit import validation
from orfit.learners.gain import GainLearner
from orfit.memory import Dense, Memory
from orfit.meter import Meter
from orfit.models import CompleteModel, Model


class NTKRLS(GainLearner):
    """NTK-RLS (eq:rls_update_general): RLS on the model linearised at the current w.

    prior: Π: a positive number, p of them, or a p×p matrix.
    forgetting: λ in (0, 1] (eq:weighted_ls_ntk). The recursion is normalised, P/λⁱ in place of P,
        so that no power of λ is formed. λ = 0 is the limit λ → 0, in which it equals ORFit with
        unlimited memory (thm:implicit_bias_ntk): fitted labels stay fitted, and after rows have
        spanned all p directions w does not change any more.

    drift: Q, the covariance of a random walk of w, P ← P/λ + Q before each block: a number for
        all parameters, p of them, or p×p.
    meter: see `ORFit`.

    With λ < 1, P grows along directions that are not excited. If it becomes so large that its
    rounding would dominate other directions (5e11 times the prior, or the noise of a row: after
    1,300 steps at λ = 0.98), the prior gets its weight back, around the present w, and keeps it
    (`memory/windup.py`). While every row has a direction never seen before, P grows as λ^(-i).

    O(p²) time and memory a step, also with drift. `ORFit(model, m, noise=1)` is the same in m·p as
    long as m directions span what was seen, for prior = 1 and λ = 1.

    Examples:
        >>> learner = orfit.NTKRLS(orfit.Linear(2), prior=0.5)
        >>> updates = learner.learn_each([[1.0, 0.0], [1.0, 1.0]], [1.0, 3.0])
        >>> learner.memory.P.shape
        (2, 2)
    """

    def __init__(
        self,
        model: Model,
        *,
        w0: object = None,
        prior: object = 1.0,
        forgetting: float | str = 1.0,
        drift: object = 0.0,
        meter: Meter | None = None,
    ) -> None:
        noise = self._of_limit(self._checked_forgettings(forgetting)[0])
        super().__init__(model, Dense(prior), w0, noise, forgetting, drift=drift, meter=meter)

    @staticmethod
    def _of_limit(forgetting: float) -> float:
        """R: in the limit λ → 0 the noise vanishes relative to P, which is then a projector."""
        return 1.0 if forgetting else 0.0

    def _checked_forgetting(self, forgetting: object) -> float:
        return validation.fraction("forgetting", forgetting, zero=True)

    @property
    def noise(self) -> float:
        """1, the unit of P in RLS; 0 in the limit λ → 0."""
        return self.candidates.noise(self._cell.state)

    @noise.setter
    def noise(self, noise: object) -> None:
        if validation.nonnegative("noise", noise) != self.noise:
            raise ValueError(
                "RLS counts in units of the noise: divide the prior by it, or take EKF(noise=…)"
            )

    def _implied_noise(
        self, noise: float | None, forgettings: tuple[float, ...] | None
    ) -> float | None:
        return noise if forgettings is None else self._of_limit(forgettings[0])


class RLS(NTKRLS):
    """Recursive least squares, plain and exponentially weighted (eq:rls_update), exactly:

        w = argmin Σ λ^(i−k) (y_k − φ_kᵀ w)² + λ^i |w − w0|²_Π      (eq:weighted_ls)

    For linear models; `NTKRLS` is for others and describes the arguments. λ = 0 is the limit in
    which RLS and ORFit meet (prop:compare_RLS). `memory.P` is P.

    Examples:
        >>> learner = orfit.RLS(orfit.Linear(2), prior=1e-6)
        >>> updates = learner.learn_each([[1, 0], [0, 1], [1, 1]], [1.0, 2.0, 3.0])
        >>> print(learner.w.round(3))
        [1. 2.]
    """

    def _check_candidates(self, model: CompleteModel, memory: Memory) -> None:
        if not model.linear:
            raise ValueError("RLS needs a linear model; for this one there is NTKRLS")
        super()._check_candidates(model, memory)
