"""ORFit and the baselines that differ from it by the memory alone."""

from typing import Any

import numpy as np

from orfit import validation
from orfit.filtering.advance import Advancing
from orfit.filtering.dynamics import Dynamics
from orfit.learners.advice import InterpolationWarning, SaturationWarning, advise
from orfit.learners.gain import GainLearner
from orfit.learners.update import Update, Updates
from orfit.memory import Growing, Memory, Nothing, Principal, Unlimited
from orfit.memory.basis import ONLY_A_NUMBER
from orfit.memory.drift import drifts
from orfit.meter import Meter
from orfit.models import Model, completed

SPANNED = 1e-6  # the novelty of a row that has hardly anything new
CONTRADICTED = 1e-3  # of the largest label: what then must not be left to fit


class ORFit(Advancing, GainLearner):
    """Orthogonal recursive fitting: fit each datapoint, keep the predictions of past ones.

    memory: None keeps every direction (alg:orfit1_infmem, alg:borfit_infmem), a number m the m
        principal directions (alg:orfit_ipca, alg:borfit_ipca). Or any memory of `orfit.memory`:
        `Latest(m)` is the paper's ORFit-latest, `Random(m)` its ORFit-random.
    noise: R, the variance of the noise in y, against a prior of variance 1 on w. With 0 each
        datapoint is interpolated; with R > 0 and an unlimited memory this is ridge regression,
        that is RLS, exactly. With m directions it is RLS in m·p memory as long as they span what
        was seen. "auto" compares eight powers of ten, each with a column of w, and uses the one
        with the best recent predictions. If the model is not linear in w, they are compared
        along its tangent at the one in use.
    tail: whether P includes the mean energy of dropped directions (`memory/basis.py`); with
        False they count as never seen. "auto" compares both. Without noise, and for memories
        other than `Principal`, there is no tail.
    forgetting: λ in (0, 1]: before each step the past counts λ times less. Unlike in EW-RLS the
        prior keeps its weight: what the data lose goes to the present w, so P does not wind up.
    drift: q, the variance of a random walk of each parameter, P ← P + q I before each block. It
        needs a number noise > 0.
    dynamics, control: γ, a number, and B of w ← γ w + B u and P ← γ² P + q I before each block.
        `EKF` takes a matrix. They need a number noise > 0.
    meter: `orfit.Meter(32)` measures what is forgotten; `learner.meter` returns the estimates.

    While the memory has dropped nothing, past predictions of a linear model do not move (lem:step)
    and w is the interpolator nearest to w0 (thm:implicit_bias). A row takes O(m p + m³), a block of
    n gradients O((m + n) n p), plus a compaction.

    Examples:
        >>> learner = orfit.ORFit(orfit.Linear(4), memory=2)
        >>> updates = learner.learn_each(np.eye(4)[:2], [5.0, 7.0])
        >>> print(learner.predict(np.eye(4)))
        [5. 7. 0. 0.]
        >>> print(learner.learn(np.eye(4)[0], 6.0).conflict)  # seen before, as 5
        1.0
    """

    def __init__(
        self,
        model: Model,
        memory: Memory | int | str | None = None,
        *,
        w0: object = None,
        noise: float | str = 0.0,
        forgetting: float | str = 1.0,
        tail: bool | str = True,
        drift: float = 0.0,
        dynamics: Any = None,
        control: object = None,
        meter: Meter | None = None,
    ) -> None:
        if callable(dynamics) or np.ndim(dynamics) or hasattr(dynamics, "nnz"):
            raise ValueError(ONLY_A_NUMBER)
        still = dynamics is None and control is None
        time = None if still else Dynamics(dynamics, control, completed(model).size)
        directions = as_memory(memory)
        super().__init__(model, directions, w0, noise, forgetting, tail, drift, time, meter)
        self._full = self.memory.rank >= model.size  # after a warning
        self._exploded, self._largest = False, 0.0  # whether w has; the largest label seen

    def _check_settings(
        self, memory: Memory, noise: float, forgettings: tuple[float, ...], drift: Any
    ) -> None:
        moves = self._dynamics is not None and self._dynamics.moves
        self._check_unit(noise, moves, drift)
        super()._check_settings(memory, noise, forgettings, drift)
        if moves and forgettings != (1.0,):
            raise ValueError("dynamics say how the past fades: forgetting must be 1")
        if moves and self._constructed and self.seen and noise != self.noise:
            raise ValueError("what is known is in units of the noise: with dynamics it stays")

    def _check_time_step(self, dynamics: Dynamics, Q: Any) -> None:
        self._check_unit(self.noise, dynamics.moves, Q)
        super()._check_time_step(dynamics, Q)

    def _check_unit(self, noise: float, moves: bool, drift: Any) -> None:
        """Raise if P has no unit: P is in units of the noise, of which there must be one."""
        for name, used in (("drift", drifts(drift)), ("dynamics", moves)):
            if used and (noise == 0 or len(self.candidates) > 1):
                raise ValueError(
                    f'with {name}, noise must be a number > 0, and tail and forgetting not "auto"'
                )

    def _warn(self, update: Update | Updates) -> None:
        super()._warn(update)
        if self.noise > 0:
            return
        self._may_warn = True
        full = bool(np.max(update.rank, initial=0) >= self.model.size)
        if full is not self._full:
            self._full = full
            if full:
                advise(
                    f"the memory spans all {self.model.size} parameters: no further datapoint can "
                    "be fitted without forgetting. With noise > 0 ORFit continues as RLS does.",
                    SaturationWarning,
                )
        if self._exploded or not self.model.linear or not np.size(update.prediction):
            return
        # Of many rows, or of one block.
        novelty = np.atleast_1d(update.novelty)
        labels, left = (
            np.abs(A).reshape(len(novelty), -1).max(axis=1)
            for A in (update.prediction + update.residual, update.residual)
        )
        largest = np.maximum.accumulate(np.maximum(labels, self._largest))
        self._largest = float(largest[-1])
        # Such a row has almost nothing new. If labels agree, its residual is almost zero, too; if
        # they contradict each other, the step of w is 1 / novelty times as long.
        wrong = (novelty > 0) & (novelty < SPANNED) & (left > CONTRADICTED * largest)
        if wrong.any():
            self._exploded = True
            advise(
                f"a row of which only {novelty[wrong][0]:.0e} is new contradicts those before "
                "it: with noise=0 each is fitted whole, and w explodes. "
                'noise="auto" finds how much noise there is.',
                InterpolationWarning,
            )

    def settings(self) -> dict[str, Any]:
        noise = self.candidates.settings(self._cell.state)
        return {"memory": self.memory} | noise | super().settings()


class OneStepSGD(GainLearner):
    """One gradient step that fits the datapoint (eq:stepsize), without a memory.

    The paper's baseline One-Step SGD; known in adaptive filtering as the projection algorithm, or
    NLMS with step size 1.

    Examples:
        >>> learner = orfit.OneStepSGD(orfit.Linear(2))
        >>> updates = learner.learn_each([[1.0, 0.0], [1.0, 1.0]], [2.0, 0.0])
        >>> print(f"{learner.predict([1.0, 0.0]):.3f}")  # the first label was 2
        1.000
    """

    def __init__(self, model: Model, *, w0: object = None, meter: Meter | None = None) -> None:
        super().__init__(model, Nothing(), w0, meter=meter)

    def _checked_noise(self, noise: Any) -> float:
        if validation.nonnegative("noise", noise):
            raise ValueError(
                "One-Step SGD fits each datapoint whole; with noise there is "
                "ORFit(model, orfit.memory.Nothing(), noise=…)"
            )
        return 0.0

    def _checked_forgetting(self, forgetting: object) -> float:
        if validation.fraction("forgetting", forgetting) < 1:
            raise ValueError("One-Step SGD remembers nothing that could be forgotten")
        return 1.0


def as_memory(memory: Any) -> Memory:
    """Return the memory that the argument describes."""
    if memory is None:
        return Unlimited()
    if isinstance(memory, Memory):
        return memory
    if isinstance(memory, str) and memory == "auto":
        return Growing()
    if not isinstance(memory, int | np.integer) or isinstance(memory, bool):
        raise ValueError(
            'memory must be None, a whole number, "auto", or a memory such as '
            f"orfit.memory.Latest(10); it is {memory!r}"
        )
    return Principal(validation.count("memory", memory))
