"""The contract of every learner: learn, learn_batch, learn_each, predict, w, seen, save.

A learner keeps its numbers in one `State`. A step computes a new one, and the commit is one
assignment: whatever exception comes, each row was learned fully or not at all.
"""

import collections
import copy
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from orfit import checkpoint, validation
from orfit.core._core import Lock, Rows, continue_after_fork, wait_before_fork
from orfit.growth import Growth
from orfit.learners.advice import Columns
from orfit.learners.update import Update, Updates, combined, unweighted
from orfit.memory import Memory
from orfit.memory.base import Cell
from orfit.meter import Meter, Probes, Readings
from orfit.models import Model, completed
from orfit.state import State, to_arrays
from orfit.store import arithmetic, largest_allowed, numpy_dtype
from orfit.validation import Array
from orfit.version import __version__

T = TypeVar("T")


class Stateful:
    """An object with one state, which one thread at a time reads or changes."""

    # Not in __dict__: a copy gets a lock of its own.
    __slots__ = ("__weakref__", "_lock")
    _cell: Cell

    def __init__(self) -> None:
        self._lock = Lock()
        _instances.add(self)

    def _read(self, use: Callable[..., T], *args: Any) -> T:
        """Call `use` while no other thread changes this.

        If it is called from inside a step (by a signal handler), it finds the state before.
        """
        with self._lock:
            return use(*args)

    def _change(self, use: Callable[..., T], *args: Any) -> T:
        """Call `use`, which commits new states."""
        if self._lock.is_owned():
            raise RuntimeError(
                "the learner cannot be changed from inside its own step, or while it is read"
            )
        with self._lock:
            try:
                return use(*args)
            except (MemoryError, TypeError) as error:
                # Before NumPy 2, LAPACK reports a lack of memory as a TypeError.
                if isinstance(error, TypeError) and "_ArrayMemoryError" not in str(error):
                    raise
                raise MemoryError(
                    f"there is no memory for the next step ({error or 'none is left'}); what was "
                    "learned before it stays, and `seen` says how many rows that are"
                ) from error

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__setstate__(self._read(copy.deepcopy, vars(self), memo))
        return made

    def __copy__(self) -> Any:
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        return self._read(copy.deepcopy, vars(self))

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        Stateful.__init__(self)
        vars(self).update(attributes)


_instances: weakref.WeakSet[Stateful] = weakref.WeakSet()


def _after_fork() -> None:
    """The child has one thread, which holds no lock."""
    for instance in _instances:
        instance._lock.reset()
    continue_after_fork()


if hasattr(os, "register_at_fork"):  # where there is fork
    os.register_at_fork(
        before=wait_before_fork,
        after_in_parent=continue_after_fork,
        after_in_child=_after_fork,
    )


def assign(*changes: tuple[Any, dict[str, Any]]) -> None:
    """Set attributes of several objects by one call, which no signal handler can interrupt."""
    attributes = [vars(target) for target, _ in changes]
    values = [new for _, new in changes]
    collections.deque(map(dict.update, attributes, values), maxlen=0)


class Learner(Stateful, ABC):
    """A model, its parameters, and a rule to move them when a datapoint arrives.

    A subclass writes `_step`. Input is checked here before `_step` is called.
    """

    memory: Memory | None = None
    has_parameters = True  # whether w is the model's
    _constructed = False  # whether setting a public name is an error
    _may_warn = True  # whether `_warn` has anything to look at

    def __init__(
        self,
        model: Model,
        w0: object = None,
        memory: Memory | None = None,
        meter: Meter | None = None,
    ) -> None:
        """w0: where to start; its dtype, float32 or float64, is the learner's.

        memory: what carries the parameters; without one they are the field `w` of the state.
        """
        super().__init__()
        self.model, self._model = model, completed(model)
        start, on_host = self._start(w0), self._model.on_host()
        on_host = on_host if self.has_parameters else None
        if on_host is not None:  # NumPy arrays, which the core can use
            self._model, start = on_host, start.numpy()
        self._own_gradient = self._model.own_gradient  # whether f(x; w) = xᵀw
        self._shape, self._dtype = tuple(start.shape), start.dtype
        self._real = numpy_dtype(start)
        self._limit = largest_allowed(self._real)
        self._probes = self._metered(meter)  # before the memory gets a state
        self.memory = memory
        self._origin = None if memory is None else self._model.origin
        alike = memory is None or memory.one_prior
        self._columns = Columns.before(model.linear and model.input_shape is not None and alike)
        s = self._new_state(start)
        s.seen, s.input_shape = 0, model.input_shape
        s.label_shape = () if model.heads is None else (model.heads,)
        if self._probes is not None:
            self._probes.initialize(s)
        self._cell = Cell(s, None if on_host is None else on_host.public)
        if memory is not None:
            memory.belong_to(self._cell)
        if self._needs_scipy(s):
            import scipy.linalg  # noqa: F401  # takes 0.1 s, which no row should take
        self._constructed = True

    def _needs_scipy(self, s: State) -> bool:
        """Whether a row may be computed in Python, by functions of SciPy."""
        return True

    def _new_state(self, start: Any) -> State:
        """The state before the first row, with w = start."""
        if self.memory is None:
            return State(w=start)
        self.memory.check_free()
        w = self._carried(start)
        s = self.memory.state_for(w, self.model.size, w.shape[1], self._arithmetic(w))
        self.memory.set_parameters(s, w)
        return s

    def __setattr__(self, name: str, value: Any) -> None:
        """Settings that may change are properties, which check; other public names are fixed."""
        if name[0] != "_" and self._constructed and not _settable(type(self), name):
            names = [name for name in dir(self) if name[0] != "_" and _settable(type(self), name)]
            known = "cannot be set" if hasattr(self, name) else "is no setting"
            raise AttributeError(
                f"{type(self).__name__}.{name} {known}; what may be set is: {', '.join(names)}"
            )
        object.__setattr__(self, name, value)

    @abstractmethod
    def _step(self, s: State, X: Any, Y: Array, roots: Array | None) -> Update:
        """Learn a block of n ≥ 1 datapoints: replace fields of the draft `s`.

        roots: √v of rows of weight v; None if each counts once. The update describes the weighted
        rows.
        """

    def settings(self) -> dict[str, Any]:
        """The arguments, besides model and w0, to make this learner again."""
        return {}

    # The parameters.

    def _parameters(self, s: State) -> Any:
        """w, to be read only."""
        if self.memory is None:
            return s.w
        w = self._chosen_parameters(s).reshape(self._shape)
        return w if self._origin is None else w + self._origin

    def _chosen_parameters(self, s: State) -> Any:
        """w as the memory carries it, p×q, from the model's origin on."""
        assert self.memory is not None
        return self.memory.parameters(s)

    def _set_parameters(self, s: State, w: Any) -> None:
        if self.memory is None:
            s.w = w
        else:
            self.memory.set_parameters(s, self._carried(w))

    def _carried(self, w: Any) -> Any:
        """w as a memory carries it."""
        w = w if self._origin is None else w - self._origin
        return w.reshape(len(w), -1)

    @property
    def w(self) -> Any:
        """The parameters, (p,) or (p, q): a copy, which later steps leave alone."""
        w = self._model.public(self._read(lambda: self._copied_parameters(self._cell.state)))
        if isinstance(w, np.ndarray):
            w.flags.writeable = False  # writing to a copy would have no effect
        return w

    def _copied_parameters(self, s: Any) -> Any:
        w = self._parameters(s)
        return self._arithmetic(w).copy(w)

    def _arithmetic(self, array: Any) -> Any:
        """The operations for p-sized arrays of this kind; a subclass may sum over processes."""
        return arithmetic(array)

    @property
    def seen(self) -> int:
        """How many datapoints have been learned."""
        return int(self._cell.held.seen)

    @property
    def meter(self) -> Readings | None:
        """What the meter shows now; None if there is none (`orfit.Meter`)."""
        return None if self._probes is None else self._read(self._read_meter, self._probes)

    def _read_meter(self, probes: Probes) -> Readings:
        s = self._cell.state
        w = s.w if self.memory is None else self._chosen_parameters(s)
        return probes.read(s, w.reshape(self.model.size, -1))

    def _metered(self, meter: Meter | None) -> Probes | None:
        if meter is None:
            return None
        if not isinstance(meter, Meter):
            raise ValueError(f"meter must be a meter, such as orfit.Meter(32); it is {meter!r}")
        return Probes(meter, self.model.size, self.model.heads or 1)

    # Learning.

    def learn(self, x: object, y: object, weight: object = None) -> Update:
        """Learn one datapoint: x (d,), y a number or (c,).

        Whatever exception comes, of a signal too: it was learned or it was not, as `seen` shows.

        weight: v, and it counts as v datapoints, as if the variance of its noise were v times less.
            With 0 nothing changes, and `seen` does not count it. To learners that go downhill by
            `lr`, each datapoint's squared error counts v times.
        """
        held = self._cell.held
        if weight is None and isinstance(held, Rows):
            update = held.learn(x, y)
            if update is not None:  # else they are to be converted, or checked
                return update
        return self._change(self._learn_point, x, y, weight)

    def _learn_point(self, x: object, y: object, weight: object) -> Update:
        inputs = self._model.accept("x", x, self._dtype)
        X = inputs[None]
        if inputs.shape != self._cell.held.input_shape:
            self._check_inputs("x", X, one=True)
        Y = self._labels("y", y, X, one=True)
        if weight is not None:
            return self._learn_weighted(X, Y, validation.weights(weight, 1)).first()
        return self._learn_row(X, Y)

    def _learn_row(self, X: Any, Y: Array, v: Array | None = None) -> Update:
        """Learn a block of one row, and commit."""
        return first_row(self._learn_block(X, Y, v))

    def _learn_block(self, X: Any, Y: Array, v: Array | None = None) -> Update:
        """Learn rows as one block, and commit. v: the weight of each; 1 is the same as None."""
        roots = None if v is None or (v == 1).all() else np.sqrt(v)
        s = State(**vars(self._cell.state))
        update = self._step(s, X, Y, roots)
        if not s.seen:
            s.input_shape, s.label_shape = X.shape[1:], Y.shape[1:]
        s.seen += self._rows_learned(Y)
        self._cell.state = s
        if self._may_warn:
            self._review(X, update)
        return update if roots is None else unweighted(update, roots)

    def _review(self, X: Any, update: Update | Updates) -> None:
        """Look at rows that were learned, and at their update, for what a user should know."""
        if self._columns.waits:
            self._columns = self._columns.with_rows(X)
        self._warn(update)

    def _rows_learned(self, Y: Array) -> int:
        return len(Y)

    def learn_batch(self, X: object, Y: object, weight: object = None) -> Update:
        """Learn many datapoints at once, as one block: X (n, d), Y (n,) or (n, c).

        With `forgetting`, the block is one moment in time. weight: as for `learn`; a number, or
        one for each datapoint.
        """
        return self._change(self._learn_points, X, Y, weight)

    def _learn_points(self, X: object, Y: object, weight: object) -> Update:
        inputs, labels = self._many(X, Y)
        v = None if weight is None else validation.weights(weight, len(inputs))
        if not len(inputs):
            return Update(labels, labels, 0.0, 0.0, labels, self.memory.rank if self.memory else 0)
        if v is None:
            return self._learn_block(inputs, labels)
        out = v == 0
        if not out.any():
            return self._learn_block(inputs, labels, v)
        ignored = self._predicted_rows(inputs[out], labels[out])
        if out.all():
            outputs = ignored.prediction, ignored.residual, 0.0, np.nan, ignored.conflict
            return Update(*outputs, int(ignored.rank[0]), ignored.variance)
        learned = self._learn_block(inputs[~out], labels[~out], v[~out])
        return combined(learned, ignored, out)

    def learn_each(self, X: object, Y: object, weight: object = None) -> Updates:
        """Learn many datapoints one after another: what a loop of `learn` gives.

        If an exception ends it, those before have been learned, and nothing is returned of them.
        weight: as for `learn`; a number, or one for each datapoint.
        """
        return self._change(self._learn_each, X, Y, weight)

    def _learn_each(self, X: object, Y: object, weight: object) -> Updates:
        inputs, labels = self._many(X, Y)
        if weight is not None:
            return self._learn_weighted(inputs, labels, validation.weights(weight, len(inputs)))
        return self._learn_rows(inputs, labels)

    def _learn_rows(self, X: Any, Y: Array) -> Updates:
        """Learn rows one after another."""
        updates = [self._learn_row(X[i : i + 1], Y[i : i + 1]) for i in range(len(X))]
        return Updates.of(updates, Y)

    def _learn_weighted(self, X: Any, Y: Array, v: Array) -> Updates:
        """Row after row; those of weight 0 are predicted when their turn comes."""
        updates = []
        for i in range(len(X)):
            row = slice(i, i + 1)
            if v[i] > 0:
                updates.append(self._learn_row(X[row], Y[row], v[row]))
            else:
                updates.append(self._predicted_rows(X[row], Y[row]).first())
        return Updates.of(updates, Y)

    def _predicted_rows(self, X: Any, Y: Array) -> Updates:
        """What w predicts for rows that are not learned; no time passes."""
        s = self._cell.state
        F, residual, G = self._linearize(self._parameters(s), X, Y, None)
        rank = self.memory.rank if self.memory else 0
        variance = self._expected_variance(s, F, G)
        nothing, unknown = np.zeros(len(X)), np.full(len(X), np.nan)
        ranks = np.full(len(X), rank)
        return Updates(F, residual, nothing, unknown, residual.copy(), ranks, variance)

    def _expected_variance(self, s: State, F: Array, G: Any, noisy: bool = True) -> Array:
        """gᵀPg for each gradient, plus R if noisy; NaN for learners without P."""
        return np.full(len(F), np.nan)

    # Prediction.

    def predict(self, X: object, std: bool | str = False) -> Any:
        """f(x; w) for one datapoint, x (d,), or for many, X (n, d). Changes nothing.

        std: True gives the pair (f, s), s the standard deviation of a label there, and "mean" that
            of f alone, without the noise in the label (`scale` says how that is known).
        """
        held = self._cell.held
        if std is False and isinstance(held, Rows):
            prediction = held.predict(X)
            if prediction is not None:  # else X is to be converted, or checked
                return prediction
        if not isinstance(std, bool | np.bool_) and std != "mean":
            raise ValueError(f'std must be True, False or "mean"; it is {std!r}')
        return self._read(self._predicted, X, std)

    def _predicted(self, X: object, std: bool | str) -> Any:
        s = self._cell.state
        inputs = self._model.accept("X", X, self._dtype)
        one = inputs.ndim < 2 if s.input_shape is None else inputs.shape == s.input_shape
        if one:
            F, spread = self._predict(s, inputs[None]), self._std(s, inputs[None], std)
            return (F[0], spread[0]) if std else F[0]
        self._check_inputs("X", inputs, alone=True)
        if not len(inputs):  # a model need not accept an empty batch
            F = spread = np.empty((0, *s.label_shape), numpy_dtype(self._parameters(s)))
        else:
            F, spread = self._predict(s, inputs), self._std(s, inputs, std)
        return (F, spread) if std else F

    def _predict(self, s: State, X: Any) -> Array:
        return self._model.predict(self._parameters(s), X)

    def _std(self, s: State, X: Any, std: bool | str) -> Any:
        """The standard deviation of predictions, shaped like them; None if std is False."""
        if std:
            raise ValueError(
                f"{type(self).__name__} does not know how sure it is; ORFit, RLS and EKF do"
            )

    # Growth.

    def grow(self, size: int | None = None, heads: int | None = None) -> None:
        """Take more features (`size` of them in all), or more heads, from the next row on.

        It is as if they had been there from the start, and the features' inputs, and the heads'
        labels, had all been 0: nothing of what was learned changes. For `Linear`, whose bias stays
        the last parameter; `features` of one's own cannot grow, but heads can. `learner.model` is
        another one then.

        In `RLS` with forgetting below 1 and `EKF` with drift, where P grows by itself, new features
        start at the prior all the same. The tail, which is a mean over directions that are not
        kept, stays the same, though there are more of these now; `noise="auto"` continues in
        units of the rows so far, and `memory="auto"` has decided with fewer parameters.

        Examples:
            >>> learner = orfit.RLS(orfit.Linear(2, bias=True))
            >>> update = learner.learn([1.0, 2.0], 3.0)
            >>> learner.grow(size=3)  # a sensor was added
            >>> update = learner.learn([1.0, 2.0, 0.5], 3.5)
            >>> print(learner.w.shape)
            (4,)
        """
        self._change(self._grow, size, heads)

    def _grow(self, size: int | None, heads: int | None) -> None:
        grown = getattr(self.model, "grown", None)
        if not self.has_parameters or grown is None:
            raise ValueError(f"{self!r} cannot grow: a learner of an orfit.Linear can")
        if size is None and heads is None:
            raise ValueError("there is nothing to grow: say size=…, heads=…, or both")
        (model, at), before = grown(size, heads), self.model
        q = before.heads or 1
        growth = Growth(at, model.size - before.size, q, (model.heads or 1) - q)
        self._check_growth(growth)
        s = State(**vars(self._cell.state))
        own: dict[str, Any] = {"model": model, "_model": completed(model)}
        own["_shape"] = tuple(model.initial().shape)
        if model.input_shape is not None:
            s.input_shape, own["_columns"] = model.input_shape, self._columns.grown(growth.features)
        if model.heads is not None:
            s.label_shape = (model.heads,)
        changes = [(self._cell, {"held": s}), (self, own), *self._grow_state(s, growth)]
        if self._probes is not None:
            changes.append((self._probes, self._probes.grow(s, growth)))
        assign(*changes)

    def _check_growth(self, growth: Growth) -> None:
        """Refuse to grow if a setting is for a fixed number of parameters."""

    def _grow_state(self, s: State, growth: Growth) -> list[tuple[Any, dict[str, Any]]]:
        """Grow the fields of the draft; other attributes to change are returned."""
        if self.memory is None:
            columns = growth.insert_both(s.w.reshape(len(s.w), -1))
            s.w = columns if s.w.ndim == 2 else columns[:, 0]
            return []
        self.memory.grow(s, growth)
        return [(self.memory, {"size": self.model.size + growth.features})]

    def sync(self) -> None:
        """Write w into the model's module, if it has one (`TorchModel`)."""
        self._read(lambda: self._model.sync(self._parameters(self._cell.state)))

    # Saving.

    def save(self, path: str | os.PathLike[str], wait: bool = True) -> "Future[None] | None":
        """Write everything to one safetensors file, atomically; `orfit.load` reads it back.

        wait: with False a copy is taken, and written while the learner continues. The result has
            `result()`, which waits, and raises what went wrong. One save does not overtake another.
        """
        wait = validation.flag("wait", wait)
        content = self._read(lambda: checkpoint.Content.of(*self.state()))
        if not wait:
            return checkpoint.writer.later(path, content)
        checkpoint.writer.now(path, content)
        return None

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays, and a header that describes how to make the learner again.

        The arrays may be the learner's own, which the next step changes. "w" is for other programs
        to read; a memory that carries w has its own form of it.
        """
        return self._read(self._state)

    def _state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        settings = self.settings()
        if "memory" in settings:
            settings["memory"] = described(settings["memory"])
        if self._probes is not None:
            settings["meter"] = asdict(self._probes.meter)
        s = self._cell.state
        w = self._parameters(s)
        arrays = {"w": self._arithmetic(w).to_numpy(w)}
        if self.memory is None:
            s = State(**{name: value for name, value in vars(s).items() if name != "w"})
        else:
            arrays |= self.memory.constants()
        arrays |= {f"state.{name}": array for name, array in to_arrays(s).items()}
        return arrays, {
            "kind": type(self).__name__,
            "settings": settings,
            "versions": {"orfit": __version__, "numpy": np.__version__},
            "model": described(self.model) | {"size": self.model.size, "heads": self.model.heads},
        }

    def restore(self, s: State) -> None:
        """Continue from this state of a learner made as this one; its fields were checked."""
        self.check_restored(s)
        self._cell.state = s

    def check_restored(self, s: State) -> None:
        """Raise ValueError unless this learner can continue from the state."""
        inputs, labels, heads = s.input_shape, s.label_shape, self.model.heads
        if self.model.input_shape not in (None, inputs) or (heads and labels != (heads,)):
            raise ValueError(f"the model does not take inputs {inputs} and labels {labels}")
        if inputs is None and s.seen:
            raise ValueError("datapoints were seen of which the shape is not known")
        self._check_state(s)
        if self._probes is not None:
            self._probes.check_state(s)

    def _check_state(self, s: State) -> None:
        """Raise ValueError if fields, each within its limits, do not fit together."""
        if self.memory is not None:
            self.memory.check_state(s)

    def __repr__(self) -> str:
        settings = self.settings()
        parts = [repr(settings.pop("memory"))] if "memory" in settings else []
        parts += [f"{name}={value}" for name, value in settings.items()]
        parts += [] if self._probes is None else [f"meter={self._probes.meter}"]
        return f"<{type(self).__name__}({', '.join([repr(self.model), *parts])}), seen={self.seen}>"

    # Checks.

    def _labels(self, name: str, y: object, X: Any, one: bool) -> Array:
        """The labels for the inputs X, checked: of many, or of one."""
        labels = validation.numbers(name, y)
        return labels[None] if one else labels

    def _start(self, w0: object) -> Any:
        start = self._initial()
        if w0 is not None:
            w = validation.numbers("w0", w0, np.float32 if _single(w0) else np.float64)
            if w.shape != tuple(start.shape):
                raise ValueError(f"w0 must have shape {tuple(start.shape)}; it has {w.shape}")
            # NumPy models take w0's dtype; a network has its own.
            start = w if isinstance(start, np.ndarray) else arithmetic(start).convert(start, w)
        return arithmetic(start).copy(start)

    def _initial(self) -> Any:
        """The model's initial parameters."""
        return self.model.initial()

    def _warn(self, update: Update | Updates) -> None:
        """Warn about what a user would want to know."""
        if not self._columns.judged:
            self._columns = self._columns.as_judged()
            self._columns.judge()
        self._may_warn = self._columns.waits

    def _probe(self, s: State, G: Any, w: Any, left: Array) -> None:
        """Add learned gradients to the meter: w now, as carried, and y − f."""
        if self._probes is not None:
            along = self._arithmetic(G).inner(G, w.reshape(len(w), -1))
            self._probes.add(s, G, along, left.reshape(-1, self._probes.heads))

    def _many(self, X: object, Y: object) -> tuple[Any, Array]:
        s = self._cell.state
        inputs = self._model.accept("X", X, self._dtype)
        labels = self._labels("Y", Y, inputs, one=False)
        if inputs.ndim == 0 or labels.ndim == 0:
            raise ValueError(
                f"X and Y must hold many datapoints; they have shapes {inputs.shape} and "
                f"{labels.shape}. A single one is [x] and [y], or for learn, x and y"
            )
        if inputs.shape == labels.shape == (0,):  # empty lists
            inputs = inputs.reshape(0, *(s.input_shape or ()))
            labels = labels.reshape(0, *s.label_shape)
        self._check_inputs("X", inputs)
        if len(inputs) != len(labels):
            raise ValueError(f"X has {len(inputs)} datapoints, but Y has {len(labels)} labels")
        return inputs, labels

    def _check_inputs(self, name: str, X: Any, *, one: bool = False, alone: bool = False) -> None:
        shape = self._cell.held.input_shape
        if shape is None or tuple(X.shape[1:]) == shape:
            return
        if one:
            hint = " (many at once go to learn_batch or learn_each)" if X.ndim > 2 else ""
            raise ValueError(f"{name} must have shape {shape}; it has {X.shape[1:]}{hint}")
        many = "(" + ", ".join(["n", *map(str, shape)]) + ("," if not shape else "") + ")"
        if alone:
            many += f", or {shape} for one datapoint"
        raise ValueError(f"{name} must have shape {many}; it has {X.shape}")

    def _linearize(self, w: Any, X: Any, Y: Array, roots: Array | None) -> tuple[Array, Array, Any]:
        """F, the residual and G at w, of weighted rows."""
        F, residual, G = self._model.observe(w, X, Y)
        self._check_gradient(F, G)
        self._check_prediction(F, G)
        if roots is None:
            return F, residual, G
        return weighted(self._arithmetic(G), roots, F, residual, G)

    def _check_gradient(self, F: Array, G: Any) -> None:
        model = self.model
        columns = F.size if model.heads is None else len(F)
        if tuple(G.shape) != (self._shape[0], columns):
            raise ValueError(
                f"the model's linearize must return a gradient of shape "
                f"({self._shape[0]}, {columns}); it returned {tuple(G.shape)}"
            )

    @staticmethod
    def _check_prediction(F: Array, G: Any) -> None:
        if not validation.finite(F):
            raise ValueError(f"the model's prediction leaves the finite numbers of {G.dtype}")


def first_row(update: Update) -> Update:
    """The update of a block of one datapoint, as that datapoint's."""
    F, residual, conflict = update.prediction[0], update.residual[0], update.conflict[0]
    variance = update.variance[0] if np.ndim(update.variance) else update.variance
    return Update(F, residual, update.step, update.novelty, conflict, update.rank, variance)


def weighted(ops: Any, roots: Array, F: Array, labels: Array, G: Any) -> tuple[Array, Array, Any]:
    """Predictions, labels (or residuals) and gradients, times √v of their rows."""
    beside = roots.reshape(-1, *[1] * (F.ndim - 1))
    each = np.repeat(roots, G.shape[1] // len(roots))
    with np.errstate(over="ignore", invalid="ignore"):
        F, labels, G = F * beside, labels * beside, G * ops.convert(G, each)
    largest = max(*(float(np.abs(A).max()) for A in (F, labels)), ops.largest(G))
    if largest == np.inf:  # a missing label is NaN
        raise ValueError(f"weight times x, or y, leaves the finite numbers of {G.dtype}")
    return F, labels, G


def _settable(kind: type, name: str) -> bool:
    return getattr(getattr(kind, name, None), "fset", None) is not None


def setting(name: str, check: Callable[[str, Any], Any]) -> Any:
    """A property that is checked whenever it is set."""

    def put(learner: Any, value: object) -> None:
        checked = check(name, value)
        if learner._constructed:  # not in the middle of a step
            learner._change(setattr, learner, f"_{name}", checked)
        else:
            setattr(learner, f"_{name}", checked)

    return property(lambda learner: getattr(learner, f"_{name}"), put)


def _single(w0: object) -> bool:
    return str(getattr(w0, "dtype", None)).removeprefix("torch.") == "float32"


def described(part: Memory | Model) -> dict[str, Any]:
    """A memory or a model in plain values: how to make one like it."""
    return {"kind": type(part).__name__, "settings": part.settings()}
