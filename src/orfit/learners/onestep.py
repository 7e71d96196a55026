"""One step is the whole system: project off the past, fit, remember."""

from orfit import small
from orfit.door import Array
from orfit.learners.base import Learner, check_step
from orfit.learners.update import Update
from orfit.memory import Memory
from orfit.models import Model


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
        memory.bind(model.size, self._w.dtype)

    def _learn(self, X: Array, Y: Array) -> Update:
        F, G = self.model.linearize(self._w, X)
        residual = self._residual(F, Y)
        length, novelty, unfitted = self._step(G, self._flat(residual), self.noise)
        conflict = unfitted.reshape(residual.shape)
        return Update(F, residual, length, novelty, conflict, self.memory.rank)

    def _step(self, G: Array, residual: Array, noise: float) -> tuple[float, float, Array]:
        """Move w and remember G; |Δw|, the novelty, and what is left of the residual."""
        past = self.memory.split(G, noise, self.forgetting)
        z, unfitted = small.fit(past.root, noise, residual)
        check_step(z)
        displacement, length = past.displacement(z)
        self._w += displacement
        self.memory.fold(past)
        return length, past.novelty, unfitted

    def _flat(self, residual: Array) -> Array:
        """The residual against G's columns: (nc,), or (n, q) where heads share the features."""
        return residual.reshape(-1) if self.model.heads is None else residual
