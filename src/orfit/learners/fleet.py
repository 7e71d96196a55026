"""Many small learners of one shape."""

import copy
import os
from typing import Any

import numpy as np

from orfit import checkpoint, validation
from orfit.core._core import learn_fleet
from orfit.learners.learner import Stateful, described
from orfit.learners.orfit import ORFit
from orfit.memory.basis_rows import BasisRows
from orfit.models import Model
from orfit.state import State, from_arrays, to_arrays
from orfit.validation import Array
from orfit.version import __version__


class Fleet(Stateful):
    """`count` learners, each an `ORFit(model, m, noise=noise)` with a stream of its own.

    model: an `orfit.Linear` that all learners share, with one output or heads.
    m: the number of directions of each.
    noise: R > 0, the same for all.
    tail, w0: as for `ORFit`.

    `learn(which, X, Y)` and `predict(which, X)` take rows of many learners at once. Each learner
    makes the same steps as a single `ORFit`; a learner without a row needs no memory. `fleet[i]`
    is a copy of one, an independent learner.

    Examples:
        >>> fleet = orfit.Fleet(1000, orfit.Linear(2), m=2, noise=0.1)
        >>> f = fleet.learn([7, 7, 3], [[1, 0], [0, 1], [1, 1]], [1.0, 2.0, 3.0])
        >>> print(fleet.predict([3, 7, 8], np.ones((3, 2))).round(2))
        [2.86 2.73 0.  ]
        >>> fleet[7].seen
        2
    """

    def __init__(
        self,
        count: int,
        model: Model,
        m: int,
        *,
        noise: float,
        tail: bool = True,
        w0: object = None,
    ) -> None:
        super().__init__()
        self.count = validation.count("count", count)
        self._like = like = ORFit(model, validation.count("m", m), noise=noise, tail=tail, w0=w0)
        if len(like.candidates) > 1 or like.noise == 0 or not model.linear:
            raise ValueError(
                "a fleet is for linear models, with a number noise > 0: make learners one by one"
            )
        # The numbers of each learner; None before its first row.
        self._learners: list[BasisRows | State | None] = [None] * self.count
        self._scratch: Array | None = None

    @property
    def model(self) -> Model:
        """The model that all learners share."""
        return self._like.model

    @property
    def _new(self) -> State:
        """The state before the first row."""
        s: State = self._like._cell.state
        return s

    def _state_of(self, i: int) -> State:
        """The state of the i-th."""
        held = self._learners[i]
        return self._new if held is None else held.state() if isinstance(held, BasisRows) else held

    @property
    def seen(self) -> Array:
        """How many rows each learner has learned."""
        return self._read(lambda: np.array([0 if s is None else s.seen for s in self._learners]))

    @property
    def numbers(self) -> int:
        """How many numbers are kept, of all learners."""
        return self._read(self._count_numbers)

    def _count_numbers(self) -> int:
        return sum(
            array.size for i in self._begun() for array in to_arrays(self._state_of(i)).values()
        )

    def _begun(self) -> list[int]:
        """The learners that have learned a row."""
        return [i for i, held in enumerate(self._learners) if held is not None]

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        tail = "" if self._like.tail else ", tail=False"
        noise = f"noise={self._like.noise:g}{tail}"
        return f"Fleet({self.count}, {self.model!r}, m={self._like.memory.m}, {noise})"

    def learn(self, which: object, X: object, Y: object) -> Array:
        """Learn rows X (n, d), Y (n,) or (n, q), each by the learner which[i] (n,), in their order.

        Returns the prediction for each row before it was learned. If a row is refused, its
        learner has learned the rows before it, and all other learners have learned their rows. The
        error describes the first refused row.
        """
        return self._change(self._learn, which, X, Y)

    def _learn(self, which: object, X: object, Y: object) -> Array:
        if np.asarray(which).ndim == 0:
            raise ValueError(
                "learn(which, X, Y) takes rows: which=[3], X=[x], Y=[y] for one of them"
            )
        inputs, labels = self._like._many(X, Y)
        owners = self._owners(which, len(inputs))
        predicted = np.empty(labels.shape)
        if labels.shape[1:] != self._new.label_shape:
            raise ValueError(
                f"Y has labels of shape {labels.shape[1:]}; a fleet is for models with one output, "
                f"or heads: {self._new.label_shape}"
            )
        gradients, _, labels, _ = self._like._core_inputs(None, inputs, labels)
        codes = np.zeros(self.count, np.int64)
        for owner in np.unique(owners).tolist():
            self._prepare(owner, inputs.shape[1:])
        learn_fleet(self._learners, owners, gradients, labels, predicted, codes)
        refused = np.flatnonzero(codes[owners])
        if len(owners) > len(refused):
            self._new.input_shape = inputs.shape[1:]  # all learners take inputs of this shape
        if len(refused):
            owner = int(owners[refused[0]])
            try:
                self._like._refuse(int(codes[owner]), 1.0)
            except ValueError as error:
                raise ValueError(f"a row of learner {owner}: {error}") from None
        return predicted

    def _prepare(self, i: int, input_shape: tuple[int, ...]) -> None:
        """Place the numbers of the i-th in the core."""
        held = self._learners[i]
        if isinstance(held, BasisRows):
            return
        # States of different learners share no buffer to which rows are appended.
        s = copy.deepcopy(self._new) if held is None else held
        rows = self._like._new_rows(s, self._scratch)
        assert isinstance(rows, BasisRows)
        self._learners[i] = rows
        self._scratch, rows.shapes = rows.scratch, (input_shape, self._new.label_shape)

    def predict(self, which: object, X: object) -> Array:
        """The predictions of learners which[i] for X[i]: (n,) or (n, q). Changes nothing."""
        return self._read(self._predict, which, X)

    def _predict(self, which: object, X: object) -> Array:
        like = self._like
        inputs = like._model.accept("X", X, like._dtype)
        like._check_inputs("X", inputs)
        owners = self._owners(which, len(inputs))
        predicted = np.empty((len(inputs), *self._new.label_shape))
        for owner in np.unique(owners):
            rows = np.flatnonzero(owners == owner)
            predicted[rows] = like._predict(self._state_of(int(owner)), inputs[rows])
        return predicted

    def __getitem__(self, i: int) -> ORFit:
        """A copy of the i-th, as an independent learner."""
        index = validation.count("index", i, least=-validation.MOST)
        if not -self.count <= index < self.count:
            raise IndexError(f"there are {self.count} learners, from 0 on; {index} is none of them")
        return self._read(self._copied, index % self.count)

    def _copied(self, i: int) -> ORFit:
        made: ORFit = copy.deepcopy(self._like)
        made._cell.state = copy.deepcopy(self._state_of(i))
        return made

    def _owners(self, which: object, rows: int) -> Array:
        owners = np.asarray(which)
        owners = owners.astype(int) if not owners.size else owners  # of an empty list
        if owners.shape != (rows,) or owners.dtype.kind not in "iu":
            raise ValueError(
                f"which must be a whole number for each of {rows} rows; "
                f"it has shape {owners.shape}, of {owners.dtype}"
            )
        if rows and not (owners.min() >= 0 and owners.max() < self.count):
            raise ValueError(
                f"which must be from 0 to {self.count - 1}, as many as there are; it has "
                f"{owners.min()} to {owners.max()}"
            )
        return owners.astype(np.int64)

    # Saving.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of them to one file, atomically; `orfit.load` reads it back."""
        checkpoint.writer.now(path, self._read(lambda: checkpoint.Content.of(*self.state())))

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and a header: each field of all learners as one array of numbers, and shapes."""
        model = self.model
        header = {
            "kind": type(self).__name__,
            "settings": {
                "count": self.count,
                "m": self._like.memory.m,
                "noise": self._like.noise,
                "tail": self._like.tail,
            },
            "versions": {"orfit": __version__, "numpy": np.__version__},
            "model": described(model) | {"size": model.size, "heads": model.heads},
        }
        fields: dict[str, list[Array]] = {}
        for i in self._begun():
            for name, array in to_arrays(self._state_of(i)).items():
                fields.setdefault(name, []).append(array)
        arrays = {"learned": np.array([s is not None for s in self._learners], np.int64)}
        for name, parts in fields.items():
            arrays[f"numbers.{name}"] = np.concatenate([np.ravel(part) for part in parts])
            arrays[f"shapes.{name}"] = np.array([np.shape(part) for part in parts], np.int64)
        return arrays | {"w": self._like.w}, header

    def restore(self, arrays: dict[str, Array]) -> None:
        """Continue from what `state` returned; raises ValueError if its parts do not fit."""
        learned = np.flatnonzero(arrays.pop("learned"))
        names = [name.removeprefix("numbers.") for name in arrays if name.startswith("numbers.")]
        if len(arrays) != 2 * len(names) or not all(f"shapes.{n}" in arrays for n in names):
            raise ValueError("each array of numbers needs an array of shapes")
        fields: list[dict[str, Array]] = [{} for _ in learned]
        for name in names:
            shapes, numbers = arrays[f"shapes.{name}"], arrays[f"numbers.{name}"]
            sizes = np.prod(shapes, axis=-1, dtype=float)
            fits = shapes.ndim == 2 and shapes.dtype == np.int64 and numbers.ndim == 1
            fits = fits and len(shapes) == len(learned) and sizes.sum() == numbers.size
            if not fits or (shapes < 0).any():
                raise ValueError(f"{name} is not an array for each learner")
            parts = np.split(numbers, np.cumsum(sizes[:-1]).astype(int))
            for of_one, part, shape in zip(fields, parts, shapes.tolist(), strict=True):
                of_one[name] = np.array(part.reshape(shape))  # aligned: BLAS may round by that
        for i, of_one in zip(learned, fields, strict=True):
            s = from_arrays(self._new, of_one)
            self._like.check_restored(s)
            self._learners[i] = s
        shapes_of_inputs = {self._state_of(i).input_shape for i in self._begun()}
        if len(shapes_of_inputs) > 1:
            raise ValueError("its learners take inputs of different shapes")
        self._new.input_shape = next(iter(shapes_of_inputs), self.model.input_shape)
