"""What a learner tells of a step."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from orfit.door import Array


@dataclass(frozen=True, slots=True)
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
    """

    prediction: Any
    residual: Any
    step: float
    novelty: float
    conflict: Any
    rank: int

    @classmethod
    def of_record(cls, record: Array, label: Any) -> "Update":
        """Of one datapoint, from what a compiled loop tells of it: see `kernels.walk`."""
        step, novelty, rank = record[:3].tolist()
        if not label.shape:
            prediction, conflict = record[3], record[4]
        else:
            prediction, conflict = record[3:].reshape(2, *label.shape)
        return cls(prediction, label - prediction, step, novelty, conflict, int(rank))

    def first(self) -> "Update":
        """The update of a block of one datapoint, as that datapoint's."""
        F, residual, conflict = self.prediction[0], self.residual[0], self.conflict[0]
        return Update(F, residual, self.step, self.novelty, conflict, self.rank)


@dataclass(frozen=True, slots=True)
class Updates:
    """What came of many steps: the fields of `Update` as arrays, one row for each datapoint."""

    prediction: Array
    residual: Array
    step: Array
    novelty: Array
    conflict: Array
    rank: Array

    def __len__(self) -> int:
        return len(self.step)

    def first(self) -> Update:
        """Of the first row."""
        F, residual, conflict = self.prediction[0], self.residual[0], self.conflict[0]
        step, novelty, rank = float(self.step[0]), float(self.novelty[0]), int(self.rank[0])
        return Update(F, residual, step, novelty, conflict, rank)

    @classmethod
    def of(cls, updates: list[Update], labels: Array) -> "Updates":
        """Stack the updates of single datapoints; `labels` gives the shape of no rows at all."""
        if not updates:
            rows, numbers = np.empty_like(labels), np.empty(0)
            return cls(rows, rows, numbers, numbers, rows, np.empty(0, int))
        stacked = {f.name: np.array([getattr(u, f.name) for u in updates]) for f in fields(cls)}
        return cls(**stacked)

    @classmethod
    def of_records(cls, rows: Array, labels: Array) -> "Updates":
        """From what `kernels.walk` tells of each row."""
        q = (rows.shape[1] - 3) // 2
        prediction = rows[:, 3 : 3 + q].reshape(labels.shape)
        conflict = rows[:, 3 + q :].reshape(labels.shape)
        residual, rank = labels - prediction, rows[:, 2].astype(int)
        return cls(prediction, residual, rows[:, 0], rows[:, 1], conflict, rank)

    @classmethod
    def joined(cls, parts: list["Updates"], labels: Array) -> "Updates":
        if not parts:
            return cls.of([], labels)
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))
