"""The orthonormal directions of a memory, and the parameters that move along them.

    U = (W Q)ᵀ, p×k         w = base + shift Q         M = Q Qᵀ

The rows of Q (s×p) are unit gradients in the order of arrival; W (k×s), M (s×s) and shift (q×s) are
small. A new direction appends a row to Q, a rotation of the directions multiplies W, and a step
changes `shift`: none of these touches a p-sized array. M grows by products that a step needs
anyway. So a step reads Q once. When Q is full, the rows that are not needed to span U are folded
into the others (`compact`), and `shift Q` is added to base. The update U ← [U O] Ũ of
alg:orfit_ipca would cost (k + 1) k p at every step; the numbers are the same.

All functions take a `State` with the fields store, W, M, shift, history, compactions and
parameter_bound. Functions that change a state are given a draft (see `state.py`).
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from orfit import small_linalg
from orfit.small_linalg import extend_history, product
from orfit.state import State
from orfit.store.host import SAFE, Store, cutoff, largest_allowed, numpy_dtype
from orfit.validation import Array

# The error of WMWᵀ = I that is tolerated, as a bound on eps times the amplification of rounding.
# Gradients whose amplification is larger are projected explicitly.
ORTHONORMAL = {np.dtype(np.float64): 2e-12, np.dtype(np.float32): 3e-5}

# A block may be made orthonormal by its Gram matrix up to this loss; the second projection
# corrects what is lost.
NEARLY_ORTHONORMAL = 1e-5

# How long the parts of a combination of rows may be that is subtracted from a unit gradient:
# rounding grows by this factor, and gradients that come later would multiply it.
LONGEST_SUBTRACTED = 8.0

# A compaction rounds the rows, and the recursion for M does not see it. So M is recomputed if that
# may matter, and after every second compaction, or more rarely for many directions (cost k² p).
DIRECTIONS_PER_COMPACTION = 16

# A rotation rounds W. The second projection of a gradient shows how far WMWᵀ is from I; beyond this
# share of `ORTHONORMAL` W is corrected. If rows are nearly parallel, rounding alone shows up to
# thirty eps times both lengths, and a correction has no effect.
MEASURABLE_LOSS = 0.1
ROUNDING_LOSS = 16.0

DAMAGED = 0.01  # an orthonormality loss that rounding never reaches


class Products(NamedTuple):
    """Inner products over p of n gradients, scaled to unit length."""

    G: Any  # p×n, divided by `norms` if their squares overflow
    lengths: Array  # n, of the columns of G
    norms: Array  # n, the lengths of the gradients
    rows: Array  # n×s, with the rows of Q
    square: Array  # n×n, with each other
    prediction: Array  # n×q, of the gradients with w


class Projection(NamedTuple):
    """G = U C + O T with O = (K (N − A Q))ᵀ orthonormal and orthogonal to U.

    N are the columns to append to Q (the new rows, p×r), scaled to unit length.
    """

    gradients: Products
    C: Array  # k×n
    T: Array  # r×n, a staircase: each row starts further right
    new: Products  # of N
    A: Array  # r×s
    K: Array  # r×r
    history: Array | None
    w_is_off: bool


@functools.cache
def largest_amplification(dtype: np.dtype[Any]) -> float:
    """By how many eps a direction that is known by its coefficients alone may be off."""
    return ORTHONORMAL[dtype] / float(np.finfo(dtype).eps)


def initialize(s: State, ops: Any, like: Any, capacity: int, columns: int) -> None:
    """Set the fields of an empty frame for gradients of the kind and length of `like`."""
    s.store = Store.new(ops, like, capacity, columns)
    s.W, s.M, s.shift = np.empty((0, 0)), np.empty((capacity, capacity)), np.zeros((columns, 0))
    s.history, s.compactions = np.empty((0, 0), order="F"), 0
    s.parameter_bound, s._w = 0.0, None


def parameters(s: State) -> Any:
    """w, p×q. It is cached in the state until the next step."""
    if s._w is None:
        s._w = s.store.parameters(s.shift)
    return s._w


def set_parameters(s: State, w: Any) -> None:
    """Replace the parameters by w, p×q."""
    s.store = s.store.with_base(w)
    s.shift, s._w = np.zeros((w.shape[1], s.store.stored)), None
    s.parameter_bound = s.store.ops.largest(w)


def coordinates(s: State, G: Any) -> Array:
    """UᵀG."""
    return product(s.W, s.store.ops.inner(s.store.Q, G))


def combine(s: State, C: Array) -> Any:
    """U C."""
    return s.store.ops.combine(s.store.Q, product(s.W.T, C))


def subtract(s: State, G: Any, C: Array) -> Any:
    """G − U C."""
    return s.store.residual(G, product(s.W.T, C))


def products(s: State, G: Any) -> Products:
    """Read G, Q and base once."""
    rows, along_base, square = s.store.products(G)
    norms = lengths = np.sqrt(np.diagonal(square))
    least, most = SAFE[numpy_dtype(G)]
    if not (norms.min(initial=1.0) > least and norms.max(initial=1.0) < most):
        norms, lengths = s.store.ops.finite_norms(G), np.ones(len(norms))
        if norms.any():
            with np.errstate(over="ignore"):  # NumPy 1.26 divides in unused vector lanes
                G = G / s.store.ops.convert(G, np.where(norms > 0, norms, 1.0))
            rows, along_base, square = s.store.products(G)
    with np.errstate(over="ignore", invalid="ignore"):  # such a prediction is refused later
        prediction = (along_base + rows @ s.shift.T) * (norms / lengths)[:, None]
    square = square / np.outer(lengths, lengths)
    return Products(G, lengths, norms, rows / lengths[:, None], square, prediction)


def project(s: State, G: Any, history: Array | None) -> Projection:
    """Decompose G (p×n) into what U spans and what is new, by one read of Q.

    What is new is G − QᵀAᵀ, made orthonormal by the Cholesky factor of its Gram matrix; G itself
    is stored. Rounding grows as what is new gets shorter. Where it would grow too much, G − QᵀAᵀ
    is formed, made orthonormal and projected again: twice is enough (Kahan, Parlett). If the
    second projection removes most of a direction too, the column at which it starts has nothing
    new but rounding, and it starts no direction.
    """
    ops, dtype = s.store.ops, numpy_dtype(G)
    first = products(s, G)
    C, A, left, amplification, loss = _project_twice(s, first)
    most = largest_amplification(dtype)
    w_is_off = _is_off(s, loss, amplification, most, float(np.finfo(dtype).eps))
    T, inverse, lost = small_linalg.cholesky(left, amplification)
    C = (C * first.norms[:, None]).T
    if lost <= most and amplification.max() <= LONGEST_SUBTRACTED:
        grown = None if history is None else extend_history(history, len(T))
        return Projection(first, C, T * first.norms, first, A, inverse.T, grown, w_is_off)
    along, grown, uncertain = (A * first.lengths[:, None]).T, None, first.lengths.copy()
    in_unit_rows = along * np.sqrt(np.diag(s.M)[: len(along)])[:, None]  # for the history
    rest = s.store.residual(first.G, along)
    if history is None and len(T) > 1 and lost * np.finfo(dtype).eps < NEARLY_ORTHONORMAL:
        N, T = ops.combine(rest, inverse / first.lengths[:, None]), T * first.lengths
    else:
        N, T, grown = orthonormalize(ops, rest, in_unit_rows, uncertain, history)
    while True:
        again = products(s, N)
        D, A, left, amplification, _ = _project_twice(s, again)
        removed = np.flatnonzero(np.diag(left) <= 0.25)  # squares, of unit vectors
        if not len(removed):
            break
        column = small_linalg.pivots(T)[removed[0]]
        uncertain[column] = 1.01 * abs(T[removed[0], column]) / cutoff(dtype)
        N, T, grown = orthonormalize(ops, rest, in_unit_rows, uncertain, history)
    T = T * (first.norms / first.lengths)
    C = C + product((D * again.norms[:, None]).T, T)
    F, inverse, _ = small_linalg.cholesky(left, amplification)
    T = product(F * again.norms, T)
    return Projection(first, C, T, again, A, inverse.T, grown, w_is_off)


def _project_twice(s: State, g: Products) -> tuple[Array, Array, Array, Array, float]:
    """C and A with Gᵀ = C U + (Gᵀ − A Q), the Gram matrix of the rest and how rounding grew.

    The second projection goes through M; it removes what WMWᵀ lacks of I. The amplification of
    each gradient is the length of the parts that were subtracted. The last result is the
    orthonormality loss of W that these gradients show.
    """
    M = s.M[: s.W.shape[1], : s.W.shape[1]]
    C = product(g.rows, s.W.T)
    A = product(C, s.W)
    D = product(product(A, M) - g.rows, s.W.T)
    C, A = C - D, A - product(D, s.W)
    rest = product(A, M) - g.rows
    left = g.square - product(g.rows, A.T) + product(A, rest.T)
    # Each product in g.rows is known up to eps times the lengths.
    amplification = np.sqrt(np.diagonal(g.square) + (A * A) @ np.diagonal(M))
    return C, A, left, amplification, float(np.sqrt((D * D).sum() / max(1, len(D))))


def _is_off(s: State, loss: float, amplification: Array, most: float, eps: float) -> bool:
    """Whether W has to be corrected."""
    if not loss > MEASURABLE_LOSS * most * eps:
        return False
    longest = np.sqrt(((s.W * s.W) @ np.diagonal(s.M)[: s.W.shape[1]]).max())
    return bool(loss > ROUNDING_LOSS * eps * amplification.max() * longest)


def orthonormalize(
    ops: Any, G: Any, C: Array, norms: Array, history: Array | None
) -> tuple[Any, Array, Array | None]:
    """G = O T with orthonormal O (p×r), column after column as in alg:borfit_infmem.

    G is what is left of columns of these norms with coordinates C along the past. A remainder that
    is rounding adds no direction: r ≤ n, and T (r×n) is a staircase.
    """
    Q, R = ops.factors(G)
    K, T, grown = small_linalg.staircase(R, C, norms, history, cutoff(G.dtype))
    if K is not None:
        Q = ops.combine(Q, K) if len(T) else Q[:, :0]
    return Q, T, grown


def append(s: State, projection: Projection, capacity: int | None = None) -> None:
    """U ← [U O]. Rows beyond the capacity are not copied: a compaction has to follow."""
    r, stored, new = len(projection.T), s.W.shape[1], projection.new
    if projection.w_is_off:
        s.W = corrected(s.W, s.M)
    s.history = projection.history
    if not r:
        return
    end, k, K, lengths = stored + r, len(s.W), projection.K, new.lengths
    if capacity is None or end <= capacity:
        s.store = s.store.append(new.G / s.store.ops.convert(new.G, lengths))
        lengths = np.ones(r)
    else:
        s.store = s.store.beside(new.G)
    if max(end, s.store.capacity) > len(s.M):
        M = np.empty((max(end, s.store.capacity),) * 2)
        M[:stored, :stored] = s.M[:stored, :stored]
        s.M = M
    # Behind the part of M that the state before uses.
    products = new.rows * lengths[:, None]
    s.M[stored:end, :stored], s.M[:stored, stored:end] = products, products.T
    s.M[stored:end, stored:end] = new.square * np.outer(lengths, lengths)
    W = np.zeros((k + r, end))
    W[:k, :stored], W[k:, :stored], W[k:, stored:] = s.W, -product(K, projection.A), K / lengths
    s.W, s._w = W, None
    s.shift = np.hstack([s.shift, np.zeros((len(s.shift), r))])


def coefficients(s: State, projection: Projection, along: Array) -> tuple[Array, Array]:
    """The coefficients of [U O] along in the rows of Q, and in the columns of N."""
    k = len(projection.C)
    new = product(projection.K.T, along[k:])
    old = product(s.W.T, along[:k]) - product(projection.A.T, new)
    return old, new / projection.new.lengths.reshape(-1, *[1] * (along.ndim - 1))


def displacement(s: State, projection: Projection, along: Array) -> Any:
    """[U O] along, p-sized, before O is appended."""
    old, new = coefficients(s, projection, along)
    moved = s.store.ops.combine(projection.new.G, new)
    return moved + s.store.ops.combine(s.store.Q, old) if old.any() else moved


def largest_coefficient(s: State, projection: Projection, along: Array) -> float:
    """No coefficient and no partial sum of [U O] along is larger, once N is stored."""
    old, new = coefficients(s, projection, along)
    rows = np.sqrt(np.diag(s.M)[: len(old)])
    parts = np.maximum(rows, 1) @ np.abs(old) + projection.new.lengths @ np.abs(new)
    return float(parts.max(initial=0.0))


def move(s: State, along: Array) -> None:
    """w ← w + U along, for `along` k×q."""
    shift = s.shift + product(along.T, s.W)
    bound = s.parameter_bound + small_linalg.frobenius(along)
    if np.abs(shift).max(initial=0.0) < largest_allowed(numpy_dtype(s.store.rows)):
        s.shift, s.parameter_bound, s._w = shift, bound, None
        return
    # The rows are so short that w is finite where its coefficients are not.
    set_parameters(s, parameters(s) + combine(s, along))
    s.parameter_bound = bound


def rescale(
    s: State, columns: Array, turn: Array, along: Array, beyond: Array, start: Any = None
) -> None:
    """Column j of w becomes `start` plus the scaled rest of column columns[j].

    It is scaled along U turn by along[:, j], and along all other directions by beyond[j].
    """
    ops = s.store.ops
    base = s.store.base.T if start is None else s.store.base.T - start
    stored = s.store.stored
    raw = ops.inner(s.store.Q, base) + product(s.M[:stored, :stored], s.shift.T)
    U = product(turn.T, s.W)
    C = (along - beyond) * product(U, raw)[:, columns]
    picked = np.zeros((len(s.store.base), len(columns)))
    picked[columns, range(len(columns))] = beyond
    made = ops.combine(base, picked)
    s.store = s.store.with_base(made if start is None else made + start)
    s.shift = beyond[:, None] * s.shift[columns] + product(C.T, U)
    s._w = None
    s.parameter_bound = ops.largest(s.store.moved_base(s.shift))


def rotate(s: State, K: Array) -> None:
    """U ← U K, for K (k×k') with orthonormal columns."""
    W = np.ascontiguousarray(product(K.T, s.W))
    s.history = s.history if len(W) == len(s.W) else None
    s.W = W


def drop(s: State, W: Array) -> None:
    """Keep the directions W, fewer than before."""
    s.W, s.history = np.ascontiguousarray(W), None


def replace(s: State, U: Any) -> None:
    """U becomes this orthonormal matrix, p×k."""
    w, k = parameters(s), U.shape[1]
    bound = s.parameter_bound
    s.store, s.W, s.history = s.store.with_rows(U), np.eye(k), None
    s.M = np.empty((s.store.capacity, s.store.capacity))
    s.M[:k, :k] = s.W
    set_parameters(s, w)
    s.parameter_bound = bound


def compact(s: State, capacity: int) -> None:
    """Q ← U in a buffer of this capacity, and base ← base + shift Q."""
    (k, stored), W = s.W.shape, s.W
    M = s.M[:stored, :stored]
    amplification = ((W * W) @ np.diagonal(M)).max(initial=0.0)  # of rounding: its square
    s.store = s.store.compact(W, s.shift, capacity)
    s.compactions += 1
    due = s.compactions % max(2, k // DIRECTIONS_PER_COMPACTION) == 0
    if due or amplification > MEASURABLE_LOSS * largest_amplification(numpy_dtype(s.store.rows)):
        M = s.store.ops.gram(s.store.Q)
        s.W = corrected(np.eye(k), M)
    else:
        M = product(product(W, M), W.T)
        s.W = np.eye(k)
    s.shift, s._w = np.zeros((len(s.shift), k)), None
    s.M = np.empty((capacity, capacity))
    s.M[:k, :k] = M


def corrected(W: Array, M: Array) -> Array:
    """W, changed so that WMWᵀ is I again.

    W is multiplied by the inverse of the Cholesky factor of WMWᵀ, to first order. It changes each
    direction by those before it, along which more was seen. The nearest orthonormal frame would
    mix directions that only short gradients determined into those of long gradients.
    """
    lack = product(product(W, M[: W.shape[1], : W.shape[1]]), W.T)
    lack = np.tril(lack, -1) + np.diag(0.5 * (np.diag(lack) - 1.0))
    return W - product(lack, W)


def check(s: State) -> None:
    """Raise if M is not Q Qᵀ (along one combination of all rows), or if WMWᵀ is not I."""
    stored = s.store.stored
    M = s.M[:stored, :stored]
    squares = np.diag(M)
    if not (squares > 0).all():
        raise ValueError("a row of the memory has length zero")
    unit = 1 / np.sqrt(squares)
    c = unit * np.where(np.arange(stored) % 3, 1.0, -1.0)
    ops = s.store.ops
    measured = ops.inner(s.store.Q, ops.combine(s.store.Q, c))
    identity = product(product(s.W, M), s.W.T)
    error = np.abs(unit * (measured - M @ c)).max(initial=0.0)
    error = max(error, np.abs(identity - np.eye(len(s.W))).max(initial=0.0))
    if not error < DAMAGED:
        raise ValueError("the directions of the memory are not orthonormal")
