"""What runs over the p dimension, block by block: a gradient stays in the cache, rows stream past.

No BLAS: the threads of OpenBLAS meet at barriers in every call, and where another process holds a
core each barrier costs milliseconds.
"""

import numpy as np

from orfit.kernels.loops import accumulate, add_combination, add_products, dot
from orfit.kernels.settings import START, compiled
from orfit.kernels.sharing import shared

BLOCK = 8192  # numbers of one vector that are worked on at a time
FOLDED = 392  # the same where many vectors are worked on at once; 512 apart, they would share lines


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
        for i in range(parts.shape[1]):
            parts[0, i] += parts[t, i]
    return parts[0]


@shared
def read_shared(start, stop, thread, outs, args):
    rows, stored, base, x, scale, A = args
    out = outs[thread]
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
def gram_shared(start, stop, thread, outs, args):
    rows, stored = args
    out = outs[thread]
    out[:] = 0.0
    for begin in range(start, stop, FOLDED):
        end = min(begin + FOLDED, stop)
        for i in range(stored):  # the lower triangle
            add_products(rows, i + 1, begin, end, rows[i, begin:end], out[i * stored :])


@compiled
def gram_of(rows, stored, threads):
    """rows rowsᵀ."""
    parts = np.empty((threads, stored * stored))
    gram_shared(rows.shape[1], parts, (rows, stored))
    whole = total(parts).reshape(stored, stored)
    for i in range(stored):
        for j in range(i):
            whole[j, i] = whole[i, j]
    return whole


@shared
def fold_shared(start, stop, thread, outs, args):
    rows, stay, gone, Y, base, shift = args
    leaving = outs[thread]
    k, s = Y.shape
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
        accumulate(Y, k, s, leaving, START, rows, begin, end - begin)


@compiled
def fold(rows, stay, gone, Y, base, shift, leaving):
    """What `tall.Fold` does: base ← base + shift Q, row i ← Q[stay[i]] + Y[i] Q[gone].

    leaving (threads×gone×FOLDED): room to work in.
    """
    fold_shared(rows.shape[1], leaving, (rows, stay, gone, Y, base, shift))
