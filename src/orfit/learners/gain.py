"""Learners that fit each block in a single step with a gain, P G (GᵀPG + R I)⁻¹."""

import copy
import math
from typing import Any, NamedTuple

import numpy as np

from orfit import validation
from orfit.core._core import CODES
from orfit.filtering.dynamics import Dynamics
from orfit.growth import Growth
from orfit.learners.candidates import Candidates
from orfit.learners.health import Health
from orfit.learners.learner import Learner, assign, weighted
from orfit.learners.update import Update, Updates, unweighted_row
from orfit.memory import Memory
from orfit.memory.basis_rows import HAVE_ROOTS, KINDS, BasisRows
from orfit.memory.core_rows import CoreRows, Metered
from orfit.memory.core_rows import Settings as CoreSettings
from orfit.memory.dense import Dense
from orfit.memory.dense_rows import DenseRows
from orfit.memory.drift import drifts
from orfit.meter import Meter
from orfit.models import CompleteModel, Linear, Model, check_labels, completed
from orfit.state import State
from orfit.step import StepResult, check_step, step
from orfit.store.host import Arithmetic, grown_capacity
from orfit.validation import Array

FORGETTINGS = (1.0, 0.999, 0.99, 0.95)  # that "auto" compares: of all, 1,000, 100 and 20 blocks
OUTPUTS = ("prediction", "residual", "conflict", "variance", "step", "novelty", "rank")
CHUNK = 1 << 22  # numbers of gradients that are computed at a time for standard deviations


class Block(NamedTuple):
    """Gradients to be fitted together.

    outputs: of a linear model at its origin, and then `labels` are labels; of another model at w,
    and then they are residuals.
    """

    G: Any  # p×n
    outputs: Array
    labels: Array
    roots: Array | None = None  # √v of each gradient, if rows have weights
    columns: Array | None = None  # which gradients of the rows these are, if labels are missing


class Fit(NamedTuple):
    """How gradients were fitted, of all candidates; e×n×q arrays."""

    prediction: Array
    residual: Array
    result: StepResult
    novelty: float
    norms: Array | None  # of the gradients
    along: Array  # n×eq, Gᵀw before the step


class GainLearner(Learner):
    """A learner that fits each block in a single `step`, on the memory's P and with noise R.

    ORFit has a memory of directions, RLS and the Kalman filter have a dense P, and One-Step SGD has
    no memory.

    Between blocks there may be a time step, w ← A w + B u and P ← A P Aᵀ + Q (`Dynamics`). Then a y
    that is None or NaN is missing: the time step is made, and the other outputs are used.
    """

    memory: Any

    def __init__(
        self,
        model: Model,
        memory: Memory,
        w0: object = None,
        noise: Any = 0.0,
        forgetting: float | str = 1.0,
        tail: bool | str = True,
        drift: object = 0.0,
        dynamics: Dynamics | None = None,
        meter: Meter | None = None,
    ) -> None:
        """`noise`, `forgetting` and `drift` can also be set later, for the next rows."""
        # Checked before the memory belongs to the learner: if refused, it stays free.
        whole = completed(model)
        forgettings = self._checked_forgettings(forgetting)
        noise = noise if isinstance(noise, str) else self._checked_noise(noise)
        self.candidates = Candidates(noise, tail, whole.heads or 1, forgettings)
        self._check_candidates(whole, memory)
        self._dynamics, checked = dynamics, memory.check_drift(drift, whole.size)
        single = 0.0 if self.candidates.grid else noise
        self._check_settings(memory, single, forgettings, checked)
        self._is_plain = type(model) is Linear and model.features is None
        self._drift, self._may_miss = checked, self._labels_may_miss(forgettings, checked)
        super().__init__(model, w0, memory, meter)

    def _labels_may_miss(self, forgettings: tuple[float, ...], drift: Any) -> bool:
        """Whether time passes without labels, so that labels may be missing."""
        moves = self._dynamics is not None and self._dynamics.moves
        return (drifts(drift) or moves) and forgettings == (1.0,)

    def _check_candidates(self, model: CompleteModel, memory: Memory) -> None:
        if self.candidates.per_forgetting > 1 and not memory.shares_candidates:
            raise ValueError(f'"auto" needs a memory of directions; {memory!r} is none')

    def _check_settings(
        self, memory: Memory, noise: float, forgettings: tuple[float, ...], drift: Any
    ) -> None:
        """Raise if noise, forgetting, drift and dynamics exclude each other."""
        if self._dynamics is not None and self._dynamics.moves:
            memory.check_dynamics(self._dynamics.turns)

    def _new_state(self, start: Any) -> State:
        """One part for each λ, if there are several."""
        self.memory.check_free()
        s, count = self.candidates.new_state(), len(self.candidates.forgettings)
        w = self._carried(start)
        ops = self._arithmetic(w)
        w = ops.side_by_side([w] * self.candidates.per_forgetting)
        parts = []
        for _ in range(count):
            part = self.memory.state_for(w, self.model.size, w.shape[1], ops)
            part = copy.deepcopy(part) if count > 1 else part
            self.memory.set_candidates(part, self.candidates.per_forgetting)
            self.memory.set_parameters(part, w)
            parts.append(part)
        if count == 1:
            s = State(**vars(s), **vars(parts[0]))
        else:
            s.parts = tuple(parts)
        s.settings_changed = s.time_updated = False
        # The initial w: kept if a merge, or another noise, may need it. None: zero.
        q = self.candidates.columns
        kept = self._keeps_start() and ops.largest(w) > 0
        s.start = ops.copy(w[:, :q]) if kept else None
        return s

    def _keeps_start(self) -> bool:
        one = len(self.candidates) == 1
        return self.model.linear and (self.candidates.grid or (one and self.memory.merges))

    @staticmethod
    def _parts(s: State) -> tuple[State, ...]:
        return s.parts if hasattr(s, "parts") else (s,)

    def _chosen_parameters(self, s: State) -> Any:
        if len(self.candidates) == 1:
            return self.memory.parameters(s)
        part = self._parts(s)[self.candidates.forgetting(s)]
        q, within = self.candidates.columns, s.chosen % self.candidates.per_forgetting
        return self.memory.parameters(part)[:, within * q : (within + 1) * q]

    # Settings.

    def _checked_noise(self, noise: Any) -> float:
        return validation.nonnegative("noise", noise)

    def _checked_forgettings(self, forgetting: object) -> tuple[float, ...]:
        """Each λ."""
        if not isinstance(forgetting, str):
            return (self._checked_forgetting(forgetting),)
        if forgetting != "auto":
            raise ValueError(f'forgetting must be a number or "auto"; it is {forgetting!r}')
        return FORGETTINGS

    def _checked_forgetting(self, forgetting: object) -> float:
        return validation.fraction("forgetting", forgetting)

    @property
    def noise(self) -> Any:
        """R, the variance of the noise in y, as it is used now."""
        return self.candidates.noise(self._cell.state)

    @noise.setter
    def noise(self, noise: object) -> None:
        if self.candidates.grid or (isinstance(noise, str) and noise == "auto"):
            raise ValueError('noise="auto" and a number are two learners: make another one')
        number = self._checked_noise(validation.nonnegative("noise", noise))
        if len(self.candidates) > 1:
            raise ValueError(
                'with tail or forgetting "auto" several are compared, all with the noise that they '
                "began with: make another learner"
            )
        self._change(self._set, number)

    @property
    def tail(self) -> bool:
        """Whether P uses what was dropped, as it is used now."""
        return bool(self.candidates.tails[self._cell.state.chosen])

    @property
    def forgetting(self) -> float:
        """λ, by which the past fades before each block, as it is used now."""
        if len(self.candidates.forgettings) == 1:
            return float(self.candidates.forgettings[0])
        return float(self.candidates.forgettings[self.candidates.forgetting(self._cell.state)])

    @forgetting.setter
    def forgetting(self, forgetting: object) -> None:
        if len(self.candidates.forgettings) > 1 or forgetting == "auto":
            raise ValueError('forgetting="auto" and a number are two learners: make another one')
        self._change(self._set, None, (self._checked_forgetting(forgetting),))

    @property
    def drift(self) -> Any:
        """Q, the covariance of the drift before each block: P ← P + Q."""
        return self._drift

    @drift.setter
    def drift(self, drift: object) -> None:
        self._change(self._set, None, None, self.memory.check_drift(drift, self.model.size))

    def _implied_noise(
        self, noise: float | None, forgettings: tuple[float, ...] | None
    ) -> float | None:
        """The noise after a change of settings; None if it stays."""
        return noise

    def _set(
        self,
        noise: float | None = None,
        forgettings: tuple[float, ...] | None = None,
        drift: Any = None,
        **own: Any,
    ) -> None:
        """Change settings, unless they exclude each other; None leaves a setting as it is.

        own: attributes of a subclass that belong to a setting.
        """
        s, before = State(**vars(self._cell.state)), self.candidates.forgettings
        noise = self._implied_noise(noise, forgettings)
        forgettings = before if forgettings is None else forgettings
        noise = self.candidates.noise(s) if noise is None else noise
        drift = self._drift if drift is None else drift
        self._check_settings(self.memory, noise, forgettings, drift)
        own["_drift"] = drift
        same = forgettings == before
        same = same and all(np.array_equal(new, getattr(self, name)) for name, new in own.items())
        if noise != self.candidates.noise(s):
            s.noises, same = np.array([noise]), False
        s.settings_changed = bool(s.settings_changed or (s.seen > 0 and not same))
        own |= {"_may_miss": self._labels_may_miss(forgettings, drift), "_may_warn": True}
        rule = {"forgettings": forgettings, "_single": noise}
        assign((self._cell, {"held": s}), (self.candidates, rule), (self, own))

    def settings(self) -> dict[str, Any]:
        """λ and the drift, if they are not the usual ones."""
        plain: dict[str, Any] = {}
        if self.candidates.forgettings != (1.0,):
            several = len(self.candidates.forgettings) > 1
            plain["forgetting"] = "auto" if several else self.forgetting
        if drifts(self._drift):
            plain["drift"] = self._drift if np.ndim(self._drift) == 0 else self._drift.tolist()
        return plain if self._dynamics is None else self._dynamics.settings() | plain

    def _check_growth(self, growth: Growth) -> None:
        if growth.features and np.ndim(self._drift):
            raise ValueError("drift is given for each parameter: let it be a number, then grow")
        dynamics = self._dynamics
        if growth.features and dynamics is not None and (dynamics.turns or dynamics.B is not None):
            raise ValueError("dynamics and control are for as many parameters as there are")

    def _grow_state(self, s: State, growth: Growth) -> list[tuple[Any, dict[str, Any]]]:
        if hasattr(s, "parts"):
            s.parts = tuple(State(**vars(part)) for part in s.parts)
        for part in self._parts(s):
            self.memory.grow(part, growth)
        columns = self.candidates.grow(s, growth)
        if s.start is not None:
            s.start = growth.insert_both(s.start)
        size = {"size": self.model.size + growth.features}
        return [(self.memory, size), (self.candidates, {"columns": columns})]

    # Rows in the core.

    def _rows(self, X: Any, Y: Array) -> CoreRows | None:
        """The numbers as the core learns rows like these; None if `step` learns them."""
        held = self._cell.held
        outputs = () if self.model.heads is None else (self.model.heads,)
        if Y.shape[1:] != outputs or (self._may_miss and not validation.finite(Y)):
            return None
        if isinstance(held, CoreRows):
            return held
        if not self._core_learns(held):
            return None
        rows = self._cell.held = self._new_rows(held)
        if not held.seen:
            rows.shapes = X.shape[1:], Y.shape[1:]
        return rows

    def _needs_scipy(self, s: State) -> bool:
        may_wind_up = type(self.memory) is Dense and self.forgetting < 1  # `NEEDS_LIMIT`
        return may_wind_up or self._probes is not None or not self._core_learns(s)

    def _core_learns(self, s: State) -> bool:
        """Whether the core learns rows: one candidate, a kind of memory that it has, no meter."""
        if len(self.candidates) > 1:
            return False
        if self._probes is not None and (not self._is_plain or self._needs_next_w()):
            return False
        kind = type(self.memory)
        if kind is Dense:
            return isinstance(s.w, np.ndarray)
        if (
            kind not in KINDS
            or self._moves()
            or s.time_updated
            or type(s.store.ops) is not Arithmetic
        ):
            return False
        return kind not in HAVE_ROOTS or (
            not self._drift and (s.noises[0] == 0 or self.forgetting == 1)
        )

    def _new_rows(self, s: State, scratch: Array | None = None) -> CoreRows:
        """The numbers of this state in the core."""
        settings = CoreSettings(
            self.model.linear,
            isinstance(self.model, Linear) and self._is_plain and self.model.bias,
            self.model.heads is not None,
            self.candidates.tails,
            self.candidates.forgettings[0] or 1.0,  # λ → 0: see `NTKRLS`
            self._drift,
            None if self._dynamics is None else self._dynamics.A,
            self._moves() and not self._needs_next_w(),
        )
        rows: CoreRows
        if type(self.memory) is Dense:
            rows = DenseRows(s, self.memory, self._lock, settings)
        else:
            rows = BasisRows(s, self.memory, self._lock, settings, scratch)
        rows.is_plain = self._is_plain
        return rows

    def _learn_row(self, X: Any, Y: Array, v: Array | None = None) -> Update:
        rows = self._rows(X, Y) if v is None or self._probes is None else None
        if rows is None:
            return super()._learn_row(X, Y, v)
        if self._probes is not None:
            made = self._learn_chunk(X, Y).first()
            if self._may_warn:
                self._review(X, made)
            return made
        root = 1.0 if v is None else math.sqrt(v[0])
        later = self._next_w(rows)
        gradients, offsets, labels, F = self._core_inputs(rows, X, Y, later)
        row = gradients[0], offsets, labels, root
        while True:
            update = rows.learn_gradient(*row, later)
            if isinstance(update, Update):
                break
            if update == CODES["NEEDS_LIMIT"]:
                self._cell.held = rows.state()
                return super()._learn_row(X, Y, v)
            rows = self._make_room(rows, update, root)
        if F is not None:
            update.prediction = root * F[0]
        if self._may_warn:
            self._review(X, update)
        rows.is_ready = self._is_plain and not self._may_warn and not self._needs_next_w()
        return update if root == 1 else unweighted_row(update, root)

    def _moves(self) -> bool:
        """Whether w moves by itself between rows."""
        return self._dynamics is not None and self._dynamics.moves

    def _needs_next_w(self) -> bool:
        """Whether w after a step in time is computed here, not in the core.

        A function of the user's makes the step, or a model that is not linear needs that w.
        """
        return self._moves() and (
            self._dynamics.function is not None or not self.model.linear  # type: ignore[union-attr]
        )

    def _next_w(self, rows: CoreRows) -> Array | None:
        """w after the step in time before the next row, if it is computed here."""
        if (
            not self._needs_next_w()
            or not isinstance(rows, DenseRows)
            or rows.struct["time_updated"]
        ):
            return None
        assert self._dynamics is not None
        w, A = self._moved(self._dynamics, self._whole(rows.parameters()), None)
        rows.set_A(A)
        return rows.as_padded(self._checked_w(w))

    def _whole(self, w: Array) -> Array:
        """w as the model has it, for w as a memory carries it."""
        w = w.reshape(self._shape)
        return w if self._origin is None else w + self._origin

    def _moved(self, dynamics: Dynamics, w: Any, u: object) -> tuple[Any, Any]:
        """The next w, and A. A function of the user's has w as the model has it."""
        ahead, A = dynamics.moved(self._model.public(w), u)
        return (np.asarray(ahead) if isinstance(w, np.ndarray) else ahead), A

    def _checked_w(self, w: Any) -> Any:
        """w as a memory carries it, after a step in time."""
        carried = self._carried(w)
        if not self._arithmetic(carried).largest(carried) < self._limit:
            raise ValueError("w leaves the finite numbers by its dynamics")
        return carried

    def _learn_rows(self, X: Any, Y: Array) -> Updates:
        done, first = 0, []
        begun = isinstance(self._cell.held, CoreRows)
        while done < len(X) and (self._learns_alone() or not (begun or done)):
            first.append(self._learn_row(X[done : done + 1], Y[done : done + 1]))
            done += 1
        parts = [Updates.of(first, Y)] if first or not len(X) else []
        while done < len(X):
            size = len(X) if self._is_plain else max(1, CHUNK // self.model.size)
            if self._may_warn:  # when columns are judged, other rows are not learned yet
                size = max(1, min(size, self._columns.left or size))
            part = slice(done, done + size)
            parts.append(self._learn_chunk(X[part], Y[part]))
            if self._may_warn:
                self._review(X[part], parts[-1])
            done += size
        return parts[0] if len(parts) == 1 else Updates.joined(parts, Y)

    def _learns_alone(self) -> bool:
        """Whether something is to be done between two rows."""
        return not self.model.linear or self._needs_next_w()

    def _learn_chunk(self, X: Any, Y: Array) -> Updates:
        """Learn rows of which all gradients are computed at once."""
        rows = self._rows(X, Y)
        if rows is None:
            return super()._learn_rows(X, Y)
        try:
            gradients, offsets, labels, _ = self._core_inputs(rows, X, Y)
        except ValueError:
            if len(Y) == 1:
                raise
            return super()._learn_rows(X, Y)  # those before the one that is refused
        outputs = [np.empty(Y.shape) for _ in range(3)] + [np.empty(len(Y)) for _ in range(4)]
        done = 0
        G: Any = None if self._probes is None else self.model.phi(X, X.dtype).T  # type: ignore[attr-defined]
        while done < len(Y):
            if self._probes is not None:
                rows.add_to_meter()  # if an exception prevented it before
                waiting = [array[done:] for array in outputs[:3]]
                rows.metered = Metered(self._probes, G[:, done:], waiting, rows.seen)
            try:
                done, code = rows.learn_each(gradients, offsets, labels, outputs, done)
            finally:
                rows.add_to_meter()
                rows.metered = None
            if code == CODES["NEEDS_LIMIT"]:
                self._cell.held = rows.state()
                update = super()._learn_row(X[done : done + 1], Y[done : done + 1])
                for array, name in zip(outputs, OUTPUTS, strict=True):
                    array[done] = getattr(update, name)
                done += 1
                rows = self._cell.held = self._new_rows(self._cell.state)
            elif code:
                rows = self._make_room(rows, code, 1.0)
        fields = dict(zip(OUTPUTS, outputs, strict=True))
        return Updates(**fields | {"rank": fields["rank"].astype(int)})

    def _core_inputs(
        self, rows: CoreRows | None, X: Any, Y: Array, later: Array | None = None
    ) -> tuple[Any, ...]:
        """Gradients (n×p), offsets, labels, and predictions of a model that is not linear.

        later: w after a step in time that comes first.
        """
        if self._is_plain:
            return np.ascontiguousarray(X), None, np.ascontiguousarray(Y), None
        if self.model.linear:
            outputs, labels, G = self._model.affine(X, Y)
            if labels.shape != outputs.shape:
                check_labels(labels, outputs)
            F = None
        else:
            assert rows is not None
            w = rows.parameters() if later is None else later[:, : self.model.size].T
            F, labels, G = self._linearize(self._whole(w), X, Y, None)
            outputs = None
        self._check_gradient(labels, G)
        outputs = None if outputs is None else np.ascontiguousarray(outputs, np.float64)
        labels = np.ascontiguousarray(labels, np.float64)
        return np.ascontiguousarray(G.T, self._real), outputs, labels, F

    def _make_room(self, rows: CoreRows, code: int, root: float) -> CoreRows:
        """Make room for the row that was refused with this code, or raise its error."""
        if code != CODES["NEEDS_ROOM"]:
            self._refuse(code, root)
        s = State(**vars(rows.state()))
        s.store = s.store.resized(grown_capacity(s.store.capacity, s.store.capacity + 1))
        made = self._cell.held = self._new_rows(s)
        return made

    def _refuse(self, code: int, root: float) -> None:
        """Raise the error of a row that was refused with this code."""
        if code == CODES["TOO_LARGE"]:
            check_step(np.inf)
        if root != 1:
            raise ValueError(f"weight times x, or y, leaves the finite numbers of {self._dtype}")
        if code == CODES["BAD_GRADIENT"]:
            raise ValueError("the model's gradient is not finite at this datapoint")
        raise ValueError(f"the model's prediction leaves the finite numbers of {self._dtype}")

    def learn_each_with_scale(self, X: object, Y: object) -> tuple[Updates, Array]:
        """`learn_each`, and `scale` before each row, n×heads; with one candidate."""
        before = self._read(lambda: self._cell.state)
        updates = self.learn_each(X, Y)
        return updates, self.candidates.scales_before(before, updates)

    # The step.

    def _step(self, s: State, X: Any, Y: Array, roots: Array | None) -> Update:
        columns = None
        if self._may_miss and not validation.finite(Y):
            columns, Y = self._measured_columns(~np.isnan(Y)), np.nan_to_num(Y, nan=0.0)
        drift = self._drift
        if self._dynamics is not None or columns is not None or s.time_updated:
            drift = self._let_time_pass(s, columns)
        block = self._observe(s, X, Y, roots)
        if columns is not None:
            return self._learn_columns(s, block._replace(columns=columns), drift)
        return self._learn_gradients(s, block, drift)

    def _observe(self, s: State, X: Any, Y: Array, roots: Array | None) -> Block:
        """Outputs, labels and gradients of rows."""
        if self._own_gradient and Y.shape[1:] == s.label_shape:
            outputs, labels, G = np.zeros(Y.shape), Y, X.T
        elif self.model.linear:
            outputs, labels, G = self._model.affine(X, Y)
            if labels.shape != outputs.shape:
                check_labels(labels, outputs)
            self._check_gradient(outputs, G)
        else:
            outputs, labels, G = self._linearize(self._parameters(s), X, Y, None)
        if roots is None:
            return Block(G, outputs, labels)
        outputs, labels, G = weighted(self._arithmetic(G), roots, outputs, labels, G)
        return Block(G, outputs, labels, np.repeat(roots, G.shape[1] // len(roots)))

    def _learn_gradients(self, s: State, block: Block, drift: Any) -> Update:
        """Fit gradients, and update the meter and the scores."""
        G, roots, shape = block.G, block.roots, block.outputs.shape
        ops, chosen = self._arithmetic(G), s.chosen
        self.candidates.set_unit(s, ops, G if roots is None else G / ops.convert(G, roots))
        fit = self._fit(s, block, drift)
        left, variance = fit.result.left[chosen], fit.result.variance[chosen]
        if self._probes is not None:
            mine = self.candidates.chosen_columns(s)
            self._probes.add(s, G, fit.along[:, mine] + fit.residual[chosen] - left, left)
        self._score(s, fit, roots)
        return Update(
            fit.prediction[chosen].reshape(shape),
            fit.residual[chosen].reshape(shape),
            float(fit.result.lengths[chosen]),
            fit.novelty,
            left.reshape(shape),
            self.memory.rank_in(self._parts(s)[self.candidates.forgetting(s)]),
            variance if self.model.heads is not None else variance.reshape(shape),
        )

    def _learn_columns(self, s: State, block: Block, drift: Any) -> Update:
        """Learn the outputs that were measured; what is reported of the others is NaN."""
        G, prediction, _, roots, columns = block
        assert columns is not None
        q, ops = self.candidates.columns, self._arithmetic(G)
        if self.model.linear:
            w = self._chosen_parameters(s)
            prediction = prediction + ops.inner(G, w).reshape(prediction.shape)
            self._check_prediction(prediction, G)
        residual = np.full((len(columns), q), np.nan)
        left, variance = residual.copy(), residual[:, 0].copy()
        length = novelty = 0.0
        if columns.any():
            G = G if columns.all() else ops.copy(G[:, columns])
            outputs, labels = (A.reshape(-1, q)[columns] for A in (block.outputs, block.labels))
            roots = None if roots is None else roots[columns]
            some = Block(G, outputs, labels, roots, columns)
            update = self._learn_gradients(s, some, drift)
            residual[columns], left[columns] = update.residual, update.conflict
            variance[columns] = np.reshape(update.variance, -1)
            length, novelty = update.step, update.novelty
        shape = prediction.shape
        return Update(
            prediction,
            residual.reshape(shape),
            length,
            novelty,
            left.reshape(shape),
            self.memory.rank_in(s),
            variance.reshape(shape if self.model.heads is None else shape[:-1]),
        )

    def _fit(self, s: State, block: Block, drift: Any) -> Fit:
        """Fit gradients by the memory of each λ."""
        G, outputs, labels = block[:3]
        candidates, memory, parts = self.candidates, self.memory, self._parts(s)
        e, q = len(s.noises), candidates.columns
        if len(parts) > 1:
            s.parts = parts = tuple(State(**vars(part)) for part in parts)
        settings = [candidates.step_settings(s, drift, i) for i in range(len(parts))]
        found = [memory.decompose(part, G, a) for part, a in zip(parts, settings, strict=True)]
        along = found[0].prediction if len(found) == 1 else np.hstack([d.prediction for d in found])
        n = len(along)
        outputs, labels = outputs.reshape(n, 1, q), labels.reshape(n, 1, q)
        predictions = along.reshape(n, e, q)
        if self.model.linear:
            predictions = outputs + predictions
            self._check_prediction(predictions, G)
            residual = labels - predictions
        else:  # other candidates are compared along the tangent at the chosen one
            residual = labels + predictions[:, s.chosen : s.chosen + 1] - predictions
            predictions = np.broadcast_to(outputs, residual.shape)
        predictions, residual = predictions.transpose(1, 0, 2), residual.transpose(1, 0, 2)
        results, each = [], candidates.per_forgetting
        for i, (part, a, d) in enumerate(zip(parts, settings, found, strict=True)):
            mine = residual[i * each : (i + 1) * each]
            results.append(step(memory, part, d, a.noises, mine, self._limit))
        result = results[0]
        if len(results) > 1:
            result = StepResult(*map(np.concatenate, zip(*results, strict=True)))
        best = found[candidates.forgetting(s)]
        return Fit(predictions, residual, result, best.novelty, memory.norms(best), along)

    def _score(self, s: State, fit: Fit, roots: Array | None) -> None:
        """Update the scores of the candidates, and the grid of noises."""
        candidates, result = self.candidates, fit.result
        candidates.observe(
            s, result.variance, fit.residual, result.innovation, roots, result.sequential
        )
        # If gradients depend on w, w at another R cannot be computed from them.
        if candidates.grid and self.model.linear and fit.norms is not None:
            moved = candidates.review_grid(s, fit.norms, roots)
            if moved is not None:
                each = candidates.per_forgetting
                for i, part in enumerate(self._parts(s)):
                    self.memory.rescale_candidates(part, moved.part(i * each, each), s.start)

    # Time and missing labels.

    def _let_time_pass(self, s: State, columns: Array | None) -> Any:
        """Move w and P unless `advance` has done so; returns the drift that is left to the step."""
        already, s.time_updated = s.time_updated, False
        if already:
            return 0.0
        dynamics = self._dynamics
        if (dynamics is not None and dynamics.moves) or drifts(self._drift):
            if (dynamics is None or not dynamics.moves) and columns is None:
                return self._drift
            self._move_in_time(s, dynamics, None, self._drift)
        return 0.0

    def _move_in_time(self, s: State, dynamics: Dynamics | None, u: object, Q: Any) -> None:
        w, A = self._parameters(s), 1.0
        if dynamics is not None:
            w, A = self._moved(dynamics, w, u)
        self.memory.time_update(s, self._checked_w(w), A, Q, self.candidates.noise(s))

    def _measured_columns(self, measured: Array) -> Array:
        """Which columns of G were measured."""
        if self.model.heads is None:
            return measured.reshape(-1)
        if (measured.any(axis=1) != measured.all(axis=1)).any():
            raise ValueError("heads share one P: y must be all there, or all missing")
        return np.asarray(measured.all(axis=1))

    def _labels(self, name: str, y: object, X: Any, one: bool) -> Array:
        """y, in which NaN is a missing label, and None stands for the labels of a datapoint."""
        if not self._may_miss:
            return super()._labels(name, y, X, one)
        if y is None and one:
            return np.full(np.shape(self._predict(self._cell.state, X)), np.nan)
        labels = validation.numbers(name, y, missing=True)
        return labels[None] if one else labels

    def _rows_learned(self, Y: Array) -> int:
        if not self._may_miss:
            return len(Y)
        return int((~np.isnan(Y).reshape(len(Y), -1).all(axis=1)).sum())

    def _advance(
        self, u: object = None, dynamics: Any = None, control: object = None, drift: object = None
    ) -> None:
        """One step in time, see `advance`."""
        size, usual = self.model.size, self._dynamics or Dynamics(None, None, self.model.size)
        if dynamics is not None or control is not None:
            A = usual.A if usual.function is None else usual.function
            B = usual.B if not callable(dynamics) else None
            usual = Dynamics(
                A if dynamics is None else dynamics, B if control is None else control, size
            )
        Q = self._drift if drift is None else self.memory.check_drift(drift, size)
        if u is None and not (usual.moves or drifts(Q)):
            return
        self._check_time_step(usual, Q)
        same = usual is self._dynamics and Q is self._drift
        if same and self._advance_in_core(usual, u):
            return
        s = State(**vars(self._cell.state))
        self._move_in_time(s, usual, u, Q)
        s.time_updated = s.settings_changed = True
        self._cell.state = s

    def _advance_in_core(self, dynamics: Dynamics, u: object) -> bool:
        """Make a step in time in the core, if rows are learned there."""
        rows = self._cell.held
        if not isinstance(rows, DenseRows) or not rows.struct["moves"]:
            return False
        if dynamics.function is None:
            influence = np.zeros(rows.template.w.shape)
            if u is not None:
                influence = dynamics.influence(u, influence)
            w, more = None, rows.as_padded(influence, np.float64)
        else:
            next_w, A = self._moved(dynamics, self._whole(rows.parameters()), u)
            rows.set_A(A)
            w, more = rows.as_padded(self._checked_w(next_w)), None
        rows.template.settings_changed = True
        if rows.advance(w, more):
            raise ValueError("w or P leaves the finite numbers after a step in time")
        return True

    def _check_time_step(self, dynamics: Dynamics, Q: Any) -> None:
        """Raise if such a step in time is not possible."""
        if dynamics.moves:
            self.memory.check_dynamics(dynamics.turns)
        if self.candidates.forgettings != (1.0,):
            raise ValueError("with forgetting below 1, time passes with rows alone")

    # What is known.

    @property
    def scale(self) -> Any:
        """s², the ratio of observed to expected residual²: a number, or one for each head.

        The recent mean of residual² / (gᵀPg + R): s² R is the variance of the noise in y.
        """
        scale = self.candidates.scale_of(self._cell.state)
        return float(scale[0]) if self.model.heads is None else scale.copy()

    def health(self) -> Health:
        """A summary: is m enough, does the system change, are residuals noise?"""
        return self._read(self._health)

    def _health(self) -> Health:
        s = self._cell.state
        surprise, recent, correlation = self.candidates.recent(s)
        scale = float(np.mean(self.scale))
        R = float(np.mean(np.diag(self.noise))) if np.ndim(self.noise) == 2 else float(self.noise)
        return Health(
            surprise if R > 0 else np.nan,
            self.memory.dropped_per_row / R if R > 0 else np.nan,
            recent / scale if scale > 0 else recent,
            correlation,
            R,
            scale,
            self.memory.rank,
            self.memory.most,
            s.seen,
            self.candidates.lowest(s),
        )

    def _std(self, s: State, X: Any, std: bool | str) -> Any:
        if not std:
            return None
        size = max(1, CHUNK // self.model.size)
        chunks = [X[start : start + size] for start in range(0, len(X), size)]
        found = [self._model.linearize(self._parameters(s), chunk) for chunk in chunks]
        variance = np.concatenate([self._expected_variance(s, F, G, std is True) for F, G in found])
        if self.model.heads is not None:
            variance = variance[:, None]
        return np.sqrt(self.scale * variance)

    def _expected_variance(self, s: State, F: Array, G: Any, noisy: bool = True) -> Array:
        part, index = self._chosen_part(s)
        settings = self.candidates.step_settings(s, 0.0, index)
        variance = self.memory.variance(part, G, settings) + noisy * settings.noise
        return np.reshape(variance, F.shape if self.model.heads is None else F.shape[:-1])

    def _chosen_part(self, s: State) -> tuple[State, int]:
        """A draft of the part of the chosen λ, and its index."""
        index = self.candidates.forgetting(s)
        return State(**vars(self._parts(s)[index])), index

    def _check_state(self, s: State) -> None:
        self.candidates.check_state(s)
        shape = self._shape[0], self.candidates.columns
        if s.start is not None and tuple(s.start.shape) != shape:
            raise ValueError(f"start must have shape {shape}; it has {tuple(s.start.shape)}")
        for part in self._parts(s):
            self.memory.check_state(part)
        if s.time_updated and (len(self.candidates) > 1 or self.candidates.forgettings != (1.0,)):
            raise ValueError("time does not pass by itself if candidates are compared, or λ < 1")

    # Merging.

    def merge(self, other: "GainLearner") -> Update:
        """Learn the content of another learner: its `rows`, as one block.

        If neither has dropped a direction, the result is the learner of both streams, in any
        order, up to rounding. If one has, the mean energy of its dropped directions is the weight
        of its w along them.

        other: a learner with the same model, w0, noise and prior, and other rows. It is not
            changed. Learners with noise="auto", forgetting below 1, drift or dynamics are refused,
            because the information of two streams does not add up then.

        The result describes the other's rows. Without noise, rows that contradict those of this
        learner cannot be fitted: `conflict` is their residual, and a warning is raised. Meters
        are added up; their seeds must differ.

        Examples:
            >>> X, y = np.random.default_rng(0).standard_normal((20, 3)), np.arange(20.0)
            >>> here, there = (orfit.ORFit(orfit.Linear(3), noise=0.1) for _ in range(2))
            >>> _ = here.learn_each(X[:10], y[:10]), there.learn_each(X[10:], y[10:])
            >>> _ = here.merge(there)
            >>> whole = orfit.ORFit(orfit.Linear(3), noise=0.1)
            >>> _ = whole.learn_each(X, y)
            >>> here.seen, bool(np.allclose(here.w, whole.w))
            (20, True)
        """
        from orfit.merge import merging

        part = merging.part_of(other)  # before this one is locked: two may merge with each other
        return self._change(merging.merge_part, self, part)

    def rows(self) -> tuple[Array, Array]:
        """X̃ (k×p) and ỹ (k,) or (k, q): k rows of features that are equivalent to all rows so far.

        A learner with the same w0, noise and prior that learns them as one block, on
        `orfit.Linear(p)`, equals this one. Dropped directions are not included. The rows are NOT
        anonymous: each is a sum of rows that were learned. If there were few, or one was
        unlike all others, it can be identified.

        Examples:
            >>> learner = orfit.ORFit(orfit.Linear(2), noise=0.5)
            >>> updates = learner.learn_each(np.eye(2)[[0, 0, 0, 0]], [1.0, 2.0, 3.0, 2.0])
            >>> X, y = learner.rows()
            >>> print(abs(X), abs(y))  # four rows of length one, as one of length two
            [[2. 0.]] [4.]
        """
        from orfit.merge import merging

        return self._read(merging.rows_of, self)

    def unlearn(self, X: object, Y: object, weight: object = None) -> None:
        """Remove rows, as if they had never been learned: X (n, d), Y (n,) or (n, c).

        The rows must have been learned, with these labels and weights; others raise an error if
        that is detected. The result is exact up to rounding. If a direction was dropped, or
        rounding would dominate the rest, an error is raised, and nothing changes. `scale` still
        includes the residuals of these rows.

        Examples:
            >>> learner = orfit.ORFit(orfit.Linear(3), noise=0.1)
            >>> _ = learner.learn_each(np.eye(3), [1.0, 2.0, 3.0])
            >>> learner.unlearn(np.eye(3)[1:2], [2.0])
            >>> learner.seen, bool(abs(learner.w[1]) < 1e-12)
            (2, True)
        """
        from orfit.merge import merging

        self._change(merging.unlearn, self, X, Y, weight)

    def merge_obstacle(self) -> str | None:
        """Why the past of this learner cannot be expressed as rows; None if it can."""
        dynamics, s = self._dynamics, self._cell.state
        obstacles = {
            "its model is not linear in w: gradients are of the w that each row found": (
                not self.model.linear
            ),
            '"auto" compares candidates along one stream: give noise, tail and forgetting': (
                len(self.candidates) > 1
            ),
            "forgetting is below 1: its past has faded with its own rows": (
                self.candidates.forgettings != (1.0,)
            ),
            "w moves by itself between rows": dynamics is not None and dynamics.moves,
            "w drifts between rows": drifts(self._drift),
            "noise, forgetting or drift was set after rows were learned, or time made a step": (
                s.settings_changed
            ),
        }
        for reason, holds in obstacles.items():
            if holds:
                return reason
        return self.memory.merge_obstacle(self.candidates.noise(s))  # type: ignore[no-any-return]
