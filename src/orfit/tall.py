"""All that touches the p dimension.

A tall matrix is p×n with p the number of parameters; a small one has only sides of the size
k + n (directions kept, columns arriving). Few operations cross from tall to small or back:
inner products, subtracting a combination, orthonormalising a block, moving along directions,
folding some rows of a basis into the rest. They are here and nowhere else, sums, maxima and
finiteness included, for NumPy arrays; another kind of array registers its own
(`functools.singledispatch`), as `tall_torch` does for tensors, and `tall_shards` where several
processes have a part of p each. A step needs one of them, `read`.

Layout: the columns of a tall matrix are contiguous (Fortran order), because both products of
a step run along columns; p×n in C order is 2 to 4 times slower. Tall arrays keep the learner's
dtype; whatever is small is float64.

All BLAS calls here, and the large ones of `small`, are SciPy's. NumPy has a BLAS of its own, with
threads of its own; where calls alternate between the two, the idle threads of the one spin on the
cores that the other needs, and a step takes up to five times as long.
"""

import functools
import math
from typing import Any, cast

import numpy as np
from scipy import linalg
from scipy.linalg import blas

from orfit import door, small
from orfit.door import Array

# What is left of a column after projecting is rounding, not direction, up to so many eps of what
# went into it. After two projections rounding leaves a few eps, whatever p is: the first one's
# error lies in the span, and the second removes it.
ROUNDING = 100.0

GEMV = {np.dtype(np.float32): blas.sgemv, np.dtype(np.float64): blas.dgemv}
GEMM = {np.dtype(np.float32): blas.sgemm, np.dtype(np.float64): blas.dgemm}
DOT = {np.dtype(np.float32): blas.sdot, np.dtype(np.float64): blas.ddot}
SYRK = {np.dtype(np.float32): blas.ssyrk, np.dtype(np.float64): blas.dsyrk}


def numpy_dtype(A: Any) -> np.dtype[Any]:
    """The dtype, as NumPy calls it."""
    return np.dtype(str(A.dtype).removeprefix("torch."))


@functools.cache
def cutoff(dtype: Any) -> float:
    """The relative length up to which a remainder counts as nothing."""
    return ROUNDING * float(np.finfo(str(dtype).removeprefix("torch.")).eps)


@functools.cache
def most(dtype: np.dtype[Any]) -> float:
    """How large a parameter, or a coefficient, may become: sums of a few are still numbers."""
    return float(np.finfo(dtype).max) / 4


LINE = 64  # bytes of the cache that are loaded at once


@functools.singledispatch
def empty(like: Any, rows: int, size: int) -> Any:
    """A tall array of that kind, to be filled: rows×p, so that each row is contiguous."""
    # NumPy begins a large array 16 bytes into a page, so that every fourth vector that a processor
    # loads lies across two lines of its cache.
    length = rows * size * like.dtype.itemsize
    memory = np.empty(length + LINE, np.uint8)
    begin = -memory.ctypes.data % LINE
    return memory[begin : begin + length].view(like.dtype).reshape(rows, size)


@functools.singledispatch
def copy(A: Any) -> Any:
    """A copy, columns contiguous."""
    return np.array(A, order="F")


@functools.singledispatch
def beside(A: Any, *others: Any) -> Any:
    """[A B ...]."""
    return np.hstack([A, *others]) if others else A


@functools.singledispatch
def convert(like: Any, values: Any) -> Any:
    """Numbers from elsewhere as an array of the kind of `like`."""
    return np.asarray(values, like.dtype)


@functools.singledispatch
def to_numpy(A: Any) -> Array:
    """The same numbers for NumPy, which keeps the dtype."""
    return np.asarray(A)


def shared(A: Any) -> Any:
    """The same memory as a NumPy array; None where there is no such thing."""
    return A if isinstance(A, np.ndarray) else shared_of_another(A)


@functools.singledispatch
def shared_of_another(A: Any) -> Array | None:
    """The same, of another kind of array."""
    return None


@functools.singledispatch
def here(A: Any) -> Any:
    """What of A is in this process: all of it, but where p is spread over several."""
    return A


@functools.singledispatch
def travels(A: Any) -> bool:
    """Whether a sum over p has to be sent around: then it had better wait for the next `read`."""
    return False


@functools.singledispatch
def normal(like: Any, random: np.random.Generator, rows: int, over: float = 1.0) -> Any:
    """Standard normal numbers over `over`, rows×p, for an array `like` that has p columns."""
    return convert(like, random.standard_normal((rows, like.shape[1])) / over)


@functools.singledispatch
def inner(A: Any, B: Any) -> Array:
    """Aᵀ B, small, for A (p×k) and B (p×n) or (p,)."""
    if B.ndim == 2 and B.shape[1] != 1:
        if not A.shape[1] or not B.shape[1]:
            return np.zeros((A.shape[1], B.shape[1]))
        return np.asarray(GEMM[A.dtype](1.0, A, B, trans_a=1), dtype=np.float64)
    if not A.shape[1]:
        return np.zeros((0, *B.shape[1:]))
    product = GEMV[A.dtype](1.0, A, B.reshape(-1), trans=1)
    return np.asarray(product, dtype=np.float64).reshape(-1, *B.shape[1:])


@functools.singledispatch
def gram(A: Any) -> Array:
    """Aᵀ A, small."""
    if A.shape[1] == 1:
        return np.array([[float(DOT[A.dtype](A[:, 0], A[:, 0]))]])
    if not A.shape[1]:
        return np.zeros((0, 0))
    upper = np.triu(np.asarray(SYRK[A.dtype](1.0, A, trans=1), dtype=np.float64))
    return upper + np.triu(upper, 1).T


@functools.singledispatch
def combine(A: Any, c: Array) -> Any:
    """A c, tall, for small c (k×n) or (k,): a move along the columns of A."""
    if not c.size:
        return np.zeros((len(A), *c.shape[1:]), A.dtype, order="F")
    if c.ndim == 2 and c.shape[1] != 1:
        return np.asarray(GEMM[A.dtype](1.0, A, c))
    return np.asarray(GEMV[A.dtype](1.0, A, c.reshape(-1))).reshape(-1, *c.shape[1:])


@functools.singledispatch
def subtract(G: Any, A: Any, c: Array) -> Any:
    """G − A c, tall: one read of A."""
    if not c.size:
        return G.copy(order="F")
    if G.ndim == 2 and G.shape[1] != 1:
        return np.asarray(GEMM[A.dtype](-1.0, A, c, beta=1.0, c=G))
    g = GEMV[A.dtype](-1.0, A, c.reshape(-1), beta=1.0, y=G.reshape(-1))
    return np.asarray(g).reshape(G.shape)


def subtract_outer(A: Array, scale: float, B: Array, C: Array) -> Array:
    """A scaled, less B Cᵀ, p×p, for B and C (p×n)."""
    if not B.shape[1]:
        return A if scale == 1 else np.asarray(scale * A, A.dtype)
    return np.asarray(GEMM[A.dtype](-1.0, B, C, trans_b=1, beta=scale, c=A))


# Lengths whose squares, and sums of them, are safely inside the range of the dtype.
SAFE = {
    np.dtype(t): (1e4 * float(np.finfo(t).tiny) ** 0.5, 1e-4 * float(np.finfo(t).max) ** 0.5)
    for t in (np.float32, np.float64)
}


@functools.singledispatch
def norms(G: Any) -> Array:
    """The length of every column."""
    (least, most), dot = SAFE[G.dtype], DOT[G.dtype]
    found = np.array([math.sqrt(dot(g, g)) for g in G.T])
    for j, length in enumerate(found):
        if not least < length < most:  # squares leave the range of the dtype long before lengths do
            # By a power of two: nothing is rounded, and the inverse of what is tiny is no number.
            _, exponent = math.frexp(np.abs(G[:, j]).max(initial=0.0))
            unit = np.ldexp(G[:, j], -exponent)
            with np.errstate(over="ignore"):  # it is told by whoever needs a number
                found[j] = np.ldexp(math.sqrt(dot(unit, unit)), exponent)
    return found


def lengths(G: Any) -> Array:
    """The same, which are finite, or the model gave no usable gradient."""
    found = norms(G)
    if not all(map(math.isfinite, found)):
        raise ValueError("the model's gradient is not finite at this datapoint")
    return found


@functools.singledispatch
def exponents(G: Any) -> Array:
    """How many numbers of G have which power of two, from LOWEST on; zeros are left out."""
    _, powers = np.frexp(G[G != 0])
    return np.bincount(powers - LOWEST, minlength=POWERS)


LOWEST, POWERS = -1080, 2110  # of two: all that are there in float64, and more
NEGLIGIBLE = 40  # powers of two below the largest number: what is so small is rounding
SMALL = 0.1  # of all numbers


def small_length(G: Any) -> float:
    """The length, as a power of ten, that G would have if all its numbers were as its small ones.

    Zeros, and what is rounding beside the largest, are no numbers here. One of them is not zero.
    """
    counts = exponents(G)
    least = max(0, int(np.flatnonzero(counts)[-1]) - NEGLIGIBLE)
    upto = np.cumsum(counts[least:])
    power = least + LOWEST + int(np.searchsorted(upto, SMALL * upto[-1])) - 0.5
    return power * math.log10(2) + math.log10(upto[-1]) / 2


@functools.singledispatch
def finite(A: Any) -> bool:
    """Whether no number of A is NaN or infinite."""
    return door.finite(A)


@functools.singledispatch
def largest(A: Any) -> float:
    """The largest number of A, in absolute value."""
    return float(np.abs(A).max(initial=0.0))


@functools.singledispatch
def qr(G: Any) -> tuple[Any, Array]:
    """Householder's Q and R, since Gram matrices lose the directions below sqrt(eps)."""
    Q, R = linalg.qr(G, mode="economic", check_finite=False)
    return Q, R.astype(np.float64)


@functools.singledispatch
def factors(G: Any, beside: Any = None) -> tuple[Any, Array]:
    """G = Q R with orthonormal Q, and no negative number on R's diagonal.

    beside: the rows and parameters that Q will be held against next (`read`); where sums travel
    they are made now.
    """
    if G.shape[1] == 1:
        length = norms(G)[0]
        return (G / length if length > 0 else G), np.full((1, 1), length)
    Q, R = qr(G)
    # Householder's columns point either way; provenance, and a second projection, count on one.
    backward = np.flatnonzero(np.diagonal(R) < 0)
    if len(backward):
        Q[:, backward] *= -1
        R[backward] *= -1
    return Q, R


def orthonormalise(
    G: Any, C: Array, norms_: Array, provenance: small.Provenance | None, beside: Any = None
) -> tuple[Any, Array, small.Provenance | None]:
    """G = O T with orthonormal O (p×r), column after column as in alg:borfit_infmem.

    G is what was left of columns of the lengths `norms_` with coordinates C along the past. Where
    that is rounding it adds no direction: r ≤ n, and T (r×n) is a staircase, square and triangular
    when r = n. `provenance`: see `small.staircase`. `beside`: see `factors`.
    """
    Q, R = factors(G, beside)
    K, T, grown = small.staircase(R, C, norms_, provenance, cutoff(G.dtype))
    return (Q if K is None else Q[:, :0] if not len(T) else combine(Q, K)), T, grown


@functools.singledispatch
def read(
    rows: Any, base: Any, G: Any, known: tuple[Array, ...] = (), measure: bool = False
) -> tuple[Array, Array, Array | None]:
    """Products of G (p×n) with rows (s×p) and parameters (q×p), n×(s + q), and with itself, n×n.

    The one reduction over p of a step. known: what is small and has come of earlier ones, which is
    the same wherever p is spread to. measure: whether the rows' Gram matrix is wanted, too, s×s.
    """
    products = np.vstack([inner(rows.T, G), inner(base.T, G)]).T
    return products, gram(G), gram(rows.T) if measure else None


# Numbers of a block of rows that are worked on at a time, so that they stay in the cache.
BLOCK = 1 << 17


class Fold:
    """Fold Q, `stored` rows and the columns of `more`, into fewer (`gram.fold`), in place.

    Row i ← Q[stay[i]] + Y[i] Q[gone], or Y[i] Q[gone] where stay is −1. Block by block: where an
    exception cuts it short, `finish` goes on. What a block becomes is kept until it has been
    written, and to write it again changes nothing.
    """

    def __init__(
        self, rows: Any, stored: int, more: Any, stay: Array, gone: Array, Y: Array
    ) -> None:
        self.rows, self.stored, self.more, self.stay = here(rows), stored, here(more), stay
        old = gone < stored
        self.gone, self.Y = gone[old], Y[:, old].T
        self.more_gone, self.more_Y = gone[~old] - stored, Y[:, ~old].T
        self.arrivals = [(place, j) for place, j in enumerate(stay) if j != place or j >= stored]
        self.start = 0  # from here on rows are as before
        self.ready: tuple[int, Any] | None = None

    def finish(self) -> None:
        size, k = self.rows.shape[1], len(self.stay)
        length = max(1 << 12, BLOCK // (self.stored + 1))
        while self.start < size:
            part = slice(self.start, self.start + length)
            if self.ready is None or self.ready[0] != self.start:
                self.ready = self.start, self._made(self.rows[: self.stored, part], part)
            self.rows[:k, part] = self.ready[1]
            self.start += length
        self.ready = None

    def _made(self, rows: Any, part: slice) -> Any:
        """What becomes of one block."""
        made = combine(rows[self.gone].T, self.Y).T
        if len(self.more_gone):
            made += combine(self.more[part, self.more_gone], self.more_Y).T
        arriving = [(place, j, made[place] + 0) for place, j in self.arrivals]
        made[: len(rows)] += rows[: len(made)]
        for place, j, row in arriving:
            made[place] = row
            if j >= 0:
                made[place] += rows[j] if j < len(rows) else self.more[part, j - len(rows)]
        return made


class OuterProduct:
    """A ← scale A − B Cᵀ in its place, p×p, for B and C (p×n): one read and one write of A.

    By one call, which nothing interrupts. A column behind those of A, zero before it, leaves word
    that it was made.
    """

    def __init__(self, A: Array, scale: float, B: Array, C: Array) -> None:
        """`A`: made by `with_word`. B: not zero in its first column."""
        p, n = C.shape
        self.whole, self.scale, self.B = cast(Array, A.base), scale, B
        self.C = np.zeros((p + 1, n), C.dtype, order="F")
        self.C[:p], self.C[p, 0] = C, 1
        self.word = self.whole[:, p]
        self.word[:] = 0

    def finish(self) -> None:
        if not self.word.any():
            whole, gemm = self.whole, GEMM[self.whole.dtype]
            gemm(-1.0, self.B, self.C, trans_b=1, beta=self.scale, c=whole, overwrite_c=True)


def with_word(A: Array) -> Array:
    """A, p×p, or a copy of it that has a column behind it, which nobody sees."""
    p = len(A)
    if A.base is not None and A.base.shape == (p, p + 1):
        return A
    whole = np.zeros((p, p + 1), A.dtype, order="F")
    whole[:, :p] = A
    return whole[:, :p]
