"""Learners whose parameters move by themselves between blocks, and whose labels may be missing."""

from typing import Any

import numpy as np

from orfit import door, tall
from orfit.door import Array
from orfit.growth import Growth
from orfit.learners.dynamics import Dynamics
from orfit.learners.onestep import OneStep
from orfit.learners.step import step
from orfit.learners.update import Update, Updates
from orfit.learners.weights import roots_of
from orfit.memory import Memory
from orfit.memory.drift import drifts
from orfit.models import CompleteModel, Model, completed
from orfit.schema import Fields


class Moving(OneStep):
    """Between blocks, time makes one step: w ← A w + B u and P ← A P Aᵀ + Q.

    `learn` takes the step before each block, with no input u; where there is one, or another A, B
    or Q, `advance(u)` takes it, and the next block finds it taken. A y that is None or NaN was not
    measured: time goes on, and of several outputs those are used that are there.
    """

    def __init__(
        self, model: Model, *settings: Any, dynamics: Any, control: object, **more: Any
    ) -> None:
        self._dynamics = Dynamics(dynamics, control, completed(model).size)
        self._advanced = False  # whether time has made its step since the last block
        super().__init__(model, *settings, **more)

    def advance(
        self,
        u: object = None,
        *,
        dynamics: Any = None,
        control: object = None,
        drift: object = None,
    ) -> None:
        """One step in time: w ← A w + B u, P ← A P Aᵀ + Q.

        The arguments stand for those of the constructor, this once.
        """
        self._changing(self._take_step, u, dynamics, control, drift)

    def _take_step(self, u: object, dynamics: Any, control: object, drift: object) -> None:
        size, usual = self.model.size, self._dynamics
        if dynamics is not None or control is not None:
            A = usual.A if usual.function is None else usual.function
            B = usual.B if not callable(dynamics) else None
            usual = Dynamics(
                A if dynamics is None else dynamics, B if control is None else control, size
            )
        Q = self.drift if drift is None else self._checked_drift(drift, self.memory, size)
        if u is None and not (usual.moves or drifts(Q)):
            return
        self._check_motion(usual, self.memory)
        if self.fading != 1:
            raise ValueError("with forgetting below 1, time goes on with rows alone")
        self.undivided(self._advance_now, usual, u, Q)

    def _advance_now(self, dynamics: Dynamics, u: object, Q: Any) -> None:
        self._advance(dynamics, u, Q)
        self._look_for_ways()  # of which there may be fewer now
        self._advanced = self._altered = True

    def _check_growth(self, growth: Growth) -> None:
        super()._check_growth(growth)
        if growth.features and (self._dynamics.turns or self._dynamics.B is not None):
            raise ValueError("dynamics and control are for as many parameters as there are")

    def _check_guesses(self, model: CompleteModel, memory: Memory) -> None:
        super()._check_guesses(model, memory)
        self._check_motion(self._dynamics, memory)

    def _check_motion(self, dynamics: Dynamics, memory: Memory) -> None:
        """Refuse a step in time that P cannot take."""
        if dynamics.turns and not memory.moves:
            raise ValueError(
                f"{memory.given!r} stands still: its P cannot be moved by a matrix; "
                "Principal, which a number m stands for, and EKF can"
            )

    def _change(self, **settings: Any) -> None:
        if "_noises" in settings and self._dynamics.moves and self.seen:
            raise ValueError("what is known is in units of the noise: with dynamics it stays")
        super()._change(**settings)

    def _advance(self, dynamics: Dynamics, u: object, Q: Any) -> None:
        w, A = dynamics.moved(self._w, u)
        if not tall.largest(self._carried(w)) < self.most:
            raise ValueError("w leaves the finite numbers by its dynamics")
        self.memory.advance(self._carried(w), A, Q, self.noise)

    def merge_obstacle(self) -> str | None:
        return (
            "w moves by itself, with rows of its own"
            if self._dynamics.moves
            else (super().merge_obstacle())
        )

    def loop_obstacle(self) -> str | None:
        return "w moves by itself" if self._dynamics.moves else super().loop_obstacle()

    @property
    def may_miss(self) -> bool:
        """Whether labels may be missing: where time goes on by itself."""
        return (self._dynamics.moves or drifts(self.drift)) and self.fading == 1

    def _labels(self, name: str, y: object, X: Any, one: bool) -> Array:
        """y, where NaN stands for what was not measured, and None for nothing at all."""
        if not self.may_miss:
            return super()._labels(name, y, X, one)
        if y is None and one:
            self._finish()  # rows that are going on, before w is looked at
            return np.full(np.shape(self._predict(X)), np.nan)
        labels = door.numbers(name, y, missing=True)
        return labels[None] if one else labels

    def _by_itself(self, Y: Array) -> bool:
        """Whether time, or what is missing, lets these rows be learned one by one only."""
        return self._advanced or self._dynamics.moves or (self.may_miss and not door.finite(Y))

    def _learn_rows(self, X: Any, Y: Array) -> Updates:
        return self.one_by_one(X, Y) if self._by_itself(Y) else super()._learn_rows(X, Y)

    def _learn_one(self, X: Any, Y: Array) -> Update:
        if self._by_itself(Y):
            self.check_point(X)
            return self._learn_block(X, Y).first()
        return super()._learn_one(X, Y)

    def _learn(self, X: Any, Y: Array) -> Update:
        if not self._by_itself(Y):
            return super()._learn(X, Y)  # which knows of drift
        if not self._advanced and (self._dynamics.moves or drifts(self.drift)):
            self._advance(self._dynamics, None, self.drift)
        update = self._measure(X, Y)
        self._advanced = False
        return update

    def _learn_and_count(self, X: Any, Y: Array) -> Update:
        update = self._learn(X, Y)
        if not door.finite(Y):
            X = X[~np.isnan(Y).reshape(len(Y), -1).all(axis=1)]
        self._count(X, Y)
        return update

    def _measure(self, X: Any, Y: Array) -> Update:
        """Learn what is there of a block, now."""
        measured = ~np.isnan(Y)
        F, residual, G = self._linearize(self._w, X, np.where(measured, Y, 0.0))
        residual = np.where(measured, residual, np.nan)
        columns = self._measured_columns(measured)
        if not columns.any():
            nothing = np.full(self.per_gradient(residual), np.nan)
            return Update(F, residual, 0.0, 0.0, residual, self.memory.rank, nothing)
        left, wanted = residual.copy(), self.tiled(residual)[columns]
        if not columns.all():
            G = tall.copy(G[:, columns])
        along = np.zeros(0) if self._probes is None else tall.inner(G, self._moved)
        length, novelty, unfitted, expected = self._fit(G, wanted, columns, len(Y))
        self._probe_step(G, along, wanted, unfitted)
        self.tiled(left)[columns] = unfitted
        roots = roots_of(X, len(columns))
        told = np.hstack([expected, wanted])
        self.guesses.take(len(Y), told, roots=None if roots is None else roots[columns])
        variance = np.full(len(columns), np.nan)
        variance[columns] = expected[:, 0]
        shape = self.per_gradient(residual)
        return Update(F, residual, length, novelty, left, self.memory.rank, variance.reshape(shape))

    def _fit(
        self, G: Any, residual: Array, columns: Array, points: int
    ) -> tuple[float, float, Array, Array]:
        """Learn columns of G: the step's length, novelty, what is left, what was expected."""
        past = self.memory.split(G, self.noise, self.fading)
        came = step(self.memory, past, residual, self.guesses, self.most)
        return came.length, past.novelty, came.left, came.variance

    def _measured_columns(self, measured: Array) -> Array:
        """Which columns of G were measured."""
        if self.model.heads is None:
            return measured.reshape(-1)
        if (measured.any(axis=1) != measured.all(axis=1)).any():
            raise ValueError("heads share one P: y must be all there, or all missing")
        return np.asarray(measured.all(axis=1))

    def settings(self) -> dict[str, Any]:
        return self._dynamics.settings() | super().settings()

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, header = super().state()
        return arrays, header | {"advanced": self._advanced}

    def fields(self) -> Fields:
        return super().fields() | {"advanced": door.flag}

    def restore(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        super().restore(arrays, header)
        self._advanced = header["advanced"]
        if self._advanced and (len(self.guesses) > 1 or self.fading != 1):
            raise ValueError("time does not go on by itself where guesses are compared, or λ < 1")
