"""The content of a memory as rows that another memory can learn: a merge exchanges them.

A P of noise R that began as P₀ = Π⁻¹, and w, are what k rows would have made of them:

    R (P⁻¹ − Π) = G Gᵀ,     G = U Γ,     Gᵀ(w − w₀) + R Γ⁻¹ Uᵀ(w − w₀) = y − Gᵀw₀

If directions were dropped, along which τ was seen on average,

    R P⁻¹ = (κ + τ) I + U (Γ Γᵀ − τ) Uᵀ

and w − w₀ has a part that no row explains. So all of w − w₀ is exchanged, and counts κ + τ along
every direction. Adding up what no U spans, as if τ were zero, would count it once per learner.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orfit.validation import Array

if TYPE_CHECKING:
    from orfit.memory.basis import Tail


class SufficientRows(NamedTuple):
    """Gradients G (p×k), labels less Gᵀw₀ (k×q), and what is known besides."""

    G: Any
    labels: Array
    rest: Any = None  # w − w₀, p×q, if directions were dropped
    level: float = 0.0  # τ
    tail: "Tail | None" = None
    dropped_energy: float = 0.0


def as_rows(ops: Any, U: Any, gamma: Array, c: Array, noise: float) -> SufficientRows:
    """The rows for directions U (p×k), singular values gamma, and Uᵀ(w − w₀) (k×q)."""
    known = np.flatnonzero(gamma > 0)
    gamma, c = gamma[known, None], c[known]
    labels = gamma * c + noise * (c / gamma)
    return SufficientRows(scaled(ops, U, known, gamma[:, 0]), labels)


def scaled(ops: Any, U: Any, columns: Array, lengths: Array) -> Any:
    """Some columns of U, multiplied by lengths."""
    return ops.copy(U[:, columns] * ops.convert(U, lengths))


def merged_tail(a: "Tail", b: "Tail") -> "Tail":
    """The tail of two streams."""
    rows = a.rows + b.rows, a.dropping + b.dropping
    return type(a)(a.level + b.level, a.dropped + b.dropped, *rows)


def pull(ops: Any, moved: Any, known: SufficientRows, floor: float) -> Any:
    """The change of R P⁻¹ (w − w₀) when another learner, known.rest, counts κ + τ. floor: κ."""
    theirs = ops.convert(moved, floor + known.level) * known.rest
    return theirs - ops.convert(moved, known.level) * moved
