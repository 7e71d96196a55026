"""Wind-up: P grows by 1/λ a step along directions that the stream has left, without end.

Rounding in P g is eps |P| |g|, and the step is P g r / (gᵀ P g + R). So it is lost in rounding
where |P| |g|² is beyond R / eps, unless g points, visibly, where P is widest. While every row does,
as in an overparameterized model whose rows are all new, P may grow as the textbook says. Where one
does not, and P has grown beyond eps^(-3/4), 5e11 in float64, times R / |g|² or the prior, the prior
is put back along what is so wide, around the present w. From then on it keeps its weight there.

When excitation returns, residuals are those of an exact recursion whose prior has its weight
(`ORFit`) and that began from the w which RLS had (`tests/test_windup.py`). That is the textbook's
w. Where p is more than the 1 / (1 − λ) rows that count, it may be worse than that of an `ORFit`
from the start, two or three times at λ = 0.9 and p = 100. No rule for what is left changes that: it
was so before. And what was left for less time than the limit takes returns as the textbook says.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from orfit import door, small, tall
from orfit.door import Array
from orfit.schema import Fields

# What a row sees of L, beside the width of L, to point visibly where P is widest.
VISIBLE = 3e-2
# So wide L may be: its squares are numbers, too.
WIDEST = {dtype: float(np.finfo(dtype).max) ** 0.4 for dtype in door.DTYPES}
# How much wider than its bound L may be to be held back by what its square tells.
MILD = 10.0
# How far below its limit L is set back: a cure, O(p³), is then rare.
SETBACK = math.sqrt(10.0)


@dataclass(frozen=True)
class Width:
    """How wide L is, as the root mean square of its singular values.

    prior: how wide L₀ is at most. bound: no wider than this is L. room: how much wider than known
    of a row it may be. wound: whether it has been wider, and the prior been put back.
    """

    prior: float
    bound: float
    room: float
    wound: bool = False

    fields: ClassVar[Fields] = {
        "prior": door.positive,
        "bound": door.nonnegative,
        "room": door.positive,
        "wound": door.flag,
    }

    @classmethod
    def of_prior(cls, root: float, dtype: Any) -> "Width":
        return cls(root, root, float(np.finfo(dtype).eps) ** -0.375)

    def faded(self, fade: float) -> "Width":
        return Width(self.prior, self.bound * fade, self.room, self.wound)

    def measured(self, L: Array) -> "Width":
        return replace(self, bound=small.frobenius(L) / math.sqrt(len(L)))

    def limit(self, noise: float, longest: float) -> float:
        """How wide L may be before rows, up to so long, that do not see where it is widest."""
        if self.wound:
            return self.prior
        known = math.sqrt(noise) / longest if noise > 0 and longest > 0 else math.inf
        return self.room * min(self.prior, known)


def cured(
    L: Array, fade: float, width: Width, G: Array, norms: Array, noise: float
) -> tuple[Array, Width]:
    """L · fade, held below its limit if the columns of G ask for that; and how wide it is."""
    L = L * L.dtype.type(fade)
    width, limit = width.measured(L), width.limit(noise, norms.max())
    if width.bound > WIDEST[L.dtype]:
        return _clipped(L, replace(width, bound=WIDEST[L.dtype] / SETBACK))
    seen = tall.norms(tall.inner(L, G))
    visible = (seen > VISIBLE * width.bound * norms).all()
    if width.bound <= limit or (visible and not width.wound):
        return L, width
    bound = min(width.prior, limit) / SETBACK
    mild = width.wound and width.bound < MILD * bound
    return (_held if mild else _clipped)(L, replace(width, bound=bound, wound=True))


def _clipped(L: Array, width: Width) -> tuple[Array, Width]:
    """L with no singular value above the bound."""
    W, s, Vt = linalg.svd(L)
    return np.asarray((W * np.minimum(s, width.bound)) @ Vt, L.dtype, order="F"), width


def _held(L: Array, width: Width) -> tuple[Array, Width]:
    """The same for one that is not far wider, whose LᵀL tells where, in half of the time.

    To add a weight to P⁻¹ everywhere, by a Cholesky factor, would take a fifth; but then what the
    stream goes on telling would be learned by smaller steps, too.
    """
    squares, V = linalg.eigh(L.T @ L, driver="evd", check_finite=False)
    wide = slice(int(np.searchsorted(squares, width.bound**2)), None)
    shorter = V[:, wide] * (1 - width.bound / np.sqrt(squares[wide])).astype(L.dtype)
    return np.asarray(L - (L @ shorter) @ V[:, wide].T, L.dtype, order="F"), width
