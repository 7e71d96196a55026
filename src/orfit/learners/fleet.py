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
from orfit.memory.loop import NUMBERS, SCALES
from orfit.models import Model, completed
from orfit.schema import DOUBLE, Fields, Layout
from orfit.version import __version__

COUNTS = ("stored", "rank", "folds", "seen")
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
    and about (m + 1) (p + 2 m) numbers. `fleet[i]` is a copy of one as a learner of its own, whose
    `scale` starts anew: a fleet keeps no residuals.

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
        frame, room = like.memory.frame, self._m + 1
        if not isinstance(frame.base, np.ndarray) or frame.base.dtype != DOUBLE:
            raise ValueError("a fleet is of float64 numbers, on the host: let w0 be such")
        self._rows = np.zeros((self.count, room, model.size))
        self._base = np.repeat(frame.base[None], self.count, axis=0)
        self._M, self._W = np.zeros((self.count, room, room)), np.zeros((self.count, self._m, room))
        self._sigma = np.zeros((self.count, self._m))
        self._shift = np.zeros((self.count, len(frame.base), room))
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
        seen: Array = self._reading(self._counts[:, 3].copy)
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
        learner has learned those before it, and all other learners theirs.
        """
        predicted: Array = self._changing(self._learn, which, X, Y)
        return predicted

    def _learn(self, which: object, X: object, Y: object) -> Array:
        inputs, labels = self._like._many(X, Y)
        owners = self._owners(which, len(inputs))
        if not len(inputs):
            return labels
        offset, labels, G = self._like.affine(inputs, labels)
        shape, q = labels.shape, self._base.shape[1]
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
        records = np.empty((len(rows), 4 + 3 * q))
        learned = np.zeros(len(learners), np.int64)
        if find_spec("numba") is not None:
            self._walk(learners, starts, rows, F, Y_, records, learned)
        for g in np.flatnonzero(learned < np.diff(starts)):  # what is not for compiled code
            rest = slice(starts[g] + learned[g], starts[g + 1])
            self._learn_alone(int(learners[g]), inputs, labels, order[rest], records[rest])
        predicted = np.empty((len(rows), q))
        predicted[order] = records[:, 4 + q : 4 + 2 * q]
        return predicted.reshape(shape)

    def _walk(self, learners: Array, starts: Array, *news: Array) -> None:
        from orfit.kernels import fleet as kernels
        from orfit.kernels.sharing import workers

        like, dtype, q = self._like, np.dtype(np.float64), self._base.shape[1]
        free = self.model.size - self._m if like.memory.tailed.any() else 0
        lost, scales = gram.most_lost(dtype), SCALES[dtype]
        most = like.most * (scales[0] / math.sqrt(lost))  # as `memory.loop.Walk` has it
        numbers = self._m, free, 0, 1, 1.0, 0.0, tall.cutoff(dtype), scales, lost, most
        settings = like.guesses.noises, like.memory.tailed, False, *numbers
        outs = np.empty((workers(len(learners)), NUMBERS + (self._m + q + 1) * (self._m + 1) + 2))
        kernels.learn(tuple(self._state()), (learners, starts, *news), settings, outs)

    def _learn_alone(self, i: int, X: Array, Y: Array, rows: Array, records: Array) -> None:
        """Learn rows by a learner of its own, and write what is told of them.

        By plain steps: behind a row of 1e200 the compiled loop loses what is far smaller.
        """
        learner, q = self._learner(i, "plain"), self._base.shape[1]
        told = None
        try:
            told = learner.learn_each(X[rows], Y[rows])
        finally:
            self._put(i, learner)
        records[:, 4 + q : 4 + 2 * q] = told.prediction.reshape(-1, q)

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
        X_, out = np.ascontiguousarray(G.T), np.empty((len(inputs), self._base.shape[1]))
        if find_spec("numba") is None:
            out = np.stack([x @ self._w(i) for x, i in zip(X_, owners, strict=True)])
        else:
            from orfit.kernels import fleet as kernels
            from orfit.kernels.sharing import workers

            outs = np.empty((workers(len(X_) // 16), 0))
            fleet = self._rows, self._base, self._shift, self._counts
            kernels.predict(*fleet, owners, X_, out, outs)
        return np.asarray(offset + out.reshape(offset.shape))

    def __getitem__(self, i: int) -> ORFit:
        """A copy of the i-th, as a learner of its own."""
        index = range(self.count)[door.count("index", i, least=-self.count)]
        learner: ORFit = self._reading(self._learner, index)
        return learner

    def _owners(self, which: object, rows: int) -> Array:
        owners = np.asarray(which)
        if owners.shape != (rows,) or owners.dtype.kind not in "iu":
            raise ValueError(
                f"which must be a whole number for each of {rows} rows; "
                f"it has shape {owners.shape}, of {owners.dtype}"
            )
        if rows and not (owners.min() >= 0 and owners.max() < self.count):
            raise ValueError(f"which must be from 0 to {self.count - 1}, as many as there are")
        return owners.astype(np.int64)

    def _w(self, i: int) -> Array:
        stored = self._counts[i, 0]
        return np.asarray((self._base[i] + self._shift[i, :, :stored] @ self._rows[i, :stored]).T)

    def _learner(self, i: int, rows: str = "auto") -> ORFit:
        made = ORFit(self.model, self._m, **self._settings(), w0=self._like.w, rows=rows)
        arrays, header = made.state()
        stored, rank, folds, seen = self._counts[i].tolist()
        lost, counted, dropping, level, dropped = self._energies[i].tolist()
        arrays |= {
            "memory.rows": self._rows[i, :stored],
            "memory.W": self._W[i, :rank, :stored].copy(),
            "memory.M": self._M[i, :stored, :stored],
            "memory.base": self._base[i],
            "memory.shift": self._shift[i, :, :stored].copy(),
            "memory.sigma": self._sigma[i, :rank].copy(),
        }
        arrays.pop("memory.makers", None)
        tail = {"level": [level], "dropped": [dropped], "rows": counted, "dropping": dropping}
        header["memory"] |= {"folds": folds, "reach": float(self._reach[i]), "lost": lost}
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
        self._rows[i, :k], self._base[i], self._shift[i] = memory.U.T, memory.w.T, 0.0
        self._M[i], self._W[i] = np.eye(self._m + 1), np.eye(self._m, self._m + 1)
        self._sigma[i, :k], self._reach[i] = memory.sigma, memory.reach
        self._counts[i] = k, k, memory.frame.folds, learner._seen
        numbers = memory.lost, tail.rows, tail.dropping, tail.level[0], tail.dropped[0]
        self._energies[i] = numbers

    def _state(self) -> Iterable[Array]:
        """What the compiled loop changes, in its order."""
        return (self._rows, self._base, self._M, self._W, self._sigma, self._shift, self._counts,
                self._energies, self._reach)  # fmt: skip

    def _arrays(self) -> dict[str, Array]:
        names = "rows", "base", "M", "W", "sigma", "shift", "counts", "energies", "reach"
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
        stored, rank = counts[:, 0], counts[:, 1]
        if not (whole and (rank >= 0).all() and (rank <= stored).all() and (counts >= 0).all()):
            raise ValueError("learners count what they hold in whole numbers")
        if not (stored <= self._m).all():
            raise ValueError("there is no room for one more row, which every step leaves")
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
        s, k = self._counts[i, :2]
        rows, W, M = self._rows[i, :s], self._W[i, :k, :s], self._M[i, :s, :s]
        unit = 1 / np.sqrt(np.maximum(np.diag(M), 1e-300))
        apart = np.abs((rows @ rows.T - M) * np.outer(unit, unit)).max(initial=0.0)
        apart = max(apart, np.abs(W @ M @ W.T - np.eye(k)).max(initial=0.0))
        if not apart < DAMAGED:
            raise ValueError("the directions of a learner are not orthonormal")

    def _parts(self) -> Iterable[Any]:
        return (self,)

    def _settle(self) -> None:
        """Nothing is left to be done: compiled code has taken note of it."""
