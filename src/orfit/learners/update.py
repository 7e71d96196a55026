"""The results of steps."""

from dataclasses import dataclass, fields

import numpy as np

from orfit.core._core import Update
from orfit.validation import Array

__all__ = ["Update", "Updates", "combined", "unweighted", "unweighted_row"]


@dataclass(frozen=True, slots=True)
class Updates:
    """The results of many steps: the fields of `Update` as arrays, one row for each datapoint.

    Examples:
        >>> updates = orfit.ORFit(orfit.Linear(3)).learn_each(np.eye(3)[:2], [1.0, 2.0])
        >>> print(len(updates), updates.residual, updates.rank)
        2 [1. 2.] [1 2]
    """

    prediction: Array
    residual: Array
    step: Array
    novelty: Array
    conflict: Array
    rank: Array
    variance: Array

    def __len__(self) -> int:
        return len(self.step)

    def first(self) -> Update:
        """Of the first row."""
        F, residual, conflict = self.prediction[0], self.residual[0], self.conflict[0]
        step, novelty, rank = float(self.step[0]), float(self.novelty[0]), int(self.rank[0])
        return Update(F, residual, step, novelty, conflict, rank, self.variance[0])

    @classmethod
    def of(cls, updates: list[Update], labels: Array) -> "Updates":
        """Stack the updates of single datapoints; `labels` gives the shape of no rows at all."""
        if not updates:
            rows, numbers = np.empty_like(labels), np.empty(0)
            return cls(rows, rows, numbers, numbers, rows, np.empty(0, int), numbers)
        stacked = {f.name: np.array([getattr(u, f.name) for u in updates]) for f in fields(cls)}
        return cls(**stacked)

    @classmethod
    def joined(cls, parts: list["Updates"], labels: Array) -> "Updates":
        if not parts:
            return cls.of([], labels)
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


def unweighted(update: Update, roots: Array) -> Update:
    """The update of weighted rows in the units of their labels; roots: √v of each."""

    def beside(outputs: Array) -> Array:
        return roots.reshape(-1, *[1] * (outputs.ndim - 1))

    outputs = (update.prediction, update.residual, update.conflict)
    prediction, residual, conflict = (A / beside(A) for A in outputs)
    variance = update.variance
    if np.ndim(variance):
        with np.errstate(over="ignore"):  # of next to no weight, anything is expected
            variance = variance / beside(variance) ** 2
    how = update.step, update.novelty, conflict, update.rank, variance
    return Update(prediction, residual, *how)


def unweighted_row(update: Update, root: float) -> Update:
    """The same for one row."""
    for name in ("prediction", "residual", "conflict"):
        setattr(update, name, getattr(update, name) / root)
    update.variance = update.variance / root / root
    return update


def combined(learned: Update, ignored: Updates, out: Array) -> Update:
    """The update of a block of which some rows (`out`) have no weight."""

    def whole(name: str) -> Array:
        rest = getattr(ignored, name)
        made = np.empty((len(out), *rest.shape[1:]), rest.dtype)
        made[~out], made[out] = getattr(learned, name), rest
        return made

    prediction, residual, conflict = map(whole, ("prediction", "residual", "conflict"))
    how = learned.step, learned.novelty, conflict, learned.rank, whole("variance")
    return Update(prediction, residual, *how)
