"""What runs over the p dimension, block by block: a gradient stays in the cache, rows stream past.

No BLAS: the threads of OpenBLAS meet at barriers in every call, and where another process holds a
core each barrier costs milliseconds.
"""

import numpy as np

from orfit.kernels.loops import accumulate, add_combination, dot
from orfit.kernels.settings import START, compiled
from orfit.kernels.sharing import shared
from orfit.kernels.tile import COLUMNS, ROWS, add_four, add_one, add_two, with_one, with_two

BLOCK = 512  # numbers of one vector that are added up: of a tile and two others, in the first cache
SPAN = 16  # blocks of all vectors that come, before the next: the second cache holds them
FOLDED = 408  # numbers that are folded at a time, in whole tiles; 512 apart, they would share lines

# Sums over p are made of so many at most, one after another: the same on however many threads.
SLICES = 16


@compiled
def length_of(x):
    """|x|, also where squares are no numbers; NaN where x has one, or an infinity."""
    largest = np.abs(x).max()
    if largest == 0:
        return 0.0
    unit = x / largest
    return np.float64(largest) * np.sqrt(dot(unit, unit))


@compiled
def slices(p, block):
    """How many parts of p numbers are added up by themselves."""
    return min(SLICES, (p + block - 1) // block)


@compiled
def columns_of(part, parts, p, block):
    """Where a slice begins and ends: at whole blocks."""
    blocks = (p + block - 1) // block
    return blocks * part // parts * block, min(p, blocks * (part + 1) // parts * block)


@compiled
def total(parts):
    """The sum of all slices."""
    for part in range(1, len(parts)):
        for i in range(parts.shape[1]):
            for j in range(parts.shape[2]):
                parts[0, i, j] += parts[part, i, j]
    return parts[0]


@compiled
def add_products_of(A, count, rows, first, n, begin, end, out, column, all_of_them):
    """out[i, column + j] += A[j] · rows[first + i], for j < count and i < n, over some columns.

    Or, of all of them, at least those with j ≤ first + i. Tiles end with the last row of A: one
    may be in two of them, and counts in the first; where fewer than a tile's are in use, the tile
    has others, which do not count. Block by block a tile stays in the first cache while all rows go
    past it, and its next block is what memory is read for.
    """
    for j in range(0, count, ROWS):
        start = max(0, min(j, count - ROWS))
        new = range(j - start, min(ROWS, count - start))
        for left in range(begin, end, BLOCK):
            right = min(left + BLOCK, end)
            if len(A) < ROWS:
                for i in range(n):
                    for r in new:
                        product = dot(A[start + r, left:right], rows[first + i, left:right])
                        out[i, column + start + r] += product
                continue
            i = 0 if all_of_them else max(0, j - first)
            while i + 1 < n:
                both = with_two(A, start, rows, first + i, left, right)
                for r in new:
                    out[i, column + start + r] += both[2 * r]
                    out[i + 1, column + start + r] += both[2 * r + 1]
                i += 2
            if i < n:
                one = with_one(A, start, rows, first + i, left, right)
                for r in new:
                    out[i, column + start + r] += one[r]


@shared
def read_shared(start, stop, thread, outs, args):
    rows, stored, base, X, scale, A, parts = args
    p, n = X.shape[1], len(X)
    behind, span = stored + n, max(1, SPAN // n) * BLOCK
    number = rows.dtype.type(scale)
    for part in range(start, stop):
        out = parts[part]
        out[:] = 0.0
        first, last = columns_of(part, len(parts), p, BLOCK)
        for begin in range(first, last, span):
            end = min(begin + span, last)
            for i in range(n):
                g, source = rows[stored + i, begin:end], X[i, begin:end]
                for l in range(len(g)):
                    g[l] = number * source[l]
                add_combination(rows, len(A), begin, end, A, g)
            add_products_of(rows, behind, rows, stored, n, begin, end, out, START, False)
            add_products_of(base, len(base), rows, stored, n, begin, end, out, behind, True)


@compiled
def read(rows, stored, base, X, scale, A, threads):
    """The rows behind the others ← scale X + A rows. Their products with all rows and base.

    One read of the rows, for all of X; A may be empty: then X is stored as it came. Of the products
    with each other those with rows further behind are not all there.
    """
    n, width = len(X), stored + len(X) + len(base)
    parts = np.empty((slices(X.shape[1], BLOCK), n, width))
    read_shared(len(parts), np.empty((threads, 0)), (rows, stored, base, X, scale, A, parts))
    return total(parts)


@compiled
def add_tiles(Y, source, rows, begin, width):
    """rows ← rows + Y source, for as many of them as Y has and so many columns, from `begin` on."""
    k, wide = len(Y), COLUMNS * 8 // rows.itemsize
    whole = width - width % wide
    for at in range(0, whole, wide):
        i = START
        while i + ROWS <= k:
            add_four(Y, i, source, at, rows, begin + at)
            i += ROWS
        if i + 2 <= k:
            add_two(Y, i, source, at, rows, begin + at)
            i += 2
        if i < k:
            add_one(Y, i, source, at, rows, begin + at)
    if whole < width:
        accumulate(Y, k, Y.shape[1], source, whole, rows, begin + whole, width - whole)


@shared
def fold_shared(start, stop, thread, outs, args):
    rows, stay, gone, Y, base, shift, grams = args
    leaving = outs[thread]
    k, s = Y.shape
    for part in range(start, stop):
        grams[part] = 0.0
        first, last = columns_of(part, len(grams), rows.shape[1], FOLDED)
        for begin in range(first, last, FOLDED):
            end = min(begin + FOLDED, last)
            for h in range(len(base)):
                add_combination(rows, shift.shape[1], begin, end, shift[h], base[h, begin:end])
            for i in range(s):
                leaving[i, : end - begin] = rows[gone[i], begin:end]
            for i in range(k):
                if stay[i] < 0:
                    rows[i, begin:end] = 0
                elif stay[i] != i:
                    rows[i, begin:end] = rows[stay[i], begin:end]
            add_tiles(Y, leaving, rows, begin, end - begin)
            measured = grams.shape[1]
            add_products_of(
                rows, measured, rows, START, measured, begin, end, grams[part], START, False
            )


@compiled
def fold(rows, stay, gone, Y, base, shift, leaving, grams):
    """What `tall.Fold` does: base ← base + shift Q, row i ← Q[stay[i]] + Y[i] Q[gone].

    leaving (threads×gone×FOLDED): room to work in. grams: `room_for_gram`. What is added up is
    the same on however many threads.
    """
    parts = rows, stay, gone, Y.astype(rows.dtype), base, shift, grams
    fold_shared(len(grams), leaving, parts)


@compiled
def room_for_gram(p, k):
    """Where `fold` is to measure the products of the first k rows, once folded, with each other.

    In parts: `whole_gram` adds them up.
    """
    return np.empty((slices(p, FOLDED), k, k))


@compiled
def whole_gram(parts):
    """The Gram matrix of which these are parts, each below its diagonal."""
    whole = total(parts)
    for i in range(len(whole)):
        for j in range(i):
            whole[j, i] = whole[i, j]
    return whole


@compiled
def gram_of(rows, k):
    """rows rowsᵀ, of the first k."""
    parts = np.zeros((1, k, k))
    add_products_of(rows, k, rows, START, k, START, rows.shape[1], parts[0], START, False)
    return whole_gram(parts)
