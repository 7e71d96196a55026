"""Learners that fit each block in a single step."""

import functools
import math
import weakref
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from orfit import door, schema, tall
from orfit.door import Array
from orfit.growth import Growth
from orfit.learners import merging
from orfit.learners.atomic import GoingOn
from orfit.learners.base import Learner
from orfit.learners.guesses import Guesses
from orfit.learners.health import Health
from orfit.learners.rows import COMPILED, COORDINATES, PLAIN, WAYS, Auto, Way, WayError, note, ready
from orfit.learners.step import step
from orfit.learners.update import Update, Updates
from orfit.learners.weights import inputs_of, observed, roots_of
from orfit.memory import Memory
from orfit.memory.base import Walk
from orfit.memory.drift import drifts
from orfit.memory.several import Several
from orfit.meter import Meter
from orfit.models import CompleteModel, Model, check_labels, completed
from orfit.schema import Fields, Layout

FORGETTINGS = (1.0, 0.999, 0.99, 0.95)  # that "auto" compares: of all, 1,000, 100 and 20 blocks
CHUNK = 1 << 22  # numbers of gradients that are made at a time to see how sure predictions are


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
        noise: float | str = 0.0,
        forgetting: float | str = 1.0,
        rows: str | Auto = "auto",
        tail: bool | str = True,
        drift: object = 0.0,
        meter: Meter | None = None,
    ) -> None:
        """`noise`, `forgetting` and `drift` may be set later, too: from the next row on."""
        # Checked before the memory is the learner's: what is refused leaves it free.
        whole = completed(model)
        self._forgetting = self._checked_forgettings(forgetting)
        self.guesses = Guesses(
            self._checked_noise(noise), tail, whole.heads or 1, len(self._forgetting)
        )
        self._check_guesses(whole, memory)
        if len(self._forgetting) > 1:
            memory.check_free()
            memory = Several(memory, len(self._forgetting))
        self._drift = self._checked_drift(drift, memory, whole.size)
        self._rows, self._way = rows, self._forced(rows)
        self._auto = rows if isinstance(rows, Auto) else Auto()
        super().__init__(model, w0, memory, meter)
        memory.guess(self.guesses.tails)
        # Where w began, as it is carried, p×q: kept where somebody may ask. None: at zero.
        begins = self._keeps_w0 and tall.largest(self._moved) > 0
        self._w0 = tall.copy(self._moved) if begins else None
        self._altered = False  # whether the past is no longer what these settings make of rows
        self._look_for_ways()

    @property
    def _keeps_w0(self) -> bool:
        merges = self.model.linear and self.memory.merges and len(self.guesses) == 1
        return bool(merges or (self.guesses.grid and self.model.linear))

    def _checked_noise(self, noise: Any) -> Any:
        return noise if isinstance(noise, str) else door.nonnegative("noise", noise)

    def _checked_forgettings(self, forgetting: object) -> tuple[float, ...]:
        """Each λ."""
        if not isinstance(forgetting, str):
            return (self._checked_forgetting(forgetting),)
        if forgetting != "auto":
            raise ValueError(f'forgetting must be a number or "auto"; it is {forgetting!r}')
        return FORGETTINGS

    def _checked_forgetting(self, forgetting: object) -> float:
        return door.fraction("forgetting", forgetting)

    def _checked_drift(self, drift: object, memory: Memory, size: int) -> Any:
        return memory.accept_drift(drift, size)

    def _check_guesses(self, model: CompleteModel, memory: Memory) -> None:
        if len(self.guesses) == 1:
            return
        if self.guesses.per_fading > 1 and not memory.coordinates:
            raise ValueError(f'"auto" needs a memory of directions; {memory!r} is none')

    @property
    def noise(self) -> Any:
        """R, the variance of the noise in y, as it is used now."""
        return self.guesses.noise

    @noise.setter
    def noise(self, noise: object) -> None:
        if self.guesses.grid or (isinstance(noise, str) and noise == "auto"):
            raise ValueError('noise="auto" and a number are two learners: make another one')
        number = self._checked_noise(door.nonnegative("noise", noise))
        if len(self.guesses) > 1:
            raise ValueError(
                'with tail or forgetting "auto" several are compared, all with the noise that they '
                "began with: make another learner"
            )
        self._change(_noises=np.array([number]))

    @property
    def _noises(self) -> Array:
        return self.guesses.noises

    @_noises.setter
    def _noises(self, noises: Array) -> None:
        self.guesses.set_noise(noises)

    @property
    def tail(self) -> bool:
        """Whether P knows what was dropped, as it is used now."""
        return self.guesses.tail

    @property
    def forgetting(self) -> float:
        """λ, by which the past fades before each block, as it is used now."""
        return self._forgetting[self.guesses.fading]

    @forgetting.setter
    def forgetting(self, forgetting: object) -> None:
        if len(self._forgetting) > 1 or (isinstance(forgetting, str) and forgetting == "auto"):
            raise ValueError('forgetting="auto" and a number are two learners: make another one')
        self._change(_forgetting=(self._checked_forgetting(forgetting),))

    @property
    def fading(self) -> Any:
        """What P is divided by before each block: λ, or those that are compared."""
        several = len(self._forgetting) > 1
        return self._forgetting if several else self._forgetting[0] or 1.0  # λ → 0: see `NTKRLS`

    @property
    def drift(self) -> Any:
        """Q, by which the parameters wander before each block: P ← P + Q."""
        return self._drift

    @drift.setter
    def drift(self, drift: object) -> None:
        self._change(_drift=self._checked_drift(drift, self.memory, self.model.size))

    def _change(self, **settings: Any) -> None:
        """Change settings, unless rows could then not be learned as they must."""
        self._changing(self.undivided, self._set, settings)

    def _set(self, settings: dict[str, Any]) -> None:
        for name, value in settings.items():
            self._altered |= self._seen > 0 and not np.array_equal(getattr(self, name), value)
            setattr(self, name, value)
        self._look_for_ways()

    def _check_growth(self, growth: Growth) -> None:
        if growth.features and np.ndim(self.drift):
            raise ValueError("drift is given for each parameter: let it be a number, then grow")

    def _grow_now(self, model: Any, growth: Growth) -> None:
        super()._grow_now(model, growth)
        self.guesses.grow(growth)
        if self._w0 is not None:
            self._w0 = growth.both(self._w0)
        self._look_for_ways()

    def _parts(self) -> Iterable[Any]:
        return (self.guesses, *super()._parts())

    def loop_obstacle(self) -> str | None:
        """Why the compiled loop is not for these settings; None: it is."""
        missing: str | None = self.memory.loop_obstacle(self.noise, self.drift)
        return missing

    @property
    def began_ready(self) -> bool:
        """Whether the compiled loop was there when the first row came.

        That is decided once, and saved: a learner that is brought back goes on as it began,
        whatever has run in the new process.
        """
        return bool(self._began_ready if self._seen else self.memory.loop_ready)

    def _begin(self, X: Any, Y: Array) -> None:
        super()._begin(X, Y)
        self._began_ready = self.memory.loop_ready

    def _look_for_ways(self) -> None:
        ways = {way for way in WAYS.values() if way.obstacle(self) is None}
        if self._way is not None and self._way not in ways:
            why = self._way.obstacle(self)
            raise WayError(f"rows={self._way.name!r} is not possible here: {why}")
        self._ways, self._walks = ways, False
        # What a model can do is asked once, not at each row.
        self._transparent, self._own_gradient = self._model.transparent, self._model.own_gradient
        self._nothing = np.zeros((1, len(self.guesses) * self.guesses.columns))

    @property
    def scale(self) -> Any:
        """s², by which y varies more than noise says: a number, or one for each head.

        The recent mean of residual² / (gᵀPg + R): s² R is the variance of the noise in y.
        """
        scale = self._reading(lambda: self.guesses.scale)
        return float(scale[0]) if self.model.heads is None else scale.copy()

    @property
    def until_decision(self) -> int:
        """After so many rows another guess may be chosen; until then `scale` belongs to the
        variances that updates tell.
        """
        return self._reading(lambda: self.guesses.until_decision)

    def health(self) -> Health:
        """How it is doing: is m enough, does the system move, are residuals noise?"""
        return self._reading(self._health)

    def _health(self) -> Health:
        surprise, lately, correlation = self.guesses.lately()
        scale = float(np.mean(self.scale))
        R = float(np.mean(np.diag(self.noise))) if np.ndim(self.noise) == 2 else float(self.noise)
        return Health(
            surprise if R > 0 else np.nan,
            self.memory.dropped_per_row / R if R > 0 else np.nan,
            lately / scale if scale > 0 else lately,
            correlation,
            R,
            scale,
            self.memory.rank,
            self.memory.most,
            self._seen,
            self.guesses.lowest,
        )

    @property
    def _mine(self) -> slice:  # type: ignore[override]
        return self.guesses.mine

    def _carried(self, w: Any) -> Any:
        """One column, or one for each head, for each guess."""
        return tall.beside(*[super()._carried(w)] * len(self.guesses))

    def _forced(self, rows: str | Auto) -> Way | None:
        if rows == "auto" or isinstance(rows, Auto):
            return None
        if not isinstance(rows, str) or rows not in WAYS:
            raise ValueError(f"rows must be one of auto, {', '.join(WAYS)}; it is {rows!r}")
        return WAYS[rows]

    def can(self, way: Way) -> bool:
        """Whether rows can be learned in this way."""
        return way in self._ways

    def way(self, rows: int = 1, outputs: int = 1) -> str:
        """How so many rows would be learned now: "plain", "compiled" or "coordinates"."""
        counts = door.count("rows", rows), door.count("outputs", outputs)
        return self._reading(lambda: self._chosen(*counts).name)

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

    @property
    def most_rows(self) -> int:
        """So many gradients are learned at a time, at most."""
        return self._auto.most_rows

    def outputs(self, Y: Array) -> int:
        """How many gradients each datapoint has."""
        if Y.ndim == 1 or self.model.heads is not None:
            return 1
        return max(1, math.prod(Y.shape[1:]))

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

    def _point(self, x: object) -> Any:
        """What is not finite in x is found when the compiled loop reads it: one read less."""
        as_it_is = self._walks and type(x) is np.ndarray and x.dtype == self._dtype
        return x if as_it_is and self._transparent else super()._point(x)

    def check_point(self, X: Any) -> None:
        """Refuse what `_point` has left to be found, where the loop does not learn it."""
        if self._walks and self._transparent:
            door.check_finite("x", X[0])

    def _learn_one(self, X: Any, Y: Array) -> Update:
        if self._walks:
            if Y.ndim == 1 or self.model.heads is not None:
                return COMPILED.learn_one(self, X, Y)
            self.check_point(X)
        self._finish()
        if self._way is COORDINATES or self.alone(1, self.outputs(Y)) is not COMPILED:
            return super()._learn_one(X, Y)
        self._walks = self._seen > 0  # then it goes on so
        return COMPILED.learn_one(self, X, Y)

    def one_by_one(self, X: Any, Y: Array) -> Updates:
        """Learn rows by the plain step."""
        return super()._learn_rows(X, Y)

    def _learn(self, X: Any, Y: Array) -> Update:
        if not self.model.linear:
            F, residual, G = self._linearize(self._w, X, Y)
            self.measure(G, X)
            past, wanted = self.split(self.memory, G), self.tiled(residual)
            if len(self.guesses) > 1:  # w of the others is looked at along the chosen one's tangent
                along = past.along_w
                wanted = wanted + self.tiled(along[:, self._mine]) - along
        else:
            offset, labels, G = self.affine(X, Y)
            self.measure(G, X)
            past = self.split(self.memory, G)
            predictions = self.tiled(offset) + past.along_w
            self.check_finite(predictions, G)
            wanted = self.tiled(labels) - predictions
            F, residual = (A[:, self._mine].reshape(offset.shape) for A in (predictions, wanted))
        came = step(self.memory, past, wanted, self.guesses, self.most)
        variance = came.variance[:, self.guesses.chosen].reshape(self.per_gradient(residual))
        self._probe_step(G, past.along_w, wanted, came.left)
        roots = roots_of(X, len(wanted))
        told = np.hstack([came.variance, wanted])
        self.counted(self.memory, len(X), told, came.whitened, roots)
        left = came.left.reshape(residual.shape)
        return Update(F, residual, came.length, past.novelty, left, self.memory.rank, variance)

    def counted(
        self, memory: Any, rows: int, told: Array, whitened: Array | None, roots: Array | None
    ) -> None:
        """Let guesses see what they made of rows (`Guesses.take`); where they move, w does."""
        # Of gradients that depend on w, neither lengths nor another R tell what would have been.
        lengths = memory.lengths if self.guesses.grid and self.model.linear else None
        moved = self.guesses.take(rows, told, whitened, roots, lengths)
        if moved is not None:
            memory.move_guesses(moved, self._w0)

    def _probe_step(self, G: Any, along: Array, wanted: Array, left: Array) -> None:
        """Let the meter know of a step: Gᵀw and the residuals before it, and what is left."""
        if self._probes is not None:
            mine = self._mine
            self._probes.take(G, along[:, mine] + wanted[:, mine] - left, left)

    def probe_rows(self, G: Any, F: Array, labels: Array, records: Array) -> None:
        """Let the meter know of the first of these rows, of which there are records."""
        if self._probes is not None:
            q = self.guesses.columns
            outputs = (records.shape[1] - 3) // (1 + 3 * q)  # as many variances, and thrice heads
            left = records[:, -outputs * q :].reshape(-1, q)
            n = len(left)
            self._probes.take(G[:, :n], labels[:n, :q] - F[:n, :q] - left, left)

    def merge(self, other: "OneStep") -> Update:
        """Learn all that another learner has learned: its `rows`, as one block.

        While neither has dropped a direction, this one then is what it would be had it seen both
        streams, in any order, up to rounding. Where one has, the energy that it dropped, spread
        over what it does not keep, says how much its w counts there: two w are then weighed along
        every direction.

        other: one like this, of the same model, w0, noise and prior, whose rows are others. It is
            not changed. With noise="auto", forgetting below 1, drift or dynamics there is nothing
            two streams could be added up by, and it is refused.

        What comes back tells of the other's rows. Without noise, those that contradict this one's
        cannot be fitted: `conflict` is what is left of them, and a warning says so. Meters are
        added up, if their seeds differ.

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
        part = merging.part_of(other)  # before this one is locked: two may merge with each other
        update: Update = self._changing(merging.merge_part, self, part)
        return update

    def rows(self) -> tuple[Array, Array]:
        """X̃ (k×p) and ỹ (k,) or (k, q): k rows of features that say what all rows so far did.

        A learner of the same w0, noise and prior that learns them as one block, on
        `orfit.Linear(p)`, is what this one is. What was dropped is not in them. They are NOT
        anonymous: each is a sum of rows that were learned, and where there were few, or one was
        unlike all others, it can be read off.

        Examples:
            >>> learner = orfit.ORFit(orfit.Linear(2), noise=0.5)
            >>> updates = learner.learn_each(np.eye(2)[[0, 0, 0, 0]], [1.0, 2.0, 3.0, 2.0])
            >>> X, y = learner.rows()
            >>> print(abs(X), abs(y))  # four rows of length one, as one of length two
            [[2. 0.]] [4.]
        """
        return self._reading(merging.rows_of, self)

    def unlearn(self, X: object, Y: object, weight: object = None) -> None:
        """Be as if these rows had never been learned: X (n, d), Y (n,) or (n, c).

        For rows that were, with the labels and weights that they had; others are refused where that
        can be told. Exact, up to rounding: where a direction was dropped, or rounding would drown
        what is left, it is refused, and nothing has changed. `scale` goes on knowing the residuals.

        Examples:
            >>> learner = orfit.ORFit(orfit.Linear(3), noise=0.1)
            >>> _ = learner.learn_each(np.eye(3), [1.0, 2.0, 3.0])
            >>> learner.unlearn(np.eye(3)[1:2], [2.0])
            >>> learner.seen, bool(abs(learner.w[1]) < 1e-12)
            (2, True)
        """
        self._changing(merging.unlearn, self, X, Y, weight)

    def merge_obstacle(self) -> str | None:
        """Why the past of this learner is no set of rows that others could learn; None: it is."""
        if not self.model.linear:
            return "its model is not linear in w: gradients are of the w that each row found"
        if len(self.guesses) > 1:
            return '"auto" compares guesses along one stream: give noise, tail and forgetting'
        if self.fading != 1 or self.forgetting == 0:
            return "forgetting is below 1: its past has faded by a clock of its own"
        if drifts(self.drift):
            return "w drifts, with rows of its own"
        if self._altered:
            return "noise, forgetting or drift was set when rows were learned, or time made a step"
        why: str | None = self.memory.merge_obstacle(self.guesses.noise)
        return why

    @property
    def _since_start(self) -> Any:
        """How far w has come from w₀, as it is carried, p×q: an array of its own."""
        return tall.copy(self._moved if self._w0 is None else self._moved - self._w0)

    def _std(self, X: Any, std: bool | str) -> Any:
        if not std:
            return None
        size = max(1, CHUNK // self.model.size)
        chunks = [X[start : start + size] for start in range(0, len(X), size)]
        variance = np.concatenate([self._variance(chunk, std is True) for chunk in chunks])
        if self.model.heads is not None:
            variance = variance[:, None]
        return np.sqrt(self.scale * variance)

    def _variance(self, X: Any, noisy: bool) -> Array:
        return self._expected_variance(*self._model.linearize(self._w, X), noisy)

    def _expected_variance(self, F: Array, G: Any, noisy: bool = True) -> Array:
        variance = self.memory.variance(G, self.noise, self.guesses.chosen)
        return np.reshape(variance + noisy * self.noise, self.per_gradient(F))

    def measure(self, G: Any, X: Any) -> None:
        """Let the first gradients say in what unit noise is guessed, whatever their rows weigh."""
        if self.guesses.settled:
            return
        roots = roots_of(X, G.shape[1])
        self.guesses.measure(G if roots is None else G / tall.convert(G, roots))

    def split(self, memory: Any, G: Any) -> Any:
        """How gradients lie to what this memory holds, when their turn has come."""
        noise = self.noise if len(self.guesses) == 1 else self.guesses.noises
        return memory.split(G, noise, self.fading, self.drift)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, header = super().state()
        of_guesses, header["guesses"] = self.guesses.state()
        header |= {"began_ready": self.began_ready, "altered": bool(self._altered)}
        if self._w0 is not None:
            arrays["w0"] = tall.to_numpy(self._w0)
        return arrays | of_guesses, header

    def fields(self) -> Fields:
        own = dict.fromkeys(("began_ready", "altered"), door.flag)
        return super().fields() | own | {"guesses": schema.record(self.guesses.fields())}

    def layout(self) -> Layout:
        w = self._moved
        return super().layout() | self.guesses.layout() | {"w0?": (tall.numpy_dtype(w), *w.shape)}

    def restore(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        super().restore(arrays, header)
        self.guesses.restore(arrays, header["guesses"])
        self._began_ready, self._altered = header["began_ready"], header["altered"]
        w0 = arrays.get("w0")
        self._w0 = None if w0 is None else tall.copy(tall.convert(self._moved, w0))
        self._look_for_ways()  # which may depend on what became of the memory

    def settings(self) -> dict[str, Any]:
        """λ, the drift and the way of rows, where they are not as usual."""
        plain: dict[str, Any] = {}
        if self._forgetting != (1.0,):
            plain["forgetting"] = "auto" if len(self._forgetting) > 1 else self.forgetting
        if drifts(self.drift):
            plain["drift"] = self.drift if np.ndim(self.drift) == 0 else self.drift.tolist()
        if self._rows != "auto":
            plain["rows"] = asdict(self._rows) if isinstance(self._rows, Auto) else self._rows
        return plain

    def affine(self, X: Any, Y: Array) -> tuple[Array, Array, Any]:
        """Of a linear model, F at its origin, the labels and G, all of the right shapes."""
        offset, labels, G = self._model.affine(inputs_of(X), Y)
        if labels.shape != offset.shape:
            check_labels(labels, offset)
        self._check(offset, G)
        return observed(X, offset, labels, G)

    def numbers_of(self, X: Any, Y: Array) -> tuple[Any, Array, Array]:
        """Of rows, what compiled code takes: G, F at the model's origin, and the labels."""
        as_they_are = self._own_gradient and type(X) is np.ndarray and len(X) == 1
        if as_they_are and Y.shape[1:] == self._label_shape:
            return X.T, self._nothing, ready(self.tiled(Y))  # the same, without a look at anything
        offset, labels, G = self.affine(X, Y)
        return G, ready(self.tiled(offset)), ready(self.tiled(labels))

    def rows_learned(self, X: Any, Y: Array, rows: int) -> None:
        """Count the first of these rows."""
        self._count(*(X, Y) if rows == len(X) else (X[:rows], Y[:rows]))

    def walk(self, memory: Any) -> Walk:
        """The compiled loop for these settings, on this memory; where it stops, a step decides."""
        walk: Walk = memory.walk(self.guesses, self.fading, self.drift, self.most)
        return walk

    def walked_on(self, X: Any, G: Any, F: Array, wanted: Array) -> Array | None:
        """The record of a single row, learned by a walk that is under way, or begun for it.

        None: it is not learned. A walk is under way from one `learn` to the next, and nothing of it
        is noted before somebody asks for what it has changed: most of what a row costs is that.
        """
        going = self._entered()
        if going is None:
            return None
        try:
            walk = going.walk
            row, self.memory.walking = walk.learned, going.link
            # One that is full was not ended, for an exception came before that.
            learned = walk.run(G, F, wanted) if row < len(walk.records) else row
        finally:
            going.idle = True
        if learned == row:  # or the row is for the plain step
            self._finish()
            return None
        if self._columns.waits:
            self._columns = self._columns.with_rows(X)
        record: Array = self.guesses.of_chosen(walk.records[row])
        if learned == len(walk.records):
            self._finish()
        return record

    def _entered(self) -> Any:
        """The walk that goes on; until it is idle, nobody ends it."""
        now = self._now
        while True:
            going: Any = now.change
            if going is not None and going.walk is None:
                self._finish()  # an exception came before that was done
                going = None
            if going is None:
                going = self._going_on()
            if going is None:
                return None
            going.idle = False
            if now.change is going:  # no signal handler has ended it
                return going

    def _going_on(self) -> GoingOn | None:
        """Begin a walk of single rows, where nothing needs to look at each of them."""
        rows = min(self.guesses.until_count, int(self.memory.until_decision))
        if rows < 2 or self._probes is not None or not self._seen or not self.guesses.settled:
            return None
        walk = self.walk(self.memory)
        if not walk.goes_on:
            return None
        walk.begin(rows)
        # In a circle, they would outlive their last user.
        walk.catch_up = functools.partial(_asked_by_memory, weakref.ref(self), weakref.ref(walk))
        going = self._now.change = GoingOn(walk)
        return going

    def _noted(self, walk: Walk) -> None:
        """Take note of rows that were going on."""
        self.__dict__["_seen"] += len(note(self, walk))
        self.memory.walking = None

    def __del__(self) -> None:
        """A memory may outlive its learner: it knows all that it was taught."""
        now = getattr(self, "_now", None)  # a constructor may have refused
        if now is not None and now.change is not None and now.change.in_compiled_code:
            self._finish()

    def kept(self, G: Any) -> Any:
        """G, for a meter as a copy: what is noted late must be what was learned."""
        return G if self._probes is None else tall.copy(G)

    def redo(self, again: Callable[[], object]) -> None:
        """From here on compiled code works in place: `again` takes note of what it has done."""
        if self._now.change is not None:
            self._now.change.redo = again

    def per_gradient(self, outputs: Array) -> tuple[int, ...]:
        """The shape of what there is one of for each gradient."""
        return outputs.shape if self.model.heads is None else outputs.shape[:-1]

    def tiled(self, outputs: Array) -> Array:
        """Outputs against G's columns, n×q, once for each guess."""
        columns, count = self.guesses.columns, len(self.guesses.noises)
        flat = outputs.reshape(-1, columns)
        if count == 1:
            return flat
        return flat.repeat(count, 1) if columns == 1 else np.tile(flat, count)


def _asked_by_memory(learner: "weakref.ref[Any]", walk: "weakref.ref[Any]") -> None:
    """Let the memory know of the rows of this walk, unless that is what is being done."""
    asked = learner()
    if asked is None:  # it is going, and does so
        return
    change = asked._now.change
    if not asked._lock._is_owned() or (change is not None and change.walk is walk()):
        asked._catch_up()
