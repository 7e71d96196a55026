"""Rows that count as more than one, or as less.

A row of weight v counts as v rows: v (y − f)² is the squared error of the row (√v f, √v y). So what
is learned is that row, and what is told of it is divided by √v again.
"""

from typing import Any

import numpy as np

from orfit import door, tall
from orfit.door import Array
from orfit.learners.update import Update, Updates


class Weighted:
    """Inputs, and √v of each."""

    __slots__ = ("inputs", "roots")

    def __init__(self, inputs: Any, roots: Array) -> None:
        self.inputs, self.roots = inputs, roots

    def __len__(self) -> int:
        return len(self.roots)

    def __getitem__(self, rows: Any) -> "Weighted":
        return Weighted(self.inputs[rows], self.roots[rows])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.inputs.shape)

    def observed(self, F: Array, wanted: Array, G: Any) -> tuple[Array, Array, Any]:
        """Predictions, residuals or labels, and gradients, of the rows that are learned."""
        beside, roots = self._beside(F), np.repeat(self.roots, G.shape[1] // len(self.roots))
        with np.errstate(over="ignore", invalid="ignore"):
            F, wanted, G = F * beside, wanted * beside, G * tall.convert(G, roots)
        # What is infinite of a gradient whose sums travel is refused when they do.
        of_gradients = 0.0 if tall.travels(G) else tall.largest(G)
        largest = max(*(float(np.abs(A).max()) for A in (F, wanted)), of_gradients)
        if largest == np.inf:  # and not where a label is missing, NaN
            raise ValueError(f"weight times x, or y, leaves the finite numbers of {G.dtype}")
        return F, wanted, G

    def told(self, update: Any) -> Any:
        """What came of these rows, `Update` or `Updates`, in the units of their labels."""
        outputs = (update.prediction, update.residual, update.conflict)
        prediction, residual, conflict = (A / self._beside(A) for A in outputs)
        variance = update.variance
        if np.ndim(variance):
            with np.errstate(over="ignore"):  # of next to no weight anything may be expected
                variance = variance / self._beside(variance) ** 2
        how = update.step, update.novelty, conflict, update.rank, variance
        return type(update)(prediction, residual, *how)

    def _beside(self, outputs: Array) -> Array:
        """√v, to be multiplied with outputs, n×…."""
        return self.roots.reshape(-1, *[1] * (outputs.ndim - 1))


def inputs_of(X: Any) -> Any:
    """The inputs alone, of rows that may have weights."""
    return X.inputs if isinstance(X, Weighted) else X


def observed(X: Any, F: Array, wanted: Array, G: Any) -> tuple[Array, Array, Any]:
    """What a model says of rows, as it is learned."""
    return X.observed(F, wanted, G) if isinstance(X, Weighted) else (F, wanted, G)


def roots_of(X: Any, gradients: int) -> Array | None:
    """√v for each of so many gradients of rows; None where they have no weights."""
    if not isinstance(X, Weighted):
        return None
    return np.repeat(X.roots, gradients // max(1, len(X)))


def weights(weight: object, rows: int) -> Array:
    """What a user hands in as weight of so many rows, checked: one for each."""
    given = door.numbers("weight", weight)
    if given.ndim and given.shape != (rows,):
        raise ValueError(
            f"weight must be a number, or one for each of {rows} rows; it has shape {given.shape}"
        )
    if given.min(initial=0.0) < 0:
        raise ValueError(f"weight must not be negative; it is {given.min():g}")
    return np.broadcast_to(given, (rows,))


def between(learned: Update, left_out: Updates, out: Array) -> Update:
    """Of a block, of which some rows (`out`) have no weight."""

    def whole(name: str) -> Array:
        rest = getattr(left_out, name)
        made = np.empty((len(out), *rest.shape[1:]), rest.dtype)
        made[~out], made[out] = getattr(learned, name), rest
        return made

    prediction, residual, conflict = map(whole, ("prediction", "residual", "conflict"))
    told = learned.step, learned.novelty, conflict, learned.rank, whole("variance")
    return Update(prediction, residual, *told)
