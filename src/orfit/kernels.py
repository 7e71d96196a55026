"""The row loop of a limited memory, compiled: for small p, where Python costs the most.

Needs numba (`pip install orfit[fast]`); without it the plain path does the same. `walk` is
`OneStep._learn` on `Principal`, row after row, for a linear model with one output or heads, with
the remembered directions in principal axes: then taking a gradient in is an eigenproblem of a
diagonal plus a rank-one matrix, solved root by root in O(k²) with nothing but arithmetic: no BLAS,
no threads.
"""

import numpy as np
from numba import njit

EPS = np.finfo(np.float64).eps

# Sums may be reordered (that is what vectorising them means); NaN and infinity are respected.
compiled = njit(cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")


@compiled
def secular_root(s, z2, i, delta):
    """The i-th root λ of 1 + Σ z_j² / (s_j² − λ) = 0, s rising, as delta_j = s_j² − λ.

    It lies between s_i² and s_(i+1)² (the last one below s_i² + Σ z²). Distances are measured from
    the nearer pole, so that each delta has full relative accuracy; the iteration fits a rational
    function with poles at both ends (Bunch, Nielsen, Sorensen 1978), inside a shrinking bracket.
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
    rest = 1.0
    for j in range(i):
        rest += z2[j] / ((s[j] - s[i]) * (s[j] + s[i]) - 0.5 * gap)
    for j in range(i + 2, n):
        rest += z2[j] / ((s[j] - s[i]) * (s[j] + s[i]) - 0.5 * gap)
    below = z2[i]
    above = 0.0 if last else z2[i + 1]
    f = rest + (above - below) / (0.5 * gap)
    origin = i
    if last:
        low, high = (0.5 * gap, gap) if f < 0 else (0.0, 0.5 * gap)
        tau = below / rest if rest > 0 else gap
    elif f >= 0:
        low, high = 0.0, 0.5 * gap
        a, b = rest * gap + below + above, below * gap
        root = np.sqrt(max(a * a - 4 * b * rest, 0.0))
        tau = 2 * b / (a + root) if a > 0 else (a - root) / (2 * rest)
    else:
        origin = i + 1
        low, high = -0.5 * gap, 0.0
        a, b = rest * gap - below - above, above * gap
        root = np.sqrt(max(a * a + 4 * b * rest, 0.0))
        tau = 2 * b / (a - root) if a < 0 else -(a + root) / (2 * rest)
    if not low < tau < high:
        tau = 0.5 * (low + high)
    pole = s[origin]
    for _ in range(100):
        psi = psi_slope = phi = phi_slope = 0.0
        for j in range(n):
            delta[j] = (s[j] - pole) * (s[j] + pole) - tau
        for j in range(i + 1):
            inverse = 1 / delta[j]
            psi += z2[j] * inverse
            psi_slope += z2[j] * inverse * inverse
        for j in range(i + 1, n):
            inverse = 1 / delta[j]
            phi += z2[j] * inverse
            phi_slope += z2[j] * inverse * inverse
        f = 1.0 + psi + phi
        if abs(f) <= 4 * EPS * n * (1.0 + abs(psi) + abs(phi)):
            break
        if f < 0:
            low = tau
        else:
            high = tau
        near = delta[i]
        q = psi_slope * near * near
        if last:
            c = 1.0 + psi - psi_slope * near
            step = near + q / c if c > 0 else np.inf
        else:
            far = delta[i + 1]
            c = 1.0 + psi - psi_slope * near + phi - phi_slope * far
            a = c * (near + far) + q + phi_slope * far * far
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
def rank_one(s, z, values, vectors):
    """Eigenvectors, and roots of the eigenvalues, of diag(s²) + z zᵀ, both rising; s must rise.

    Deflation and the recomputed z (Gu, Eisenstat 1994), which makes the vectors orthogonal to
    rounding however close the roots are, are those of LAPACK's dlasd2 and dlasd3.
    """
    n = len(s)
    largest = s[n - 1]
    for j in range(n):
        largest = max(largest, abs(z[j]))
    tolerance = 8 * EPS * largest
    order = np.empty((4, n), np.int64)
    poles, fixed = order[0], order[1]  # what is left after deflation; what is done already
    work = np.empty((6 + n, n))
    z1, t, z2, again, found, angle, delta = (
        work[0],
        work[1],
        work[2],
        work[3],
        work[4],
        work[5],
        work[6:],
    )
    r = d = turns = 0
    for j in range(n):
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
    for i in range(r):
        secular_root(t[:r], z2[:r], i, delta[i, :r])  # delta[i, j] = t_j² − λ_i
        found[i] = np.sqrt(max(t[i] * t[i] - delta[i, i], 0.0))
    for i in range(d):
        found[r + i] = s[fixed[i]]
    for j in range(r):
        square = -delta[r - 1, j]
        for i in range(j):
            square *= delta[i, j] / ((t[j] - t[i]) * (t[j] + t[i]))
        for i in range(j, r - 1):
            square *= -delta[i, j] / ((t[i + 1] - t[j]) * (t[i + 1] + t[j]))
        again[j] = np.copysign(np.sqrt(max(square, 0.0)), z1[poles[j]])
    # Roots rise with their poles; what was deflated is merged in. Where nothing was, ranks are i.
    for i in range(n):
        rank = i
        if d > 0:
            rank = 0
            for other in range(n):
                if found[other] < found[i] or (found[other] == found[i] and other < i):
                    rank += 1
        values[rank] = found[i]
        for row in range(n):
            vectors[row, rank] = 0.0
        if i < r:
            length = 0.0
            for j in range(r):
                entry = again[j] / delta[i, j]
                vectors[poles[j], rank] = entry
                length += entry * entry
            length = 1 / np.sqrt(length)
            for j in range(r):
                vectors[poles[j], rank] *= length
        else:
            vectors[fixed[i - r], rank] = 1.0
    for step in range(turns - 1, -1, -1):
        before, j = order[2, step], order[3, step]
        cosine, sine = np.cos(angle[step]), np.sin(angle[step])
        for i in range(n):
            one, other_one = vectors[before, i], vectors[j, i]
            vectors[before, i] = cosine * one + sine * other_one
            vectors[j, i] = cosine * other_one - sine * one


@compiled
def products(rows, stored, x, raw):
    """raw ← rows x, four rows at a time so that x is read once for four."""
    zero = rows.dtype.type(0)
    whole = stored - stored % 4
    for j in range(0, whole, 4):
        a = b = c = d = zero
        r0, r1, r2, r3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        for l in range(len(x)):
            a += r0[l] * x[l]
            b += r1[l] * x[l]
            c += r2[l] * x[l]
            d += r3[l] * x[l]
        raw[j], raw[j + 1], raw[j + 2], raw[j + 3] = a, b, c, d
    for j in range(whole, stored):
        a = zero
        r0 = rows[j]
        for l in range(len(x)):
            a += r0[l] * x[l]
        raw[j] = a


@compiled
def add_combination(rows, stored, coefficients, start, g):
    """g ← g + coefficients · rows[:, start:], as long as g is, four rows at a time."""
    number = rows.dtype.type
    whole = stored - stored % 4
    stop = start + len(g)
    for j in range(0, whole, 4):
        a, b = number(coefficients[j]), number(coefficients[j + 1])
        c, d = number(coefficients[j + 2]), number(coefficients[j + 3])
        r0, r1 = rows[j, start:stop], rows[j + 1, start:stop]
        r2, r3 = rows[j + 2, start:stop], rows[j + 3, start:stop]
        for l in range(len(g)):
            g[l] += a * r0[l] + b * r1[l] + c * r2[l] + d * r3[l]
    for j in range(whole, stored):
        a = number(coefficients[j])
        r0 = rows[j, start:stop]
        for l in range(len(g)):
            g[l] += a * r0[l]


@compiled
def rotate(rows, stored, W, k):
    """rows ← W rows in place, block by block; W (k×stored)."""
    size = rows.shape[1]
    block = np.empty((k, 256), rows.dtype)
    for start in range(0, size, 256):
        stop = min(start + 256, size)
        part = block[:, : stop - start]
        part[:] = 0
        for i in range(k):
            add_combination(rows, stored, W[i], start, part[i])
        rows[:k, start:stop] = part


@compiled
def along(rows, stored, W, k, x, raw, c):
    """c ← Uᵀ x with U = (W rows)ᵀ."""
    products(rows, stored, x, raw)
    for i in range(k):
        total = 0.0
        for j in range(stored):
            total += W[i, j] * raw[j]
        c[i] = total


@compiled
def remove(rows, stored, W, k, c, raw, g):
    """g ← g − U c."""
    for j in range(stored):
        raw[j] = 0.0
    for i in range(k):
        for j in range(stored):
            raw[j] -= W[i, j] * c[i]
    add_combination(rows, stored, raw, 0, g)


@compiled
def remove_and_meet(rows, stored, W, k, c, coefficients, g, x, raw):
    """g ← g − U c and raw ← rows x in one read of the rows: this gradient goes, the next comes."""
    for j in range(stored):
        coefficients[j] = 0.0
    for i in range(k):
        for j in range(stored):
            coefficients[j] -= W[i, j] * c[i]
    zero = rows.dtype.type(0)
    whole = stored - stored % 2
    for j in range(0, whole, 2):
        a, b = rows.dtype.type(coefficients[j]), rows.dtype.type(coefficients[j + 1])
        r0, r1 = rows[j], rows[j + 1]
        p0 = p1 = zero
        for l in range(len(g)):
            g[l] += a * r0[l] + b * r1[l]
            p0 += r0[l] * x[l]
            p1 += r1[l] * x[l]
        raw[j], raw[j + 1] = p0, p1
    if whole < stored:
        a = rows.dtype.type(coefficients[whole])
        r0 = rows[whole]
        p0 = zero
        for l in range(len(g)):
            g[l] += a * r0[l]
            p0 += r0[l] * x[l]
        raw[whole] = p0


@compiled
def dot(x, y):
    total = x.dtype.type(0)
    for l in range(len(x)):
        total += x[l] * y[l]
    return total


@compiled
def walk(
    rows, stored, rotations, cure, W, sigma, blur, k, m, w, X, norms, doubts, Y, noise, fading,
    cutoff, told,
):  # fmt: skip
    """Learn the rows of X one after another, until a rotation is due that cures drift as well.

    rows (room×p), W (room×room, k×stored used), sigma and blur (room, k used, sigma falling): the
    memory in principal axes, U = (W rows)ᵀ, changed in place, as w (q×p) is. Every `cure`-th
    rotation is left to the caller. norms, doubts (n): of the rows, see `small.staircase`. Y: n×q.
    fading: the root of `forgetting`.
    told (n×(3 + 2q)): for each row |Δw|, novelty, rank, q predictions, q conflicts.
    Returns the new `stored`, `rotations` and k, and how many rows were learned; −1 less that
    number where the next one would overflow.
    """
    n, size = X.shape
    q, room = len(w), len(rows)
    raw, c, damped, more = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
    g = np.empty_like(X[0])
    move = np.empty_like(X[0]) if noise > 0 else g
    values, vectors, turned = np.empty(room), np.empty((room, room)), np.empty((room, room))
    met = False  # whether raw holds rows · x already
    for row in range(n):
        if stored == room:
            if (rotations + 1) % cure == 0:
                return stored, rotations, k, row
            rotate(rows, stored, W, k)
            stored, rotations, met = k, rotations + 1, False
            W[:] = 0.0
            for i in range(k):
                W[i, i] = 1.0
        x, norm = X[row], norms[row]
        for i in range(k):
            sigma[i] *= fading
        # Take x apart: x = U c + t o.
        if not met:
            products(rows, stored, x, raw)
        for i in range(k):
            c[i] = dot(W[i, :stored], raw[:stored])
        for l in range(size):
            g[l] = x[l]
        remove_and_meet(rows, stored, W, k, c, damped, g, X[min(row + 1, n - 1)], raw)
        met = True
        t = np.sqrt(np.float64(dot(g, g)))
        doubt = doubts[row] * doubts[row]
        for i in range(k):
            doubt += (c[i] * blur[i]) ** 2
        doubt = np.sqrt(doubt)
        new = t > cutoff * doubt
        if new and t < 0.5 * norm:
            along(rows, stored, W, k, g, damped, more)
            first = t
            remove(rows, stored, W, k, more, damped, g)
            t = np.sqrt(np.float64(dot(g, g)))
            for i in range(k):
                c[i] += more[i]
            new = t > 0.5 * first
        if not new:
            t = 0.0
            for l in range(size):
                g[l] = 0
        # Fit: Δw = α (g + U (I − D) c) with α = residual / (gᵀPg + R), I − D = R / (σ² + R).
        scale = t * t + noise
        span = t * t  # |Δw / α|²
        if noise > 0:
            for i in range(k):
                damped[i] = -c[i] * (noise / (sigma[i] * sigma[i] + noise))
                scale -= damped[i] * c[i]
                span += damped[i] * damped[i]
            for l in range(size):
                move[l] = g[l]
            remove(rows, stored, W, k, damped, more, move)
        step = 0.0
        for h in range(q):
            f = np.float64(dot(w[h], x))
            residual = Y[row, h] - f
            told[row, 3 + h] = f
            told[row, 3 + q + h] = residual if scale == 0 else residual * (noise / scale)
            more[0] = 0.0 if scale == 0 else residual / scale
            step = np.hypot(step, more[0] * np.sqrt(span))
        if not np.isfinite(step):
            for i in range(k):
                sigma[i] /= fading
            return stored, rotations, k, -1 - row
        for h in range(q):
            residual = Y[row, h] - told[row, 3 + h]
            alpha = w.dtype.type(0.0 if scale == 0 else residual / scale)
            for l in range(size):
                w[h, l] += alpha * move[l]
        told[row, 0] = step
        told[row, 1] = t / norm if norm > 0 else 0.0
        # Remember: the new direction goes last, with nothing seen along it yet.
        count = k
        if new:
            inverse = 1 / t
            for l in range(size):
                rows[stored, l] = g[l] * inverse
            raw[stored] = dot(rows[stored], X[min(row + 1, n - 1)])
            for i in range(k):
                W[i, stored] = 0.0
            for j in range(stored):
                W[k, j] = 0.0
            W[k, stored] = 1.0
            c[k], sigma[k], blur[k] = t, 0.0, doubt / t
            stored += 1
            count = k + 1
        if count > 0 and norm > 0:
            # rank_one wants its poles rising; the memory has them falling.
            rank_one(sigma[:count][::-1], c[:count][::-1], values[:count], vectors[:count, :count])
            k = min(count, m)
            last = count - 1
            for i in range(k):
                sigma[i] = values[last - i]
                square = 0.0
                for j in range(stored):
                    turned[i, j] = 0.0
                for b in range(count):
                    entry = vectors[last - b, last - i]
                    square += (entry * blur[b]) ** 2
                    for j in range(stored):
                        turned[i, j] += entry * W[b, j]
                more[i] = np.sqrt(square)
            for i in range(k):
                blur[i] = more[i]
                for j in range(stored):
                    W[i, j] = turned[i, j]
        told[row, 2] = k
    return stored, rotations, k, n
