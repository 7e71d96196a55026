"""Learners that fit each block in a single step."""

import math
from typing import Any

from orfit import door
from orfit.door import Array
from orfit.learners.base import Learner
from orfit.learners.rows import COMPILED, COORDINATES, PLAIN, WAYS, Auto, Way, WayError
from orfit.learners.step import step
from orfit.learners.update import Update, Updates
from orfit.memory import Memory
from orfit.models import Model, residual


class OneStep(Learner):
    """A learner that fits each block in a single `step`, on the memory's P and with noise R.

    ORFit is this on a memory of directions, RLS and the Kalman filter are this on a dense P,
    One-Step SGD is this on no memory.
    """

    memory: Any

    def __init__(
        self,
        model: Model,
        memory: Memory,
        w0: object = None,
        noise: float = 0.0,
        forgetting: float = 1.0,
        rows: str | Auto | dict[str, int] = "auto",
    ) -> None:
        super().__init__(model, w0, memory)
        self.noise = noise
        self.forgetting = forgetting
        self.rows = rows = Auto(**rows) if isinstance(rows, dict) else rows
        self._ways = {way for way in WAYS.values() if way.obstacle(self) is None}
        self._auto = rows if isinstance(rows, Auto) else Auto()
        self._way = self._forced(rows)

    def _forced(self, rows: str | Auto) -> Way | None:
        if rows == "auto" or isinstance(rows, Auto):
            return None
        if rows not in WAYS:
            raise ValueError(f"rows must be one of auto, {', '.join(WAYS)}; it is {rows!r}")
        way = WAYS[rows]
        if way not in self._ways:
            raise WayError(f"rows={rows!r} is not possible here: {way.obstacle(self)}")
        return way

    def can(self, way: Way) -> bool:
        """Whether rows can be learned in this way."""
        return way in self._ways

    def way(self, rows: int = 1, outputs: int = 1) -> str:
        """How so many rows would be learned now: "plain", "compiled" or "coordinates"."""
        return self._chosen(door.count("rows", rows), door.count("outputs", outputs)).name

    def _chosen(self, rows: int, outputs: int) -> Way:
        if self._way is None:
            return self._auto.choose(self, rows, outputs)
        return COORDINATES if self._way is COORDINATES else self.alone(rows, outputs)

    def alone(self, rows: int, outputs: int) -> Way:
        """The way of rows that are not learned in coordinates."""
        if self._way is None:
            return self._auto.alone(self, rows, outputs)
        walks = self._way is not PLAIN and outputs == 1 and self.can(COMPILED)
        return COMPILED if walks else PLAIN

    def outputs(self, Y: Array) -> int:
        """How many gradients each datapoint has."""
        return 1 if self.model.heads is not None else max(1, math.prod(Y.shape[1:]))

    def _learn_rows(self, X: Any, Y: Array) -> Updates:
        outputs = self.outputs(Y)
        # As many gradients at a time as fill a few megabytes, or the memory has.
        block = min(self._auto.most_rows, max(16, self.memory.rank, (1 << 20) // self.model.size))
        block = max(1, block // outputs)
        updates = []
        for start in range(0, len(X), block):
            inputs, labels = X[start : start + block], Y[start : start + block]
            way = self._chosen(len(inputs), outputs)
            updates.append(way.learn(self, inputs, labels))
        return Updates.joined(updates, Y)

    def _learn_one(self, X: Any, Y: Array) -> Update:
        if self._chosen(1, self.outputs(Y)) is COMPILED:
            return COMPILED.learn(self, X, Y).first()
        return super()._learn_one(X, Y)

    def one_by_one(self, X: Any, Y: Array) -> Updates:
        """Learn rows by the plain step."""
        return super()._learn_rows(X, Y)

    def _learn(self, X: Any, Y: Array) -> Update:
        if not self.model.linear:
            F, left, G = self._linearize(self._w, X, Y)
            past = self.memory.split(G, self.noise, self.forgetting)
        else:
            offset, labels, G = self.affine(X, Y)
            past = self.memory.split(G, self.noise, self.forgetting)
            F = offset + past.along_w.reshape(offset.shape)
            self.check_finite(F, G)
            left = labels - F
        length, unfitted = step(self.memory, past, self._flat(left), self.noise, self.most)
        return Update(F, left, length, past.novelty, unfitted.reshape(left.shape), self.memory.rank)

    def affine(self, X: Any, Y: Array) -> tuple[Array, Array, Any]:
        """Of a linear model, F at its origin, the labels and G, all of the right shapes."""
        offset, labels, G = self._model.affine(X, Y)
        residual(labels, offset)
        self._check(offset, G)
        return offset, labels, G

    def count_recorded(
        self, records: Array, X: Any, Y: Array, labels: Array, refused: ValueError | None
    ) -> Updates:
        """Take note of rows that were learned, before one that was refused."""
        if len(records):
            self._count(X[: len(records)], Y[: len(records)])
        if refused is not None:
            raise refused
        return Updates.of_records(records, labels)

    def _flat(self, residual: Array) -> Array:
        """The residual against G's columns, as n×q."""
        return residual.reshape(-1, 1) if self.model.heads is None else residual
