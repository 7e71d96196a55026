"""What runs over the p dimension, block by block: a gradient stays in the cache, rows stream past.

Each as `…_part` on a piece of it, `…_shared` on all pieces at once, and by its name. No BLAS: the
threads of OpenBLAS meet at barriers in every call, and where another process holds a core each
barrier costs milliseconds.
"""

import numpy as np
from numba import get_num_threads, prange

from orfit.kernels.loops import accumulate, add_combination, add_products, compiled, dot, shared

BLOCK = 8192  # numbers of one vector that are worked on at a time
FOLDED = 392  # the same where many vectors are worked on at once; 512 apart, they would share lines
PARALLEL = 1 << 16  # parameters above which threads pay


def threads(size, rows):
    """How many threads share the work on so many parameters; to wake them takes a few rows."""
    return 1 if size * min(rows, 16) <= PARALLEL else get_num_threads()


@compiled
def length_of(x):
    """|x|, also where squares are no numbers."""
    largest = np.abs(x).max()
    if not largest > 0:
        return 0.0
    unit = x / largest
    return np.float64(largest) * np.sqrt(dot(unit, unit))


@compiled
def read_part(rows, stored, base, x, scale, A, start, stop, out):
    """Over [start, stop): what `read` does."""
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


@shared
def read_shared(rows, stored, base, x, scale, A, out, threads):
    parts = np.empty((threads, len(out)))
    size = len(x)
    for t in prange(threads):
        start, stop = size * t // threads, size * (t + 1) // threads
        read_part(rows, stored, base, x, scale, A, start, stop, parts[t])
    out[:] = parts.sum(axis=0)


@compiled
def read(rows, stored, base, x, scale, A, out, threads):
    """The row behind the others ← scale x + A rows; out ← its products with all rows and base.

    One read of the rows. A may be empty: then x is stored as it came.
    """
    if threads > 1:
        read_shared(rows, stored, base, x, scale, A, out, threads)
    else:
        read_part(rows, stored, base, x, scale, A, 0, len(x), out)


@compiled
def gram_part(rows, stored, start, stop, out):
    """Over [start, stop): the lower triangle of rows rowsᵀ."""
    out[:] = 0.0
    for begin in range(start, stop, FOLDED):
        end = min(begin + FOLDED, stop)
        for i in range(stored):
            add_products(rows, i + 1, begin, end, rows[i, begin:end], out[i])


@shared
def gram_shared(rows, stored, threads):
    parts = np.empty((threads, stored, stored))
    size = rows.shape[1]
    for t in prange(threads):
        gram_part(rows, stored, size * t // threads, size * (t + 1) // threads, parts[t])
    return parts.sum(axis=0)


@compiled
def gram_of(rows, stored, threads):
    """rows rowsᵀ."""
    if threads > 1:
        out = gram_shared(rows, stored, threads)
    else:
        out = np.empty((stored, stored))
        gram_part(rows, stored, 0, rows.shape[1], out)
    for i in range(stored):
        for j in range(i):
            out[j, i] = out[i, j]
    return out


@compiled
def fold_part(rows, stay, gone, Y, base, shift, start, stop):
    """Over [start, stop): what `fold` does."""
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


@shared
def fold_shared(rows, stay, gone, Y, base, shift, threads):
    size = rows.shape[1]
    for t in prange(threads):
        fold_part(rows, stay, gone, Y, base, shift, size * t // threads, size * (t + 1) // threads)


@compiled
def fold(rows, stay, gone, Y, base, shift, threads):
    """What `tall.fold` does: base ← base + shift Q, row i ← Q[stay[i]] + Y[i] Q[gone]."""
    if threads > 1:
        fold_shared(rows, stay, gone, Y, base, shift, threads)
    else:
        fold_part(rows, stay, gone, Y, base, shift, 0, rows.shape[1])
