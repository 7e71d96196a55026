"""Remember the last label and nothing else."""

from typing import Any

import numpy as np

from orfit import door
from orfit.door import Array
from orfit.learners.base import Learner
from orfit.learners.update import Update
from orfit.learners.weights import inputs_of, observed
from orfit.meter import Meter, Probes
from orfit.models import residual


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
        return np.zeros(()) if w0 is None else np.array(door.numbers("w0", w0))

    def _metered(self, meter: Meter | None) -> Probes | None:
        if meter is not None:
            raise ValueError("Greedy has no parameters that a meter could watch")
        return None

    def restore(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        super().restore(arrays, header)
        if self._w.shape not in ((), self._label_shape):
            raise ValueError(f"a label has shape {self._label_shape}, w has {self._w.shape}")

    def _predict(self, X: Array) -> Array:
        F = self.model.predict(self.model.initial(), X)
        return np.broadcast_to(self._w, F.shape).copy()

    def _linearize(self, w: Array, X: Any, Y: Array) -> tuple[Array, Array, Any]:
        """There are no gradients; and a label is the latest whatever its weight."""
        F = self._predict(inputs_of(X))
        return observed(X, F, residual(Y, F), np.zeros((0, len(F))))

    def _learn(self, X: Array, Y: Array) -> Update:
        F, left, _ = self._linearize(self._w, X, Y)
        length = float(np.linalg.norm(Y[-1] - self._w))
        self._w = np.array(Y[-1])
        return Update(F, left, length, 1.0, self._linearize(self._w, X, Y)[1], 0)
