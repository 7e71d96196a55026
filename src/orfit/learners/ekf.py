"""The extended Kalman filter on parameters that stand still."""

from typing import Any

import numpy as np

from orfit import door, tall
from orfit.door import Array
from orfit.learners.guesses import Guesses
from orfit.learners.onestep import OneStep
from orfit.learners.step import step
from orfit.learners.update import Update
from orfit.memory import Dense
from orfit.models import Model


class EKF(OneStep):
    """The extended Kalman filter for a static w, measured through y = f(x; w) + v (the appendix).

    noise: R, the covariance of v: a number for all outputs, or c×c, positive semidefinite.
    prior: Π = P₀⁻¹.

    With prior = 1 and R = 0 it equals ORFit with unlimited memory, and with a number R > 0
    `ORFit(noise=R)`, up to rounding, which a dense P magnifies by P₀/R: below 1e-10 P₀ take ORFit.
    O(p²) time and memory a step.
    """

    memory: Dense

    def __init__(
        self, model: Model, *, noise: object, w0: object = None, prior: object = 1.0
    ) -> None:
        R = door.numbers("noise", noise)
        if R.ndim == 0:
            super().__init__(model, Dense(prior), w0, door.nonnegative("noise", noise))
            self._channels: tuple[Array, Array] | None = None
            return
        self._channels = _channels(R, model)
        self._R = R.tolist()
        super().__init__(model, Dense(prior), w0)

    def settings(self) -> dict[str, Any]:
        if self._channels is None:
            return {"noise": self.noise}
        return {"noise": self._R}

    def _learn(self, X: Array, Y: Array) -> Update:
        if self._channels is None:
            return super()._learn(X, Y)
        c = len(self._R)
        if Y.shape[1:] != (c,):
            raise ValueError(f"noise is {c}×{c}, but y has shape {Y.shape[1:]} for each datapoint")
        F, residual, G = self._linearize(self._w, X, Y)
        arrays, values = self.memory.state()
        arrays = {name: array.copy() for name, array in arrays.items()}
        try:
            length, novelty, left = self._step(G, residual.reshape(-1))
        except ValueError:  # the second of two blocks may be the one that fails
            self.memory.restore(arrays, values)
            raise
        return Update(F, residual, length, novelty, left.reshape(F.shape), self.memory.rank)

    def _step(self, G: Any, residual: Array) -> tuple[float, float, Array]:
        """With R = V diag(ρ) Vᵀ the outputs Vᵀ y are independent channels, learned in two blocks.

        Those without noise, which bind, and the others, each divided by sqrt(ρ).
        """
        assert self._channels is not None
        variances, V = self._channels
        points = len(residual) // len(V)
        rho, turn = np.tile(variances, points), np.kron(np.eye(points), V)
        before, left, novelty = self._w, turn.T @ residual, 0.0
        for channels, unit in ((rho == 0, 0.0), (rho > 0, 1.0)):
            if not channels.any():
                continue
            scale = np.sqrt(rho[channels]) if unit else np.ones(int(channels.sum()))
            H = tall.combine(G, turn[:, channels] / scale)
            wanted = left[channels] / scale - tall.inner(H, self._w - before)
            past = self.memory.split(H, unit)
            came = step(self.memory, past, wanted[:, None], Guesses(unit, False, 1), self.most)
            novelty = max(novelty, past.novelty)
            left[channels] = came.left[:, 0] * scale
        length = tall.norms((self._w - before)[:, None])[0]
        return float(length), novelty, turn @ left


def _channels(R: Array, model: Model) -> tuple[Array, Array]:
    if R.ndim != 2 or R.shape[0] != R.shape[1] or not door.symmetric(R):
        raise ValueError(f"noise must be a number or a symmetric c×c matrix; it is {R.shape}")
    if model.heads is not None:
        raise ValueError("heads share one P, so their noise must be a single number")
    variances, V = np.linalg.eigh(R)
    rounding = len(R) * np.finfo(float).eps * np.abs(variances).max(initial=0.0)
    if variances.min() < -rounding:
        raise ValueError("noise must be positive semidefinite")
    return np.where(variances > rounding, variances, 0.0), V
