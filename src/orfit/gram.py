"""What the Gram matrix of stored rows tells: a second projection, and folding, with no p in it.

    Q (s×p)  rows that span U: gradients as they came, mostly      M = Q Qᵀ (s×s)
    W (k×s)  U = (W Q)ᵀ is orthonormal                              W M Wᵀ = I

M costs nothing: when a gradient g is stored, its row of M is Q g, which the step needed anyway.

Gradients are rows here, of length one; n of them give raw = G Qᵀ (n×s) and gram = G Gᵀ (n×n). The
functions are plain Python on small float64 arrays, and `kernels` compiles these very functions: all
they use of NumPy it knows, but for the few at the top, for which it has loops of its own.
"""

import numpy as np

from orfit import small
from orfit.door import Array

# What is known of a direction may lack about so much of being orthonormal: by eps times what
# `project` and `lost` say is lost. Gradients of which more would be lost are projected explicitly.
ORTHONORMAL = {np.dtype(np.float64): 2e-12, np.dtype(np.float32): 3e-5}

# How long the parts of a combination of rows may be that is taken off a unit gradient: rounding
# grows as much, and gradients that come later would make it grow in turn.
LONGEST_TAKEN = 8.0

# Folding rounds the rows, and M does not see it. A new direction inherits what others lack of being
# orthonormal, times |c| / t, so that it would grow like a power: after every so many folds M is
# measured, k² p, and W put right. The more directions, the less that is beside all else.
DIRECTIONS_PER_FOLD = 16

# Turning rounds W at every step, also where nothing is new and no row is ever folded: what it lacks
# of being orthonormal grows as the root of their number, or faster. The second projection of a
# gradient, which is made anyway, tells: beyond this share of `ORTHONORMAL`, W is put right. Of
# directions that are long combinations it tells rounding, some eps times both lengths, and nothing
# can be put right by M: up to seven eps were seen, and thirty where rows are parallel, where it is
# tried in vain.
LACKING = 0.1
ROUNDED = 16.0


def most_lost(dtype: np.dtype[np.floating]) -> float:
    """How many eps may be lost of a direction that is known by its coefficients alone."""
    return ORTHONORMAL[dtype] / float(np.finfo(dtype).eps)


def products(X: Array, A: Array) -> Array:
    """X Aᵀ."""
    return small.product(X, A.T)


def combinations(C: Array, A: Array) -> Array:
    """C A."""
    return small.product(C, A)


def times_gram(X: Array, M: Array) -> Array:
    """X M, of which as much is used as X is wide."""
    s = X.shape[1]
    return small.product(X, M[:s, :s])


def add(A: Array, share: float, B: Array) -> None:
    """A ← A + share B, of the same shape."""
    A += share * B


def put(out: Array, i: int, j: int, share: float, A: Array) -> None:
    """Write share A into `out`, from row i and column j on."""
    out[i : i + len(A), j : j + A.shape[1]] = share * A


def picked(A: Array, rows: Array, columns: Array) -> Array:
    """A, of which those rows and columns."""
    return A[rows[:, None], columns]


def energies(A: Array, M: Array) -> Array:
    """Σ aⱼ² Mⱼⱼ for each row a of A: what combinations are made of."""
    return np.asarray((A * A) @ np.diag(M)[: A.shape[1]])


def subtract_outer(E: Array, j: int) -> None:
    """Take row j, times column j, off what lies below and to the right of both."""
    E[j + 1 :, j + 1 :] -= np.outer(E[j + 1 :, j], E[j, j + 1 :])


def eliminate(E: Array) -> Array:
    """L and U of E (k×s, in its place), with columns swapped for pivots: their order."""
    order = np.arange(E.shape[1])
    for j in range(len(E)):
        pivot = j + np.argmax(np.abs(E[j, j:]))
        column, number = E[:, j].copy(), order[j]
        E[:, j], order[j] = E[:, pivot], order[pivot]
        E[:, pivot], order[pivot] = column, number
        if E[j, j] == 0:
            break
        E[j + 1 :, j] /= E[j, j]
        subtract_outer(E, j)
    return order


def project(
    W: Array, M: Array, raw: Array, gram: Array
) -> tuple[Array, Array, Array, Array, float]:
    """G = C U + (G − A Q): C (n×k), A (n×s), the Gram matrix of what is left, and its rounding.

    Projected twice, the second time through M, which takes out what W M Wᵀ lacks of I. Eps times
    the square of the rounding is about that in what is left of each. The last result is how much
    W M Wᵀ lacks of I, as these gradients see it.
    """
    C = products(raw, W)
    A = combinations(C, W)
    rest = times_gram(A, M)
    add(rest, -1.0, raw)
    D = products(rest, W)
    add(C, -1.0, D)
    add(A, -1.0, combinations(D, W))
    rest, left = times_gram(A, M), gram.copy()
    add(rest, -1.0, raw)
    add(left, -1.0, products(raw, A))
    add(left, 1.0, products(A, rest))
    rounding = energies(A, M)
    for i in range(len(raw)):  # each product in `raw` is known up to eps times the lengths
        rounding[i] = np.sqrt(gram[i, i] + rounding[i])
    return C, A, left, rounding, np.sqrt(np.square(D).sum() / max(1, len(raw)))


def trusted(lost: float, rounding: Array, most: float) -> bool:
    """Whether what is left of gradients is known well enough by its coefficients."""
    return lost <= most and rounding.max() <= LONGEST_TAKEN


def lacks(W: Array, M: Array, lacking: float, rounding: Array, most: float, eps: float) -> bool:
    """Whether W is to be put right (`cured`), of which `project` says what it lacks."""
    if not lacking > LACKING * most * eps:
        return False
    longest = np.sqrt(energies(W, M).max())
    return bool(lacking > ROUNDED * eps * rounding.max() * longest)


def extended(W: Array, A: Array, K: Array) -> Array:
    """W with r more directions K (N − A Q), for rows N that are stored behind Q."""
    (k, s), r = W.shape, len(K)
    wider = np.zeros((k + r, s + r))
    put(wider, 0, 0, 1.0, W)
    put(wider, k, 0, -1.0, combinations(K, A))
    put(wider, k, s, 1.0, K)
    return wider


def measure_now(folds: int, k: int) -> bool:
    """Whether M is to be measured after that many folds."""
    return folds % max(2, k // DIRECTIONS_PER_FOLD) == 0


def cured(W: Array, M: Array) -> Array:
    """W, changed so that W M Wᵀ is I again.

    By the inverse of its Cholesky factor, near I: a direction is changed by those before it, along
    which more was seen. Were the nearest orthonormal frame taken, U (UᵀU)^(-1/2), long gradients
    would find a share in what only short ones have told.
    """
    lack = products(times_gram(W, M), W)
    for i in range(len(W)):
        lack[i, i] = 0.5 * (lack[i, i] - 1.0)
        lack[i, i + 1 :] = 0.0
    right = W.copy()
    add(right, -1.0, combinations(lack, W))
    return right


def fold(W: Array, M: Array, most: float) -> tuple[Array, Array, Array, Array, Array]:
    """How to fold s rows into as many as there are directions: stay, gone, Y, and W and M after it.

    With W = (W₁, W₂) for rows that stay and that go, W₁ Q₁ + W₂ Q₂ = W₁ (Q₁ + Y Q₂), Y = W₁⁻¹ W₂:
    row i becomes row stay[i] and the combination Y[i] of those that go, which costs k p for each.
    Which go is found by elimination with pivots, which keeps Y small. A row that stays among the
    first k keeps its place.

    Where directions would become long combinations all the same, and more than `most` be lost of
    them (`most_lost`), U itself is written out: all rows go, and stay is −1.
    """
    k, s = W.shape
    lengths = np.sqrt(np.diag(M)[:s])
    E = W * lengths
    order = eliminate(E)
    Y = E[:, k:].copy()
    for i in range(k - 1, -1, -1):
        if E[i, i] == 0:
            return written_out(W, M)
        Y[i] = (Y[i] - combinations(E[i : i + 1, i + 1 : k].copy(), Y[i + 1 :])[0]) / E[i, i]
    stay, gone, found = np.full(k, -1), order[k:].copy(), np.empty(s, np.int64)
    for i in range(k):
        found[order[i]] = i
        if order[i] < k:
            stay[order[i]] = order[i]
    free = 0
    for j in order[:k]:
        if j >= k:
            while stay[free] >= 0:
                free += 1
            stay[free] = j
    shares = np.empty((k, s - k))
    for i in range(k):
        shares[i] = Y[found[stay[i]]] * lengths[stay[i]] / lengths[gone]
    W_stay = picked(W, np.arange(k), stay)
    half = picked(M, stay, gone)
    add(half, 0.5, products(shares, picked(M, gone, gone)))
    half = products(shares, half)
    M_folded = picked(M, stay, stay)
    add(M_folded, 1.0, half)
    add(M_folded, 1.0, half.T)
    made_of = energies(W_stay, M_folded)
    for i in range(k):
        if made_of[i] > most:
            return written_out(W, M)
    return stay, gone, shares, W_stay, M_folded


def written_out(W: Array, M: Array) -> tuple[Array, Array, Array, Array, Array]:
    """`fold` by U ← W Q: all rows go."""
    k, s = W.shape
    return np.full(k, -1), np.arange(s), W, np.eye(k), products(times_gram(W, M), W)
