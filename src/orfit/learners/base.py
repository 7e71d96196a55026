"""The contract that every learner keeps: learn, learn_batch, learn_each, predict, w, seen, save."""

import os
from abc import ABC, abstractmethod
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from orfit import checkpoint, door
from orfit.door import Array
from orfit.learners.update import Update, Updates
from orfit.memory import Memory
from orfit.models import Model


class Learner(ABC):
    """A model, its parameters, and a rule to move them when a datapoint arrives.

    A subclass writes `_learn`. Input is checked here, before `_learn` sees it; where it is
    refused, nothing has changed.
    """

    memory: Memory | None = None

    def __init__(self, model: Model, w0: object = None) -> None:
        """w0: where to start; its dtype, float32 or float64, is the learner's."""
        self.model = model
        self._w = self._start(w0)
        self._seen = 0
        # What one datapoint looks like: known from the model, or from the first one learned.
        self._input_shape = model.input_shape
        self._label_shape = () if model.heads is None else (model.heads,)

    @abstractmethod
    def _learn(self, X: Array, Y: Array) -> Update:
        """Learn a block of n ≥ 1 datapoints at once. On an error nothing has changed."""

    def settings(self) -> dict[str, Any]:
        """The arguments, besides model and w0, to make this learner again."""
        return {}

    @property
    def w(self) -> Array:
        """The parameters, (p,) or (p, q): a copy, which later steps leave alone."""
        w = np.array(self._w)
        w.flags.writeable = False  # writing to a copy would be silently in vain
        return w

    @property
    def seen(self) -> int:
        """How many datapoints have been learned."""
        return self._seen

    def learn(self, x: object, y: object) -> Update:
        """Learn one datapoint: x (d,), y a number or (c,)."""
        X = door.numbers("x", x, self._dtype)[None]
        self._check_inputs("x", X, one=True)
        return self._learn_block(X, door.numbers("y", y)[None]).first()

    def learn_batch(self, X: object, Y: object) -> Update:
        """Learn many datapoints at once, as one block: X (n, d), Y (n,) or (n, c).

        With `forgetting`, the block is one moment in time.
        """
        inputs, labels = self._many(X, Y)
        if not len(inputs):
            return Update(labels, labels, 0.0, 0.0, labels, self.memory.rank if self.memory else 0)
        return self._learn_block(inputs, labels)

    def learn_each(self, X: object, Y: object) -> Updates:
        """Learn many datapoints one after another: what a loop of `learn` gives."""
        inputs, labels = self._many(X, Y)
        rows = range(len(inputs))
        updates = [self._learn_block(inputs[i : i + 1], labels[i : i + 1]).first() for i in rows]
        return Updates.of(updates, labels)

    def predict(self, X: object) -> Any:
        """f(x; w) for one datapoint, x (d,), or for many, X (n, d). Changes nothing."""
        inputs = door.numbers("X", X, self._dtype)
        shape = self._input_shape
        one = inputs.ndim < 2 if shape is None else inputs.shape == shape
        if one:
            return self._predict(inputs[None])[0]
        self._check_inputs("X", inputs)
        if not len(inputs):  # no model need know what to do with nothing
            return np.empty((0, *self._label_shape), self._dtype)
        return self._predict(inputs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, atomically; `orfit.load` reads it back."""
        settings = self.settings()
        if "memory" in settings:
            settings["memory"] = described(settings["memory"])
        arrays = {"w": self._w}
        header: dict[str, Any] = {
            "kind": type(self).__name__,
            "settings": settings,
            "versions": {name: version(name) for name in ("orfit", "numpy")},
            "seen": self._seen,
            "input_shape": self._input_shape,
            "label_shape": self._label_shape,
            "model": described(self.model) | {"size": self.model.size, "heads": self.model.heads},
        }
        if self.memory is not None:
            state, header["memory"] = self.memory.state()
            arrays |= {f"memory.{name}": array for name, array in state.items()}
        checkpoint.write(path, arrays, header)

    @property
    def _dtype(self) -> npt.DTypeLike:
        return self._w.dtype

    def _predict(self, X: Array) -> Array:
        return self.model.predict(self._w, X)

    def _start(self, w0: object) -> Array:
        start = self.model.initial()
        if w0 is not None:
            given = getattr(w0, "dtype", None)
            w = door.numbers("w0", w0, np.float32 if given == np.float32 else np.float64)
            if w.shape != start.shape:
                raise ValueError(f"w0 must have shape {start.shape}; it has {w.shape}")
            start = w
        # A copy: the caller's array stays his. Columns contiguous, as every tall array.
        return np.array(start, order="F")

    def _learn_block(self, X: Array, Y: Array) -> Update:
        update = self._learn(X, Y)
        self._seen += len(X)
        self._input_shape, self._label_shape = X.shape[1:], Y.shape[1:]
        return update

    def _many(self, X: object, Y: object) -> tuple[Array, Array]:
        inputs, labels = door.numbers("X", X, self._dtype), door.numbers("Y", Y)
        if inputs.ndim == 0 or labels.ndim == 0:
            raise ValueError("X and Y must hold many datapoints; for a single one there is learn")
        self._check_inputs("X", inputs)
        if len(inputs) != len(labels):
            raise ValueError(f"X has {len(inputs)} datapoints, but Y has {len(labels)} labels")
        return inputs, labels

    def _check_inputs(self, name: str, X: Array, *, one: bool = False) -> None:
        shape = self._input_shape
        if shape is not None and X.shape[1:] != shape:
            expected = str(shape) if one else "(n, " + ", ".join(map(str, shape)) + ")"
            raise ValueError(
                f"{name} must have shape {expected}; it has {X.shape[1:] if one else X.shape}"
            )

    def _residual(self, F: Array, Y: Array) -> Array:
        """Y − F, where the labels have the shape of the predictions."""
        if Y.shape != F.shape:
            raise ValueError(
                f"y must have shape {F.shape[1:]} for each datapoint; it has {Y.shape[1:]}"
            )
        door.check_finite("the model's prediction", F)
        return np.asarray(Y - F)


def check_step(step: Array | float) -> None:
    """Refuse a step that would leave the finite numbers."""
    if not np.isfinite(step).all():
        raise ValueError("the step overflows: the residual is too large for the gradient")


def described(part: Memory | Model) -> dict[str, Any]:
    """A memory or a model, in plain values: how to make one like it."""
    return {"kind": type(part).__name__, "settings": part.settings()}
