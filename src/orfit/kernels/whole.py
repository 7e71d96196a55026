"""The row loop of a memory that keeps the whole P = L Lᵀ, compiled.

`walk` is `OneStep._learn` on `Dense`, row after row, with noise > 0: the same steps and decisions,
for one column. A row changes L when the next one reads it, so that each of many rows costs one read
and one write of L.
"""

import numpy as np
from numba import njit

from orfit.kernels import FINGERPRINT
from orfit.kernels.loops import SETTINGS, add_combination, add_products, compiled, dot

GROUP = 4  # columns of L that are worked on at a time


@compiled
def change(columns, scale, u, v):
    """L ← scale (L − u vᵀ) for some of L's columns, four at a time: u is read once for four."""
    number = columns.dtype.type
    s, whole = number(scale), len(columns) - len(columns) % 4
    for j in range(0, whole, 4):
        a, b = number(scale * v[j]), number(scale * v[j + 1])
        c, d = number(scale * v[j + 2]), number(scale * v[j + 3])
        r0, r1, r2, r3 = columns[j], columns[j + 1], columns[j + 2], columns[j + 3]
        for i in range(len(u)):
            r0[i] = s * r0[i] - a * u[i]
            r1[i] = s * r1[i] - b * u[i]
            r2[i] = s * r2[i] - c * u[i]
            r3[i] = s * r3[i] - d * u[i]
    for j in range(whole, len(columns)):
        a, r0 = number(scale * v[j]), columns[j]
        for i in range(len(u)):
            r0[i] = s * r0[i] - a * u[i]


@compiled
def see(columns, g, u, v):
    """v ← Lᵀ g and u ← u + L v for some of L's columns."""
    v[:] = 0
    add_products(columns, len(columns), 0, len(g), g, v)
    add_combination(columns, len(columns), 0, len(g), v, u)


@compiled
def sweep(columns, changes, scale, u, v, sees, g, next_u, next_v):
    """`change` all columns of L where it `changes`, then `see` them by g where g `sees`.

    A few at a time: what is read stays in a cache until it has been used.
    """
    next_u[:] = 0
    for begin in range(0, len(columns), GROUP):
        some = slice(begin, min(begin + GROUP, len(columns)))
        if changes:
            change(columns[some], scale, u, v[some])
        if sees:
            see(columns[some], g, next_u, next_v[some])


def row_loop(fingerprint):
    @njit(cache=True, **SETTINGS)
    def walk(columns, w, X, Y, noise, fade, bound, prior, limit, room, cutoff, safe, most, records):
        """Learn the rows of X one after another.

        columns (L's, p×p) and w (q×p) are changed in place. fade: the root of 1 / `forgetting`.
        bound, prior: how wide L is and was (`Width`). limit, room: so wide it may be, and so wide
        divided by a row's length. safe: lengths whose squares are numbers. most: what steps may
        reach. records (n×(4 + 2q)): for each row |Δw|, novelty, rank, variance, q predictions, q
        conflicts.
        Returns how many rows were learned, fewer than all where the next one is not for this loop,
        and how far they moved w.
        """
        fingerprint  # noqa: B018
        p, q, row, moved = len(columns), len(w), 0, 0.0
        residual = np.empty(q)
        u, v = np.empty(p, columns.dtype), np.empty(p, columns.dtype)
        next_u, next_v = np.empty_like(u), np.empty_like(v)
        while row < len(X):
            g = X[row]
            sweep(columns, row > 0, fade, u, v, True, g, next_u, next_v)
            u, v, next_u, next_v = next_u, next_v, u, v
            bound *= fade
            norm, seen, wide = np.sqrt(dot(g, g)), np.sqrt(dot(v, v)), np.sqrt(dot(u, u))
            within = safe[0] < norm < safe[1] and safe[0] < seen < safe[1] and wide < safe[1]
            if not within or bound > limit or bound * norm > room:
                break
            # T of `DenseSplit`, and what of it is no rounding.
            t = fade * seen
            if t <= cutoff * prior * norm:
                t = 0.0
            total, step = t * t + noise, 0.0
            for h in range(q):
                f = dot(w[h], g)
                residual[h] = Y[row, h] - f
                records[row, 4 + h] = f
                records[row, 4 + q + h] = residual[h] * (noise / total)
                step = np.hypot(step, residual[h])
            gain = fade * fade / total if t > 0 else 0.0
            step *= gain * wide
            if not moved + step < most:  # so it is where a prediction is no number
                break
            moved += step
            for h in range(q):
                a = columns.dtype.type(gain * residual[h])
                for i in range(p):
                    w[h, i] += a * u[i]
            records[row, 0] = step
            records[row, 1] = min(1.0, t / (prior * norm))
            records[row, 2] = p
            records[row, 3] = total
            # I − T (TᵀT + R I)⁻¹ Tᵀ has the root I − (1 − sqrt(R / (t² + R))) K Kᵀ, K = v / |v|.
            share = 1 - np.sqrt(noise / total) if t > 0 else 0.0
            u *= columns.dtype.type(share / seen / seen)
            row += 1
        else:  # the last one has none after it
            sweep(columns, row > 0, fade, u, v, False, u, next_u, next_v)
        return row, moved

    return walk


walk = row_loop(FINGERPRINT)
