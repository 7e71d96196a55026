"""Many small learners at once: each walks through its own rows (`kernels.walk`), on some thread.

What one has is its part of arrays that hold all of them. The steps are those of a learner by
itself: the very same compiled loop.
"""

import numpy as np
from numba import njit

from orfit import tail
from orfit.kernels import FINGERPRINT, tell, walk
from orfit.kernels.cache import kept
from orfit.kernels.loops import dot
from orfit.kernels.settings import SETTINGS
from orfit.kernels.sharing import shared


@shared
def learn_shared(start, stop, thread, outs, args):
    (rows, base, M, W, sigma, shift, counts, energies, reach), news, settings = args
    which, starts, X, F, Y, records, learned = news
    noises, tailed, no, m, free, zero, one, fading, drift, cutoff, safe, most_lost, most = settings
    state, nothing = outs[thread], np.empty((0, 0))
    for group in range(start, stop):
        i, begin, end = which[group], starts[group], starts[group + 1]
        stored, k, folds = counts[i, 0], counts[i, 1], counts[i, 2]
        level, dropped = energies[i, 3:4].copy(), energies[i, 4:5].copy()
        known = tail.Tail(level, dropped, energies[i, 1], energies[i, 2], fading)
        tell(
            state, 0, stored, no, folds, energies[i, 0], reach[i], known, sigma[i, :k],
            shift[i, :, :stored], W[i, :k, :stored],
        )  # fmt: skip
        walk(
            rows[i], M[i], nothing, base[i], state, m, no, free, noises, tailed, zero, fading,
            drift, cutoff, safe, most_lost, most, records[begin:end], one, X[begin:end],
            F[begin:end], Y[begin:end],
        )  # fmt: skip
        learned[group] = int(state[0])
        if learned[group] == 0:
            continue
        # What `tell` wrote, in that order.
        stored, k = int(state[1]), int(state[2])
        counts[i, 0], counts[i, 1], counts[i, 2] = stored, k, int(state[4])
        counts[i, 3] += learned[group]
        energies[i, 0] = state[5]
        reach[i] = state[6]
        energies[i, 1], energies[i, 2] = state[7], state[8]
        place = 10
        sigma[i, :k] = state[place : place + k]
        place += k
        energies[i, 3], energies[i, 4] = state[place], state[place + 1]
        place += 2
        for h in range(shift.shape[1]):
            shift[i, h, :stored] = state[place : place + stored]
            place += stored
        for j in range(k):
            W[i, j, :stored] = state[place : place + stored]
            place += stored


@shared
def predict_shared(start, stop, thread, outs, args):
    rows, base, shift, counts, which, X, out = args
    for row in range(start, stop):
        i, x = which[row], X[row]
        for h in range(base.shape[1]):
            out[row, h] = dot(base[i, h], x)
        for j in range(counts[i, 0]):
            product = dot(rows[i, j], x)
            for h in range(base.shape[1]):
                out[row, h] += shift[i, h, j] * product


def loops(fingerprint):
    @kept
    @njit(**SETTINGS)
    def learn(fleet, news, settings, outs):
        """Learn rows: those of X from starts[g] on are of the learner which[g].

        outs: for each thread room for an state of `walk`. learned: how many of each group were.
        """
        fingerprint  # noqa: B018
        learn_shared(len(news[0]), outs, (fleet, news, settings))

    @kept
    @njit(**SETTINGS)
    def predict(rows, base, shift, counts, which, X, out, outs):
        """out ← what learner which[i] says of X[i], n×q."""
        fingerprint  # noqa: B018
        predict_shared(len(X), outs, (rows, base, shift, counts, which, X, out))

    return learn, predict


learn, predict = loops(FINGERPRINT)
