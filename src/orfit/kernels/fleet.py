"""Many small learners at once: each takes its own rows, on some thread.

The step of `kernels.walk` for memories that lie in the cache while they are worked on: U itself is
stored, gradients are projected twice against it, and it is turned at every row. That takes no more
than m p numbers for a learner, where rows to fold and their Gram matrix would take half as much
again, and is faster where nothing is gained by reading the basis only once.
"""

import numpy as np
from numba import njit

from orfit import gram, tail
from orfit.kernels import FINGERPRINT
from orfit.kernels.cache import kept
from orfit.kernels.long import gram_of
from orfit.kernels.loops import add_combination, add_products, dot, multiply
from orfit.kernels.secular import rank_one
from orfit.kernels.settings import SETTINGS, START, compiled
from orfit.kernels.sharing import shared

# Both projections are explicit, so that what U lacks of being orthonormal adds up and does not
# grow like a power: after so many rows it is put right.
MEASURED = 64


@compiled
def take_apart(U, k, x, Q, c, d, cutoff):
    """x / |x| = c U + t o. Q ← U and, behind it, o; d: room. |x|, t, and whether o is anything."""
    g, size = Q[k], np.sqrt(dot(x, x))
    for i in range(k):
        Q[i] = U[i]
    c[:] = 0.0
    if not size > 0:
        return size, 0.0, False
    for l in range(len(x)):
        g[l] = x[l] / size
    add_products(Q, k, START, len(x), g, c)
    left = 1.0
    for again in range(2):
        if again:
            d[:] = 0.0
            add_products(Q, k, START, len(x), g, d)
            for i in range(k):
                c[i] += left * d[i]
        for i in range(k):
            d[i] = -d[i] if again else -c[i]
        add_combination(Q, k, START, len(x), d, g)
        length = np.sqrt(dot(g, g))
        if not length > (0.5 if again else cutoff):  # what is left is rounding
            return size, 0.0, False
        left *= length
        for l in range(len(x)):
            g[l] /= length
    return size, left, True


@compiled
def put_right(U, k, Q):
    """U, orthonormal to rounding."""
    M = gram_of(U, k)
    W = gram.cured(np.eye(k), M)
    for i in range(k):
        Q[i] = U[i]
    multiply(W, Q, U.shape[1], U)


@shared
def learn_shared(start, stop, thread, outs, args):
    (directions, ws, sigmas, counts, energies, reach), news, settings = args
    which, starts, X, F, Y, predicted, learned = news
    noises, tailed, m, free, cutoff, safe, most = settings
    noise, q = noises[0], ws.shape[1]
    room = outs[thread].reshape(X.shape[1] + 4, m + 2)
    c, d, damped, seen, alpha = room[0], room[1], room[2], room[3], np.empty(q)
    Q = room[4:].reshape(m + 2, X.shape[1])  # U, and what is new of a row
    for group in range(start, stop):
        i = which[group]
        U, w, sigma = directions[i], ws[i], sigmas[i]
        known = tail.Tail(
            energies[i, 3:4].copy(), energies[i, 4:5].copy(), energies[i, 1], energies[i, 2], 1.0
        )
        for row in range(starts[group], starts[group + 1]):
            x, k = X[row], counts[i, 0]
            size, t, new = take_apart(U, k, x, Q, c, d, cutoff)
            if not safe[0] < size < safe[1] and x.any():
                break
            aged = tail.aged(known, noise, 1.0, 0.0, 1.0)
            # Fit, with everything divided by |x|: Δw = (ρ t o + U E Eᵀ c) residual / (gᵀPg + R).
            R = (noise / size) / size if size > 0 else 0.0
            loose, prior = tail.share(aged, 0, noise, tailed), tail.floor(aged, noise)
            damped[k] = loose * t
            total, square = damped[k] * t + R, damped[k] ** 2
            for j in range(k):
                damped[j] = c[j] * (noise / (sigma[j] * sigma[j] + prior))
                total += damped[j] * c[j]
                square += damped[j] ** 2
            step, length, suited = 0.0, np.sqrt(square), size == 0 or R > 0
            for h in range(q):
                f = F[row, h] + dot(w[h], x)
                residual, predicted[row, h] = Y[row, h] - f, f
                alpha[h] = residual / size * (1 / total) if total > 0 else 0.0
                step = np.hypot(step, alpha[h] * length)
                suited = suited and np.isfinite(f)
            # What is too large or too small for this loop is left to the plain step.
            if not (suited and reach[i] + step < most):
                break
            known, lost, count = aged, 0.0, k
            for j in range(k):
                seen[j], c[j] = sigma[j], size * c[j]
            if new:  # it goes last, with as much seen along it as the tail says
                c[k], seen[k], count = size * t, 0.0, k + 1
                if tailed:
                    seen[k] = np.sqrt(known.level[0])
                    if k > 0:  # it is never more than the least that is kept, but for rounding
                        seen[k] = min(seen[k], seen[k - 1])
                    lost = -seen[k] * seen[k]
            if size > 0 and count > 0:
                rank = min(count, m)
                values, vectors = rank_one(seen[:count], c[:count], 1)
                if count > m:
                    last, least = values[m] * values[m], values[m - 1] * values[m - 1]
                    lost += last
                    if free > 0:
                        known = tail.lengthened(known, np.full(1, last), least, noises, 1.0, free)
                # No more memory is asked for, which there might not be, once anything is changed.
                multiply(vectors[:rank], Q, U.shape[1], U)
                for h in range(q):
                    for j in range(count):
                        d[j] = alpha[h] * damped[j]
                    add_combination(Q, count, START, len(x), d, w[h])
                sigma[:rank] = values[:rank]
                counts[i, 0] = rank
            energies[i, 0] += lost
            reach[i] += step
            energies[i, 1], energies[i, 2] = known.rows, known.dropping
            energies[i, 3], energies[i, 4] = known.level[0], known.dropped[0]
            counts[i, 1] += 1
            learned[group] += 1
            if counts[i, 1] % MEASURED == 0 and counts[i, 0] > 0:
                put_right(U, counts[i, 0], Q)


def loop(fingerprint):
    @kept
    @njit(**SETTINGS)
    def learn(fleet, news, settings, outs):
        """Learn rows: those of X from starts[g] on are of the learner which[g].

        fleet: of each learner U (m×p), w (q×p), sigma (m), its rank and how many rows it has seen,
        energies (lost, and the tail), and how far its steps have reached; all changed in place.
        outs: for each thread room to work in, (m + 2) (p + 4). predicted (n×q) is written;
        learned: how many of each group were. A group is left where a row is not for this loop.
        """
        fingerprint  # noqa: B018
        learn_shared(len(news[0]), outs, (fleet, news, settings))

    return learn


learn = loop(FINGERPRINT)
