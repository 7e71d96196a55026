"""The row loop of a memory that keeps the whole P = L Lᵀ, compiled.

`walk` is `OneStep._learn` on `Dense`, row after row, with noise > 0: the same steps and decisions,
for one column. A row changes L when the next one reads it, be it in another call, so that each
costs one read and one write of L.
"""

import numpy as np
from numba import njit

from orfit.kernels import FINGERPRINT
from orfit.kernels.cache import kept
from orfit.kernels.loops import dot
from orfit.kernels.settings import SETTINGS, compiled


@compiled
def pass_four(columns, scale, u, v, g, next_u, next_v):
    """`sweep` over four columns: u, g and u' are read once for all."""
    number = columns.dtype.type
    s, a, b = number(scale), number(scale * v[0]), number(scale * v[1])
    c, d = number(scale * v[2]), number(scale * v[3])
    r0, r1, r2, r3 = columns[0], columns[1], columns[2], columns[3]
    e = f = h = k = number(0)
    for i in range(len(g)):
        r0[i] = s * r0[i] - a * u[i]
        r1[i] = s * r1[i] - b * u[i]
        r2[i] = s * r2[i] - c * u[i]
        r3[i] = s * r3[i] - d * u[i]
        e += r0[i] * g[i]
        f += r1[i] * g[i]
        h += r2[i] * g[i]
        k += r3[i] * g[i]
    for i in range(len(g)):
        next_u[i] += e * r0[i] + f * r1[i] + h * r2[i] + k * r3[i]
    next_v[0], next_v[1], next_v[2], next_v[3] = e, f, h, k


@compiled
def pass_one(column, scale, u, v, g, next_u):
    """The same over a single one; its v'."""
    number = column.dtype.type
    s, a, e = number(scale), number(scale * v), number(0)
    for i in range(len(g)):
        column[i] = s * column[i] - a * u[i]
        e += column[i] * g[i]
    for i in range(len(g)):
        next_u[i] += e * column[i]
    return e


@compiled
def sweep(columns, scale, u, v, g, next_u, next_v):
    """L ← scale (L − u vᵀ), then v' ← Lᵀ g and u' ← L v': one read and one write of L.

    A few columns at a time: what is read stays in a cache until it has been used.
    """
    next_u[:] = 0
    whole = len(columns) - len(columns) % 4
    for j in range(0, whole, 4):
        few = slice(j, j + 4)
        pass_four(columns[few], scale, u, v[few], g, next_u, next_v[few])
    for j in range(whole, len(columns)):
        next_v[j] = pass_one(columns[j], scale, u, v[j], g, next_u)


def row_loop(fingerprint):
    @kept
    @njit(**SETTINGS)
    def walk(columns, late, scale, w, settings, state, records, X, F, Y):
        """Learn the rows of X one after another.

        columns (L's, p×p), late and w (q×p) are changed in place. late: u and v of the row
        before, by which L is still to be changed, with its scale (1); zero there: it is not.
        Without rows that change is all that is done. F (n×q): what is predicted where w = 0. Y: the
        labels.

        settings: noise; fade, the root of 1 / `forgetting`; prior, how wide L was (`Width`); limit
        and room: so wide it may be, and so wide divided by a row's length, but before a row that
        sees so much (`visible`) of where it is widest, up to `widest`; what parameters may reach
        (`most`); the least and the largest of lengths whose squares are numbers, and the share of a
        length that is rounding. state: how many rows were learned, now and before, what parameters
        may have reached, and how wide L is. records (…×(4 + 3q)): for each row, behind those
        learned before, |Δw|, novelty, rank, variance, q residuals, q predictions, q conflicts.

        Fewer rows than all are learned where the next one is not for this loop; nothing is late
        then.
        """
        fingerprint  # noqa: B018
        noise, fade, prior, limit = settings[0], settings[1], settings[2], settings[3]
        room, visible, widest, most = settings[4], settings[5], settings[6], settings[7]
        least, largest, rounding = settings[8], settings[9], settings[10]
        p, q, row, learned = len(columns), len(w), 0, int(state[0])
        u, v, ahead = late[0], late[1], np.empty_like(late)
        next_u, next_v, by = ahead[0], ahead[1], scale[0]
        if by == 0:
            u[:], v[:], by = 0, 0, 1.0
        if not len(X):
            sweep(columns, by, u, v, u, next_u, next_v)
        while row < len(X):
            g = X[row]
            sweep(columns, by, u, v, g, next_u, next_v)
            u, v, next_u, next_v = next_u, next_v, u, v
            by, bound = fade, state[2] * fade
            norm, seen, wide = np.sqrt(dot(g, g)), np.sqrt(dot(v, v)), np.sqrt(dot(u, u))
            within = least < norm < largest and least < seen < largest and wide < largest
            if not within or bound > widest:
                break
            if (bound > limit or bound * norm > room) and fade * seen <= visible * bound * norm:
                break
            # T of `DenseSplit`, and what of it is no rounding.
            t = fade * seen
            if t <= rounding * prior * norm:
                t = 0.0
            total, step, told = t * t + noise, 0.0, records[learned]
            for h in range(q):
                f = F[row, h] + dot(w[h], g)
                residual = Y[row, h] - f
                told[4 + h] = residual
                told[4 + q + h] = f
                told[4 + 2 * q + h] = residual * (noise / total)
                step = np.hypot(step, residual)
            gain = fade * fade / total if t > 0 else 0.0
            step *= gain * wide
            if not state[1] + step < most:  # so it is where a prediction is no number
                break
            for h in range(q):
                a = columns.dtype.type(gain * told[4 + h])
                for i in range(p):
                    w[h, i] += a * u[i]
            told[0], told[1], told[2], told[3] = step, min(1.0, t / (prior * norm)), p, total
            # I − T (TᵀT + R I)⁻¹ Tᵀ has the root I − (1 − sqrt(R / (t² + R))) K Kᵀ, K = v / |v|.
            share = 1 - np.sqrt(noise / total) if t > 0 else 0.0
            u *= columns.dtype.type(share / seen / seen)
            row, learned = row + 1, learned + 1
            state[1], state[2] = state[1] + step, bound
        late[0], late[1] = u, v
        state[0], scale[0] = learned, fade if 0 < row == len(X) else 0.0

    return walk


walk = row_loop(FINGERPRINT)
