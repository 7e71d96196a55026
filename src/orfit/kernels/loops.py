"""Products of small or long vectors as compiled loops, and the functions of `gram` made of them."""

import numpy as np
from numba.extending import overload, register_jitable

from orfit import gram, tail
from orfit.kernels.settings import INNER, START, compiled
from orfit.kernels.tile import COLUMNS, ROWS, tile


@compiled
def dot(x, y):
    total = x.dtype.type(0)
    for l in range(len(x)):
        total += x[l] * y[l]
    return np.float64(total)


@compiled
def add_products(rows, stored, begin, end, x, raw):
    """raw ← raw + rows[:, begin:end] x, four rows at a time so that x is read once for four."""
    zero = rows.dtype.type(0)
    whole = stored - stored % 4
    for j in range(0, whole, 4):
        a = b = c = d = zero
        r0, r1 = rows[j, begin:end], rows[j + 1, begin:end]
        r2, r3 = rows[j + 2, begin:end], rows[j + 3, begin:end]
        for l in range(len(x)):
            a += r0[l] * x[l]
            b += r1[l] * x[l]
            c += r2[l] * x[l]
            d += r3[l] * x[l]
        raw[j] += a
        raw[j + 1] += b
        raw[j + 2] += c
        raw[j + 3] += d
    for j in range(whole, stored):
        raw[j] += dot(rows[j, begin:end], x)


@compiled
def add_combination(rows, stored, begin, end, coefficients, g):
    """g ← g + coefficients · rows[:, begin:end], four rows at a time."""
    number = rows.dtype.type
    whole = stored - stored % 4
    for j in range(0, whole, 4):
        a, b = number(coefficients[j]), number(coefficients[j + 1])
        c, d = number(coefficients[j + 2]), number(coefficients[j + 3])
        r0, r1 = rows[j, begin:end], rows[j + 1, begin:end]
        r2, r3 = rows[j + 2, begin:end], rows[j + 3, begin:end]
        for l in range(len(g)):
            g[l] += a * r0[l] + b * r1[l] + c * r2[l] + d * r3[l]
    for j in range(whole, stored):
        a = number(coefficients[j])
        r0 = rows[j, begin:end]
        for l in range(len(g)):
            g[l] += a * r0[l]


@compiled
def accumulate(K, n, m, source, begin, out, start, width):
    """out[:n] ← out[:n] + K source, over `width` columns from `start` in out and `begin` in source.

    n×m of K, m rows of source. Four rows of each at a time, so that a number read is used four
    times. The arrays are whole, with sizes beside them: numba takes the columns of a slice for
    scattered and does not vectorise over them.
    """
    number = source.dtype.type
    end, stop = begin + width, start + width
    whole_n, whole_m = n - n % 4, m - m % 4
    for i in range(0, whole_n, 4):
        o0, o1 = out[i, start:stop], out[i + 1, start:stop]
        o2, o3 = out[i + 2, start:stop], out[i + 3, start:stop]
        for j in range(0, whole_m, 4):
            r0, r1 = source[j, begin:end], source[j + 1, begin:end]
            r2, r3 = source[j + 2, begin:end], source[j + 3, begin:end]
            a0, a1 = number(K[i, j]), number(K[i, j + 1])
            a2, a3 = number(K[i, j + 2]), number(K[i, j + 3])
            b0, b1 = number(K[i + 1, j]), number(K[i + 1, j + 1])
            b2, b3 = number(K[i + 1, j + 2]), number(K[i + 1, j + 3])
            c0, c1 = number(K[i + 2, j]), number(K[i + 2, j + 1])
            c2, c3 = number(K[i + 2, j + 2]), number(K[i + 2, j + 3])
            d0, d1 = number(K[i + 3, j]), number(K[i + 3, j + 1])
            d2, d3 = number(K[i + 3, j + 2]), number(K[i + 3, j + 3])
            for l in range(width):
                o0[l] += a0 * r0[l] + a1 * r1[l] + a2 * r2[l] + a3 * r3[l]
                o1[l] += b0 * r0[l] + b1 * r1[l] + b2 * r2[l] + b3 * r3[l]
                o2[l] += c0 * r0[l] + c1 * r1[l] + c2 * r2[l] + c3 * r3[l]
                o3[l] += d0 * r0[l] + d1 * r1[l] + d2 * r2[l] + d3 * r3[l]
        for j in range(whole_m, m):
            r0 = source[j, begin:end]
            a0, b0 = number(K[i, j]), number(K[i + 1, j])
            c0, d0 = number(K[i + 2, j]), number(K[i + 3, j])
            for l in range(width):
                o0[l] += a0 * r0[l]
                o1[l] += b0 * r0[l]
                o2[l] += c0 * r0[l]
                o3[l] += d0 * r0[l]
    for i in range(whole_n, n):
        add_combination(source, m, begin, end, K[i], out[i, start:stop])


CACHED = 1 << 12  # numbers that the first cache holds


@compiled
def multiply(V, W, width, out):
    """out ← V W, for so many columns of W. The last tiles overlap those before them."""
    n, m = V.shape
    if n < ROWS or width < COLUMNS:
        out[:] = 0
        accumulate(V, n, m, W, START, out, START, width)
        return
    lies = W.size <= CACHED  # in the first cache; of more, the rows of a panel might share lines
    panel = W if lies else np.empty((m, COLUMNS))
    for start in range(0, width, COLUMNS):
        begin = min(start, width - COLUMNS)
        if not lies:
            for l in range(m):
                for j in range(COLUMNS):
                    panel[l, j] = W[l, begin + j]
        at = begin if lies else START
        for i in range(0, n, ROWS):
            tile(V, min(i, n - ROWS), panel, at, out, begin)


@overload(gram.products, jit_options=INNER)
def _(X, A):
    def products(X, A):
        out = np.zeros((len(X), len(A)))
        if len(X) < ROWS:
            for i in range(len(X)):
                add_products(A, len(A), START, X.shape[1], X[i], out[i])
        else:
            multiply(X, A.T.copy(), len(A), out)
        return out

    return products


@overload(gram.combinations, jit_options=INNER)
def _(C, A):
    def combinations(C, A):
        out = np.empty((len(C), A.shape[1]))
        multiply(C, A, A.shape[1], out)
        return out

    return combinations


@overload(gram.times_gram, jit_options=INNER)
def _(X, M):
    def times_gram(X, M):
        s = X.shape[1]
        out = np.zeros((len(X), s))
        if len(X) < ROWS:
            for i in range(len(X)):
                add_products(M, s, START, s, X[i], out[i])
        else:
            multiply(X, M, s, out)
        return out

    return times_gram


@overload(gram.add, jit_options=INNER)
def _(A, share, B):
    def add(A, share, B):
        for i in range(A.shape[0]):
            for j in range(A.shape[1]):
                A[i, j] += share * B[i, j]

    return add


@overload(gram.put, jit_options=INNER)
def _(out, i, j, share, A):
    def put(out, i, j, share, A):
        for l in range(A.shape[0]):
            for n in range(A.shape[1]):
                out[i + l, j + n] = share * A[l, n]

    return put


@overload(gram.picked, jit_options=INNER)
def _(A, rows, columns):
    def picked(A, rows, columns):
        out = np.empty((len(rows), len(columns)))
        for i in range(len(rows)):
            for j in range(len(columns)):
                out[i, j] = A[rows[i], columns[j]]
        return out

    return picked


@overload(gram.energies, jit_options=INNER)
def _(A, M):
    def energies(A, M):
        out = np.zeros(len(A))
        for i in range(len(A)):
            for j in range(A.shape[1]):
                out[i] += A[i, j] * A[i, j] * M[j, j]
        return out

    return energies


@overload(gram.subtract_outer, jit_options=INNER)
def _(E, j):
    def subtract_outer(E, j):
        above = E[j, j + 1 :]
        for i in range(j + 1, len(E)):
            share, row = E[i, j], E[i, j + 1 :]
            for l in range(len(row)):
                row[l] -= share * above[l]

    return subtract_outer


for function in (
    gram.eliminate,
    gram.project,
    gram.trusted,
    gram.lacks,
    gram.measure_now,
    gram.extended,
    gram.cured,
    gram.written_out,
    gram.fold,
    tail.floor,
    tail.share,
    tail.drift_share,
    tail.aged,
    tail.lengthened,
):
    register_jitable(**INNER)(function)
