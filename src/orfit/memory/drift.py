"""Drift: the parameters wander between blocks, P ← P + Q, by a Q that is not always definite."""

import math
from typing import Any

import numpy as np
import scipy

from orfit import validation
from orfit.validation import Array


def checked_drift(drift: object, size: int, name: str = "drift") -> Any:
    """Q as a user hands it in: a number for q I, p of them for a diagonal, or p×p."""
    Q = validation.numbers(name, drift)
    if Q.ndim == 0:
        return validation.nonnegative(name, drift)
    if Q.shape not in ((size,), (size, size)):
        raise ValueError(
            f"{name} must be a number, {size} of them or {size}×{size}; it has shape {Q.shape}"
        )
    Q = Q.copy()  # the caller's array stays his
    if Q.ndim == 1:
        if Q.min() < 0:
            raise ValueError(f"{name} must not be negative; its least value is {Q.min():g}")
    elif not validation.symmetric(Q):
        raise ValueError(f"{name} must be symmetric")
    elif np.linalg.eigvalsh(Q)[0] < -1e-12 * np.abs(Q).max():
        raise ValueError(f"{name} must be positive semidefinite")
    Q.flags.writeable = False
    return Q


def drifts(drift: Any) -> bool:
    """Whether Q is anything but zero."""
    return drift != 0 if isinstance(drift, float) else bool(np.any(drift))


def drift_root(drift: Any, size: int) -> Array:
    """S (p×r) with S Sᵀ = Q."""
    if np.ndim(drift) < 2:
        S = np.zeros((size, size), order="F")
        np.fill_diagonal(S, np.sqrt(drift))
        return S
    # Cholesky with pivoting ends where what is left of Q is rounding.
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(drift, lower=1)
    S = np.zeros((size, rank), order="F")
    S[pivots - 1] = np.tril(factor)[:, :rank]
    return S


def widened(bound: float, drift: Any, size: int) -> float:
    """How wide the root is then, as a root mean square, where it was `bound` at most."""
    trace = np.trace(drift) if np.ndim(drift) == 2 else size * np.mean(drift)
    return math.hypot(bound, math.sqrt(trace / size))
