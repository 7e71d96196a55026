"""The extended Kalman filter."""

from typing import Any

import numpy as np

from orfit import validation
from orfit.filtering.advance import Advancing
from orfit.filtering.dynamics import Dynamics
from orfit.learners.gain import Block, Fit, GainLearner
from orfit.memory import Dense
from orfit.memory.base import plain_settings
from orfit.memory.drift import drifts
from orfit.meter import Meter
from orfit.models import Model, completed
from orfit.small_linalg import frobenius
from orfit.state import State
from orfit.step import StepResult, step
from orfit.store import HOST, arithmetic
from orfit.validation import Array


class EKF(Advancing, GainLearner):
    """The extended Kalman filter for w, measured through y = f(x; w) + v (the appendix).

    noise: R, the covariance of v: a number for all outputs, or c×c, positive semidefinite.
    prior: Π = P₀⁻¹.

    Between blocks, time makes one step, w ← A w + B u and P ← A P Aᵀ + Q:

    dynamics: A, p×p, dense or sparse, or a number γ for γ I; or a function of w and u that returns
        the next w and its Jacobian A. The default is A = I.
    control: B, p×k.
    drift: Q, the covariance of the process noise: a number, p of them, or p×p.

    `advance` describes when. A y that is None or NaN is a missing measurement.

    With prior = 1, without dynamics and drift, it equals ORFit with unlimited memory for R = 0, and
    `ORFit(noise=R)` for a number R > 0, up to rounding, which a dense P magnifies by P₀/R: for R
    below 1e-10 P₀ use ORFit. O(p²) time and memory a step, also with drift; with a matrix or a
    function as dynamics, O(p³).

    Examples:
        >>> learner = orfit.EKF(orfit.Linear(1), noise=1.0, drift=0.1)
        >>> for y in (1.0, 2.0, 3.0):
        ...     update = learner.learn([1.0], y)
        >>> f, s = learner.predict([1.0], std="mean")
        >>> print(f"{f:.2f} ± {s:.2f}")
        1.71 ± 0.57
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
        meter: Meter | None = None,
    ) -> None:
        whole = completed(model)
        self._heads = whole.heads
        number = self._checked_noise(noise)
        self._matrix = None if np.ndim(noise) == 0 else _read_only(noise)  # R, if it is a matrix
        time = Dynamics(dynamics, control, whole.size)
        super().__init__(model, Dense(prior), w0, number, drift=drift, dynamics=time, meter=meter)

    def _checked_noise(self, noise: Any) -> float:
        """R, checked, if it is a number; a matrix is the unit itself."""
        R = validation.numbers("noise", noise)
        if R.ndim == 0:
            return validation.nonnegative("noise", noise)
        if self._heads is not None:
            raise ValueError("heads share one P, so their noise must be a single number")
        variances(R)
        return 1.0

    @property
    def noise(self) -> Any:
        """R, the covariance of the noise in y: a number, or c×c."""
        return self.candidates.noise(self._cell.state) if self._matrix is None else self._matrix

    @noise.setter
    def noise(self, noise: Any) -> None:
        self._change(self._set_noise, noise)

    def _set_noise(self, noise: Any) -> None:
        number = self._checked_noise(noise)
        self._set(number, _matrix=None if np.ndim(noise) == 0 else _read_only(noise))

    @property
    def scale(self) -> Any:
        """1: a Kalman filter takes the variance of the noise as given."""
        return 1.0 if self.model.heads is None else np.ones(self.model.heads)

    def _checked_forgetting(self, forgetting: object) -> float:
        if validation.fraction("forgetting", forgetting) < 1:
            raise ValueError("a Kalman filter forgets by drift=Q; RLS and ORFit by forgetting=λ")
        return 1.0

    def _labels_may_miss(self, forgettings: tuple[float, ...], drift: Any) -> bool:
        return True

    def settings(self) -> dict[str, Any]:
        noise = self.noise if np.ndim(self.noise) == 0 else self.noise.tolist()
        return {"noise": noise} | super().settings()

    def _expected(self, s: State, G: Any, R: Any) -> Array:
        """The expected squared residual, for each column of G."""
        of_noise = R if np.ndim(R) == 0 else np.diag(R)
        return np.asarray(self.memory.variance(s, G, plain_settings()) + of_noise)

    def _expected_variance(self, s: State, F: Array, G: Any, noisy: bool = True) -> Array:
        everything = np.ones(G.shape[1], bool)
        R = covariance(self.noise, everything, len(F)) if noisy else 0.0
        variance = self._expected(State(**vars(s)), G, R)
        return np.reshape(variance, F.shape if self.model.heads is None else F.shape[:-1])

    def _step(self, s: State, X: Any, Y: Array, roots: Array | None) -> Any:
        if self._matrix is None:
            return super()._step(s, X, Y, roots)
        c = len(self._matrix)
        if Y.shape[1:] != (c,):
            raise ValueError(f"noise is {c}×{c}, but y has shape {Y.shape[1:]} for each datapoint")
        return super()._step(s, X, Y, roots)

    def _core_learns(self, s: State) -> bool:
        return self._matrix is None and super()._core_learns(s)

    def _fit(self, s: State, block: Block, drift: Any) -> Fit:
        """With R = V diag(ρ) Vᵀ the outputs Vᵀ y are independent channels, learned in two blocks.

        Those without noise, which are constraints, and the others, each divided by sqrt(ρ). A
        number R is one block with this noise.
        """
        if self._matrix is None:
            return super()._fit(s, block, drift)
        G, outputs, labels, _, columns = block
        memory, ops = self.memory, arithmetic(G)
        if drifts(drift):
            memory.time_update(s, s.w, 1.0, drift, 1.0)
        columns = np.ones(G.shape[1], bool) if columns is None else columns
        R = covariance(self._matrix, columns, len(columns) // len(self._matrix))
        (rho, V), expected = variances(R), self._expected(s, G, R)
        along = ops.inner(G, s.w)
        prediction, residual = outputs.reshape(-1, 1), labels.reshape(-1, 1)
        if self.model.linear:
            prediction = prediction + along
            residual = residual - prediction
        before, left, novelty = s.w, V.T @ residual[:, 0], 0.0
        for channels, unit in ((rho == 0, 0.0), (rho > 0, 1.0)):
            if not channels.any():
                continue
            scale = np.sqrt(rho[channels]) if unit else np.ones(int(channels.sum()))
            H = ops.combine(G, V[:, channels] / scale)
            rest = left[channels] / scale - ops.inner(H, s.w - before)[:, 0]
            d = memory.decompose(s, H, plain_settings(unit))
            result = step(memory, s, d, np.array([unit]), rest[None, :, None], self._limit)
            novelty = max(novelty, d.novelty)
            left[channels] = result.left[0, :, 0] * scale
        length = np.array([frobenius(HOST.norms(ops.to_numpy(s.w - before)))])
        unfitted = (V @ left)[None, :, None]
        innovation = (
            residual[None] / np.sqrt(np.where(expected > 0, expected, np.inf))[None, :, None]
        )
        found = StepResult(length, unfitted, expected[None], innovation, expected[None])
        return Fit(prediction[None], residual[None], found, novelty, None, along)


def covariance(R: Any, columns: Array, points: int) -> Any:
    """The covariance of the noise in measured outputs, if that of one datapoint is R."""
    if np.ndim(R) == 0:
        return R
    return np.kron(np.eye(points), R)[np.ix_(columns, columns)]


def variances(R: Array) -> tuple[Array, Array]:
    """ρ ≥ 0 and V with R = V diag(ρ) Vᵀ; raises if there are none."""
    if R.ndim != 2 or R.shape[0] != R.shape[1] or not validation.symmetric(R):
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
