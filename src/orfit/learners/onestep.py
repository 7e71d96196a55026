"""One step is the whole system: project off the past, fit, remember."""

import math
from dataclasses import replace

import numpy as np

from orfit import small, tall
from orfit.door import Array
from orfit.learners.base import Learner, check_step
from orfit.learners.update import Update, Updates
from orfit.memory import Memory, Principal
from orfit.memory.base import lengths
from orfit.memory.frame import split
from orfit.memory.principal import kernels
from orfit.models import Linear, Model

# The compiled loop takes half a minute to compile when it is first used on a machine, and a second
# to load later: it is used by learners that have as many rows, or rows times parameters.
WORTH_ROWS, WORTH_WORK = 2000, 1 << 20

# From so many gradients and parameters on, rows are learned in coordinates; not for so few
# directions where there is a compiled loop, which is as fast there.
CHUNK, CHUNKED, FEW = 8, 1 << 12, 30


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
        memory.claim(self._written)
        # No parameter is larger than this: from it the compiled loop knows that none overflows.
        self._reach = float(abs(self._written).max())

    def _learn_rows(self, X: Array, Y: Array) -> Updates:
        # As many gradients at a time as fill a few megabytes, or the memory has.
        block = min(256, max(16, self.memory.rank, (1 << 20) // self.model.size))
        if self.model.heads is None:
            block = max(1, block // max(1, math.prod(Y.shape[1:])))
        updates = []
        for start in range(0, len(X), block):
            inputs, labels = X[start : start + block], Y[start : start + block]
            told = self._learn_in_coordinates(inputs, labels)
            if told is None:
                told = self._learn_compiled(inputs, labels)
            if told is None:
                told = super()._learn_rows(inputs, labels)
            updates.append(told)
        return Updates.joined(updates, Y)

    def _learn_in_coordinates(self, X: Array, Y: Array) -> Updates | None:
        """The same by matrix products: gradients that are known beforehand need no p in the loop.

        G = U C + O T, so everything that happens happens in the coordinates along [U O]. There the
        rows are learned by a learner of this kind, as if the model had so few parameters.
        """
        memory, model = self.memory, self.model
        if type(memory) is not Principal or not model.linear or model.size < CHUNKED:
            return None
        outputs = 1 if model.heads is not None else math.prod(Y.shape[1:])
        if len(X) < 2 or len(X) * outputs < CHUNK or memory.exact(self.noise):
            return None
        if memory.rank < FEW and isinstance(model, Linear) and self._loops(Y):
            return None
        w = self._w
        try:
            F, residual, G = self._linearize(w, X, Y)
            parts = split(memory.frame, G, lengths(G), None)
            coordinates = np.vstack([parts.C, parts.T])
            within = memory.inside(parts)
            inside = _Inside(len(coordinates), self, within)
            told = inside._learn_rows(inside.gradients(coordinates, F), residual)
        except ValueError:  # a row that must be refused: one by one it is seen which
            return None
        k, move, moved = len(parts.C), inside._w.astype(np.float64), tall.copy(w)
        moved += tall.convert(w, parts.move(move[:k], move[k:]))
        if not math.isfinite(moved.sum()):
            return None
        memory.become(within, parts)
        self._w = moved
        self._reach += float(told.step.sum())
        self._count(X, Y)
        return replace(told, prediction=told.prediction + F)

    def _learn_compiled(self, X: Array, Y: Array) -> Updates | None:
        """The same row by row, compiled."""
        told = self._walk(X, Y)
        if told is None:
            return None
        if len(told):
            self._count(X[: len(told)], Y[: len(told)])
        if len(told) < len(X):
            check_step(np.inf)
        return Updates.told(told, Y)

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
        if type(memory) is not Principal or not isinstance(model, Linear) or not self._loops(Y):
            return None
        phi = model.phi(X, self._written.dtype)
        if phi.ndim == 3:
            return None
        w = self._written.reshape(len(self._written), -1, order="F")
        labels = np.ascontiguousarray(Y.reshape(len(Y), -1))
        return self._walk_on(memory, w, phi, labels)

    def _loops(self, Y: Array) -> bool:
        """Whether there is a compiled loop for a linear model's rows, and it is worth it."""
        rows, heads = self._seen + len(Y), self.model.heads
        if rows < WORTH_ROWS and rows * self.model.size < WORTH_WORK:
            return False
        # Else several outputs share one w, or the labels will be refused.
        fitting = Y.shape[1:] == (() if heads is None else (heads,))
        return fitting and kernels() is not None

    def _walk_on(self, memory: Principal, w: Array, phi: Array, labels: Array) -> Array | None:
        told = np.empty((0, 3 + 2 * labels.shape[1]))
        while True:
            more = memory.walk(
                w,
                phi[len(told) :].T,
                labels[len(told) :],
                noise=self.noise,
                forgetting=self.forgetting,
                reach=self._reach,
            )
            if more is None:
                return told if len(told) else None
            told = np.concatenate([told, more]) if len(told) else more
            before, self._reach = self._reach, self._reach + float(more[:, 0].sum())
            if len(told) == len(phi):
                return told
            # Steps there and back add up: before one is refused, see how far w really is.
            self._reach = float(abs(self._w).max())
            if not self._reach < before:
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


class _Inside(OneStep):
    """A learner in coordinates along directions: what `learner` is, for a model of that size."""

    def __init__(self, size: int, learner: OneStep, memory: Principal) -> None:
        heads, dtype = learner.model.heads, memory.frame.rows.dtype
        super().__init__(
            Linear(size, heads=heads, features=lambda Z: Z),
            memory,
            np.zeros(size if heads is None else (size, heads), dtype),
            noise=learner.noise,
            forgetting=learner.forgetting,
        )
        self._seen = learner.seen

    def gradients(self, coordinates: Array, F: Array) -> Array:
        """The model's inputs: (n, size), or (n, size, c) where c outputs share one w."""
        coordinates = coordinates.astype(self._written.dtype)
        if self.model.heads is not None or F.ndim == 1:
            return np.ascontiguousarray(coordinates.T)
        return coordinates.T.reshape(*F.shape, -1).swapaxes(1, 2)

    def _learn_in_coordinates(self, X: Array, Y: Array) -> Updates | None:
        return None
