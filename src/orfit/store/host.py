"""The store for NumPy arrays.

A p-sized matrix has contiguous columns (Fortran order), because both products of a step run along
columns; in C order they are 2 to 4 times slower. p-sized arrays keep the learner's dtype; all
small matrices are float64.

All BLAS calls are SciPy's. NumPy ships another copy of BLAS with its own threads; when calls
alternate between the two, idle threads of one occupy the cores that the other needs.
"""

import functools
import math
from typing import Any

import numpy as np
import scipy

from orfit import validation
from orfit.core._core import gemm
from orfit.validation import Array

# After two projections, rounding leaves a few eps of a column that is spanned, whatever p is. A
# remainder up to this many eps counts as rounding.
ROUNDING = 100.0

LEAST_EXPONENT, LARGEST_EXPONENT = -1074, 1024  # binary exponents, as np.frexp returns them
CACHE_LINE = 64  # bytes


def dot_of(dtype: np.dtype[Any]) -> Any:
    """BLAS's inner product of vectors of this dtype."""
    return scipy.linalg.blas.ddot if dtype == np.float64 else scipy.linalg.blas.sdot


# Lengths whose squares, and sums of them, are inside the range of the dtype.
SAFE = {
    np.dtype(t): (1e4 * float(np.finfo(t).tiny) ** 0.5, 1e-4 * float(np.finfo(t).max) ** 0.5)
    for t in (np.float32, np.float64)
}


def numpy_dtype(A: Any) -> np.dtype[Any]:
    """The dtype of an array or a tensor as a NumPy dtype."""
    return np.dtype(str(A.dtype).removeprefix("torch."))


@functools.cache
def cutoff(dtype: Any) -> float:
    """The relative length up to which a remainder counts as rounding."""
    return ROUNDING * float(np.finfo(str(dtype).removeprefix("torch.")).eps)


@functools.cache
def largest_allowed(dtype: np.dtype[Any]) -> float:
    """How large a parameter may become, so that sums of a few are still finite."""
    return float(np.finfo(dtype).max) / 4


def grown_capacity(capacity: int, rows: int) -> int:
    """The capacity for so many rows: it depends on the first one and on their number alone."""
    while capacity < rows:
        capacity = 3 * capacity // 2
    return capacity


def row_stride(size: int) -> int:
    """The distance of two rows in numbers: a multiple of 8, but not of 16 (see core/place.c)."""
    eights = -(-size // 8)
    return 8 * (eights + (eights % 2 == 0))


def padded(rows: int, size: int, dtype: Any) -> Array:
    """An uninitialised array of such rows, which begins at a cache line."""
    stride = row_stride(size)
    length = rows * stride * np.dtype(dtype).itemsize
    memory = np.empty(length + CACHE_LINE, np.uint8)
    begin = -memory.ctypes.data % CACHE_LINE
    return np.asarray(memory[begin : begin + length].view(dtype).reshape(rows, stride))


class Store:
    """Q (s×p, the stored rows) and base (q×p): the state of a memory that has p numbers per row.

    A store is a value: `append` and `compact` return a new store. `append` writes behind the last
    row of a buffer that both share, and `compact` writes into a new buffer. Rows of a block that do
    not fit may stay where they are until they are compacted (`beside`).
    """

    def __init__(
        self, ops: "Arithmetic", rows: Any, stored: int, base: Any, beside: Any = None
    ) -> None:
        """ops: the arithmetic. rows: the buffer, capacity×p. beside: further rows as columns."""
        self.ops, self.rows, self.base, self.capacity = ops, rows, base, len(rows)
        held, more = rows[:stored].T, 0 if beside is None else beside.shape[1]
        self._parts = (held, beside) if more else (held,)
        self.stored = stored + more

    @classmethod
    def new(cls, ops: Any, like: Any, capacity: int, columns: int) -> "Store":
        """An empty store for gradients like this one (p×n), with zero parameters (p×columns)."""
        base = ops.empty(like, columns, len(like))
        base[:] = 0
        return cls(ops, ops.empty(like, capacity, len(like)), 0, base)

    @property
    def Q(self) -> Any:
        """The stored rows as columns, p×s."""
        return self.ops.side_by_side(self._parts) if len(self._parts) > 1 else self._parts[0]

    # The five operations.

    def products(self, G: Any) -> tuple[Array, Array, Array]:
        """Gᵀ Qᵀ (n×s), Gᵀ baseᵀ (n×q) and GᵀG (n×n): the one sum over p of a step."""
        return self.ops.products(G, self.Q, self.base)

    def residual(self, G: Any, A: Array) -> Any:
        """G − Qᵀ A, p×n, for A (s×n)."""
        return self.ops.subtract(G, self.Q, A)

    def append(self, N: Any) -> "Store":
        """The store with the columns of N (p×r) as further rows."""
        stored, made = self.stored + N.shape[1], self
        if stored > self.capacity:
            made = self.resized(grown_capacity(self.capacity, stored))
        made.rows[self.stored : stored] = N.T
        return Store(self.ops, made.rows, stored, self.base)

    def beside(self, N: Any) -> "Store":
        """The same, but N is not copied: it must not change until the store is compacted."""
        return Store(self.ops, self.rows, self.stored, self.base, N)

    def compact(self, T: Array, shift: Array, capacity: int) -> "Store":
        """Q becomes T Q in a new buffer; base becomes base + shift Q."""
        k, end = len(T), len(T) + len(shift)
        rows = self.ops.empty(self.rows, max(capacity, end), self.rows.shape[1])
        self._add_products(rows[:end].T, np.vstack([T, shift]), 0.0)  # one read of Q
        return Store(self.ops, rows[:capacity], k, self.base + rows[k:end])

    def parameters(self, shift: Array) -> Any:
        """w = base + shift Q as columns, p×q."""
        return self.moved_base(shift).T

    def moved_base(self, shift: Array) -> Any:
        """Return base + shift Q, q×p."""
        made = self.ops.copy(self.base.T)
        self._add_products(made, shift, 1.0)
        return made.T

    def _add_products(self, out: Any, c: Array, keep: float) -> None:
        """out ← (c Q)ᵀ + keep out."""
        start = 0
        for part in self._parts:
            end = start + part.shape[1]
            self.ops.multiply(part, c[:, start:end].T, keep, out)
            start, keep = end, 1.0

    # Variants of the state.

    def with_base(self, w: Any) -> "Store":
        """The same rows with the columns of w (p×q) as base."""
        held, *beside = self._parts
        return Store(self.ops, self.rows, held.shape[1], self.ops.copy(w).T, *beside)

    def resized(self, capacity: int) -> "Store":
        """The same rows in a new buffer of this capacity."""
        rows = self.ops.empty(self.rows, max(capacity, self.stored), self.rows.shape[1])
        rows[: self.stored] = self.Q.T
        return Store(self.ops, rows, self.stored, self.base)

    def on_host(self) -> "Store":
        """The same as NumPy arrays, if it holds tensors on the CPU; else this one."""
        if isinstance(self.rows, np.ndarray) or self.rows.device.type != "cpu":
            return self
        of_host = Store(HOST, self.rows.numpy(), self.stored, self.base.numpy())
        return of_host.resized(self.capacity)

    def with_rows(self, U: Any) -> "Store":
        """The columns of U (p×k) as the only rows, in a new buffer."""
        rows = self.ops.empty(self.rows, max(U.shape[1], self.capacity), len(U))
        return Store(self.ops, rows, 0, self.base).append(U)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Store":
        made = self.resized(self.capacity)
        return Store(self.ops, made.rows, self.stored, self.ops.copy(self.base.T).T)


def as_columns(A: Array) -> Array:
    """A as a matrix of contiguous columns; (p,) is one column."""
    matrix = A[:, None] if A.ndim == 1 else A
    contiguous = matrix.shape[0] < 2 or matrix.strides[0] == matrix.itemsize
    return matrix if contiguous and matrix.shape[1] else np.asfortranarray(matrix)


class Arithmetic:
    """Operations on p-sized NumPy arrays; the torch and the sharded stores replace some."""

    @staticmethod
    def empty(like: Any, rows: int, size: int) -> Any:
        """An uninitialised array, rows×size, of contiguous rows, padded as the core needs them."""
        made = padded(rows, size, like.dtype)
        made[:, size:] = 0
        return made[:, :size]

    @staticmethod
    def copy(A: Any) -> Any:
        """A copy with contiguous columns."""
        return np.array(A, order="F")

    @staticmethod
    def side_by_side(parts: Any) -> Any:
        """[A B ...]."""
        return np.hstack(parts) if len(parts) > 1 else parts[0]

    @staticmethod
    def convert(like: Any, values: Any) -> Any:
        """Values as an array of the kind of `like`."""
        return np.asarray(values, like.dtype)

    @staticmethod
    def to_numpy(A: Any) -> Array:
        """The same numbers as a NumPy array of the same dtype."""
        return np.asarray(A)

    def inner(self, A: Any, B: Any) -> Array:
        """Aᵀ B, small, for A (p×k) and B (p×n) or (p,)."""
        columns = as_columns(np.asarray(B, A.dtype))
        made = np.empty((A.shape[1], columns.shape[1]), A.dtype, order="F")
        gemm(1.0, as_columns(A), True, columns, 0.0, made)
        return made.astype(np.float64, copy=False).reshape(A.shape[1], *B.shape[1:])

    def products(self, G: Any, Q: Any, base: Any) -> tuple[Array, Array, Array]:
        """Gᵀ Q, Gᵀ baseᵀ and Gᵀ G."""
        return self.inner(Q, G).T, self.inner(base.T, G).T, self.gram(G)

    def gram(self, A: Any) -> Array:
        """Aᵀ A, small."""
        if A.shape[1] == 1:
            return np.array([[float(dot_of(A.dtype)(A[:, 0], A[:, 0]))]])
        if not A.shape[1]:
            return np.zeros((0, 0))
        blas = scipy.linalg.blas
        multiply = blas.dsyrk if A.dtype == np.float64 else blas.ssyrk
        upper = np.asarray(multiply(1.0, A, trans=1), dtype=np.float64)  # and zeros below
        square = upper + upper.T
        square.flat[:: len(square) + 1] *= 0.5
        return square

    @staticmethod
    def multiply(A: Any, c: Array, keep: float, out: Any) -> None:
        """out ← A c + keep out, p-sized and contiguous columns, for small c (k×n)."""
        gemm(1.0, as_columns(A), False, as_columns(np.asarray(c, A.dtype)), keep, out)

    def combine(self, A: Any, c: Array) -> Any:
        """A c, p-sized, for small c (k×n) or (k,)."""
        made = np.empty((len(A), *c.shape[1:]), A.dtype, order="F")
        self.multiply(A, c, 0.0, as_columns(made))
        return made

    def subtract(self, G: Any, A: Any, c: Array) -> Any:
        """G − A c: one read of A."""
        made = np.array(G, order="F")
        self.multiply(A, -c, 1.0, as_columns(made))
        return made

    def norms(self, G: Any) -> Array:
        """The length of every column, also where its square overflows."""
        (least, most), dot = SAFE[G.dtype], dot_of(G.dtype)
        found = np.array([math.sqrt(dot(g, g)) for g in G.T])
        for j, length in enumerate(found):
            if not least < length < most:
                # Scaling by a power of two rounds nothing.
                _, exponent = math.frexp(np.abs(G[:, j]).max(initial=0.0))
                unit = np.ldexp(G[:, j], -exponent)
                with np.errstate(over="ignore"):  # the caller refuses an infinite length
                    found[j] = np.ldexp(math.sqrt(dot(unit, unit)), exponent)
        return found

    def finite_norms(self, G: Any) -> Array:
        """The length of every column; raises where one is not finite."""
        found = self.norms(G)
        if not all(map(math.isfinite, found)):
            raise ValueError("the model's gradient is not finite at this datapoint")
        return found

    def exponents(self, g: Any) -> Array:
        """How many numbers of g (p) have each binary exponent; zeros do not count."""
        numbers = self.to_numpy(g)
        found = np.frexp(numbers[numbers != 0])[1] - LEAST_EXPONENT
        return np.bincount(found, minlength=LARGEST_EXPONENT - LEAST_EXPONENT + 1)

    def factors(self, G: Any) -> tuple[Any, Array]:
        """G = Q R with orthonormal Q, and no negative number on the diagonal of R."""
        if G.shape[1] == 1:
            length = self.norms(G)[0]
            return (G / self.convert(G, length) if length > 0 else G), np.full((1, 1), length)
        Q, R = self._qr(G)
        backward = np.flatnonzero(np.diagonal(R) < 0)
        if len(backward):
            Q[:, backward] *= -1
            R[backward] *= -1
        return Q, R

    def _qr(self, G: Any) -> tuple[Any, Array]:
        """Householder's Q and R: a Gram matrix would lose the directions below sqrt(eps)."""
        Q, R = scipy.linalg.qr(G, mode="economic", check_finite=False)
        return Q, R.astype(np.float64)

    @staticmethod
    def finite(A: Any) -> bool:
        """Whether all numbers are finite."""
        return validation.finite(A)

    def largest(self, A: Any) -> float:
        """The largest absolute value."""
        return float(np.abs(A).max(initial=0.0))


HOST = Arithmetic()


def arithmetic(array: Any) -> Arithmetic:
    """The operations for arrays of this kind: NumPy arrays, or torch tensors."""
    if isinstance(array, np.ndarray):
        return HOST
    from orfit.store.torch import TORCH  # torch is optional

    return TORCH
