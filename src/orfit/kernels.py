"""The row loop of a limited memory, compiled: for small p, where Python costs the most.

Needs numba (the extra `fast`); without it the plain path does the same. `walk` is
`OneStep._learn` on `Principal`, row after row, for a linear model with one output or heads, with
the remembered directions in principal axes: then taking a gradient in is an eigenproblem of a
diagonal plus a rank-one matrix, solved root by root in O(k²) with nothing but arithmetic.

A gradient meets the basis once and is stored as it came; what it brings, and where it moves w, is
kept in coefficients until rows are folded into others. Whatever runs over the p dimension does so
block by block, so that a gradient stays in the cache while the basis streams past; above `PARALLEL`
parameters the blocks are shared among numba's threads. No BLAS: the threads of OpenBLAS meet at
barriers in every call, and where another process holds a core each barrier costs milliseconds.

In order: the eigenproblem; products; what runs over the p dimension, each as `…_part` on a piece of
it, `…_shared` on all pieces at once, and by its name; making room; the loop. It is one file because
numba compiles anew when the file of a function has changed, and does not look at what it calls.
"""

import numpy as np
from numba import get_num_threads, njit, prange

from orfit.small import CROOKED, MUCH  # whoever changes these touches this file

EPS = np.finfo(np.float64).eps

BLOCK = 8192  # numbers of one vector that are worked on at a time
TURNED = 392  # the same where many vectors are worked on at once; 512 apart, they would share lines
PARALLEL = 1 << 16  # parameters above which threads pay
MANY = 64  # directions above which they share small matrices, too
LONG = 2.0  # combinations of rows, beside their lengths, that still count as short

# Sums may be reordered (that is what vectorising them means); NaN and infinity are respected.
compiled = njit(cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
shared = njit(cache=True, fastmath={"reassoc", "contract"}, error_model="numpy", parallel=True)


def threads(size, rows):
    """How many threads share the work on so many parameters; to wake them takes a few rows."""
    return 1 if size * min(rows, 16) <= PARALLEL else get_num_threads()


@compiled
def secular_root(s, z2, i, delta):
    """The i-th root λ of 1 + Σ z_j² / (s_j² − λ) = 0, s rising, as delta_j = s_j² − λ.

    It lies between s_i² and s_(i+1)² (the last one below s_i² + Σ z²). Distances are measured from
    the nearer pole, so that each delta has full relative accuracy; the iteration fits a rational
    function with the poles at both ends, the nearer one with its own weight (the fixed weight
    method; Li 1993), inside a shrinking bracket.
    """
    n = len(s)
    last = i == n - 1
    if last:
        gap = 0.0
        for j in range(n):
            gap += z2[j]
    else:
        gap = (s[i + 1] - s[i]) * (s[i + 1] + s[i])
    # Which end is nearer? f rises, so its sign in the middle tells; the rest of the sum there,
    # beside the two poles, gives the first guess.
    middle, f = 0.5 * gap, 1.0
    pole = s[i]
    for j in range(n):
        f += z2[j] / ((s[j] - pole) * (s[j] + pole) - middle)
    below = z2[i]
    above = 0.0 if last else z2[i + 1]
    rest = f + (below - above) / middle
    origin = i
    if last:
        low, high = (middle, gap) if f < 0 else (0.0, middle)
        tau = below / rest if rest > 0 else gap
    elif f >= 0:
        low, high = 0.0, middle
        a, b = rest * gap + below + above, below * gap
        root = np.sqrt(max(a * a - 4 * b * rest, 0.0))
        tau = 2 * b / (a + root) if a > 0 else (a - root) / (2 * rest)
    else:
        origin = i + 1
        low, high = -middle, 0.0
        a, b = rest * gap - below - above, above * gap
        root = np.sqrt(max(a * a + 4 * b * rest, 0.0))
        tau = 2 * b / (a - root) if a < 0 else -(a + root) / (2 * rest)
    if not low < tau < high:
        tau = 0.5 * (low + high)
    pole = s[origin]
    for _ in range(100):
        f = size = 1.0
        slope = 0.0
        for j in range(n):
            delta[j] = (s[j] - pole) * (s[j] + pole) - tau
            inverse = 1 / delta[j]
            term = z2[j] * inverse
            f += term
            size += abs(term)
            slope += term * inverse
        if abs(f) <= 4 * EPS * n * size:
            break
        if f < 0:
            low = tau
        else:
            high = tau
        near = delta[i]
        if last:
            c = f - slope * near
            step = near + slope * near * near / c if c > 0 else np.inf
        else:
            far = delta[i + 1]
            if origin == i:
                c = f - far * slope - z2[i] / near * ((near - far) / near)
            else:
                c = f - near * slope - z2[i + 1] / far * ((far - near) / far)
            a = (near + far) * f - near * far * slope
            b = near * far * f
            root = np.sqrt(max(a * a - 4 * b * c, 0.0))
            step = (a - root) / (2 * c) if a <= 0 else 2 * b / (a + root)
        proposal = tau + step
        if not low < proposal < high:
            proposal = 0.5 * (low + high)
        if proposal in (tau, low, high):
            break
        tau = proposal


@compiled
def secular_roots_part(s, z2, delta, start, stop):
    for i in range(start, stop):
        secular_root(s, z2, i, delta[i])


@shared
def secular_roots_shared(s, z2, delta, threads):
    n = len(s)
    for t in prange(threads):
        secular_roots_part(s, z2, delta, n * t // threads, n * (t + 1) // threads)


@compiled
def rank_one(s, z, values, vectors, work, threads):
    """Eigenvectors, and roots of the eigenvalues, of diag(s²) + z zᵀ, both falling, as s must.

    vectors: one eigenvector a row. work ((6 + n)×n): anything. Deflation and the recomputed z (Gu,
    Eisenstat 1994), which makes the vectors orthogonal to rounding however close the roots are, are
    those of LAPACK's dlasd2 and dlasd3.
    """
    n = len(s)
    largest = s[0]
    for j in range(n):
        largest = max(largest, abs(z[j]))
    tolerance = 8 * EPS * largest
    order = np.empty((4, n), np.int64)
    poles, fixed = order[0], order[1]  # what is left after deflation, rising; what is done already
    z1, t, z2, again, found, angle = work[0], work[1], work[2], work[3], work[4], work[5]
    r = d = turns = 0
    for j in range(n - 1, -1, -1):
        z1[j] = z[j]
        if abs(z[j]) <= tolerance:
            fixed[d] = j
            d += 1
        elif r > 0 and s[j] - s[poles[r - 1]] <= tolerance:
            before = poles[r - 1]  # two poles in one place: turn them so that one is not moved
            angle[turns] = np.arctan2(z1[before], z1[j])
            order[2, turns], order[3, turns] = before, j
            turns += 1
            z1[j] = np.hypot(z1[before], z1[j])
            fixed[d] = before
            d += 1
            poles[r - 1] = j
        else:
            poles[r] = j
            r += 1
    for j in range(r):
        t[j] = s[poles[j]]
        z2[j] = z1[poles[j]] ** 2
    delta = work[6:]  # delta[i, j] = t_j² − λ_i
    if r >= MANY and threads > 1:
        secular_roots_shared(t[:r], z2[:r], delta, threads)
    else:
        secular_roots_part(t[:r], z2[:r], delta, 0, r)
    for i in range(r):
        found[i] = np.sqrt(max(t[i] * t[i] - delta[i, i], 0.0))
    for i in range(d):
        found[r + i] = s[fixed[i]]
    for j in range(r):
        again[j] = -delta[r - 1, j]
    for i in range(r - 1):
        row, lower, upper = delta[i], t[i], t[i + 1]
        for j in range(i + 1):
            again[j] *= -row[j] / ((upper - t[j]) * (upper + t[j]))
        for j in range(i + 1, r):
            again[j] *= row[j] / ((t[j] - lower) * (t[j] + lower))
    for j in range(r):
        again[j] = np.copysign(np.sqrt(max(again[j], 0.0)), z1[poles[j]])
    # Roots rise with their poles; what was deflated is merged in. Where nothing was, i is the rank.
    for i in range(n):
        rank = n - 1 - i
        if d > 0:
            rank = 0
            for other in range(n):
                if found[other] > found[i] or (found[other] == found[i] and other > i):
                    rank += 1
        values[rank] = found[i]
        vector = vectors[rank]
        if d > 0:
            vector[:] = 0.0
        if i < r:
            row = delta[i]
            length = 0.0
            for j in range(r):
                row[j] = again[j] / row[j]
                length += row[j] * row[j]
            length = 1 / np.sqrt(length)
            for j in range(r):
                vector[poles[j]] = row[j] * length
        else:
            vector[fixed[i - r]] = 1.0
    for step in range(turns - 1, -1, -1):
        before, j = order[2, step], order[3, step]
        cosine, sine = np.cos(angle[step]), np.sin(angle[step])
        for i in range(n):
            one, other_one = vectors[i, before], vectors[i, j]
            vectors[i, before] = cosine * one + sine * other_one
            vectors[i, j] = cosine * other_one - sine * one


@compiled
def dot(x, y):
    total = x.dtype.type(0)
    for l in range(len(x)):
        total += x[l] * y[l]
    return np.float64(total)


@compiled
def norms(X):
    """The lengths of the rows of X, by plain squares."""
    lengths = np.empty(len(X))
    for row in range(len(X)):
        square = 0.0
        for begin in range(0, X.shape[1], BLOCK):  # a sum of float32 is not to grow too long
            part = X[row, begin : begin + BLOCK]
            square += dot(part, part)
        lengths[row] = np.sqrt(square)
    return lengths


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


@compiled
def mirror(A):
    """Make the upper triangle that of the lower."""
    for i in range(len(A)):
        for j in range(i):
            A[j, i] = A[i, j]


@compiled
def put(source, out):
    for l in range(len(source)):
        out[l] = source[l]


@compiled
def product(K, n, m, source, width, out):
    """out ← K source, n×m and m×width of them."""
    for i in range(n):
        out[i, :width] = 0.0
    accumulate(K, n, m, source, 0, out, 0, width)


@shared
def product_shared(K, n, m, source, width, out, threads):
    for t in prange(threads):
        start, stop = n * t // threads, n * (t + 1) // threads
        product(K[start:stop], stop - start, m, source, width, out[start:stop])


@compiled
def add_meeting(rows, stored, w, x, begin, end, out):
    """Over [begin, end): out ← out + (rows x, w x), one after the other."""
    add_products(rows, stored, begin, end, x[begin:end], out)
    add_products(w, len(w), begin, end, x[begin:end], out[stored:])


@compiled
def meet_part(rows, stored, w, x, start, stop, out):
    """Over [start, stop): out ← rows x, w x; one read of the basis."""
    out[:] = 0.0
    for begin in range(start, stop, BLOCK):
        add_meeting(rows, stored, w, x, begin, min(begin + BLOCK, stop), out)


@shared
def meet_shared(rows, stored, w, x, out, threads):
    parts = np.empty((threads, len(out)))
    size = len(x)
    for t in prange(threads):
        meet_part(rows, stored, w, x, size * t // threads, size * (t + 1) // threads, parts[t])
    out[:] = parts.sum(axis=0)


@compiled
def meet(rows, stored, w, x, out, threads):
    """out ← rows x, w x."""
    if threads > 1:
        meet_shared(rows, stored, w, x, out, threads)
    else:
        meet_part(rows, stored, w, x, 0, len(x), out)


@compiled
def remove_part(rows, stored, coefficients, x, g, start, stop):
    """Over [start, stop): g ← x + coefficients · rows, and |g|²; x may be g."""
    square = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        part, source = g[begin:end], x[begin:end]
        for l in range(len(part)):
            part[l] = source[l]
        add_combination(rows, stored, begin, end, coefficients, part)
        square += dot(part, part)
    return square


@shared
def remove_shared(rows, stored, coefficients, x, g, threads):
    squares = np.empty(threads)
    size = len(x)
    for t in prange(threads):
        start, stop = size * t // threads, size * (t + 1) // threads
        squares[t] = remove_part(rows, stored, coefficients, x, g, start, stop)
    return squares.sum()


@compiled
def remove(rows, stored, coefficients, x, g, threads):
    """g ← x + coefficients · rows, and |g|²."""
    if threads > 1:
        return remove_shared(rows, stored, coefficients, x, g, threads)
    return remove_part(rows, stored, coefficients, x, g, 0, len(x))


@compiled
def scale_part(x, factor, out, start, stop):
    """Over [start, stop): out ← factor x."""
    number = out.dtype.type(factor)
    part, source = out[start:stop], x[start:stop]
    for l in range(len(part)):
        part[l] = source[l] * number


@shared
def scale_shared(x, factor, out, threads):
    size = len(x)
    for t in prange(threads):
        scale_part(x, factor, out, size * t // threads, size * (t + 1) // threads)


@compiled
def scale(x, factor, out, threads):
    """out ← factor x."""
    if threads > 1:
        scale_shared(x, factor, out, threads)
    else:
        scale_part(x, factor, out, 0, len(x))


@compiled
def gram_part(rows, stored, start, stop, out):
    """Over [start, stop): the lower triangle of rows rowsᵀ."""
    out[:] = 0.0
    for begin in range(start, stop, TURNED):
        end = min(begin + TURNED, stop)
        for i in range(stored):
            add_products(rows, i + 1, begin, end, rows[i, begin:end], out[i])


@shared
def gram_shared(rows, stored, out, threads):
    parts = np.empty((threads, stored, stored))
    size = rows.shape[1]
    for t in prange(threads):
        gram_part(rows, stored, size * t // threads, size * (t + 1) // threads, parts[t])
    out[:] = parts.sum(axis=0)


@compiled
def gram(rows, stored, out, threads):
    """out ← rows rowsᵀ."""
    if threads > 1:
        gram_shared(rows, stored, out, threads)
    else:
        gram_part(rows, stored, 0, rows.shape[1], out)
    mirror(out)


@compiled
def pay(rows, stored, owed, w, begin, end):
    """Over [begin, end): w ← w + owed · rows, for each head."""
    for h in range(len(w)):
        add_combination(rows, stored, begin, end, owed[h], w[h, begin:end])


@compiled
def settle_part(rows, stored, owed, w, start, stop):
    """The same, block by block."""
    for begin in range(start, stop, BLOCK):
        pay(rows, stored, owed, w, begin, min(begin + BLOCK, stop))


@shared
def settle_shared(rows, stored, owed, w, threads):
    size = rows.shape[1]
    for t in prange(threads):
        settle_part(rows, stored, owed, w, size * t // threads, size * (t + 1) // threads)


@compiled
def settle(rows, stored, owed, w, threads):
    """w ← w + owed · rows."""
    if threads > 1:
        settle_shared(rows, stored, owed, w, threads)
    else:
        settle_part(rows, stored, owed, w, 0, rows.shape[1])


@compiled
def turn_part(rows, W, owed, w, x, start, stop, out):
    """Over [start, stop): w ← w + owed · rows; rows[:k] ← W rows, W (k×stored); `meet`."""
    k = len(W)
    out[:] = 0.0
    block = np.empty((k, TURNED), rows.dtype)
    for begin in range(start, stop, TURNED):
        width = min(TURNED, stop - begin)
        pay(rows, W.shape[1], owed, w, begin, begin + width)
        block[:] = 0
        accumulate(W, k, W.shape[1], rows, begin, block, 0, width)
        for i in range(k):
            for l in range(width):
                rows[i, begin + l] = block[i, l]
        add_meeting(rows, k, w, x, begin, begin + width, out)


@shared
def turn_shared(rows, W, owed, w, x, out, threads):
    parts = np.empty((threads, len(out)))
    size = rows.shape[1]
    for t in prange(threads):
        start, stop = size * t // threads, size * (t + 1) // threads
        turn_part(rows, W, owed, w, x, start, stop, parts[t])
    out[:] = parts.sum(axis=0)


@compiled
def turn(rows, W, owed, w, x, out, threads):
    """w ← w + owed · rows; rows[:k] ← W rows; then `meet`."""
    if threads > 1:
        turn_shared(rows, W, owed, w, x, out, threads)
    else:
        turn_part(rows, W, owed, w, x, 0, len(x), out)


@compiled
def exchange_part(rows, stay, gone, Y, owed, w, x, start, stop, out):
    """Over [start, stop): w ← w + owed · rows; rows[:k] ← rows[stay] + Y rows[gone]; `meet`."""
    k, s = Y.shape
    out[:] = 0.0
    block = np.empty((s, TURNED), rows.dtype)
    for begin in range(start, stop, TURNED):
        width = min(TURNED, stop - begin)
        pay(rows, k + s, owed, w, begin, begin + width)
        for i in range(s):
            put(rows[gone[i], begin : begin + width], block[i])
        for i in range(k):
            if stay[i] != i:
                put(rows[stay[i], begin : begin + width], rows[i, begin : begin + width])
        accumulate(Y, k, s, block, 0, rows, begin, width)
        add_meeting(rows, k, w, x, begin, begin + width, out)


@shared
def exchange_shared(rows, stay, gone, Y, owed, w, x, out, threads):
    parts = np.empty((threads, len(out)))
    size = rows.shape[1]
    for t in prange(threads):
        start, stop = size * t // threads, size * (t + 1) // threads
        exchange_part(rows, stay, gone, Y, owed, w, x, start, stop, parts[t])
    out[:] = parts.sum(axis=0)


@compiled
def exchange(rows, stay, gone, Y, owed, w, x, out, threads):
    """w ← w + owed · rows; rows[:k] ← rows[stay] + Y rows[gone]; then `meet`."""
    if threads > 1:
        exchange_shared(rows, stay, gone, Y, owed, w, x, out, threads)
    else:
        exchange_part(rows, stay, gone, Y, owed, w, x, 0, len(x), out)


@compiled
def eliminate(E, order):
    """L and U of E (k×s, in its place) with the columns in an order that keeps U's rows falling."""
    k, s = E.shape
    for j in range(k):
        pivot = j
        for l in range(j + 1, s):
            if abs(E[j, l]) > abs(E[j, pivot]):
                pivot = l
        order[j], order[pivot] = order[pivot], order[j]
        for i in range(k):
            E[i, j], E[i, pivot] = E[i, pivot], E[i, j]
        if E[j, j] == 0:
            return False
        above = E[j, j + 1 :]
        for i in range(j + 1, k):
            share = E[i, j] / E[j, j]
            E[i, j] = share
            row = E[i, j + 1 :]
            for l in range(len(row)):
                row[l] -= share * above[l]
    return True


@compiled
def magnified(E):
    """About how much longer (L U)⁻¹ makes a vector: a few turns of the power method."""
    k = len(E)
    # From a vector without pattern, which no direction that matters is orthogonal to by design.
    v, factor = 0.5 + (0.6180339887498949 * np.arange(k)) % 1, 0.0
    for _ in range(3):
        length = np.sqrt(dot(v, v))
        for i in range(k):
            v[i] /= length
        for i in range(k):  # Uᵀ, then Lᵀ, L and U
            v[i] /= E[i, i]
            for l in range(i + 1, k):
                v[l] -= v[i] * E[i, l]
        for i in range(k - 1, 0, -1):
            for l in range(i):
                v[l] -= v[i] * E[i, l]
        for i in range(1, k):
            v[i] -= dot(E[i, :i], v[:i])
        for i in range(k - 1, -1, -1):
            v[i] = (v[i] - dot(E[i, i + 1 : k], v[i + 1 :])) / E[i, i]
        factor = np.sqrt(np.sqrt(dot(v, v)))
    return factor


@compiled
def cure(rows, W, threads):
    """Change W so that U = (W rows)ᵀ is orthonormal again: U ← U (3 I − UᵀU) / 2."""
    k, stored = W.shape
    square = np.empty((stored, stored))
    gram(rows, stored, square, threads)
    half, turned = np.empty((k, stored)), np.empty((k, stored))
    product(W, k, stored, square, stored, half)
    correction = np.empty((k, k))
    for i in range(k):
        for j in range(k):
            correction[i, j] = -0.5 * dot(half[i], W[j])
        correction[i, i] += 1.5
    product(correction, k, k, W, stored, turned)
    W[:] = turned


@compiled
def make_room(rows, stored, W, k, owed, w, cured, x, out, threads):
    """w ← w + owed · rows, fold all but k rows into these, as `Frame.settle` does, and `meet` x.

    W (k×stored used) becomes k×k. Costs k s p for s rows beyond k.
    """
    whole = W[:k, :stored].copy()
    if cured:
        cure(rows, whole, threads)
    E, order = whole.copy(), np.arange(stored)
    straight = eliminate(E, order)
    if straight:
        length = 0.0
        for j in range(k):
            for i in range(k):
                length += whole[i, order[j]] ** 2
        straight = magnified(E) * np.sqrt(length / k) < CROOKED
    W[:] = 0.0
    if not straight:
        turn(rows, whole, owed, w, x, out, threads)
        for i in range(k):
            W[i, i] = 1.0
        return
    # A row that stays among the first k keeps its place; the others take those that became free.
    stay, gone, place = np.full(k, -1), order[k:], np.empty(k, np.int64)
    for j in range(k):
        if order[j] < k:
            stay[order[j]], place[j] = order[j], order[j]
    free = 0
    for j in range(k):
        if order[j] >= k:
            while stay[free] >= 0:
                free += 1
            stay[free], place[j] = order[j], free
    shares, Y = E[:, k:].copy(), np.empty((k, stored - k))
    for i in range(k - 1, -1, -1):
        for j in range(i + 1, k):
            for l in range(stored - k):
                shares[i, l] -= E[i, j] * shares[j, l]
        for l in range(stored - k):
            shares[i, l] /= E[i, i]
            Y[place[i], l] = shares[i, l]
    exchange(rows, stay, gone, Y, owed, w, x, out, threads)
    for i in range(k):
        for j in range(k):
            W[i, j] = whole[i, stay[j]]


@compiled
def coordinates(W, k, stored, raw, c, along):
    """c ← W raw, along U; along ← −Wᵀ c, to take U c away from a row. Returns |c|²."""
    for j in range(stored):
        along[j] = 0.0
    square = 0.0
    for i in range(k):
        total = 0.0
        for j in range(stored):
            total += W[i, j] * raw[j]
        c[i] = total
        square += total * total
        for j in range(stored):
            along[j] -= total * W[i, j]
    return square


@compiled
def coefficients_in(made, raw, k, out):
    """|a| for the combination madeᵀ a = raw, made (k×k) lower triangular, both along the rows."""
    square = 0.0
    for j in range(k - 1, -1, -1):
        total = raw[j]
        for i in range(j + 1, k):
            total -= made[i, j] * out[i]
        out[j] = total / made[j, j]
        square += out[j] * out[j]
    return np.sqrt(square)


@compiled
def walk(
    rows, stored, rotations, between_cures, work, sigma, made, exact, k, m, w, owed, X, norms, Y,
    noise, fading, cutoff, most, told, threads,
):  # fmt: skip
    """Learn the rows of X one after another.

    The memory in principal axes, sigma (room, k used, falling), is changed in place:

        U = (W rows)ᵀ            W: k×stored; a row may be a gradient as it came
        w = w + owed · rows      w: q×p, owed: q×room: steps are written out when rows are folded

    so that a gradient is read once and nothing of the size of p is computed from it but its inner
    products with the rows. W is work[0]; the rest of work (4×(room + 6)×room) is anything. made:
    `small.Makers`, used where `exact`, that is while nothing has been dropped.
    norms: the lengths of X's rows. Y: n×q. fading: the root of `forgetting`. most: what steps
    together may reach. told (n×(3 + 2q)): for each row |Δw|, novelty, rank, q predictions, q
    conflicts. threads: how many share the p dimension.
    Returns the new `stored`, `rotations`, k and `exact`, and how many rows were learned; −1
    less that number where the next one would overflow.
    """
    n, q, room = len(X), len(w), len(rows)
    raw, c, more, along = np.empty(room + q), np.empty(room), np.empty(room), np.empty(room)
    f, alpha, unfaded = np.empty(q), np.empty(q), np.empty(room)
    values, W, turned, vectors = np.empty(room), work[0], work[1], work[2]
    for row in range(n):
        x, norm = X[row], norms[row]
        if stored == room:
            rotations += 1
            cured = rotations % between_cures == 0
            make_room(rows, stored, W, k, owed, w, cured, x, raw[: k + q], threads)
            stored = k
            owed[:] = 0.0
        else:
            meet(rows, stored, w, x, raw[: stored + q], threads)
        for i in range(k):
            unfaded[i] = sigma[i]
            sigma[i] *= fading
        # Take x apart: x = U c + t o.
        for h in range(q):
            f[h] = raw[stored + h] + dot(owed[h, :stored], raw[:stored])
        square = norm * norm
        square -= coordinates(W, k, stored, raw, c, along)
        t = np.sqrt(max(square, 0.0))
        # What is left must be formed where subtracting magnifies rounding, by |c| / t; or where
        # the row would be written as a long combination, which its successors magnify in turn.
        long = dot(along[:stored], along[:stored]) > (LONG * t) ** 2
        explicit = long or not t > MUCH * norm
        new = True
        if explicit:
            g = rows[stored]
            t = np.sqrt(remove(rows, stored, along, x, g, threads))
            doubt = norm
            if exact:
                doubt = np.hypot(norm, coefficients_in(made, along, stored, more))
            new = t > cutoff * doubt
            if new:
                meet(rows, stored, w[:0], g, raw[:stored], threads)
                coordinates(W, k, stored, raw, more, along)
                left = np.sqrt(remove(rows, stored, along, g, g, threads))
                for i in range(k):
                    c[i] += more[i]
                new = left > 0.5 * t
                t = left
        if not new:
            t = 0.0
        # Fit: Δw = (t o + U (I − D) c) residual / (gᵀPg + R), where I − D = R / (σ² + R).
        total = t * t + noise
        reach = t * t  # |t o + U (I − D) c|²
        if noise > 0:
            for i in range(k):
                more[i] = c[i] * (noise / (sigma[i] * sigma[i] + noise))
                total += more[i] * c[i]
                reach += more[i] * more[i]
        step, length = 0.0, np.sqrt(reach)
        for h in range(q):
            residual = Y[row, h] - f[h]
            alpha[h] = 0.0 if total == 0 else residual * (length / total)
            told[row, 3 + h] = f[h]
            told[row, 3 + q + h] = residual if total == 0 else residual * (noise / total)
            step = np.hypot(step, alpha[h])
        if not step < most:
            sigma[:k] = unfaded[:k]
            return stored, rotations, k, exact, -1 - row
        most -= step
        told[row, 0] = step
        told[row, 1] = t / norm if norm > 0 else 0.0
        # Remember: the new direction goes last, with nothing seen along it yet.
        count = k
        if new:
            if explicit:
                scale(g, 1 / t, g, threads)
            else:
                scale(x, 1 / t, rows[stored], threads)
            if exact:
                for j in range(stored):
                    part = 0.0
                    if explicit:
                        for i in range(k):
                            part += W[i, j] * c[i]
                    made[stored, j] = part / norm
                made[stored, stored] = t / norm
            for i in range(k):
                W[i, stored] = 0.0
            for j in range(stored):
                W[k, j] = 0.0 if explicit else along[j] / t
            W[k, stored] = 1.0
            c[k], sigma[k], more[k] = t, 0.0, t
            stored += 1
            count = k + 1
        if length > 0:
            for i in range(k if noise == 0 else 0, count):
                share = more[i] / length
                for h in range(q):
                    for j in range(stored):
                        owed[h, j] += alpha[h] * share * W[i, j]
        if count > 0 and norm > 0:
            rank_one(sigma[:count], c[:count], values[:count], vectors[:count], work[3], threads)
            k = min(count, m)
            exact = exact and k == count
            sigma[:k] = values[:k]
            if count >= MANY and threads > 1:
                product_shared(vectors, k, count, W, stored, turned, threads)
            else:
                product(vectors, k, count, W, stored, turned)
            for i in range(k):
                W[i, :stored] = turned[i, :stored]
        told[row, 2] = k
    return stored, rotations, k, exact, n
