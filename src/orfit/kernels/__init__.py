"""The row loop of a memory in principal axes, compiled: for rows that come one after another.

Needs numba (the extra `fast`); without it the plain path does the same. `walk` is `OneStep._learn`
on `Principal`, row after row, for a linear model with one output or heads: the same steps, for one
column. What is small is done by the functions of `gram` and `tail`, compiled; a row that is too
large or too small for this loop is left to the plain step.
"""

import numpy as np
from numba import njit

from orfit import gram, tail
from orfit.kernels.cache import fingerprint, kept
from orfit.kernels.long import FOLDED, fold, length_of, read, room_for_gram, whole_gram
from orfit.kernels.loops import dot, multiply
from orfit.kernels.secular import LARGE, rank_one
from orfit.kernels.settings import SETTINGS, compiled
from orfit.kernels.sharing import shared, threads
from orfit.kernels.tile import ROWS

__all__ = ["rank_one", "threads", "walk"]

FINGERPRINT = fingerprint()


@shared
def turn_shared(start, stop, thread, outs, args):
    V, W, turned = args
    multiply(V[start:stop], W, W.shape[1], turned[start:stop])


@compiled
def turned(V, W, threads):
    """V W. A thread has a whole tile's rows at least: with fewer, sums would be made otherwise."""
    made = np.empty((len(V), W.shape[1]))
    shares = min(threads, len(V) // ROWS) if len(V) >= LARGE else 1
    turn_shared(len(V), np.empty((shares, 0)), (V, W, made))
    return made


@compiled
def made_by(provenance, a):
    """|x| for the combination Pᵀ x = a, P (s×s) lower triangular (`small.Provenance`)."""
    x = a.copy()
    for j in range(len(a) - 1, -1, -1):
        for i in range(j + 1, len(a)):
            x[j] -= provenance[i, j] * x[i]
        x[j] /= provenance[j, j]
    return np.sqrt(dot(x, x))


AHEAD = 8  # rows that are read for at a time, where they are stored one after another


@compiled
def evenly(count, most):
    """How many of them to take at a time: at most so many, and about the same each time."""
    times = (count + most - 1) // most
    return (count + times - 1) // times


NUMBERS = 12  # of a state, before its arrays


@compiled
def tell(state, learned, stored, exact, folds, lost, reach, known, lengths, sigma, shift, W):
    """state ← numbers, sigma, level and dropped of the tail, shift, W (`memory.loop.packed`)."""
    state[0], state[1], state[2], state[3] = learned, stored, len(W), exact
    state[4], state[5], state[6] = folds, lost, reach
    state[7], state[8], state[9] = known.rows, known.dropping, known.prior
    state[10], state[11] = lengths
    place = NUMBERS
    for part in (sigma, known.level, known.dropped):
        state[place : place + len(part)] = part
        place += len(part)
    for part in (shift, W):
        for line in part:
            state[place : place + len(line)] = line
            place += len(line)


@compiled
def told(state, columns, guesses):
    """What `tell` wrote: the tail, sigma, shift and W, copies of them."""
    stored, k = int(state[1]), int(state[2])
    of_level = NUMBERS + k
    of_dropped = of_level + guesses
    of_shift = of_dropped + guesses
    of_W = of_shift + columns * stored
    level, dropped = state[of_level:of_dropped].copy(), state[of_dropped:of_shift].copy()
    return (
        tail.Tail(level, dropped, state[7], state[8], state[9]),
        state[NUMBERS:of_level].copy(),
        state[of_shift:of_W].copy().reshape(columns, stored),
        state[of_W : of_W + k * stored].copy().reshape(k, stored),
    )


def row_loop(fingerprint):
    @kept
    @njit(**SETTINGS)
    def walk(
        rows, M, provenance, base, state, m, shrinks, free, noises, tailed, chosen, fading, drift,
        cutoff, safe, most_lost, most, records, threads, X, F, Y,
    ):  # fmt: skip
        """Learn the rows of X one after another.

        The memory in principal axes, sigma (k, falling), and w, as a `Frame` has them:

            U = (W Q)ᵀ,  w = base + shift Q     Q: `stored` of `rows`,  M = Q Qᵀ,  base: b×p

        rows, M, provenance and base are changed in place; all else that a row changes is the state
        (`tell`), from which the next call goes on. provenance: as in `small`, used where `exact`:
        while nothing has been dropped and there is no noise. known: a `Tail`, which is kept where
        `free`, the number of directions that are not remembered, is positive. noises (e) and tailed
        (e, whether with the tail): the guesses, of which one is chosen; each has q = b / e columns
        of w, of Y (n×b), the labels, and of F, what is predicted where w = 0. fading: the root of
        `forgetting`. safe: lengths whose squares are numbers. most: what steps may reach. records
        (…×(3 + e + 2b + q)): for each row, behind those learned before, |Δw|, novelty, rank, the
        variance of each guess, b residuals, b predictions, and the q conflicts of the chosen.
        threads: how many share the p dimension.

        Fewer rows than all are learned where the next one is not for this loop. The state is
        written when rows have changed in place, and in the end: where it does not say that more
        was learned, nothing has changed.
        """
        fingerprint  # noqa: B018
        guesses, room, q = len(noises), len(rows), len(base) // len(noises)
        learned, stored, exact, folds = int(state[0]), int(state[1]), state[3] != 0, int(state[4])
        lost, reach, before, lengths = state[5], state[6], learned, (state[10], state[11])
        known, sigma, shift, W = told(state, len(base), guesses)
        f, alpha, nothing = np.empty(len(base)), np.empty(len(base)), np.empty(0)
        products, at, group = np.empty((0, 0)), 0, AHEAD
        tiny, eps = np.finfo(rows.dtype).tiny, np.finfo(rows.dtype).eps
        for row in range(len(X)):
            k, one = len(W), X[row : row + 1]
            if at == len(products):  # one read for some rows, that are then stored as they came
                coming = min(room - stored, len(X) - row)
                several = evenly(coming, group)
                products = read(rows, stored, base, X[row : row + several], 1.0, nothing, threads)
                at, group = 0, min(2 * group, AHEAD)
            inner = products[at]
            norm, size = np.sqrt(inner[stored]), np.sqrt(inner[stored])
            at, as_it_came = at + 1, safe[0] < norm < safe[1]
            if not as_it_came:
                norm = length_of(one[0])
                if not norm < np.inf or 0 < norm < 4 * tiny:  # or its inverse is no number
                    break
                scale = 1 / norm if norm > 0 else 0.0
                inner = read(rows, stored, base, one, scale, nothing, threads)[0]
                size = np.sqrt(inner[stored])
            # From here on the row, of length `size` behind the others, stands for a unit vector.
            scale = 1 / size if size > 0 else 0.0
            raw = scale * inner[:stored].copy().reshape(1, stored)
            for h in range(len(base)):
                along_base = scale * inner[len(inner) - len(base) + h]
                f[h] = F[row, h] + norm * (along_base + dot(shift[h], raw[0]))
            # Take it apart, as `frame.decompose` does: g = U c + t o, t o = g − A Q.
            C, A, left, rounding, lacking = gram.project(W, M, raw, np.ones((1, 1)))
            astray = gram.lacks(W, M, lacking, rounding, most_lost, eps)
            t, new, formed = np.sqrt(max(left[0, 0], 0.0)), norm > 0, False
            lost_here = rounding[0] ** 2 / left[0, 0] if left[0, 0] > 0 else np.inf
            if new and not gram.trusted(lost_here, rounding, most_lost):
                formed, along = True, A[0]
                inner = read(rows, stored, base, one, 1 / norm, -along, threads)[0]
                size = np.sqrt(inner[stored])
                new = size > cutoff * (np.hypot(1.0, made_by(provenance, along)) if exact else 1.0)
                if new:
                    raw = inner[:stored].copy().reshape(1, stored) / size
                    D, A, left, rounding, _ = gram.project(W, M, raw, np.ones((1, 1)))
                    C, t = C + size * D, size * np.sqrt(max(left[0, 0], 0.0))
                    new = left[0, 0] > 0.25
            if not new:
                t = 0.0
            if formed or not (new and as_it_came):  # what lies behind is not what was read ahead
                at, group = len(products), 1
            # The past fades, and w may have drifted.
            now = tail.aged(known, noises[chosen], fading * fading, drift, 1.0)
            seen, count = np.zeros(k + 1), k
            for i in range(k):
                seen[i] = fading * sigma[i]
                if drift > 0:
                    energy = seen[i] * seen[i]
                    seen[i] *= np.sqrt(tail.drift_share(energy, known, noises[chosen], drift))
            # Fit, with everything divided by |x|: Δw = (ρ t o + U E Eᵀ c) residual / (gᵀPg + R).
            damped, everything, suited = np.zeros((guesses, k + 1)), 0.0, True
            for guess in range(guesses):
                noise = noises[guess]
                R = (noise / norm) / norm if noise > 0 and norm > 0 else 0.0
                suited = suited and (noise == 0 or norm == 0 or 0 < R < np.inf)
                loose, prior = tail.share(now, guess, noise, tailed[guess]), tail.floor(now, noise)
                total, square = loose * (t * t) + R, (loose * t) ** 2
                damped[guess, k] = loose * t
                if noise > 0:
                    for i in range(k):
                        damped[guess, i] = C[0, i] * (noise / (seen[i] * seen[i] + prior))
                        total += damped[guess, i] * C[0, i]
                        square += damped[guess, i] ** 2
                step, length = 0.0, np.sqrt(square)
                if length > 0:
                    damped[guess] /= length
                for h in range(guess * q, guess * q + q):
                    residual = Y[row, h] - f[h]
                    alpha[h] = residual / norm * (length / total) if total > 0 else 0.0
                    records[learned, 3 + guesses + h] = residual
                    records[learned, 3 + guesses + len(base) + h] = f[h]
                    step = np.hypot(step, alpha[h])
                    if guess == chosen:
                        unfitted = residual * (R / total) if 0 < total < np.inf else residual
                        records[learned, 3 + guesses + 2 * len(base) + h - guess * q] = unfitted
                records[learned, 3 + guess] = norm * norm * total if norm > 0 else noise
                everything = np.hypot(everything, step)
                if guess == chosen:
                    records[learned, 0] = step
            # What is too large or too small for this loop is left to the plain step.
            if not reach + everything < most or not np.isfinite(f).all() or not suited:
                break
            reach += everything
            records[learned, 1] = t
            # Remember: the new direction goes last, with as much seen along it as the tail says.
            known, noise, started = now, noises[chosen], 0.0
            if astray:
                W = gram.cured(W, M)
            if new:
                if noise > 0 and tailed[chosen]:
                    seen[k] = np.sqrt(known.level[chosen])
                    if k > 0:  # it is never more than the least that is kept, but for rounding
                        seen[k] = min(seen[k], seen[k - 1])
                    started = seen[k] * seen[k]
                for j in range(stored):
                    M[stored, j] = M[j, stored] = size * raw[0, j]
                    if exact:
                        provenance[stored, j] = along[j] if formed else 0.0
                M[stored, stored] = size * size
                if exact:
                    provenance[stored, stored] = 1.0 if formed else scale
                W = gram.extended(W, size * A, np.full((1, 1), 1 / (size * np.sqrt(left[0, 0]))))
                stored, count = stored + 1, k + 1
            wider = np.zeros((len(base), stored))
            gram.put(wider, 0, 0, 1.0, shift)
            moves = gram.combinations(damped[:, :count].copy(), W)
            for h in range(len(base)):
                wider[h] += alpha[h] * moves[h // q]
            shift = wider
            lost = fading * fading * lost - started
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
                    if free > 0:
                        dropped, least = np.full(1, last * last), sigma[m - 1] * sigma[m - 1]
                        known = tail.lengthened(known, dropped, least, noises, 1.0, free)
                    if shrinks:
                        sigma = np.sqrt(np.maximum((sigma - last) * (sigma + last), 0.0))
                W = turned(vectors[:m], W, threads)
            records[learned, 2] = len(W)
            learned += 1
            if norm > 0:  # `Lengths`
                lengths = lengths[0] + 1, lengths[1] + 2 * np.log10(norm)
            if stored == room:
                stay, gone, Y_gone, W, folded = gram.fold(W, M, most_lost)
                nothing_moved = np.zeros((len(base), len(W)))
                leaving = np.empty((threads, len(gone), FOLDED), rows.dtype)
                measured = len(W) if gram.measure_now(folds + 1, len(W)) else 0
                grams = room_for_gram(rows.shape[1], measured)
                # Of memory, which there might not be, no more is asked for until the state tells.
                fold(rows, stay, gone, Y_gone, base, shift, leaving, grams)
                folds, stored, shift = folds + 1, len(W), nothing_moved
                gram.put(M, 0, 0, 1.0, folded)
                tell(
                    state,
                    learned,
                    stored,
                    exact,
                    folds,
                    lost,
                    reach,
                    known,
                    lengths,
                    sigma,
                    shift,
                    W,
                )
                if measured > 0:
                    folded = whole_gram(grams)
                    W = gram.cured(W, folded)
                    gram.put(M, 0, 0, 1.0, folded)
        if learned > before:
            tell(state, learned, stored, exact, folds, lost, reach, known, lengths, sigma, shift, W)

    return walk


walk = row_loop(FINGERPRINT)
