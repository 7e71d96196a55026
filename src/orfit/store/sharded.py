"""The store for p-sized arrays whose rows are divided among processes.

Each process holds ordinary NumPy arrays with its own rows. Results that are sums over p are summed
over the processes. So all processes have the same small matrices, and make the same decisions.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import scipy

from orfit.store.host import HOST, Arithmetic
from orfit.validation import Array


class Processes(Protocol):
    """The communication between processes; all of them call the same methods in the same order."""

    rank: int

    def sum(self, numbers: Array) -> Array:
        """The sum of vectors over all processes, the same on each of them."""

    def gather(self, numbers: Array) -> Array:
        """The vectors of all processes, one row for each process."""


class ShardedArithmetic(Arithmetic):
    """Operations on the local rows of p-sized arrays, with sums over the processes."""

    def __init__(self, processes: Processes, sizes: Sequence[int]) -> None:
        """sizes: the number of rows that each process holds."""
        self._processes, self._sizes = processes, sizes

    def _sum(self, *parts: Array) -> tuple[Array, ...]:
        """The sums of small arrays over the processes, by one message."""
        total = self._processes.sum(np.concatenate([part.ravel() for part in parts]))
        ends = np.cumsum([part.size for part in parts])[:-1]
        pairs = zip(np.split(total, ends), parts, strict=True)
        return tuple(numbers.reshape(part.shape) for numbers, part in pairs)

    def products(self, G: Array, Q: Array, base: Array) -> Any:
        return self._sum(*HOST.products(G, Q, base))

    def inner(self, A: Array, B: Array) -> Array:
        return self._sum(HOST.inner(A, B))[0]

    def gram(self, A: Array) -> Array:
        return self._sum(HOST.gram(A))[0]

    def exponents(self, g: Array) -> Array:
        return self._sum(HOST.exponents(g))[0]

    def norms(self, G: Array) -> Array:
        with np.errstate(over="ignore"):  # the caller refuses an infinite length
            return np.asarray(np.hypot.reduce(self._processes.gather(HOST.norms(G))))

    def largest(self, A: Array) -> float:
        return float(self._processes.gather(np.array([HOST.largest(A)])).max())

    def _qr(self, G: Array) -> tuple[Array, Array]:
        """The QR of each part, Gᵢ = Qᵢ Rᵢ, and of the stacked triangles (TSQR).

        [R₁; R₂; ...] = [S₁; S₂; ...] R,     G = [Q₁ S₁; Q₂ S₂; ...] R
        """
        n = G.shape[1]
        Q, R = HOST._qr(G)
        message = np.zeros((n, n))
        message[: len(R)] = R  # a part with fewer than n rows has a shorter R
        triangles = self._processes.gather(message.ravel()).reshape(-1, n, n)
        parts = [part[:size] for part, size in zip(triangles, self._sizes, strict=True)]
        S, R = scipy.linalg.qr(np.vstack(parts), mode="economic", check_finite=False)
        start = sum(map(len, parts[: self._processes.rank]))
        return self.combine(Q, S[start : start + Q.shape[1]]), R
