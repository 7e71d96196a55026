"""Products of small or long vectors as compiled loops, and the functions of `gram` made of them."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable

from orfit import gram, tail

# Sums may be reordered (that is what vectorising them means); NaN and infinity are respected.
SETTINGS: Any = {"fastmath": {"reassoc", "contract"}, "error_model": "numpy"}
compiled = njit(**SETTINGS)


def shared(part):
    """Share part(start, stop, out, *args) among threads: as many as `outs` has, one out for each.

    One thread alone is called as it is: to start a parallel region costs more than a short row.
    """
    part = compiled(part)

    @njit(parallel=True, **SETTINGS)
    def on_threads(size, outs, args):
        threads = len(outs)
        for t in prange(threads):
            part(size * t // threads, size * (t + 1) // threads, outs[t], *args)

    @compiled
    def whole(size, outs, args):
        if len(outs) > 1:
            on_threads(size, outs, args)
        else:
            part(0, size, outs[0], *args)

    return whole


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


# Of a tile, whose sums stay in registers: 12 vectors, and 4 more for what is added to them.
ROWS, COLUMNS, LANES = 4, 12, 4


@intrinsic
def tile(typing, left, first, panel, out, column):
    """out[first : first + ROWS, column : column + COLUMNS] ← left[first : first + ROWS] panel.

    Written in vectors: from loops over numbers the sums go to memory and back, at half the speed.
    """
    arrays = (left, panel, out)
    if not all(array.layout == "C" and array.dtype == types.float64 for array in arrays):
        return None

    def generate(context, builder, signature, values):
        at, across = values[1], values[4]
        L, P, O = (
            context.make_array(signature.args[i])(context, builder, values[i]) for i in (0, 2, 3)
        )
        vector, index, lane = ir.VectorType(ir.DoubleType(), LANES), at.type, ir.IntType(32)
        undefined = ir.Constant(vector, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(lane, LANES), [0] * LANES)
        rows, parts = range(ROWS), range(COLUMNS // LANES)

        def row(array, i):
            width = builder.extract_value(array.shape, 1)
            return builder.gep(array.data, [builder.mul(i, width)])

        def vectors(start):
            start = builder.bitcast(start, vector.as_pointer())
            return [builder.gep(start, [index(part)]) for part in parts]

        zero = ir.Constant(vector, [0.0] * LANES)
        sums = [[cgutils.alloca_once_value(builder, zero) for _ in parts] for _ in rows]
        lefts = [row(L, builder.add(at, index(r))) for r in rows]
        with cgutils.for_range(builder, builder.extract_value(L.shape, 1)) as loop:
            rights = [builder.load(source, align=8) for source in vectors(row(P, loop.index))]
            for r in rows:
                number = builder.load(builder.gep(lefts[r], [loop.index]))
                number = builder.insert_element(undefined, number, lane(0))
                number = builder.shuffle_vector(number, undefined, everywhere)
                for part in parts:
                    term = builder.fmul(number, rights[part], flags=["contract"])
                    total = builder.fadd(builder.load(sums[r][part]), term, flags=["contract"])
                    builder.store(total, sums[r][part])
        for r in rows:
            start = builder.gep(row(O, builder.add(at, index(r))), [across])
            for part, target in zip(parts, vectors(start), strict=True):
                builder.store(builder.load(sums[r][part]), target, align=8)
        return context.get_dummy_value()

    return types.void(left, types.intp, panel, out, types.intp), generate


@compiled
def multiply(V, W, width, out):
    """out ← V W, for so many columns of W. The last tiles overlap those before them."""
    n, m = V.shape
    if n < ROWS or width < COLUMNS:
        out[:] = 0
        accumulate(V, n, m, W, 0, out, 0, width)
        return
    panel = np.empty((m, COLUMNS))  # lies in the first cache
    for start in range(0, width, COLUMNS):
        begin = min(start, width - COLUMNS)
        for l in range(m):
            panel[l] = W[l, begin : begin + COLUMNS]
        for i in range(0, n, ROWS):
            tile(V, min(i, n - ROWS), panel, out, begin)  # type: ignore[call-arg]


@overload(gram.products)
def _(X, A):
    def products(X, A):
        out = np.zeros((len(X), len(A)))
        if len(X) < ROWS:
            for i in range(len(X)):
                add_products(A, len(A), 0, X.shape[1], X[i], out[i])
        else:
            multiply(X, A.T.copy(), len(A), out)
        return out

    return products


@overload(gram.combinations)
def _(C, A):
    def combinations(C, A):
        out = np.empty((len(C), A.shape[1]))
        multiply(C, A, A.shape[1], out)
        return out

    return combinations


@overload(gram.times_gram)
def _(X, M):
    def times_gram(X, M):
        s = X.shape[1]
        out = np.zeros((len(X), s))
        if len(X) < ROWS:
            for i in range(len(X)):
                add_products(M, s, 0, s, X[i], out[i])
        else:
            multiply(X, M, s, out)
        return out

    return times_gram


@overload(gram.subtract_outer)
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
    register_jitable(function)
