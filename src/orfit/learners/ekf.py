"""The extended Kalman filter."""

from typing import Any

import numpy as np

from orfit import door, tall
from orfit.door import Array
from orfit.growth import Growth
from orfit.learners.guesses import Guesses
from orfit.learners.moving import Moving
from orfit.learners.rows import Auto
from orfit.learners.step import step
from orfit.learners.update import Update
from orfit.memory import Dense
from orfit.meter import Meter
from orfit.models import Model, completed


class EKF(Moving):
    """The extended Kalman filter for w, measured through y = f(x; w) + v (the appendix).

    noise: R, the covariance of v: a number for all outputs, or c×c, positive semidefinite.
    prior: Π = P₀⁻¹.

    Between blocks, time makes one step, w ← A w + B u and P ← A P Aᵀ + Q:

    dynamics: A, p×p, dense or sparse, or a number γ for γ I; or a function of w and u that returns
        the next w and its Jacobian A. Unless given, w stands still.
    control: B, p×k.
    drift: Q, the covariance by which w wanders: a number, p of them, or p×p.

    `Moving` says when. A y that is None or NaN was not measured.

    With prior = 1 and R = 0 a w that stands still equals ORFit with unlimited memory, and with a
    number R > 0 `ORFit(noise=R)`, up to rounding, which a dense P magnifies by P₀/R: below 1e-10 P₀
    take ORFit. O(p²) time and memory a step; where w moves or wanders, O(p³).

    Examples:
        >>> learner = orfit.EKF(orfit.Linear(1), noise=1.0, drift=0.1)
        >>> for y in (1.0, 2.0, 3.0):
        ...     update = learner.learn([1.0], y)
        >>> f, s = learner.predict([1.0], std="mean")
        >>> print(f"{f:.2f} ± {s:.2f}")
        1.71 ± 0.57
    """

    memory: Dense
    holder = Dense()

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
        rows: str | Auto = "auto",
        meter: Meter | None = None,
    ) -> None:
        whole = completed(model)
        self._heads = whole.heads
        number = self._number(noise)
        self._matrix = None if np.ndim(noise) == 0 else _read_only(noise)  # R, where it is one
        more = {"dynamics": dynamics, "control": control, "drift": drift, "meter": meter}
        super().__init__(model, Dense(prior), w0, number, 1.0, rows, **more)

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

    def _grow_now(self, model: Any, growth: Growth) -> None:
        super()._grow_now(model, growth)
        self._heads = model.heads

    def settings(self) -> dict[str, Any]:
        noise = self.noise if np.ndim(self.noise) == 0 else self.noise.tolist()
        return {"noise": noise} | super().settings()

    def loop_obstacle(self) -> str | None:
        return "noise is a matrix" if np.ndim(self.noise) else super().loop_obstacle()

    @property
    def may_miss(self) -> bool:
        return True

    def _by_itself(self, Y: Array) -> bool:
        return self._matrix is not None or super()._by_itself(Y)

    def _measure(self, X: Any, Y: Array) -> Update:
        R = self.noise
        if np.ndim(R) and Y.shape[1:] != (len(R),):
            c = len(R)
            raise ValueError(f"noise is {c}×{c}, but y has shape {Y.shape[1:]} for each datapoint")
        return super()._measure(X, Y)

    def _expected(self, G: Any, R: Any) -> Array:
        """What is expected of the squared residual, one line for each column of G."""
        of_noise = R if np.ndim(R) == 0 else np.diag(R)
        return np.asarray(self.memory.variance(G, 0.0) + of_noise)[:, None]

    def _expected_variance(self, F: Array, G: Any, noisy: bool = True) -> Array:
        everything = np.ones(G.shape[1], bool)
        R = covariance(self.noise, everything, len(F)) if noisy else 0.0
        return np.reshape(self._expected(G, R), self.per_gradient(F))

    def _fit(
        self, G: Any, residual: Array, columns: Array, points: int
    ) -> tuple[float, float, Array, Array]:
        """With R = V diag(ρ) Vᵀ the outputs Vᵀ y are independent channels, learned in two blocks.

        Those without noise, which bind, and the others, each divided by sqrt(ρ). A number R is one
        block, of its own noise.
        """
        R = covariance(self.noise, columns, points)
        if np.ndim(R) == 0:
            return super()._fit(G, residual, columns, points)
        (rho, V), expected = variances(R), self._expected(G, R)
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
        return float(length), novelty, (V @ left)[:, None], expected


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
