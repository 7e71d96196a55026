"""What a learner tells of a step."""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from orfit.door import Array


@dataclass(slots=True)
class Update:
    """What came of one step.

    prediction: f before the step. For `learn` a number or (c,), for `learn_batch` (n,) or (n, c).
    residual: y − prediction.
    step: |Δw|.
    novelty: |G̃| / |G|, the share of the gradient that the memory did not span.
    conflict: what the step left of the residual (in the linearised model), shaped like it. With
        noise = 0 it is zero unless the past, or the block itself, contradicts y; with noise > 0
        it is what noise explains.
    rank: how many directions the memory holds now.
    variance: gᵀPg + R before the step, which learner.scale times is what residual² was expected to
        be: a number for each gradient, so the same for all heads. NaN where a learner has no P.

    Examples:
        >>> update = orfit.ORFit(orfit.Linear(2)).learn([3.0, 4.0], 10.0)
        >>> print(update.prediction, update.residual, update.step, update.novelty, update.rank)
        0.0 10.0 2.0 1.0 1
    """

    prediction: Any
    residual: Any
    step: float
    novelty: float
    conflict: Any
    rank: int
    variance: Any = math.nan

    @classmethod
    def of_record(cls, record: Array, shape: tuple[int, ...], heads: int | None) -> "Update":
        """Of one datapoint with one gradient and outputs of this shape (`Updates.of_records`)."""
        if not shape:
            step, novelty, rank, variance, residual, prediction, conflict = record.tolist()
            return cls(prediction, residual, step, novelty, conflict, int(rank), variance)
        step, novelty, rank, variance = record[:4].tolist()
        residual, prediction, conflict = record[4:].reshape(3, *shape).copy()
        of_each = np.full(shape, variance) if heads is None else variance
        return cls(prediction, residual, step, novelty, conflict, int(rank), of_each)

    def first(self) -> "Update":
        """The update of a block of one datapoint, as that datapoint's."""
        F, residual, conflict = self.prediction[0], self.residual[0], self.conflict[0]
        variance = self.variance[0] if np.ndim(self.variance) else self.variance
        return Update(F, residual, self.step, self.novelty, conflict, self.rank, variance)


@dataclass(frozen=True, slots=True)
class Updates:
    """What came of many steps: the fields of `Update` as arrays, one row for each datapoint.

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
    def of_records(
        cls, rows: Array, shape: tuple[int, ...], per_gradient: tuple[int, ...]
    ) -> "Updates":
        """From |Δw|, novelty, rank, variances, residuals, predictions and conflicts of each row."""
        variance, outputs = np.split(rows[:, 3:], [-3 * math.prod(shape[1:])], axis=1)
        residual, prediction, conflict = (A.reshape(shape) for A in np.split(outputs, 3, axis=1))
        rank, variance = rows[:, 2].astype(int), variance.reshape(per_gradient)
        return cls(prediction, residual, rows[:, 0], rows[:, 1], conflict, rank, variance)

    @classmethod
    def joined(cls, parts: list["Updates"], labels: Array) -> "Updates":
        if not parts:
            return cls.of([], labels)
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))
