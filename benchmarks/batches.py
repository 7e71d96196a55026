"""Blocks of rows: the time of `learn_batch`, divided by that of the BLAS and LAPACK calls that it
cannot avoid, and by that of `learn_each` for the same rows.

All are timed in turns in one process, with one thread; the figures are medians.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from time import perf_counter

import numpy as np
from scipy.linalg import blas, lapack

import orfit

R, ROWS, SECONDS = 0.1, 100, 1.5
SIZES = ((784, 10), (20_000, 10), (784, 100), (784, 300), (20_000, 100))


class LeastWork:
    """The products and the small decompositions of a block."""

    def __init__(self, p, m, rows):
        rng = np.random.default_rng(1)
        self.Q = np.asfortranarray(rng.standard_normal((p, m)))
        self.m, self.sigma = m, np.full(m, p**0.5)

    def learn_batch(self, X, y):
        G, m, n = X.T, self.m, len(y)
        C = blas.dgemm(1.0, self.Q, G, trans_a=True)  # QᵀG
        square = blas.dsyrk(1.0, G, trans=1)  # GᵀG
        lapack.dpotrf(square + np.eye(n))
        both = np.zeros((m + n, m + n))
        both[range(m), range(m)] = self.sigma**2
        both[:m, m:], both[m:, m:] = self.sigma[:, None] * C, square
        # The top m of m + n.
        V = lapack.dsyevr(both, range="I", il=n + 1, iu=m + n, lower=0)[1]
        new = blas.dgemm(1.0, self.Q, V[:m])
        blas.dgemm(1.0, G, V[m:], beta=1.0, c=new, overwrite_c=True)


def blocks(p, count):
    """Rows with a few directions along which more is seen, and noisy labels."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal(p) / p**0.5
    for _ in range(count):
        X = rng.standard_normal((ROWS, p)) / np.arange(1, p + 1) ** 0.25
        yield X, X @ w + R**0.5 * rng.standard_normal(ROWS)


def measure(p, m):
    """Return the median times of a block: `learn_batch`, the least work, `learn_each`."""
    learners = [orfit.ORFit(orfit.Linear(p), m, noise=R) for _ in range(2)]
    ways = [learners[0].learn_batch, LeastWork(p, m, ROWS).learn_batch, learners[1].learn_each]
    data, times, end = list(blocks(p, 8)), [], 0.0
    while len(times) < 12 or perf_counter() < end:
        X, y = data[len(times) % len(data)]
        times.append([])
        for way in ways:
            start = perf_counter()
            way(X, y)
            times[-1].append(perf_counter() - start)
        end = end or perf_counter() + SECONDS
    return np.median(times[4:], axis=0)


def main():
    print(f"Blocks of {ROWS} rows, noise={R}")
    print("     p    m   learn_batch    / least work   / learn_each")
    for p, m in SIZES:
        batch, least, each = measure(p, m)
        print(f"{p:6}{m:5}{1e3 * batch:11.2f} ms{batch / least:13.2f}{batch / each:15.2f}")


if __name__ == "__main__":
    main()
