"""The extended Kalman filter."""

from typing import Any

import numpy as np

from orfit import door, tall
from orfit.door import Array
from orfit.learners.dynamics import Dynamics
from orfit.learners.guesses import Guesses
from orfit.learners.onestep import OneStep
from orfit.learners.rows import Auto
from orfit.learners.step import step
from orfit.learners.update import Update, Updates
from orfit.memory import Dense
from orfit.memory.drift import drifts
from orfit.models import Model, completed


class EKF(OneStep):
    """The extended Kalman filter for w, measured through y = f(x; w) + v (the appendix).

    noise: R, the covariance of v: a number for all outputs, or c×c, positive semidefinite.
    prior: Π = P₀⁻¹.

    Between blocks, time makes one step, w ← A w + B u and P ← A P Aᵀ + Q:

    dynamics: A, p×p; or a function of w and u that returns the next w and its Jacobian A. Unless
        given, w stands still.
    control: B, p×k.
    drift: Q, the covariance by which w wanders: a number, p of them, or p×p.

    `learn` takes the step before each block, with no input u; where there is one, or another A, B
    or Q, `advance(u)` takes it, and the next block finds it taken. A y that is None or NaN was not
    measured: time goes on, and of several outputs those are used that are there.

    With prior = 1 and R = 0 a w that stands still equals ORFit with unlimited memory, and with a
    number R > 0 `ORFit(noise=R)`, up to rounding, which a dense P magnifies by P₀/R: below 1e-10 P₀
    take ORFit. O(p²) time and memory a step; where w moves or wanders, O(p³).
    """

    memory: Dense

    def __init__(
        self,
        model: Model,
        *,
        noise: Any,
        w0: object = None,
        prior: object = 1.0,
        dynamics: Any = None,
        control: object = None,
        drift: object = 0.0,
        rows: str | Auto | dict[str, int] = "auto",
    ) -> None:
        whole = completed(model)
        self._heads = whole.heads
        self._dynamics = Dynamics(dynamics, control, whole.size)
        self._advanced = False  # whether time has made its step since the last block
        number = self._number(noise)
        self._matrix = None if np.ndim(noise) == 0 else _read_only(noise)  # R, where it is one
        super().__init__(model, Dense(prior), w0, number, 1.0, rows, drift=drift)

    def _number(self, noise: Any) -> float:
        """R, checked, where it is a number; a matrix is learned in units of itself."""
        R = door.numbers("noise", noise)
        if R.ndim == 0:
            return door.nonnegative("noise", noise)
        if self._heads is not None:
            raise ValueError("heads share one P, so their noise must be a single number")
        variances(R)
        return 1.0

    @property
    def noise(self) -> Any:
        """R, the covariance of the noise in y: a number, or c×c."""
        return self.guesses.noise if self._matrix is None else self._matrix

    @noise.setter
    def noise(self, noise: Any) -> None:
        number = self._number(noise)
        matrix = None if np.ndim(noise) == 0 else _read_only(noise)
        self._change(_noises=np.array([number]), _matrix=matrix)

    @property
    def scale(self) -> Any:
        """1: a Kalman filter is told the variance of the noise."""
        return 1.0 if self._heads is None else np.ones(self._heads)

    def _checked_forgetting(self, forgetting: object) -> float:
        if door.fraction("forgetting", forgetting) < 1:
            raise ValueError("a Kalman filter forgets by drift=Q; RLS and ORFit by forgetting=λ")
        return 1.0

    def settings(self) -> dict[str, Any]:
        noise = self.noise if np.ndim(self.noise) == 0 else self.noise.tolist()
        return {"noise": noise} | self._dynamics.settings() | super().settings()

    def loop_obstacle(self) -> str | None:
        if np.ndim(self.noise):
            return "noise is a matrix"
        return "w moves by itself" if self._dynamics.moves else super().loop_obstacle()

    def advance(
        self,
        u: object = None,
        *,
        dynamics: Any = None,
        control: object = None,
        drift: object = None,
    ) -> None:
        """One step in time: w ← A w + B u, P ← A P Aᵀ + Q.

        The arguments stand for those of the constructor, this once.
        """
        size, usual = self.model.size, self._dynamics
        if dynamics is not None or control is not None:
            A = usual.function if usual.A is None else usual.A
            B = usual.B if not callable(dynamics) else None
            usual = Dynamics(
                A if dynamics is None else dynamics, B if control is None else control, size
            )
        Q = self.drift if drift is None else self.memory.accept_drift(drift, size)
        self._advance(usual, u, Q)
        self._advanced = True

    def _advance(self, dynamics: Dynamics, u: object, Q: Any) -> None:
        w, A = dynamics.moved(self._w, u)
        if not tall.largest(self._carried(w)) < self.most:
            raise ValueError("w leaves the finite numbers by its dynamics")
        self.memory.advance(self._carried(w), A, Q)

    def _labels(self, name: str, y: object, X: Any, one: bool) -> Array:
        """y, where NaN stands for what was not measured, and None for nothing at all."""
        if y is None and one:
            return np.full(np.shape(self._predict(X)), np.nan)
        labels = door.numbers(name, y, missing=True)
        return labels[None] if one else labels

    def _learn_rows(self, X: Any, Y: Array) -> Updates:
        # What is missing, and a step in time that was taken, concern single rows.
        if self._advanced or not door.finite(Y):
            return self.one_by_one(X, Y)
        return super()._learn_rows(X, Y)

    def _learn_one(self, X: Any, Y: Array) -> Update:
        if self._advanced or not door.finite(Y):
            return self._learn_block(X, Y).first()
        return super()._learn_one(X, Y)

    def _learn(self, X: Any, Y: Array) -> Update:
        before = self.memory.snapshot()
        try:
            if not self._advanced and (self._dynamics.moves or drifts(self.drift)):
                self._advance(self._dynamics, None, self.drift)
            update = self._measure(X, Y)
        except BaseException:
            self.memory.go_back(before)
            raise
        self._advanced = False
        return update

    def _count(self, X: Any, Y: Array) -> None:
        if not door.finite(Y):
            X = X[~np.isnan(Y).reshape(len(Y), -1).all(axis=1)]
        super()._count(X, Y)

    def _measure(self, X: Any, Y: Array) -> Update:
        """Learn what is there of a block, now."""
        R = self.noise
        if np.ndim(R) and Y.shape[1:] != (len(R),):
            c = len(R)
            raise ValueError(f"noise is {c}×{c}, but y has shape {Y.shape[1:]} for each datapoint")
        measured = ~np.isnan(Y)
        F, residual, G = self._linearize(self._w, X, np.where(measured, Y, 0.0))
        residual = np.where(measured, residual, np.nan)
        columns = self._measured_columns(measured)
        if not columns.any():
            nothing = np.full(self.per_gradient(residual), np.nan)
            return Update(F, residual, 0.0, 0.0, residual, self.memory.rank, nothing)
        left, wanted = residual.copy(), self.tiled(residual)[columns]
        if not columns.all():
            G = tall.copy(G[:, columns])
        noise = covariance(R, columns, len(Y))
        expected = self._expected(G, noise)
        length, novelty, unfitted = self._fit(G, wanted, noise)
        self.tiled(left)[columns] = unfitted
        self.guesses.take(len(Y), wanted, expected)
        variance = np.full(len(columns), np.nan)
        variance[columns] = expected[:, 0]
        shape = self.per_gradient(residual)
        return Update(F, residual, length, novelty, left, self.memory.rank, variance.reshape(shape))

    def _expected(self, G: Any, R: Any) -> Array:
        """What is expected of the squared residual, one line for each column of G."""
        of_noise = R if np.ndim(R) == 0 else np.diag(R)
        return np.asarray(self.memory.variance(G, 0.0) + of_noise)[:, None]

    def _variance(self, X: Any, noisy: bool) -> Array:
        F, G = self._model.linearize(self._w, X)
        everything = np.ones(G.shape[1], bool)
        R = covariance(self.noise, everything, len(X)) if noisy else 0.0
        return np.reshape(self._expected(G, R), self.per_gradient(F))

    def _measured_columns(self, measured: Array) -> Array:
        """Which columns of G were measured."""
        if self._heads is None:
            return measured.reshape(-1)
        if (measured.any(axis=1) != measured.all(axis=1)).any():
            raise ValueError("heads share one P: y must be all there, or all missing")
        return np.asarray(measured.all(axis=1))

    def _fit(self, G: Any, residual: Array, R: Any) -> tuple[float, float, Array]:
        """With R = V diag(ρ) Vᵀ the outputs Vᵀ y are independent channels, learned in two blocks.

        Those without noise, which bind, and the others, each divided by sqrt(ρ). A number R is one
        block, of its own noise.
        """
        if np.ndim(R) == 0:
            past = self.memory.split(G, R)
            came = step(self.memory, past, residual, self.guesses, self.most)
            return came.length, past.novelty, came.left
        rho, V = variances(R)
        before, left, novelty = self._w, V.T @ residual[:, 0], 0.0
        self.memory.L = self.memory.L.copy(order="F")  # the second block may be the one that fails
        for channels, unit in ((rho == 0, 0.0), (rho > 0, 1.0)):
            if not channels.any():
                continue
            scale = np.sqrt(rho[channels]) if unit else np.ones(int(channels.sum()))
            H = tall.combine(G, V[:, channels] / scale)
            wanted = left[channels] / scale - tall.inner(H, self._w - before)
            past = self.memory.split(H, unit)
            came = step(self.memory, past, wanted[:, None], Guesses(unit, False, 1), self.most)
            novelty = max(novelty, past.novelty)
            left[channels] = came.left[:, 0] * scale
        length = tall.norms((self._w - before)[:, None])[0]
        return float(length), novelty, (V @ left)[:, None]

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, header = super().state()
        return arrays, header | {"advanced": self._advanced}

    def restore(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        super().restore(arrays, header)
        self._advanced = bool(header["advanced"])


def covariance(R: Any, columns: Array, points: int) -> Any:
    """Of the noise in what was measured, where that of one datapoint is R."""
    if np.ndim(R) == 0:
        return R
    return np.kron(np.eye(points), R)[np.ix_(columns, columns)]


def variances(R: Array) -> tuple[Array, Array]:
    """ρ ≥ 0 and V with R = V diag(ρ) Vᵀ; raises where there are none."""
    if R.ndim != 2 or R.shape[0] != R.shape[1] or not door.symmetric(R):
        raise ValueError(f"noise must be a number or a symmetric c×c matrix; it is {R.shape}")
    rho, V = np.linalg.eigh(R)
    rounding = len(R) * np.finfo(float).eps * np.abs(rho).max(initial=0.0)
    if rho.min() < -rounding:
        raise ValueError("noise must be positive semidefinite")
    return np.where(rho > rounding, rho, 0.0), V


def _read_only(R: Any) -> Array:
    matrix = np.array(R, np.float64)
    matrix.flags.writeable = False
    return matrix
