"""The row loop of a memory in principal axes, compiled: for rows that come one after another.

Needs numba (the extra `fast`); without it the plain path does the same. `walk` is `OneStep._learn`
on `Principal`, row after row, for a linear model with one output or heads: the same steps, for one
column. What is small is done by the functions of `gram`, compiled; a row that is too large or too
small for this loop is left to the plain step.
"""

import hashlib
from pathlib import Path

import numpy as np
from numba import njit

from orfit import gram
from orfit.kernels.long import fold, gram_of, length_of, read, threads
from orfit.kernels.loops import SETTINGS, accumulate, compiled, dot, shared
from orfit.kernels.secular import LARGE, rank_one

__all__ = ["rank_one", "threads", "walk"]

# What Python calls is kept in numba's cache, with all that it calls in turn. numba compiles it
# anew when its file has changed, and does not look at other files; but it looks at what a function
# closes over.
HERE = Path(__file__)
SOURCES = [*sorted(HERE.parent.glob("*.py")), Path(gram.__file__)]
FINGERPRINT = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()


@shared
def turn_shared(start, stop, out, V, W, turned):
    mine = turned[start:stop]
    accumulate(V[start:stop], stop - start, V.shape[1], W, 0, mine, 0, W.shape[1])


@compiled
def turned(V, W, threads):
    """V W."""
    made = np.zeros((len(V), W.shape[1]))
    turn_shared(len(V), np.empty((threads if len(V) >= LARGE else 1, 0)), (V, W, made))
    return made


@compiled
def made_by(makers, a):
    """|x| for the combination makersᵀ x = a, makers (s×s) lower triangular (`small.Makers`)."""
    x = a.copy()
    for j in range(len(a) - 1, -1, -1):
        for i in range(j + 1, len(a)):
            x[j] -= makers[i, j] * x[i]
        x[j] /= makers[j, j]
    return np.sqrt(dot(x, x))


def row_loop(fingerprint):
    @njit(cache=True, **SETTINGS)
    def walk(
        rows, stored, W, M, makers, exact, sigma, m, shrinks, base, shift, folds, X, Y, noise,
        fading, cutoff, safe, most_lost, most, records, threads,
    ):  # fmt: skip
        """Learn the rows of X one after another.

        The memory in principal axes, sigma (k, falling), and w, as a `Frame` has them:

            U = (W Q)ᵀ,  w = base + shift Q     Q: `stored` of `rows`,  M = Q Qᵀ,  base: q×p

        rows, M, makers and base are changed in place. makers: `small.Makers`, used where `exact`:
        while nothing has been dropped and there is no noise. Y: n×q. fading: the root of
        `forgetting`. safe: lengths whose squares are numbers. most: what steps may reach. records
        (n×(3 + 2q)): for each row |Δw|, novelty, rank, q predictions, q conflicts. threads: how
        many share the p dimension.
        Returns stored, W, exact, sigma, shift, folds, the energy that was dropped, and how many
        rows were learned: fewer than all where the next one is not for this loop.
        """
        fingerprint  # noqa: B018
        q, room, lost = len(base), len(rows), 0.0
        f, alpha, nothing = np.empty(q), np.empty(q), np.empty(0)
        tiny = np.finfo(rows.dtype).tiny
        for row in range(len(X)):
            x, k = X[row], len(W)
            products = read(rows, stored, base, x, 1.0, nothing, threads)
            norm, size = np.sqrt(products[stored]), np.sqrt(products[stored])
            if not safe[0] < norm < safe[1]:
                norm = length_of(x)
                if 0 < norm < 4 * tiny:  # its inverse is no number
                    return stored, W, exact, sigma, shift, folds, lost, row
                scale = 1 / norm if norm > 0 else 0.0
                products = read(rows, stored, base, x, scale, nothing, threads)
                size = np.sqrt(products[stored])
            # From here on the row, of length `size` behind the others, stands for a unit vector.
            scale = 1 / size if size > 0 else 0.0
            raw = scale * products[:stored].copy().reshape(1, stored)
            for h in range(q):
                f[h] = norm * (scale * products[stored + 1 + h] + dot(shift[h], raw[0]))
            # Take it apart, as `frame.split` does: g = U c + t o, t o = g − A Q.
            C, A, left, rounding = gram.project(W, M, raw, np.ones((1, 1)))
            t, new, formed = np.sqrt(max(left[0, 0], 0.0)), norm > 0, False
            lost_here = rounding[0] ** 2 / left[0, 0] if left[0, 0] > 0 else np.inf
            if new and not gram.trusted(lost_here, rounding, most_lost):
                formed, along = True, A[0]
                products = read(rows, stored, base, x, 1 / norm, -along, threads)
                size = np.sqrt(products[stored])
                new = size > cutoff * (np.hypot(1.0, made_by(makers, along)) if exact else 1.0)
                if new:
                    raw = products[:stored].copy().reshape(1, stored) / size
                    D, A, left, rounding = gram.project(W, M, raw, np.ones((1, 1)))
                    C, t = C + size * D, size * np.sqrt(max(left[0, 0], 0.0))
                    new = left[0, 0] > 0.25
            if not new:
                t = 0.0
            # Fit, with everything divided by |x|: Δw = (t o + U E Eᵀ c) residual / (gᵀPg + R).
            R = (noise / norm) / norm if noise > 0 and norm > 0 else 0.0
            total, reach, damped = t * t + R, t * t, np.zeros((1, k + 1))
            damped[0, k] = t
            if noise > 0:
                for i in range(k):
                    s = fading * sigma[i]
                    damped[0, i] = C[0, i] * (noise / (s * s + noise))
                    total += damped[0, i] * C[0, i]
                    reach += damped[0, i] ** 2
            step, length = 0.0, np.sqrt(reach)
            for h in range(q):
                residual = Y[row, h] - f[h]
                alpha[h] = residual / norm * (length / total) if total > 0 else 0.0
                records[row, 3 + h] = f[h]
                records[row, 3 + q + h] = residual * (R / total) if 0 < total < np.inf else residual
                step = np.hypot(step, alpha[h])
            # What is too large or too small for this loop is left to the plain step.
            if not step < most or not np.isfinite(f).all() or (noise > 0 and norm > 0 and R == 0):
                return stored, W, exact, sigma, shift, folds, lost, row
            most -= step
            records[row, 0] = step
            records[row, 1] = t
            # Remember: the new direction goes last, with nothing seen along it yet.
            seen, count = np.zeros(k + 1), k
            seen[:k] = fading * sigma
            if new:
                for j in range(stored):
                    M[stored, j] = M[j, stored] = size * raw[0, j]
                    if exact:
                        makers[stored, j] = along[j] if formed else 0.0
                M[stored, stored] = size * size
                if exact:
                    makers[stored, stored] = 1.0 if formed else scale
                W = gram.extended(W, size * A, np.full((1, 1), 1 / (size * np.sqrt(left[0, 0]))))
                stored, count = stored + 1, k + 1
            wider = np.zeros((q, stored))
            wider[:, : shift.shape[1]] = shift
            if length > 0:
                move = gram.combinations(damped[:, :count].copy() / length, W)[0]
                for h in range(q):
                    wider[h] += alpha[h] * move
            shift = wider
            lost *= fading * fading
            sigma = seen[:count].copy()
            if norm > 0 and count > 0:
                c = np.empty(count)
                c[:k] = norm * C[0]
                if new:
                    c[k] = norm * t
                sigma, vectors = rank_one(sigma, c, threads)
                if count > m:
                    exact, last = False, sigma[m]
                    lost += last * last * (1 + m if shrinks else 1)
                    sigma = sigma[:m].copy()
                    if shrinks:
                        sigma = np.sqrt(np.maximum((sigma - last) * (sigma + last), 0.0))
                W = turned(vectors[:m], W, threads)
            records[row, 2] = len(W)
            if stored == room:
                folds += 1
                stay, gone, Y_gone, W, folded = gram.fold(W, M, most_lost)
                fold(rows, stay, gone, Y_gone, base, shift, threads)
                stored = len(W)
                if gram.measure_now(folds, stored):
                    folded = gram_of(rows, stored, threads)
                    W = gram.cured(W, folded)
                M[:stored, :stored] = folded
                shift = np.zeros((q, stored))
        return stored, W, exact, sigma, shift, folds, lost, len(X)

    return walk


walk = row_loop(FINGERPRINT)
