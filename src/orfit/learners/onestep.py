"""Learners that fit each block in a single step."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from orfit import door
from orfit.door import Array
from orfit.learners.base import Learner
from orfit.learners.rows import COMPILED, COORDINATES, PLAIN, WAYS, Auto, Way, WayError
from orfit.learners.step import step
from orfit.learners.update import Update, Updates
from orfit.memory import Memory
from orfit.memory.drift import drifts
from orfit.models import Model, check_labels, completed


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
        drift: object = 0.0,
    ) -> None:
        """`noise`, `forgetting` and `drift` may be set later, too: from the next row on."""
        # Checked before the memory is the learner's: what is refused leaves it free.
        self._noise = self._checked_noise(noise)
        self._forgetting = self._checked_forgetting(forgetting)
        self._drift = memory.accept_drift(drift, completed(model).size)
        super().__init__(model, w0, memory)
        self.rows = rows = Auto(**rows) if isinstance(rows, dict) else rows
        self._auto = rows if isinstance(rows, Auto) else Auto()
        self._way = self._forced(rows)
        self._look_for_ways()

    def _checked_noise(self, noise: Any) -> Any:
        return door.nonnegative("noise", noise)

    def _checked_forgetting(self, forgetting: object) -> float:
        return door.fraction("forgetting", forgetting)

    @property
    def noise(self) -> Any:
        """R, the variance of the noise in y."""
        return self._noise

    @noise.setter
    def noise(self, noise: object) -> None:
        self._set("_noise", self._checked_noise(noise))

    @property
    def forgetting(self) -> float:
        """λ, by which the past fades before each block."""
        return self._forgetting

    @forgetting.setter
    def forgetting(self, forgetting: object) -> None:
        self._set("_forgetting", self._checked_forgetting(forgetting))

    @property
    def fading(self) -> float:
        """What P is divided by before each block: λ."""
        return self._forgetting

    @property
    def drift(self) -> Any:
        """Q, by which the parameters wander before each block: P ← P + Q."""
        return self._drift

    @drift.setter
    def drift(self, drift: object) -> None:
        self._set("_drift", self.memory.accept_drift(drift, self.model.size))

    def _set(self, name: str, value: Any) -> None:
        """Change a setting, unless rows could then not be learned as they must."""
        before = getattr(self, name)
        setattr(self, name, value)
        try:
            self._look_for_ways()
        except ValueError:
            setattr(self, name, before)
            raise

    def loop_obstacle(self) -> str | None:
        """Why the compiled loop is not for these settings; None: it is."""
        missing: str | None = self.memory.loop_obstacle(self.noise, self.drift)
        return missing

    def _look_for_ways(self) -> None:
        ways = {way for way in WAYS.values() if way.obstacle(self) is None}
        if self._way is not None and self._way not in ways:
            why = self._way.obstacle(self)
            raise WayError(f"rows={self._way.name!r} is not possible here: {why}")
        self._ways = ways

    def _forced(self, rows: str | Auto) -> Way | None:
        if rows == "auto" or isinstance(rows, Auto):
            return None
        if rows not in WAYS:
            raise ValueError(f"rows must be one of auto, {', '.join(WAYS)}; it is {rows!r}")
        return WAYS[rows]

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
            return COMPILED.learn_one(self, X, Y)
        return super()._learn_one(X, Y)

    def one_by_one(self, X: Any, Y: Array) -> Updates:
        """Learn rows by the plain step."""
        return super()._learn_rows(X, Y)

    def _learn(self, X: Any, Y: Array) -> Update:
        if not self.model.linear:
            F, left, G = self._linearize(self._w, X, Y)
            past = self.memory.split(G, self.noise, self.fading, self.drift)
        else:
            offset, labels, G = self.affine(X, Y)
            past = self.memory.split(G, self.noise, self.fading, self.drift)
            F = offset + past.along_w.reshape(offset.shape)
            self.check_finite(F, G)
            left = labels - F
        length, unfitted = step(self.memory, past, self._flat(left), self.noise, self.most)
        return Update(F, left, length, past.novelty, unfitted.reshape(left.shape), self.memory.rank)

    def settings(self) -> dict[str, Any]:
        """The drift and the way of rows, where they are not as usual."""
        plain: dict[str, Any] = {}
        if drifts(self.drift):
            plain["drift"] = self.drift if np.ndim(self.drift) == 0 else self.drift.tolist()
        if self.rows != "auto":
            plain["rows"] = asdict(self.rows) if isinstance(self.rows, Auto) else self.rows
        return plain

    def affine(self, X: Any, Y: Array) -> tuple[Array, Array, Any]:
        """Of a linear model, F at its origin, the labels and G, all of the right shapes."""
        offset, labels, G = self._model.affine(X, Y)
        check_labels(labels, offset)
        self._check(offset, G)
        return offset, labels, G

    def count_recorded(self, records: Array, X: Any, Y: Array, refused: ValueError | None) -> None:
        """Take note of rows that were learned, before one that was refused."""
        if len(records):
            self._count(X[: len(records)], Y[: len(records)])
        if refused is not None:
            raise refused

    def _flat(self, residual: Array) -> Array:
        """The residual against G's columns, as n×q."""
        return residual.reshape(-1, 1) if self.model.heads is None else residual
