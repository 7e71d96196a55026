"""Many small learners of one shape, in arrays that hold all of them."""

import math
import os
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np

from orfit import checkpoint, door, gram, schema, tall
from orfit.door import Array
from orfit.learners.atomic import Atomic
from orfit.learners.base import described
from orfit.learners.orfit import ORFit
from orfit.memory.frame import DAMAGED
from orfit.memory.loop import SCALES
from orfit.models import Model, completed
from orfit.schema import DOUBLE, Fields, Layout
from orfit.version import __version__

COUNTS = ("rank", "seen")
ENERGIES = ("lost", "rows", "dropping", "level", "dropped")


class Fleet(Atomic):
    """`count` learners, each an `ORFit(model, m, noise=noise)` that has a stream of its own.

    model: an `orfit.Linear` that they all have, with one output or heads.
    m: how many directions each keeps.
    noise: R > 0, of all of them.
    tail, w0: as for `ORFit`.

    `learn(which, X, Y)` and `predict(which, X)` take rows of many learners at once, in compiled
    code that shares the learners among threads (numba, the extra `fast`; without it everything
    works, one learner after another). Each learner takes the steps that it would take by itself,
    and room for (m + 1) (p + 1) numbers and a few. `fleet[i]` is a copy of one as a learner of its
    own, whose `scale` starts anew: a fleet keeps no residuals.

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
        self.count = door.count("count", count)
        self._like = like = ORFit(model, door.count("m", m), noise=noise, tail=tail, w0=w0)
        if len(like.guesses) > 1 or like.noise == 0 or not model.linear:
            raise ValueError(
                "a fleet is for linear models, with a number noise > 0: make learners one by one"
            )
        self._model, self._m = completed(model), min(like.memory.m, model.size)
        frame = like.memory.frame
        if not isinstance(frame.base, np.ndarray) or frame.base.dtype != DOUBLE:
            raise ValueError("a fleet is of float64 numbers, on the host: let w0 be such")
        self._U = np.zeros((self.count, self._m, model.size))
        self._w = np.repeat(frame.base[None], self.count, axis=0)
        self._sigma = np.zeros((self.count, self._m))
        self._counts = np.zeros((self.count, len(COUNTS)), np.int64)
        self._energies = np.zeros((self.count, len(ENERGIES)))
        self._reach = np.full(self.count, frame.reach)

    @property
    def model(self) -> Model:
        """The model that all have."""
        return self._like.model

    @property
    def seen(self) -> Array:
        """How many rows each learner has learned."""
        seen: Array = self._reading(self._counts[:, 1].copy)
        return seen

    @property
    def numbers(self) -> int:
        """How many numbers are kept, of all learners."""
        return sum(array.size for array in self._arrays().values())

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        tail = "" if self._like.tail else ", tail=False"
        noise = f"noise={self._like.noise:g}{tail}"
        return f"Fleet({self.count}, {self.model!r}, m={self._m}, {noise})"

    def learn(self, which: object, X: object, Y: object) -> Array:
        """Learn rows X (n, d), Y (n,) or (n, q), each by the learner which[i] (n,), in their order.

        Returns what each predicted for its row, before it learned that. Where a row is refused, its
        learner has learned those before it, and all other learners theirs; the first that was
        refused is told.
        """
        predicted: Array = self._changing(self._learn, which, X, Y)
        return predicted

    def _learn(self, which: object, X: object, Y: object) -> Array:
        if np.asarray(which).ndim == 0:
            raise ValueError(
                "learn(which, X, Y) takes rows: which=[3], X=[x], Y=[y] for one of them"
            )
        inputs, labels = self._like._many(X, Y)
        owners = self._owners(which, len(inputs))
        if not len(inputs):
            return labels
        offset, labels, G = self._like.affine(inputs, labels)
        shape, q = labels.shape, self._w.shape[1]
        if math.prod(shape) != len(inputs) * q:
            raise ValueError("a fleet is for models with one output, or heads")
        self._like._input_shape = inputs.shape[1:]  # where the model does not know it
        order = np.argsort(owners, kind="stable")
        learners, starts = np.unique(owners[order], return_index=True)
        starts = np.append(starts, len(owners))
        rows, F, Y_ = (
            np.ascontiguousarray(A.reshape(len(inputs), -1)[order], np.float64)
            for A in (G.T, offset, labels)
        )
        in_order, predicted = np.empty((len(rows), q)), np.empty((len(rows), q))
        learned = np.zeros(len(learners), np.int64)
        if find_spec("numba") is not None:
            self._learn_compiled(learners, starts, rows, F, Y_, in_order, learned)
        refused: ValueError | None = None
        for g in np.flatnonzero(learned < np.diff(starts)):  # what is not for compiled code
            rest = slice(starts[g] + learned[g], starts[g + 1])
            try:
                self._learn_alone(int(learners[g]), inputs, labels, order[rest], in_order[rest])
            except ValueError as error:
                refused = refused or ValueError(f"a row of learner {learners[g]}: {error}")
        if refused is not None:
            raise refused
        predicted[order] = in_order
        return predicted.reshape(shape)

    def _learn_compiled(self, learners: Array, starts: Array, *news: Array) -> None:
        from orfit.kernels import fleet as kernels
        from orfit.kernels.sharing import workers

        like, dtype, (_, m, p) = self._like, np.dtype(np.float64), self._U.shape
        tailed = bool(like.memory.tailed.any())
        scales = SCALES[dtype]
        most = like.most * (scales[0] / math.sqrt(gram.most_lost(dtype)))  # as `Walk` has it
        free = p - m if tailed else 0
        settings = like.guesses.noises, tailed, m, free, tall.cutoff(dtype), scales, most
        room = np.empty((workers(len(learners)), (m + 2) * (p + 4)))
        kernels.learn(tuple(self._state()), (learners, starts, *news), settings, room)

    def _learn_alone(self, i: int, X: Array, Y: Array, rows: Array, predicted: Array) -> None:
        """Learn rows by a learner of its own, and write what it predicted.

        By plain steps: behind a row of 1e200 the compiled loop loses what is far smaller.
        """
        learner = self._learner(i, "plain")
        told = None
        try:
            told = learner.learn_each(X[rows], Y[rows])
        finally:
            self._put(i, learner)
        predicted[:] = told.prediction.reshape(predicted.shape)

    def predict(self, which: object, X: object) -> Array:
        """What learner which[i] says of X[i]: (n,) or (n, q). Changes nothing."""
        predicted: Array = self._reading(self._predict, which, X)
        return predicted

    def _predict(self, which: object, X: object) -> Array:
        inputs = self._like._inputs("X", X)
        self._like._check_inputs("X", inputs)
        owners = self._owners(which, len(inputs))
        heads = () if self.model.heads is None else (self.model.heads,)
        if not len(inputs):
            return np.empty((0, *heads))
        offset, _, G = self._model.affine(inputs, np.zeros((len(inputs), *heads)))
        out = np.einsum("nqp,pn->nq", self._w[owners], G)
        return np.asarray(offset + out.reshape(offset.shape))

    def __getitem__(self, i: int) -> ORFit:
        """A copy of the i-th, as a learner of its own."""
        index = door.count("index", i, least=-door.MOST)
        if not -self.count <= index < self.count:
            raise IndexError(f"there are {self.count} learners, from 0 on; {index} is none of them")
        learner: ORFit = self._reading(self._learner, index % self.count)
        return learner

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

    def _learner(self, i: int, rows: str = "auto") -> ORFit:
        made = ORFit(self.model, self._m, **self._settings(), w0=self._like.w, rows=rows)
        arrays, header = made.state()
        rank, seen = self._counts[i].tolist()
        lost, counted, dropping, level, dropped = self._energies[i].tolist()
        U = self._U[i, :rank].copy()
        arrays |= {
            "memory.rows": U,
            "memory.W": np.eye(rank),
            "memory.M": U @ U.T,
            "memory.base": self._w[i].copy(),
            "memory.shift": np.zeros((len(self._w[i]), rank)),
            "memory.sigma": self._sigma[i, :rank].copy(),
        }
        arrays.pop("memory.provenance", None)
        tail = {"level": [level], "dropped": [dropped], "rows": counted, "dropping": dropping}
        header["memory"] |= {"folds": 0, "reach": float(self._reach[i]), "lost": lost}
        header["memory"]["tail"] = tail | {"prior": 1.0}
        shapes = self._like._input_shape, self._like._label_shape
        made.restore(arrays, header | {"seen": 0})
        made._input_shape, made._label_shape = shapes
        made._seen = seen
        return made

    def _settings(self) -> dict[str, Any]:
        return {"noise": self._like.noise, "tail": self._like.tail}

    def _put(self, i: int, learner: ORFit) -> None:
        """Let the i-th be what a copy of it has become."""
        memory = learner.memory
        k, tail = memory.rank, memory.tail
        self._U[i, :k], self._w[i] = memory.U.T, memory.w.T
        self._sigma[i, :k], self._reach[i] = memory.sigma, memory.reach
        self._counts[i] = k, learner._seen
        numbers = memory.lost, tail.rows, tail.dropping, tail.level[0], tail.dropped[0]
        self._energies[i] = numbers

    def _state(self) -> Iterable[Array]:
        """What the compiled loop changes, in its order."""
        return self._U, self._w, self._sigma, self._counts, self._energies, self._reach

    def _arrays(self) -> dict[str, Array]:
        names = "U", "moved", "sigma", "counts", "energies", "reach"
        return dict(zip(names, self._state(), strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of them to one file, atomically; `orfit.load` reads it back."""
        checkpoint.writer.now(path, self._reading(lambda: checkpoint.Content.of(*self.state())))

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and plain values to go on from, bit by bit."""
        model = self.model
        header = {
            "kind": type(self).__name__,
            "settings": {"count": self.count, "m": self._m, **self._settings()},
            "versions": {"orfit": __version__, "numpy": np.__version__},
            "model": described(model) | {"size": model.size, "heads": model.heads},
            "input_shape": self._like._input_shape,
        }
        arrays = self._arrays() | {"counts": self._counts.astype(np.float64)}
        return arrays | {"w": self._like.w}, header

    fields: Fields = {"input_shape": schema.optional(schema.shape)}  # noqa: RUF012

    def layout(self) -> Layout:
        """The arrays of `state`, but for w."""
        return {name: (DOUBLE, *array.shape) for name, array in self._arrays().items()}

    def restore(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        """Take up what `state` gave; raises where its parts do not fit together."""
        counts = arrays["counts"]
        whole = (counts == np.floor(counts)).all() and (np.abs(counts) < 1 << 53).all()
        if not (whole and (counts >= 0).all() and (counts[:, 0] <= self._m).all()):
            raise ValueError("learners count what they hold in whole numbers, of at most m")
        if (arrays["energies"][:, 1:] < 0).any() or (arrays["reach"] < 0).any():
            raise ValueError("energies and lengths are not negative")
        for name, array in self._arrays().items():
            array[:] = arrays[name]
        self._like._input_shape = (
            None if header["input_shape"] is None else (tuple(header["input_shape"]))
        )
        for i in range(self.count):
            self._check_orthonormal(i)

    def _check_orthonormal(self, i: int) -> None:
        U = self._U[i, : self._counts[i, 0]]
        apart = np.abs(U @ U.T - np.eye(len(U))).max(initial=0.0)
        if not apart < DAMAGED:
            raise ValueError("the directions of a learner are not orthonormal")

    def _parts(self) -> Iterable[Any]:
        return (self,)

    def _settle(self) -> None:
        """Nothing is left to be done: compiled code has taken note of it."""
