"""What a memory knows, as rows that another one can learn: what travels when learners are merged.

A P of noise R that began as P₀ = Π⁻¹, and w, are what k rows would have made of them:

    R (P⁻¹ − Π) = G Gᵀ,     G = U Γ,     Gᵀ(w − w₀) + R Γ⁻¹ Uᵀ(w − w₀) = y − Gᵀw₀

Where directions were dropped, along which τ was seen on average,

    R P⁻¹ = (κ + τ) I + U (Γ Γᵀ − τ) Uᵀ

and w − w₀ has a part that no row explains; so all of it travels, and counts κ + τ along every
direction. Adding up what no U spans, as if τ were nothing, would count it once for each learner.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit import tall
from orfit.door import Array
from orfit.tail import Tail


@dataclass(frozen=True)
class Known:
    """Gradients G (p×k), labels less Gᵀw₀ (k×q), and what is known beside them."""

    G: Any
    wanted: Array
    rest: Any = None  # w − w₀, p×q, where directions were dropped
    level: float = 0.0  # τ
    tail: Tail | None = None
    lost: float = 0.0


def as_rows(U: Any, gamma: Array, c: Array, noise: float) -> Known:
    """Of directions U (p×k), what was seen along them, and Uᵀ(w − w₀) (k×q)."""
    known = np.flatnonzero(gamma > 0)
    gamma, c = gamma[known, None], c[known]
    wanted = gamma * c + noise * (c / gamma)
    return Known(scaled(U, known, gamma[:, 0]), wanted)


def scaled(U: Any, columns: Array, lengths: Array) -> Any:
    """Some columns of U, made so long."""
    return tall.copy(U[:, columns] * tall.convert(U, lengths))


def together(a: Tail, b: Tail) -> Tail:
    """The tail of two streams."""
    rows = a.rows + b.rows, a.dropping + b.dropping
    return Tail(a.level + b.level, a.dropped + b.dropped, *rows, a.prior)


def pull(moved: Any, known: Known, floor: float) -> Any:
    """What pulls at w − w₀ (p×q) when another, known.rest, comes to count κ + τ; floor: κ."""
    theirs = tall.convert(moved, floor + known.level) * known.rest
    return theirs - tall.convert(moved, known.level) * moved
