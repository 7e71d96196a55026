"""What runs over the p dimension, block by block: a gradient stays in the cache, rows stream past.

No BLAS: the threads of OpenBLAS meet at barriers in every call, and where another process holds a
core each barrier costs milliseconds.
"""

import numpy as np
from numba import get_num_threads

from orfit.kernels.loops import accumulate, add_combination, add_products, compiled, dot, shared

BLOCK = 8192  # numbers of one vector that are worked on at a time
FOLDED = 392  # the same where many vectors are worked on at once; 512 apart, they would share lines
PARALLEL = 1 << 16  # parameters above which threads pay


def threads(size: int, rows: int) -> int:
    """How many threads share the work on so many parameters; to wake them takes a few rows."""
    return 1 if size * min(rows, 16) <= PARALLEL else int(get_num_threads())


@compiled
def length_of(x):
    """|x|, also where squares are no numbers."""
    largest = np.abs(x).max()
    if not largest > 0:
        return 0.0
    unit = x / largest
    return np.float64(largest) * np.sqrt(dot(unit, unit))


@compiled
def total(parts):
    """The sum of what each thread found."""
    for t in range(1, len(parts)):
        parts[0] += parts[t]
    return parts[0]


@shared
def read_shared(start, stop, out, rows, stored, base, x, scale, A):
    out[:] = 0.0
    number = rows.dtype.type(scale)
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        g, source = rows[stored, begin:end], x[begin:end]
        for l in range(len(g)):
            g[l] = number * source[l]
        add_combination(rows, len(A), begin, end, A, g)
        add_products(rows, stored + 1, begin, end, g, out)
        add_products(base, len(base), begin, end, g, out[stored + 1 :])


@compiled
def read(rows, stored, base, x, scale, A, threads):
    """The row behind the others ← scale x + A rows. Returns its products with all rows and base.

    One read of the rows. A may be empty: then x is stored as it came.
    """
    parts = np.empty((threads, stored + 1 + len(base)))
    read_shared(len(x), parts, (rows, stored, base, x, scale, A))
    return total(parts)


@shared
def gram_shared(start, stop, out, rows, stored):
    out[:] = 0.0
    for begin in range(start, stop, FOLDED):
        end = min(begin + FOLDED, stop)
        for i in range(stored):  # the lower triangle
            add_products(rows, i + 1, begin, end, rows[i, begin:end], out[i])


@compiled
def gram_of(rows, stored, threads):
    """rows rowsᵀ."""
    parts = np.empty((threads, stored, stored))
    gram_shared(rows.shape[1], parts, (rows, stored))
    lower = total(parts)
    return lower + np.tril(lower, -1).T


@shared
def fold_shared(start, stop, out, rows, stay, gone, Y, base, shift):
    k, s = Y.shape
    leaving = np.empty((s, FOLDED), rows.dtype)
    for begin in range(start, stop, FOLDED):
        end = min(begin + FOLDED, stop)
        for h in range(len(base)):
            add_combination(rows, shift.shape[1], begin, end, shift[h], base[h, begin:end])
        for i in range(s):
            leaving[i, : end - begin] = rows[gone[i], begin:end]
        for i in range(k):
            if stay[i] < 0:
                rows[i, begin:end] = 0
            elif stay[i] != i:
                rows[i, begin:end] = rows[stay[i], begin:end]
        accumulate(Y, k, s, leaving, 0, rows, begin, end - begin)


@compiled
def fold(rows, stay, gone, Y, base, shift, threads):
    """What `tall.fold` does: base ← base + shift Q, row i ← Q[stay[i]] + Y[i] Q[gone]."""
    fold_shared(rows.shape[1], np.empty((threads, 0)), (rows, stay, gone, Y, base, shift))
