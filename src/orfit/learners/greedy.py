"""Remember the last label and nothing else."""

from typing import Any

import numpy as np

from orfit import validation
from orfit.learners.learner import Learner
from orfit.learners.update import Update, Updates
from orfit.meter import Meter, Probes
from orfit.models import residual
from orfit.state import State
from orfit.validation import Array


class Greedy(Learner):
    """Predicts the latest label, whatever the input: the paper's extreme case of forgetting.

    Its `w` is that label (zero at first, unless w0 says otherwise). The model says only what
    shape a label has.

    Examples:
        >>> learner = orfit.Greedy(orfit.Linear(2))
        >>> updates = learner.learn_each([[1, 0], [0, 1]], [3.0, 4.0])
        >>> print(learner.predict([1, 0]))
        4.0
    """

    has_parameters = False

    def _start(self, w0: object) -> Array:
        return np.zeros(()) if w0 is None else np.array(validation.numbers("w0", w0))

    def _metered(self, meter: Meter | None) -> Probes | None:
        if meter is not None:
            raise ValueError("Greedy has no parameters that a meter could watch")
        return None

    def _check_state(self, s: State) -> None:
        if s.w.shape not in ((), s.label_shape):
            raise ValueError(f"a label has shape {s.label_shape}, w has {s.w.shape}")

    def _predict(self, s: State, X: Any) -> Array:
        F = self.model.predict(self.model.initial(), X)
        return np.broadcast_to(s.w, F.shape).copy()

    def _predicted_rows(self, X: Any, Y: Array) -> Updates:
        s: Any = self._cell.state
        F = self._predict(s, X)
        left, zero, unknown = residual(Y, F), np.zeros(len(F)), np.full(len(F), np.nan)
        return Updates(F, left, zero, unknown, left.copy(), np.zeros(len(F), int), unknown)

    def _step(self, s: State, X: Any, Y: Array, roots: Array | None) -> Update:
        """There are no gradients; and a label is the latest whatever its weight."""
        F = self._predict(s, X)
        left, length = residual(Y, F), float(np.linalg.norm(Y[-1] - s.w))
        s.w = np.array(Y[-1])
        after = residual(Y, self._predict(s, X))
        if roots is not None:
            beside = roots.reshape(-1, *[1] * (F.ndim - 1))
            F, left, after = F * beside, left * beside, after * beside
        return Update(F, left, length, 1.0, after, 0)
