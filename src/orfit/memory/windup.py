"""Wind-up: with forgetting, P grows by 1/λ a step along directions that the stream has left.

Rounding in P g is eps |P| |g|, and the step is P g r / (gᵀ P g + R). So it is lost in rounding
if |P| |g|² exceeds R / eps, unless g clearly points where P is widest. While every row does, as in
an overparameterized model whose rows are all new, P may grow as the textbook says. If a row does
not, and P exceeds eps^(-3/4), 5e11 in float64, times R / |g|² or the prior, the prior is restored
along the directions that are so wide, around the present w. From then on it keeps its weight there.

When excitation returns, residuals are those of an exact recursion whose prior has its weight
(`ORFit`) and that began from the w which RLS had (`tests/test_windup.py`). That is the textbook's
w. If p exceeds the 1 / (1 − λ) rows that count, it may be worse than that of an `ORFit` from the
start, two or three times at λ = 0.9 and p = 100.
"""

import math

import numpy as np
import scipy

from orfit import small_linalg
from orfit.state import State
from orfit.store import HOST
from orfit.validation import Array

# A row points clearly where P is widest if it sees this share of the width of L.
VISIBLE = 3e-2
# How much wider L may be than what is known of a row.
MOST_WIDENED = float(np.finfo(float).eps) ** -0.375
# L may be so wide: its squares are finite.
WIDEST = float(np.finfo(float).max) ** 0.4
# Up to this ratio of the width to its bound, LᵀL is accurate enough to limit L.
MILD = 10.0
# How far below its limit L is set, so that the O(p³) correction is rare.
SETBACK = math.sqrt(10.0)


def measured_width(L: Array) -> float:
    """The root mean square of the singular values of L."""
    return small_linalg.frobenius(L) / math.sqrt(len(L))


def width_limit(wound_up: bool, prior: float, noise: float, longest: float) -> float:
    """How wide L may be before rows, up to so long, that do not see where it is widest.

    wound_up: whether the limit has been exceeded before. prior: the width of L₀.
    """
    if wound_up:
        return prior
    known = math.sqrt(noise) / longest if noise > 0 and longest > 0 else math.inf
    return float(MOST_WIDENED * min(prior, known))


def limited(s: State, L: Array, G: Array, norms: Array, prior: float, limit: float) -> Array | None:
    """L held below its limit if the columns of G require it; None if they do not."""
    s.width = measured_width(L)
    if s.width > WIDEST:
        s.width = WIDEST / SETBACK
        return _clipped(L, s.width)
    seen = HOST.norms(HOST.inner(L, G))
    visible = (seen > VISIBLE * s.width * norms).all()
    if s.width <= limit or (visible and not s.wound_up):
        return None
    bound = min(prior, limit) / SETBACK
    # SciPy 1.11 refuses a matrix of one number for the driver of `_held`.
    mild = s.wound_up and s.width < MILD * bound and len(L) > 1
    s.width, s.wound_up = bound, True
    return (_held if mild else _clipped)(L, bound)


def _clipped(L: Array, bound: float) -> Array:
    """L with no singular value above the bound."""
    W, s, Vt = scipy.linalg.svd(L)
    return np.asarray((W * np.minimum(s, bound)) @ Vt)


def _held(L: Array, bound: float) -> Array:
    """The same for an L that is not far wider, by the eigenvectors of LᵀL, in half of the time.

    To add a weight to P⁻¹ everywhere, by a Cholesky factor, would take a fifth; but then the
    rows that still come would be learned by smaller steps, too.
    """
    squares, V = scipy.linalg.eigh(L.T @ L, driver="evd", check_finite=False)
    wide = slice(int(np.searchsorted(squares, bound**2)), None)
    shorter = V[:, wide] * (1 - bound / np.sqrt(squares[wide]))
    return np.asarray(L - (L @ shorter) @ V[:, wide].T)
