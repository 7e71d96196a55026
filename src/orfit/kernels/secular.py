"""The eigenproblem of a diagonal and a rank-one matrix, root by root, in O(k²)."""

import numpy as np

from orfit.kernels.settings import compiled
from orfit.kernels.sharing import shared

EPS = np.finfo(np.float64).eps
TINY = 1e-70
LARGE = 64  # so many roots are shared among threads


@compiled
def secular_root(s, z2, i, inverse):
    """The i-th root λ of 1 + Σ z_j² / (s_j² − λ) = 0, s falling, as inverse_j = 1 / (s_j² − λ).

    It lies between s_i² and s_(i−1)² (the first one below s_0² + Σ z²). Distances are measured from
    the nearer pole, so that each has full relative accuracy; the iteration fits a rational
    function with the poles at both ends, the nearer one with its own weight (the fixed weight
    method; Li 1993), inside a shrinking bracket.
    """
    n = len(s)
    first = i == 0
    if first:
        gap = 0.0
        for j in range(n):
            gap += z2[j]
    else:
        gap = (s[i - 1] - s[i]) * (s[i - 1] + s[i])
    # Which end is nearer? f rises, so its sign in the middle tells; the rest of the sum there,
    # beside the two poles, gives the first guess.
    middle, f = 0.5 * gap, 1.0
    pole = s[i]
    for j in range(n):
        f += z2[j] / ((s[j] - pole) * (s[j] + pole) - middle)
    below = z2[i]
    above = 0.0 if first else z2[i - 1]
    rest = f + (below - above) / middle
    origin = i
    if first:
        low, high = (middle, gap) if f < 0 else (0.0, middle)
        tau = below / rest if rest > 0 else gap
    elif f >= 0:
        low, high = 0.0, middle
        a, b = rest * gap + below + above, below * gap
        root = np.sqrt(max(a * a - 4 * b * rest, 0.0))
        tau = 2 * b / (a + root) if a > 0 else (a - root) / (2 * rest)
    else:
        origin = i - 1
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
            inverse[j] = 1 / ((s[j] - pole) * (s[j] + pole) - tau)
            term = z2[j] * inverse[j]
            f += term
            size += abs(term)
            slope += term * inverse[j]
        if abs(f) <= 4 * EPS * n * size:
            break
        if f < 0:
            low = tau
        else:
            high = tau
        near = (s[i] - pole) * (s[i] + pole) - tau
        if first:
            c = f - slope * near
            step = near + slope * near * near / c if c > 0 else np.inf
        else:
            far = (s[i - 1] - pole) * (s[i - 1] + pole) - tau
            if origin == i:
                c = f - far * slope - z2[i] / near * ((near - far) / near)
            else:
                c = f - near * slope - z2[i - 1] / far * ((far - near) / far)
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


@shared
def secular_roots(start, stop, thread, outs, args):
    s, z2, inverse = args
    for i in range(start, stop):
        secular_root(s, z2, i, inverse[i])


@compiled
def nearly_apart(s, z, i, j):
    """Whether turning two poles so that z is all on one of them leaves nothing between them.

    That is so where they are in one place, or where one z is nothing beside the other. Nothing is
    what is small beside the scales of both.
    """
    square = z[i] * z[i] + z[j] * z[j]
    between = abs(z[i] * z[j]) * (s[j] - s[i]) * (s[j] + s[i])
    return between <= 8 * EPS * s[j] * np.sqrt(s[i] * s[i] + square) * square


@compiled
def rank_one(sigma, z, threads):
    """Roots of the eigenvalues of diag(sigma²) + z zᵀ, falling, as sigma, and eigenvectors as rows.

    Deflation and the recomputed z (Gu, Eisenstat 1994), which makes the vectors orthogonal to
    rounding however close the roots are, are those of LAPACK's dlasd2 and dlasd3. What is deflated
    is small beside its own scale, not beside the largest: each root is as accurate as its data are.
    """
    n = len(sigma)
    work, inverse = np.empty((7, n)), np.empty((n, n))
    s, z1, t, z2 = work[0], work[1], work[2], work[3]
    again, found, angle = work[4], work[5], work[6]
    order = np.empty((4, n), np.int64)
    poles, fixed = order[0], order[1]  # what is left after deflation, falling; what is done already
    largest = sigma[0]
    for j in range(n):
        largest = max(largest, abs(z[j]))
    largest = largest if largest > 0 else 1.0
    for j in range(n):  # beside the largest, what has no square is nothing
        s[j], z1[j] = sigma[j] / largest, z[j] / largest
        if s[j] < TINY:
            s[j] = 0.0
    r = d = turns = 0
    for j in range(n - 1, -1, -1):
        if abs(z1[j]) <= 8 * EPS * s[j] or abs(z1[j]) < TINY:
            fixed[d] = j
            d += 1
        elif r > 0 and nearly_apart(s, z1, poles[r - 1], j):
            before = poles[r - 1]  # turn the two so that one is not moved
            angle[turns] = np.arctan2(z1[before], z1[j])
            order[2, turns], order[3, turns] = before, j
            turns += 1
            z1[j] = np.sqrt(z1[before] ** 2 + z1[j] ** 2)
            cosine, sine = np.cos(angle[turns - 1]), np.sin(angle[turns - 1])
            one, other_one = s[before], s[j]
            s[before] = np.hypot(sine * other_one, cosine * one)
            s[j] = np.hypot(cosine * other_one, sine * one)
            fixed[d] = before
            d += 1
            poles[r - 1] = j
        else:
            poles[r] = j
            r += 1
    poles[:r] = poles[:r][::-1].copy()
    for j in range(r):
        t[j] = s[poles[j]]
        z2[j] = z1[poles[j]] ** 2
    # inverse[i, j] = 1 / (t_j² − λ_i): to divide takes longer than all else.
    secular_roots(
        np.int64(r), np.empty((threads if r >= LARGE else 1, 0)), (t[:r], z2[:r], inverse)
    )
    for i in range(r):
        found[i] = np.sqrt(max(t[i] * t[i] - 1 / inverse[i, i], 0.0))
        again[i] = -1 / inverse[0, i]
    for i in range(1, r):
        row, lower, upper = inverse[i], t[i], t[i - 1]
        for j in range(r):
            pole = lower if j < i else upper
            again[j] /= row[j] * (t[j] - pole) * (t[j] + pole)
    for j in range(r):
        again[j] = np.copysign(np.sqrt(max(again[j], 0.0)), z1[poles[j]])
    for i in range(r):
        row, length = inverse[i], 0.0
        for j in range(r):
            length += (row[j] * again[j]) ** 2
        length = 1 / np.sqrt(length)
        for j in range(r):
            row[j] *= again[j] * length
    if d == 0:
        return found * largest, inverse
    # What was deflated is merged in.
    for i in range(d):
        found[r + i] = s[fixed[i]]
    values, vectors = np.empty(n), np.zeros((n, n))
    for i in range(n):
        rank = 0
        for other in range(n):
            if found[other] > found[i] or (found[other] == found[i] and other < i):
                rank += 1
        values[rank] = found[i] * largest
        if i < r:
            for j in range(r):
                vectors[rank, poles[j]] = inverse[i, j]
        else:
            vectors[rank, fixed[i - r]] = 1.0
    for step in range(turns - 1, -1, -1):
        before, j = order[2, step], order[3, step]
        cosine, sine = np.cos(angle[step]), np.sin(angle[step])
        for i in range(n):
            one, other_one = vectors[i, before], vectors[i, j]
            vectors[i, before] = cosine * one + sine * other_one
            vectors[i, j] = cosine * other_one - sine * one
    return values, vectors
