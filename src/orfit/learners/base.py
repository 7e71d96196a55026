"""The contract that every learner keeps: learn, learn_batch, learn_each, predict, w, seen, save."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

import numpy as np

from orfit import checkpoint, door, schema, tall
from orfit.door import Array
from orfit.growth import Growth
from orfit.learners.advice import Columns
from orfit.learners.atomic import HAPPENED, Atomic
from orfit.learners.update import Update, Updates
from orfit.learners.weights import Weighted, between, inputs_of, observed, weights
from orfit.memory import Memory
from orfit.meter import Meter, Probes, Readings
from orfit.models import Model, completed
from orfit.schema import Check, Fields, Layout
from orfit.version import __version__


class Learner(Atomic, ABC):
    """A model, its parameters, and a rule to move them when a datapoint arrives.

    A subclass writes `_learn`. Input is checked here, before `_learn` sees it; where it is
    refused, nothing has changed.
    """

    memory: Memory | None = None
    holder: Memory | None = None  # one like its memory, where it is always of the same kind
    has_parameters = True  # whether w is the model's
    _mine = slice(None)  # the columns of what a memory carries that are w
    _made = False  # whether a public name that is set now is a slip

    def __init__(
        self,
        model: Model,
        w0: object = None,
        memory: Memory | None = None,
        meter: Meter | None = None,
    ) -> None:
        """w0: where to start; its dtype, float32 or float64, is the learner's.

        memory: what carries the parameters; without one they are kept as they are.
        """
        super().__init__()
        self.model = model
        self._model = completed(model)
        start = self._start(w0)
        self._probes = self._metered(meter)
        self._shape, self._dtype = tuple(start.shape), start.dtype
        self.most = tall.most(tall.numpy_dtype(start))  # what a parameter may reach
        self.memory = memory
        self._origin = None if memory is None else self._model.origin
        self._carrier: Any = Plain() if memory is None else memory
        self._carrier.carry(self._carried(start))
        alike = memory is None or memory.one_prior
        self._seen, self._columns = (
            0,
            Columns.before(model.linear and model.input_shape is not None and alike),
        )
        # What one datapoint looks like: known from the model, or from the first one learned.
        self._input_shape = model.input_shape
        self._label_shape: tuple[int, ...] = () if model.heads is None else (model.heads,)
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        """Settings that may change are properties, which check; other public names are fixed."""
        if name[0] != "_" and self._made and not _settable(type(self), name):
            names = [name for name in dir(self) if name[0] != "_" and _settable(type(self), name)]
            known = "cannot be set" if hasattr(self, name) else "is no setting"
            raise AttributeError(
                f"{type(self).__name__}.{name} {known}; what may be set is: {', '.join(names)}"
            )
        object.__setattr__(self, name, value)

    @abstractmethod
    def _learn(self, X: Array, Y: Array) -> Update:
        """Learn a block of n ≥ 1 datapoints at once.

        Attributes are replaced; arrays that they had are not written to (`Memory.parts`). So on any
        exception all is as before.
        """

    def settings(self) -> dict[str, Any]:
        """The arguments, besides model and w0, to make this learner again."""
        return {}

    @property
    def _w(self) -> Any:
        """The parameters, to be read: who carries them may go on using the same array."""
        w = self._moved if self.memory is None else self._moved.reshape(self._shape)
        return w if self._origin is None else w + self._origin

    @_w.setter
    def _w(self, w: Any) -> None:
        self._carrier.w = self._carried(w)

    @property
    def _moved(self) -> Any:
        """The same as it is carried."""
        w = self._carrier.w
        return w if self.memory is None else w[:, self._mine]

    def _carried(self, w: Any) -> Any:
        """What is carried of w: from the model's origin on; by a memory, as columns."""
        w = w if self._origin is None else w - self._origin
        return w if self.memory is None else w.reshape(len(w), -1)

    @property
    def w(self) -> Any:
        """The parameters, (p,) or (p, q): a copy, which later steps leave alone."""
        w = self._reading(lambda: tall.copy(self._w), finished=False)
        if isinstance(w, np.ndarray):
            w.flags.writeable = False  # writing to a copy would be silently in vain
        return w

    @property
    def seen(self) -> int:
        """How many datapoints have been learned."""
        try:
            return self._reading(lambda: self._seen)
        except MemoryError:
            if self._now.change is not HAPPENED:
                raise  # rows are there that nobody could count yet
            return self._seen

    @property
    def meter(self) -> Readings | None:
        """What the meter shows now; None where there is none (`orfit.Meter`)."""
        return None if self._probes is None else self._reading(self._read_meter, self._probes)

    def _read_meter(self, probes: Probes) -> Readings:
        return probes.read(self._moved.reshape(self.model.size, -1))

    def _metered(self, meter: Meter | None) -> Probes | None:
        if meter is None:
            return None
        if not isinstance(meter, Meter):
            raise ValueError(f"meter must be a meter, such as orfit.Meter(32); it is {meter!r}")
        return Probes(meter, self.model.size, self.model.heads or 1)

    def learn(self, x: object, y: object, weight: object = None) -> Update:
        """Learn one datapoint: x (d,), y a number or (c,).

        Whatever exception comes, of a signal too: it was learned or it was not, as `seen` tells.

        weight: v, and it counts as v datapoints, as if the variance of its noise were v times less.
            With 0 nothing changes, and `seen` does not count it. To learners that go downhill by
            `lr`, each datapoint's squared error counts v times.
        """
        return self._alone(False, self._learn_point, x, y, weight)

    def _learn_point(self, x: object, y: object, weight: object) -> Update:
        inputs = self._model.accept("x", x, self._dtype) if weight is not None else self._point(x)
        X = inputs[None]
        if inputs.shape != self._input_shape:
            self._check_inputs("x", X, one=True)
        Y = self._labels("y", y, X, one=True)
        if weight is not None:
            self._finish()
            return self._learn_weighted(X, Y, weights(weight, 1)).first()
        update = self._learn_one(X, Y)
        self._watch(update)
        return update

    def learn_batch(self, X: object, Y: object, weight: object = None) -> Update:
        """Learn many datapoints at once, as one block: X (n, d), Y (n,) or (n, c).

        With `forgetting`, the block is one moment in time. weight: as for `learn`; a number, or
        one for each datapoint.
        """
        return self._changing(self._learn_points, X, Y, weight)

    def _learn_points(self, X: object, Y: object, weight: object) -> Update:
        inputs, labels = self._many(X, Y)
        v = None if weight is None else weights(weight, len(inputs))
        if not len(inputs):
            return Update(labels, labels, 0.0, 0.0, labels, self.memory.rank if self.memory else 0)
        if v is None:
            update = self._learn_block(inputs, labels)
            self._watch(update)
            return update
        out = v == 0
        if not out.any():
            return self._block_of_weights(inputs, labels, v)
        left_out = self._looked_at(inputs[out], labels[out])
        if out.all():
            outputs = left_out.prediction, left_out.residual, 0.0, np.nan, left_out.conflict
            return Update(*outputs, int(left_out.rank[0]), left_out.variance)
        learned = self._block_of_weights(inputs[~out], labels[~out], v[~out])
        return between(learned, left_out, out)

    def _block_of_weights(self, X: Any, Y: Array, v: Array) -> Update:
        rows = Weighted(X, np.sqrt(v))
        update: Update = rows.told(self._learn_block(rows, Y))
        self._watch(update)
        return update

    def learn_each(self, X: object, Y: object, weight: object = None) -> Updates:
        """Learn many datapoints one after another: what a loop of `learn` gives.

        Where an exception ends it, those before have been learned, and nothing is told of them.
        weight: as for `learn`; a number, or one for each datapoint.
        """
        return self._changing(self._learn_each, X, Y, weight)

    def _learn_each(self, X: object, Y: object, weight: object) -> Updates:
        inputs, labels = self._many(X, Y)
        if weight is not None:
            return self._learn_weighted(inputs, labels, weights(weight, len(inputs)))
        updates = self._learn_rows(inputs, labels)
        self._watch(updates)
        return updates

    def _learn_weighted(self, X: Any, Y: Array, v: Array) -> Updates:
        """Row after row; those that have no weight are looked at when their turn comes."""
        counts = v > 0
        starts = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist()]
        parts = []
        for start, stop in zip(starts, [*starts[1:], len(X)], strict=True) if len(X) else ():
            rows = slice(start, stop)
            if counts[start]:
                weighted = Weighted(X[rows], np.sqrt(v[rows]))
                parts.append(weighted.told(self._learn_rows(weighted, Y[rows])))
                self._watch(parts[-1])
            else:
                parts.append(self._looked_at(X[rows], Y[rows]))
        return Updates.joined(parts, Y)

    def _looked_at(self, X: Any, Y: Array) -> Updates:
        """What w makes of rows that are not learned; no time passes, so nothing fades or drifts."""
        F, residual, G = self._linearize(self._w, X, Y)
        nothing, rank = np.zeros(len(X)), self.memory.rank if self.memory else 0
        ranks, unknown = np.full(len(X), rank), np.full(len(X), np.nan)
        variance = self._expected_variance(F, G)
        return Updates(F, residual, nothing, unknown, residual.copy(), ranks, variance)

    def _expected_variance(self, F: Array, G: Any, noisy: bool = True) -> Array:
        """gᵀPg for each gradient, and R where noisy; NaN where there is no P."""
        return np.full(len(F), np.nan)

    def predict(self, X: object, std: bool | str = False) -> Any:
        """f(x; w) for one datapoint, x (d,), or for many, X (n, d). Changes nothing.

        std: True gives the pair (f, s), s the standard deviation of a label there, and "mean" that
            of f alone, without the noise in the label (`OneStep.scale` says how that is known).
        """
        if not isinstance(std, bool | np.bool_) and std != "mean":
            raise ValueError(f'std must be True, False or "mean"; it is {std!r}')
        return self._reading(self._predicted, X, std, finished=bool(std))

    def _predicted(self, X: object, std: bool | str) -> Any:
        inputs = self._inputs("X", X)
        shape = self._input_shape
        one = inputs.ndim < 2 if shape is None else inputs.shape == shape
        if one:
            F, spread = self._predict(inputs[None]), self._std(inputs[None], std)
            return (F[0], spread[0]) if std else F[0]
        self._check_inputs("X", inputs, alone=True)
        if not len(inputs):  # no model need know what to do with nothing
            F = spread = np.empty((0, *self._label_shape), tall.numpy_dtype(self._w))
        else:
            F, spread = self._predict(inputs), self._std(inputs, std)
        return (F, spread) if std else F

    def grow(self, size: int | None = None, heads: int | None = None) -> None:
        """Take more features (`size` of them in all), or more heads, from the next row on.

        It is as if they had been there from the start, and the features' inputs, and the heads'
        labels, had all been 0: nothing of what was learned changes. For `Linear`, whose bias stays
        the last parameter; `features` of one's own cannot grow, but heads can. `learner.model` is
        another one then.

        Where P grows by itself, in `RLS` with forgetting below 1 and `EKF` with drift, new features
        start at the prior all the same. The tail, which is a mean over directions that are not
        kept, stays what it is, though there are more of these now; `noise="auto"` goes on in
        units of the rows so far, and `memory="auto"` has decided with fewer parameters.

        Examples:
            >>> learner = orfit.RLS(orfit.Linear(2, bias=True))
            >>> update = learner.learn([1.0, 2.0], 3.0)
            >>> learner.grow(size=3)  # a sensor was added
            >>> update = learner.learn([1.0, 2.0, 0.5], 3.5)
            >>> print(learner.w.shape)
            (4,)
        """
        self._changing(self._grow, size, heads)

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
        self.undivided(self._grow_now, model, growth)

    def _check_growth(self, growth: Growth) -> None:
        """Refuse to grow where a setting is for as many parameters as there are."""

    def _grow_now(self, model: Any, growth: Growth) -> None:
        object.__setattr__(self, "model", model)
        self._model = completed(model)
        self._shape = tuple(model.initial().shape)
        if model.input_shape is not None:
            self._input_shape, self._columns = (
                model.input_shape,
                self._columns.grown(growth.features),
            )
        if model.heads is not None:
            self._label_shape = (model.heads,)
        self._carrier.grow(growth)
        if self._probes is not None:
            self._probes.grow(growth)

    def sync(self) -> None:
        """Write w into the model's module, where it has one (`TorchModel`)."""
        self._reading(lambda: self._model.sync(self._w))

    def save(self, path: str | os.PathLike[str], wait: bool = True) -> "Future[None] | None":
        """Write everything to one safetensors file, atomically; `orfit.load` reads it back.

        wait: with False a copy is taken, and written while the learner goes on. What comes back has
            `result()`, which waits, and raises what went wrong. One save does not overtake another.
        """
        wait = door.flag("wait", wait)
        content = self._reading(lambda: checkpoint.Content.of(*self.state()))
        if not wait:
            return checkpoint.writer.later(path, content)
        checkpoint.writer.now(path, content)
        return None

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and plain values from which `restore` goes on bit-equally.

        Arrays may be the learner's own, which the next step changes. "w" is for other programs to
        read; a memory that carries w has its own form of it.
        """
        self._catch_up()
        settings = self.settings()
        if "memory" in settings:
            settings["memory"] = described(settings["memory"])
        if self._probes is not None:
            settings["meter"] = asdict(self._probes.meter)
        arrays = {"w": tall.to_numpy(self._w)}
        header: dict[str, Any] = {
            "kind": type(self).__name__,
            "settings": settings,
            "versions": {"orfit": __version__, "numpy": np.__version__},
            "seen": self._seen,
            "input_shape": self._input_shape,
            "label_shape": self._label_shape,
            "model": described(self.model) | {"size": self.model.size, "heads": self.model.heads},
        }
        if self.memory is not None:
            state, header["memory"] = self.memory.state()
            arrays |= {f"memory.{name}": array for name, array in state.items()}
        if self._probes is not None:
            state, header["meter"] = self._probes.state()
            arrays |= {f"meter.{name}": array for name, array in state.items()}
        return arrays, header

    def _catch_up(self) -> None:
        """Take note of rows that are going on."""
        self._reading(lambda: None)

    def fields(self) -> Fields:
        """The plain values of `state` besides those that make a learner as this one."""
        plain: Fields = {"seen": schema.counter, "label_shape": schema.shape}
        plain["input_shape"] = schema.optional(schema.shape)
        if self.memory is not None:
            plain["memory"] = schema.record(self.memory.fields())
        if self._probes is not None:
            plain["meter"] = schema.record(self._probes.fields)
        return plain

    def layout(self) -> Layout:
        """The arrays of `state`."""
        made: Layout = {"w": (tall.numpy_dtype(self._w), *self._shape)}
        for part, of_it in (("memory", self.memory), ("meter", self._probes)):
            layout: Layout = {} if of_it is None else of_it.layout()
            made |= {f"{part}.{name}": sides for name, sides in layout.items()}
        return made

    def restore(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        """Take up what `state` gave: of a learner made as this one, from w0 = arrays["w"].

        It is what `fields` and `layout` say; raises where its parts do not fit together.
        """
        for part, of_it in (("memory", self.memory), ("meter", self._probes)):
            if of_it is not None:
                start = f"{part}."
                state = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
                of_it.restore(state, header[part])
        self._seen, shape = header["seen"], header["input_shape"]
        inputs = None if shape is None else tuple(shape)
        labels, heads = tuple(header["label_shape"]), self.model.heads
        if self.model.input_shape not in (None, inputs) or (heads and labels != (heads,)):
            raise ValueError(f"the model does not take inputs {inputs} and labels {labels}")
        if inputs is None and self._seen:
            raise ValueError("datapoints were seen of which the shape is not known")
        self._input_shape, self._label_shape = inputs, labels

    def __repr__(self) -> str:
        settings = self.settings()
        parts = [repr(settings.pop("memory"))] if "memory" in settings else []
        parts += [f"{name}={value}" for name, value in settings.items()]
        parts += [] if self._probes is None else [f"meter={self._probes.meter}"]
        return f"<{type(self).__name__}({', '.join([repr(self.model), *parts])}), seen={self.seen}>"

    def _inputs(self, name: str, X: object) -> Any:
        """What the user hands in, checked, as the model takes it."""
        return self._model.accept(name, X, self._dtype)

    def _point(self, x: object) -> Any:
        """The same of one datapoint, which is learned next, and counts as one."""
        return self._model.accept("x", x, self._dtype)

    def _labels(self, name: str, y: object, X: Any, one: bool) -> Array:
        """The labels that the user hands in for the inputs X, checked: of many, or of one."""
        labels = door.numbers(name, y)
        return labels[None] if one else labels

    def _predict(self, X: Array) -> Array:
        return self.model.predict(self._w, X)

    def _std(self, X: Array, std: bool | str) -> Any:
        """The standard deviation of predictions, shaped like them; None where std is False."""
        if std:
            raise ValueError(
                f"{type(self).__name__} does not know how sure it is; ORFit, RLS and EKF do"
            )

    def _start(self, w0: object) -> Any:
        start = self.model.initial()
        if w0 is not None:
            w = door.numbers("w0", w0, np.float32 if _single(w0) else np.float64)
            if w.shape != tuple(start.shape):
                raise ValueError(f"w0 must have shape {tuple(start.shape)}; it has {w.shape}")
            # NumPy models take w0's dtype; a network has its own.
            start = w if isinstance(start, np.ndarray) else tall.convert(start, w)
        return tall.copy(start)  # the caller's array stays his

    def _watch(self, told: Update | Updates) -> None:
        """Look at what came of learning, to warn where a user would want to know."""
        if not self._columns.judged:
            self._columns = self._columns.as_judged()
            self._columns.judge()

    def _learn_block(self, X: Any, Y: Array) -> Update:
        return self.undivided(self._learn_and_count, X, Y)

    def _learn_and_count(self, X: Any, Y: Array) -> Update:
        update = self._learn(X, Y)
        self._count(X, Y)
        return update

    def _parts(self) -> Iterable[Any]:
        parts = (self, *self._carrier.parts)
        return parts if self._probes is None else (*parts, self._probes)

    def _settle(self) -> None:
        self._carrier.settle()
        if self._probes is not None:
            self._probes.settle()

    def _probe(self, G: Any, w: Any, left: Array) -> None:
        """Let the meter know of gradients that were learned: w now, as carried, and y − f."""
        if self._probes is not None:
            q = self._probes.heads
            along = tall.inner(G, w.reshape(len(w), -1))
            self._probes.take(G, along, left.reshape(-1, q))

    def _learn_one(self, X: Array, Y: Array) -> Update:
        return self._learn_block(X, Y).first()

    def _learn_rows(self, X: Any, Y: Array) -> Updates:
        """Learn rows one after another: a loop, unless a subclass knows a faster way."""
        rows = range(len(X))
        updates = [self._learn_block(X[i : i + 1], Y[i : i + 1]).first() for i in rows]
        return Updates.of(updates, Y)

    def _count(self, X: Array, Y: Array) -> None:
        """Take note of datapoints that have been learned."""
        if not self._seen:
            self._begin(X, Y)
        self.__dict__["_seen"] += len(X)  # past `__setattr__`, which takes longer than all of this
        if self._columns.waits:
            self._columns = self._columns.with_rows(inputs_of(X))

    def _begin(self, X: Array, Y: Array) -> None:
        """Take note of what the first datapoints tell."""
        self._input_shape, self._label_shape = X.shape[1:], Y.shape[1:]

    def _many(self, X: object, Y: object) -> tuple[Array, Array]:
        inputs = self._inputs("X", X)
        labels = self._labels("Y", Y, inputs, one=False)
        if inputs.ndim == 0 or labels.ndim == 0:
            raise ValueError(
                f"X and Y must hold many datapoints; they have shapes {inputs.shape} and "
                f"{labels.shape}. A single one is [x] and [y], or for learn, x and y"
            )
        if inputs.shape == labels.shape == (0,):  # empty lists
            inputs = inputs.reshape(0, *(self._input_shape or ()))
            labels = labels.reshape(0, *self._label_shape)
        self._check_inputs("X", inputs)
        if len(inputs) != len(labels):
            raise ValueError(f"X has {len(inputs)} datapoints, but Y has {len(labels)} labels")
        return inputs, labels

    def _check_inputs(self, name: str, X: Array, *, one: bool = False, alone: bool = False) -> None:
        shape = self._input_shape
        if shape is None or X.shape[1:] == shape:
            return
        if one:
            hint = " (many at once go to learn_batch or learn_each)" if X.ndim > 2 else ""
            raise ValueError(f"{name} must have shape {shape}; it has {X.shape[1:]}{hint}")
        many = "(" + ", ".join(["n", *map(str, shape)]) + ("," if not shape else "") + ")"
        if alone:
            many += f", or {shape} for one datapoint"
        raise ValueError(f"{name} must have shape {many}; it has {X.shape}")

    def _linearize(self, w: Array, X: Array, Y: Array) -> tuple[Array, Array, Any]:
        """F, the residual and G, at w."""
        F, residual, G = self._model.observe(w, inputs_of(X), Y)
        self._check(F, G)
        self.check_finite(F, G)
        return observed(X, F, residual, G)

    def _check(self, F: Array, G: Any) -> None:
        """Refuse gradients that have not the shape that they should."""
        model = self.model
        columns = F.size if model.heads is None else len(F)
        if G.shape != (model.size, columns):
            raise ValueError(
                f"the model's linearize must return a gradient of shape "
                f"({self.model.size}, {columns}); it returned {tuple(G.shape)}"
            )

    def check_finite(self, F: Array, G: Any) -> None:
        """Refuse predictions that are no numbers."""
        if not door.finite(F):
            raise ValueError(f"the model's prediction leaves the finite numbers of {G.dtype}")


class Plain:
    """Parameters as they are, for a learner that has no memory."""

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self,)

    def carry(self, w: Any) -> None:
        self.w = w

    def grow(self, growth: Growth) -> None:
        columns = growth.both(self.w.reshape(len(self.w), -1))
        self.w = columns if self.w.ndim == 2 else columns[:, 0]

    def settle(self) -> None:
        """Nothing is left to be done."""


def _settable(kind: type, name: str) -> bool:
    return getattr(getattr(kind, name, None), "fset", None) is not None


def setting(name: str, check: Check) -> Any:
    """A property that is checked whenever it is set."""

    def put(learner: Any, value: object) -> None:
        checked = check(name, value)
        if learner._made:  # not in the middle of a step
            learner._changing(setattr, learner, f"_{name}", checked)
        else:
            setattr(learner, f"_{name}", checked)

    return property(lambda learner: getattr(learner, f"_{name}"), put)


def _single(w0: object) -> bool:
    return str(getattr(w0, "dtype", None)).removeprefix("torch.") == "float32"


def described(part: Memory | Model) -> dict[str, Any]:
    """A memory or a model, in plain values: how to make one like it.

    Of a model that is one of several processes', how to make what it is `alone`.
    """
    part = getattr(part, "alone", part)
    return {"kind": type(part).__name__, "settings": part.settings()}
