"""The row loop of a limited memory, compiled: for small p, where Python costs the most.

Needs numba (`pip install orfit[fast]`); without it the plain path does the same. `walk` is
`OneStep._learn` on `Principal`, row after row, for a linear model with one output or heads, with
the remembered directions in principal axes: then taking a gradient in is an eigenproblem of a
diagonal plus a rank-one matrix, solved root by root in O(k²) with nothing but arithmetic.

Whatever runs over the p dimension does so block by block, so that a gradient stays in the cache
while the basis streams past it once; above `PARALLEL` parameters the blocks are shared among
numba's threads. No BLAS: the threads of OpenBLAS meet at barriers in every call, and where another
process holds a core each barrier costs milliseconds.
"""

import numpy as np
from numba import get_num_threads, njit, prange

EPS = np.finfo(np.float64).eps

BLOCK = 8192  # numbers of one vector that are worked on at a time
TURNED = 392  # the same where many vectors are worked on at once; 512 apart, they would share lines
PARALLEL = 1 << 16  # parameters above which threads pay
MANY = 64  # directions above which they share small matrices, too
LIGHT = 1 << 24  # products up to which a basis is written out rather than few of it exchanged

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
def secular_roots(s, z2, delta, start, stop):
    for i in range(start, stop):
        secular_root(s, z2, i, delta[i])


@shared
def secular_roots_shared(s, z2, delta, threads):
    n = len(s)
    for t in prange(threads):
        secular_roots(s, z2, delta, n * t // threads, n * (t + 1) // threads)


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
        secular_roots(t[:r], z2[:r], delta, 0, r)
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
        lengths[row] = np.sqrt(dot(X[row], X[row]))
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
def meet(rows, stored, w, x, start, stop, out):
    """Over [start, stop): out ← rows x, w x, one after the other; one read of the basis."""
    out[:] = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        add_products(rows, stored, begin, end, x[begin:end], out)
        add_products(w, len(w), begin, end, x[begin:end], out[stored:])


@compiled
def exchange_gradients(rows, stored, begin, end, coefficients, g, following, raw):
    """Both of the above at once: g leaves the rows, `following` meets them, each is read once."""
    number, zero = rows.dtype.type, rows.dtype.type(0)
    whole = stored - stored % 4
    for j in range(0, whole, 4):
        a, b = number(coefficients[j]), number(coefficients[j + 1])
        c, d = number(coefficients[j + 2]), number(coefficients[j + 3])
        r0, r1 = rows[j, begin:end], rows[j + 1, begin:end]
        r2, r3 = rows[j + 2, begin:end], rows[j + 3, begin:end]
        t0 = t1 = t2 = t3 = zero
        for l in range(len(g)):
            x = following[l]
            g[l] += a * r0[l] + b * r1[l] + c * r2[l] + d * r3[l]
            t0 += x * r0[l]
            t1 += x * r1[l]
            t2 += x * r2[l]
            t3 += x * r3[l]
        raw[j] += t0
        raw[j + 1] += t1
        raw[j + 2] += t2
        raw[j + 3] += t3
    for j in range(whole, stored):
        a = number(coefficients[j])
        r0 = rows[j, begin:end]
        t0 = zero
        for l in range(len(g)):
            g[l] += a * r0[l]
            t0 += following[l] * r0[l]
        raw[j] += t0


@compiled
def remove(rows, stored, coefficients, x, g, following, start, stop, out):
    """Over [start, stop): g ← x + coefficients · rows; out ← rows · following, and |g|² last.

    One read of the basis removes this gradient's part and meets the next gradient. x may be g;
    following may be empty.
    """
    out[:] = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        part, source = g[begin:end], x[begin:end]
        for l in range(len(part)):
            part[l] = source[l]
        if len(following):
            upcoming = following[begin:end]
            exchange_gradients(rows, stored, begin, end, coefficients, part, upcoming, out)
        else:
            add_combination(rows, stored, begin, end, coefficients, part)
        out[stored] += dot(part, part)


@compiled
def gram_part(rows, stored, start, stop, out):
    """Over [start, stop): the lower triangle of rows rowsᵀ."""
    out[:] = 0.0
    for begin in range(start, stop, TURNED):
        end = min(begin + TURNED, stop)
        for i in range(stored):
            add_products(rows, i + 1, begin, end, rows[i, begin:end], out[i])


@compiled
def finish(alpha, move, w, inverse, g, row, start, stop):
    """Over [start, stop): w ← w + alpha move, for each head; row ← g · inverse, where it is new."""
    number = w.dtype.type
    along = move[start:stop]
    for h in range(len(w)):
        a = number(alpha[h])
        moved = w[h, start:stop]
        for l in range(len(moved)):
            moved[l] += a * along[l]
    if inverse > 0:
        scale = number(inverse)
        direction, source = row[start:stop], g[start:stop]
        for l in range(len(direction)):
            direction[l] = source[l] * scale


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
def turn(rows, W, start, stop):
    """Over [start, stop): rows ← W rows in place, W (k×stored)."""
    k = len(W)
    block = np.empty((k, TURNED), rows.dtype)
    for begin in range(start, stop, TURNED):
        width = min(TURNED, stop - begin)
        block[:] = 0
        accumulate(W, k, W.shape[1], rows, begin, block, 0, width)
        for i in range(k):
            for l in range(width):
                rows[i, begin + l] = block[i, l]


@compiled
def exchange(rows, M, V, start, stop):
    """Over [start, stop): rows[:k] ← rows[:k] + V (M rows), M (s×stored), V (k×s)."""
    s, k = len(M), len(V)
    block = np.empty((s, TURNED), rows.dtype)
    for begin in range(start, stop, TURNED):
        width = min(TURNED, stop - begin)
        block[:] = 0
        accumulate(M, s, M.shape[1], rows, begin, block, 0, width)
        accumulate(V, k, s, block, 0, rows, begin, width)


@shared
def meet_shared(rows, stored, w, x, out, threads):
    parts = np.empty((threads, len(out)))
    size = len(x)
    for t in prange(threads):
        meet(rows, stored, w, x, size * t // threads, size * (t + 1) // threads, parts[t])
    out[:] = parts.sum(axis=0)


@shared
def remove_shared(rows, stored, coefficients, x, g, following, out, threads):
    parts = np.empty((threads, len(out)))
    size = len(x)
    for t in prange(threads):
        start, stop = size * t // threads, size * (t + 1) // threads
        remove(rows, stored, coefficients, x, g, following, start, stop, parts[t])
    out[:] = parts.sum(axis=0)


@shared
def finish_shared(alpha, move, w, inverse, g, row, threads):
    size = len(g)
    for t in prange(threads):
        start, stop = size * t // threads, size * (t + 1) // threads
        finish(alpha, move, w, inverse, g, row, start, stop)


@shared
def gram_shared(rows, stored, gram, threads):
    parts = np.empty((threads, stored, stored))
    size = rows.shape[1]
    for t in prange(threads):
        gram_part(rows, stored, size * t // threads, size * (t + 1) // threads, parts[t])
    for i in range(stored):
        for j in range(i + 1):
            gram[i, j] = gram[j, i] = parts[:, i, j].sum()


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


@shared
def turn_shared(rows, W, threads):
    size = rows.shape[1]
    for t in prange(threads):
        turn(rows, W, size * t // threads, size * (t + 1) // threads)


@shared
def exchange_shared(rows, M, V, threads):
    size = rows.shape[1]
    for t in prange(threads):
        exchange(rows, M, V, size * t // threads, size * (t + 1) // threads)


@compiled
def orthonormal(columns, weights, most):
    """An orthonormal basis (n×r) of the columns' span, the heaviest first, until rounding is left.

    weights: the squared lengths of the columns. At most `most` of them.
    """
    n, count = columns.shape
    basis = np.empty((most, n))
    r = 0
    for _ in range(most):
        j = np.argmax(weights)
        if weights[j] <= 1e-30:
            break
        v = columns[:, j].copy()
        for _ in range(2):
            for i in range(r):
                share = dot(basis[i], v)
                for l in range(n):
                    v[l] -= share * basis[i, l]
        length = np.sqrt(dot(v, v))
        if length <= 1e-15:
            weights[j] = 0.0
            continue
        for l in range(n):
            basis[r, l] = v[l] / length
        for i in range(count):
            weights[i] -= dot(columns[:, i].copy(), basis[r]) ** 2
        weights[j] = 0.0
        r += 1
    return basis[:r].T.copy()


@compiled
def write_out(rows, stored, W, k, threads):
    """rows[:k] ← U; W ← I. Costs k (k + s) p for s rows beyond k."""
    whole = W[:k, :stored].copy()
    if threads > 1:
        turn_shared(rows, whole, threads)
    else:
        turn(rows, whole, 0, rows.shape[1])
    W[:] = 0.0
    for i in range(k):
        W[i, i] = 1.0


@compiled
def exchange_few(rows, stored, W, k, threads):
    """rows[:k] ← U turned so that few of them change; W becomes k×k. Costs (2 k + s) s p.

    U = Q₁ A + Q₂ C, for the k first and s further rows: at most s directions have been exchanged,
    so that U, turned suitably, differs from Q₁ by rank s. Let Z be a basis of C's row space and Y
    one of what A maps no other direction to, the complement of A (I − Z Zᵀ) Aᵀ. Then for the
    orthogonal T = Aᵀ − Z (A Z − Y)ᵀ

        U T = Q₁ + [Q₁ (A Z − Y) + Q₂ C Z] Yᵀ
    """
    s = stored - k
    At, Ct = W[:k, :k].copy(), W[:k, k:stored].copy()  # W is (A; C) transposed
    Z = orthonormal(Ct, (Ct * Ct).sum(axis=0), min(s, k))
    r = Z.shape[1]
    A = At.T.copy()
    AZ = np.zeros((k, r))
    for i in range(k):
        for l in range(k):
            for j in range(r):
                AZ[i, j] += A[i, l] * Z[l, j]
    left = np.eye(k)  # I − A (I − Z Zᵀ) Aᵀ, a projector of rank r
    for i in range(k):
        for j in range(k):
            left[i, j] -= dot(A[i], A[j]) - dot(AZ[i], AZ[j])
    weights = np.empty(k)
    for i in range(k):
        weights[i] = left[i, i]
    Y = orthonormal(left, weights, r)
    D = AZ - Y
    M = np.zeros((r, stored))
    for j in range(r):
        for i in range(k):
            M[j, i] = D[i, j]
        for i in range(s):
            for l in range(k):
                M[j, k + i] += Ct[l, i] * Z[l, j]
    if threads > 1:
        exchange_shared(rows, M, Y, threads)
    else:
        exchange(rows, M, Y, 0, rows.shape[1])
    W[:] = 0.0
    for i in range(k):
        for j in range(k):
            W[i, j] = At[i, j] - dot(Z[i], D[j])


@compiled
def cure(rows, stored, W, k, threads):
    """Make U = (W rows)ᵀ orthonormal again: U ← U (3 I − UᵀU) / 2."""
    gram = np.empty((stored, stored))
    gram_shared(rows, stored, gram, threads)
    half = np.zeros((k, stored))
    for i in range(k):
        for j in range(stored):
            for l in range(stored):
                half[i, l] += W[i, j] * gram[j, l]
    correction = np.zeros((k, k))
    for i in range(k):
        correction[i, i] = 1.5
        for j in range(k):
            for l in range(stored):
                correction[i, j] -= 0.5 * half[i, l] * W[j, l]
    turned = np.zeros((k, stored))
    for i in range(k):
        for j in range(k):
            for l in range(stored):
                turned[i, l] += correction[i, j] * W[j, l]
    W[:k, :stored] = turned


@compiled
def over_meet(rows, stored, w, x, out, threads):
    if threads > 1:
        meet_shared(rows, stored, w, x, out, threads)
    else:
        meet(rows, stored, w, x, 0, len(x), out)


@compiled
def over_remove(rows, stored, coefficients, x, g, following, out, threads):
    if threads > 1:
        remove_shared(rows, stored, coefficients, x, g, following, out, threads)
    else:
        remove(rows, stored, coefficients, x, g, following, 0, len(x), out)


@compiled
def walk(
    rows, stored, rotations, between_cures, work, sigma, made, exact, k, m, w, X, norms, Y, noise,
    fading, cutoff, most, told, scratch, threads,
):  # fmt: skip
    """Learn the rows of X one after another.

    rows (room×p), W (room×room, k×stored used), sigma (room, k used, falling): the memory in
    principal axes, U = (W rows)ᵀ, changed in place, as w (q×p) is. W is work[0], and the rest of
    work (4×(room + 6)×room) is anything. made: `small.Makers`, used where `exact`, that is while
    nothing has been dropped. norms: the lengths of X's rows. Y: n×q. fading: the root of `forgetting`. most: what steps together may reach.
    told (n×(3 + 2q)): for each row |Δw|, novelty, rank, q predictions, q conflicts.
    Returns the new `stored`, `rotations`, k and `exact`, and how many rows were learned; −1 less
    that number where the next one would overflow.
    scratch (2×p): anything. threads: how many share the p dimension.
    """
    n, size = X.shape
    q, room = len(w), len(rows)
    raw, following = np.empty(room + q + 1), np.empty(room + 1)
    c, coefficients, more = np.empty(room), np.empty(room), np.empty(room)
    f, alpha, unfaded = np.empty(q), np.empty(q), np.empty(room)
    largest = np.finfo(w.dtype).max / 4
    g = scratch[0]
    move = scratch[1] if noise > 0 else g
    values, W, turned, vectors = np.empty(room), work[0], work[1], work[2]
    met = False  # whether `following` holds rows · x
    for row in range(n):
        if stored == room:
            rotations += 1
            cured = rotations % between_cures == 0
            if cured:
                cure(rows, stored, W, k, threads)
            # A cured frame is written out: there W makes up for rows not quite orthonormal.
            if cured or stored * k * size < LIGHT:
                write_out(rows, stored, W, k, threads)
            else:
                exchange_few(rows, stored, W, k, threads)
            stored, met = k, False
        x, norm = X[row], norms[row]
        for i in range(k):
            unfaded[i] = sigma[i]
            sigma[i] *= fading
        # Take x apart: x = U c + t o.
        if met:
            raw[:stored] = following[:stored]
            for h in range(q):
                f[h] = dot(w[h], x)
        else:
            over_meet(rows, stored, w, x, raw[: stored + q], threads)
            for h in range(q):
                f[h] = raw[stored + h]
        coordinates(W, k, stored, raw, c, coefficients)
        upcoming = X[min(row + 1, n - 1)] if row + 1 < n else x[:0]
        over_remove(rows, stored, coefficients, x, g, upcoming, following[: stored + 1], threads)
        met = row + 1 < n
        t = np.sqrt(following[stored])
        doubt = norm
        if exact:
            doubt = np.hypot(norm, coefficients_in(made, raw, stored, more))
        new = t > cutoff * doubt
        if new and t < 0.5 * norm:
            over_meet(rows, stored, w[:0], g, raw[:stored], threads)
            coordinates(W, k, stored, raw, more, coefficients)
            over_remove(rows, stored, coefficients, g, g, x[:0], raw[: stored + 1], threads)
            for i in range(k):
                c[i] += more[i]
            new = np.sqrt(raw[stored]) > 0.5 * t
            t = np.sqrt(raw[stored])
        if not new:
            t = 0.0
            for l in range(size):
                g[l] = 0
        # Fit: Δw = (g + U (I − D) c) residual / (gᵀPg + R), where I − D = R / (σ² + R).
        scale = t * t + noise
        span = t * t  # |g + U (I − D) c|²
        if noise > 0:
            for j in range(stored):
                coefficients[j] = 0.0
            for i in range(k):
                part = c[i] * (noise / (sigma[i] * sigma[i] + noise))
                scale += part * c[i]
                span += part * part
                for j in range(stored):
                    coefficients[j] += part * W[i, j]
            over_remove(rows, stored, coefficients, g, move, x[:0], raw[: stored + 1], threads)
        step, length, steepest = 0.0, np.sqrt(span), 0.0
        for h in range(q):
            residual = Y[row, h] - f[h]
            alpha[h] = 0.0 if scale == 0 else residual / scale
            steepest = max(steepest, abs(alpha[h]))
            told[row, 3 + h] = f[h]
            told[row, 3 + q + h] = residual if scale == 0 else residual * (noise / scale)
            step = np.hypot(step, 0.0 if scale == 0 else residual * (length / scale))
        if not step < most:
            sigma[:k] = unfaded[:k]
            return stored, rotations, k, exact, -1 - row
        most -= step
        told[row, 0] = step
        told[row, 1] = t / norm if norm > 0 else 0.0
        inverse = 1 / t if new else 0.0
        if (
            steepest > largest
        ):  # a short gradient, a long step: no factor may overflow where w does not
            for l in range(size):
                move[l] /= length
            for h in range(q):
                alpha[h] = (Y[row, h] - f[h]) * (length / scale)
            if noise == 0:  # then move is g
                inverse = 1.0
        if threads > 1:
            finish_shared(alpha, move, w, inverse, g, rows[min(stored, room - 1)], threads)
        else:
            finish(alpha, move, w, inverse, g, rows[min(stored, room - 1)], 0, size)
        # Remember: the new direction goes last, with nothing seen along it yet.
        count = k
        if new:
            if met:
                following[stored] = dot(rows[stored], X[row + 1])
            for i in range(k):
                W[i, stored] = 0.0
            for j in range(stored):
                W[k, j] = 0.0
            W[k, stored] = 1.0
            if exact:
                for j in range(stored):
                    part = 0.0
                    for i in range(k):
                        part += W[i, j] * c[i]
                    made[stored, j] = part / norm
                made[stored, stored] = t / norm
            c[k], sigma[k] = t, 0.0
            stored += 1
            count = k + 1
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


@compiled
def coefficients_in(made, raw, k, out):
    """|a| for the combination madeᵀ a = raw, made (k×k) lower triangular."""
    square = 0.0
    for j in range(k - 1, -1, -1):
        total = raw[j]
        for i in range(j + 1, k):
            total -= made[i, j] * out[i]
        out[j] = total / made[j, j]
        square += out[j] * out[j]
    return np.sqrt(square)


@compiled
def coordinates(W, k, stored, raw, c, coefficients):
    """c ← W raw, along U; coefficients ← −Wᵀ c, to take U c away."""
    for j in range(stored):
        coefficients[j] = 0.0
    for i in range(k):
        total = 0.0
        for j in range(stored):
            total += W[i, j] * raw[j]
        c[i] = total
        for j in range(stored):
            coefficients[j] -= total * W[i, j]
