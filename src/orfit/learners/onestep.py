"""One step is the whole system: project off the past, fit, remember."""

import numpy as np

from orfit import small, tall
from orfit.door import Array
from orfit.learners.base import Learner, check_step
from orfit.learners.update import Update, Updates
from orfit.memory import Memory, Principal
from orfit.memory.principal import kernels
from orfit.models import Linear, Model

# The compiled loop takes half a minute to compile when it is first used on a machine, and a second
# to load later: it is used by learners that have as many rows, or rows times parameters.
WORTH_ROWS, WORTH_WORK = 2000, 1 << 20


class OneStep(Learner):
    """A learner that fits each block in a single step, on the memory's P and with noise R.

        w ← w + P G (Gᵀ P G + R I)⁺ (y − f)

    ORFit is this on a memory of directions, RLS and the Kalman filter are this on a dense P,
    One-Step SGD is this on no memory. In coordinates P G = D B and Gᵀ P G = Bᵀ B (`Split`), so the
    step is D z with z = B (BᵀB + R I)⁺ (y − f), which is small.
    """

    memory: Memory

    def __init__(
        self,
        model: Model,
        memory: Memory,
        w0: object = None,
        noise: float = 0.0,
        forgetting: float = 1.0,
    ) -> None:
        super().__init__(model, w0)
        self.memory = memory
        self.noise = noise
        self.forgetting = forgetting
        memory.claim(self._w)
        # No parameter is larger than this: from it the compiled loop knows that none overflows.
        self._reach = float(abs(self._w).max())

    def _learn_rows(self, X: Array, Y: Array) -> Updates:
        # As many rows at a time as fill a few megabytes with their features, or the memory has.
        block = min(256, max(16, self.memory.rank, (1 << 20) // self.model.size))
        updates = []
        for start in range(0, len(X), block):
            inputs, labels = X[start : start + block], Y[start : start + block]
            told = self._walk(inputs, labels)
            if told is None:
                updates.append(super()._learn_rows(inputs, labels))
                continue
            if len(told):
                self._count(inputs[: len(told)], labels[: len(told)])
            if len(told) < len(inputs):
                check_step(np.inf)
            updates.append(Updates.told(told, labels))
        return Updates.joined(updates, Y)

    def _learn(self, X: Array, Y: Array) -> Update:
        if len(X) == 1:
            told = self._walk(X, Y)
            if told is not None:
                if not len(told):
                    check_step(np.inf)
                return Update.told(told[0], Y)
        F, residual, G = self._linearize(self._w, X, Y)
        length, novelty, unfitted = self._step(G, self._flat(residual), self.noise)
        conflict = unfitted.reshape(residual.shape)
        return Update(F, residual, length, novelty, conflict, self.memory.rank)

    def _walk(self, X: Array, Y: Array) -> Array | None:
        """Learn rows by the compiled loop, where that can be; what `kernels.walk` tells of them."""
        model, memory = self.model, self.memory
        if type(memory) is not Principal or not isinstance(model, Linear):
            return None
        rows = self._seen + len(X)
        if rows < WORTH_ROWS and rows * model.size < WORTH_WORK:
            return None
        if kernels() is None:
            return None
        outputs = () if model.heads is None else (model.heads,)
        if Y.shape[1:] != outputs:  # several outputs share one w, or the labels will be refused
            return None
        phi = model.phi(X, self._written.dtype)
        if phi.ndim == 3:
            return None
        w = self._written.reshape(len(self._written), -1, order="F")
        labels = np.ascontiguousarray(Y.reshape(len(Y), -1))
        told = memory.walk(
            w, phi.T, labels, noise=self.noise, forgetting=self.forgetting, reach=self._reach
        )
        if told is not None:
            self._reach += float(told[:, 0].sum())
        return told

    def _step(self, G: Array, residual: Array, noise: float) -> tuple[float, float, Array]:
        """Move w and remember G; |Δw|, the novelty, and what is left of the residual."""
        past = self.memory.split(G, noise, self.forgetting)
        z, unfitted = small.fit(past.root, noise, residual)
        check_step(z)
        displacement, length = past.displacement(z)
        moved = self._w + tall.convert(self._w, displacement)
        check_step(float(moved.sum()))
        self.memory.fold(past)
        self._w = moved
        self._reach += length
        return length, past.novelty, unfitted

    def _flat(self, residual: Array) -> Array:
        """The residual against G's columns: (nc,), or (n, q) where heads share the features."""
        return residual.reshape(-1) if self.model.heads is None else residual
