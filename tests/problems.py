"""Problems for hypothesis: shapes, scales from 1e-6 to 1e6, ranks, seeds."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

import orfit


@dataclass(frozen=True)
class Problem:
    """n datapoints of a linear model with c outputs (None: scalar) and p parameters."""

    phi: np.ndarray  # (n, p), or (n, p, c)
    y: np.ndarray  # (n,), or (n, c)
    w0: np.ndarray

    @property
    def model(self):
        p = self.phi.shape[1]
        if self.phi.ndim == 2:
            return orfit.Linear(p)
        # The input is Φ(x) itself, flattened.
        return orfit.Linear(p, features=lambda X: X.reshape(len(X), *self.phi.shape[1:]))

    @property
    def X(self):
        return self.phi if self.phi.ndim == 2 else self.phi.reshape(len(self.phi), -1)

    @property
    def A(self):
        """All gradients as rows, (n·c, p)."""
        if self.phi.ndim == 2:
            return self.phi
        return np.swapaxes(self.phi, 1, 2).reshape(-1, self.phi.shape[1])

    @property
    def labels(self):
        """Aligned with A."""
        return self.y.reshape(-1)


@st.composite
def problems(draw, *, most_points=8, outputs=(None, 1, 2, 3), degenerate=False):
    """Consistent, overparameterized problems.

    Every row has a scale of its own. `degenerate`: the rows are of a lower rank, some repeat, some
    are zero, and the labels are still consistent. Without it, the rows are in general position.
    """
    c = draw(st.sampled_from(outputs))
    n = draw(st.integers(1, most_points))
    rows = n * (c or 1)
    p = draw(st.integers(rows, rows + 20)) + 1
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    A = rng.standard_normal((rows, p))
    if degenerate:
        rank = draw(st.integers(1, rows))
        A = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, p))
        for row in draw(st.lists(st.integers(0, rows - 1), max_size=3)):
            A[row] = A[rng.integers(rows)] if row % 2 else 0.0
    scales = 10.0 ** rng.uniform(-6, 6, rows) if draw(st.booleans()) else np.ones(rows)
    scales *= 10.0 ** draw(st.integers(-6, 6)) if draw(st.booleans()) else 1.0
    scales = np.clip(scales, 1e-6, 1e6)
    A = A * scales[:, None]
    w0 = rng.standard_normal(p) if draw(st.booleans()) else np.zeros(p)
    y = A @ rng.standard_normal(p)
    if c is None:
        return Problem(A, y, w0)
    return Problem(np.swapaxes(A.reshape(n, c, p), 1, 2), y.reshape(n, c), w0)


def conditioning(A):
    """The condition number of A's rows, normalised, on their span."""
    lengths = np.linalg.norm(A, axis=1)
    sigma = np.linalg.svd(A[lengths > 0] / lengths[lengths > 0, None], compute_uv=False)
    sigma = sigma[sigma > 1e-10] if len(sigma) else np.ones(1)
    return sigma[0] / sigma[-1]


def assert_close(w, expected, *, condition=1.0, start=0.0):
    """Assert equality up to 1e-13 of what moved, times the amplification of the problem."""
    scale = np.linalg.norm(expected - start) + np.linalg.norm(expected) + 1e-300
    error = np.linalg.norm(w - expected) / scale
    assert error <= 1e-13 * condition**2 + 1e-13 * condition, f"{error:.1e} at cond {condition:.1e}"
