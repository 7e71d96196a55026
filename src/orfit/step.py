"""The step of the paper: decompose, fit, absorb. It covers every learner that has a P.

    F, G  = model(w, x)
    C     = UᵀG,  G − U C = O T              decompose (Memory.decompose)
    B     with GᵀPG = BᵀB                     Memory.factors
    z     = B (BᵀB + R I)⁺ (y − F)            fit
    w    ← w + P G (GᵀPG + R I)⁺ (y − F)      Memory.direction
    U    ← top m directions of [U O]          Memory.absorb_block

ORFit, RLS, the Kalman filter and One-Step SGD differ in the memory alone. Several candidates of R
share one memory: each has its own columns of w, and all arrays have a leading axis for them.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy

from orfit import small_linalg
from orfit.memory.base import Memory
from orfit.state import State
from orfit.validation import Array

UNSAFE = 1e280  # squared lengths beyond, or below the inverse, may have lost digits


class StepResult(NamedTuple):
    """The result of a step, for n gradients and e candidates."""

    lengths: Array  # e, |Δw|
    left: Array  # e×n×q, what is left of the residual
    variance: Array  # e×n, the diagonal of GᵀPG + R I; with R = 0, zero where nothing is expected
    innovation: Array  # e×n×q, the residual, each row given those before it, over its deviation
    sequential: Array  # e×n, the variance of that


def step(
    memory: Memory, s: State, d: Any, noises: Array, residual: Array, limit: float
) -> StepResult:
    """Move w so that the gradients of a decomposition fit the residual (e×n×q), and add them.

    Raises ValueError if a parameter might exceed `limit`. `s` is a draft.
    """
    B = memory.factors(s, d)
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        Z, left, variance, innovation, sequential = fit(B, noises, residual)
        along, lengths = memory.direction(s, d, Z)
    total = small_linalg.frobenius(lengths)
    if not s.parameter_bound + total < limit:
        # The bound adds up steps that may cancel: compute the largest parameter.
        s.parameter_bound = memory.largest_parameter(s)
        check_step(total if s.parameter_bound + total < limit else np.inf)
    memory.absorb_block(s, d, along)
    return StepResult(lengths, left, variance, innovation, sequential)


def fit(B: Array, noises: Array, residual: Array) -> tuple[Array, ...]:
    """Z = B (BᵀB + R I)⁺ residual of each candidate, and the fields of `StepResult` after `left`.

    Z minimises |BᵀZ − residual|² + R |Z|². B is used itself: BᵀB would square its condition number.
    """
    if noises[0] > 0 and B.shape[2] == 1:
        return _fit_one(B[:, :, 0], noises, residual)
    if noises[0] == 0:
        each = [interpolate(b, r) for b, r in zip(B, residual, strict=True)]
    else:
        check_step(B)
        each = [regularize(b, R, r) for b, R, r in zip(B, noises, residual, strict=True)]
    return tuple(map(np.stack, zip(*each, strict=True)))


def regularize(B: Array, R: float, residual: Array) -> tuple[Array, ...]:
    """The same with R > 0: [√R I; B] = V [T; 0], so BᵀB + R I = TᵀT.

    With u = T⁻ᵀ residual, the innovations, V [u; 0] = [left / √R; Z].
    """
    (rows, n), root = B.shape, math.sqrt(R)
    B = B if rows else np.zeros((1, n))  # LAPACK's wrappers need a row
    # Blocks of 16: see `small_linalg.grow`.
    T, V, blocks, _ = scipy.linalg.lapack.dtpqrt(0, min(16, n), root * np.eye(n), B)
    u = scipy.linalg.solve_triangular(T, residual, trans="T", check_finite=False)
    left, Z, _ = scipy.linalg.lapack.dtpmqrt(0, V, blocks, u, np.zeros((len(B), u.shape[1])))
    diagonal = np.diagonal(T)
    variance = (B * B).sum(axis=0) + R
    return Z[:rows], root * left, variance, u * np.sign(diagonal)[:, None], diagonal**2


def _fit_one(B: Array, noises: Array, residual: Array) -> tuple[Array, ...]:
    """The same for one gradient: B is e×b, S = |B|² + R."""
    squares = (B * B).sum(axis=1)
    if ((squares > UNSAFE) | ((squares < 1 / UNSAFE) & (squares > 0))).any():
        # Scaled, so that squares neither overflow nor vanish.
        unit = np.abs(B).max(axis=1)
        length = unit * np.sqrt(np.square(B / unit[:, None]).sum(axis=1))
        ratio = noises / length
        direction, gain = B / length[:, None], 1 / (length + ratio)
        share, S = ratio / (length + ratio), length * length + noises
    else:
        S = squares + noises
        direction, gain, share = B, 1 / S, noises / S
    r = residual[:, 0]
    Z = direction[:, :, None] * (gain[:, None] * r)[:, None]
    innovation = residual / np.sqrt(S)[:, None, None]
    return Z, share[:, None, None] * residual, S[:, None], innovation, S[:, None]


def interpolate(B: Array, residual: Array) -> tuple[Array, ...]:
    """The same with R = 0, where B is a staircase of full row rank.

    A square B is forward substitution, which is learning one by one; a wide one is least squares.
    Where B has no step nothing is expected: variance and innovation are zero.
    """
    steps, n = B.shape
    if steps == n:
        Z = scipy.linalg.solve_triangular(B, residual, trans="T") if n else residual
        left = np.zeros_like(residual)
    elif not steps:
        Z, left = np.zeros((0, *residual.shape[1:])), residual
    else:
        # Long rows first, then pivoted Householder: stable row by row, so that rows of very
        # different scale in one block all count (Cox and Higham, 1998).
        order = np.argsort(-np.abs(B).max(axis=0), kind="stable")
        Q, R, pivot = scipy.linalg.qr(B.T[order], mode="economic", pivoting=True)
        Z = np.empty((steps, *residual.shape[1:]))
        Z[pivot] = scipy.linalg.solve_triangular(R, Q.T @ residual[order])
        left = residual - B.T @ Z
    new = small_linalg.pivots(B) if steps else np.empty(0, int)
    variance, innovation = np.zeros(n), np.zeros_like(residual)
    with np.errstate(over="ignore"):  # such a step is refused
        variance[new] = (B[:, new] * B[:, new]).sum(axis=0)
    innovation[new] = Z
    return Z, left, variance, innovation, variance


def check_step(step: Array | float, remedy: str = "scale x or y") -> None:
    """Raise if a step would leave the finite numbers."""
    if not np.isfinite(step).all():
        raise ValueError(f"the step overflows: {remedy}")
