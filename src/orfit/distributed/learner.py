"""ORFit, spread over processes."""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np

from orfit import door, learners, tall
from orfit.distributed import files
from orfit.distributed.linear import Linear, Missing
from orfit.distributed.processes import ProcessLostError
from orfit.door import Array
from orfit.learners.rows import Auto
from orfit.learners.update import Update, Updates
from orfit.learners.weights import weights
from orfit.memory import Memory
from orfit.tall_shards import Shard

T = TypeVar("T")

ALONE = "it is spread over processes: save it, and orfit.distributed.load(path, whole=True) has it"


class ORFit(learners.ORFit):
    """`orfit.ORFit`, each process having a part of w and of every direction.

    Every process makes the same calls in the same order: of x with what is here of it, of y and
    all else with the same. A row is learned by all or by none: where one process refuses its part
    (a NaN), it says why, and on the others `RefusedElsewhereError` is raised. Where a process has
    ended, the others raise `ProcessLostError`.

    model: an `orfit.distributed.Linear`.
    memory: as for `orfit.ORFit`; `RLS`' dense P cannot be spread.
    w0: what is here of it; float32 makes the learner float32.
    noise, forgetting, tail, drift, rows: as for `orfit.ORFit`. With rows="compiled" there is none.

    One message of (s + q + n) n numbers goes around for each block of n rows, s the rows stored and
    q the heads; two where hardly anything of a row is new. `learn_each` takes apart many rows at
    once, by one message. `learner.model.processes.exchanges` counts them.

    Examples:
        >>> import orfit.distributed  # torchrun --nproc-per-node 4 this.py
        >>> model = orfit.distributed.Linear(1000)
        >>> learner = orfit.distributed.ORFit(model, memory=10, noise=0.1)
        >>> rng = np.random.default_rng(0)
        >>> for _ in range(20):
        ...     x = rng.standard_normal(1000)[model.here]  # only this is needed here
        ...     update = learner.learn(x, 1.0)
        >>> learner.seen, learner.w.shape
        (20, (1000,))
    """

    model: Any  # that is spread

    def __init__(
        self,
        model: Linear,
        memory: Memory | int | str | None = None,
        *,
        w0: object = None,
        noise: float | str = 0.0,
        forgetting: float | str = 1.0,
        tail: bool | str = True,
        drift: float = 0.0,
        rows: str | Auto = "auto",
    ) -> None:
        if not hasattr(model, "spread"):
            raise ValueError(f"model must be spread, an orfit.distributed.Linear; it is {model!r}")
        super().__init__(
            model,
            memory,
            w0=w0,
            noise=noise,
            forgetting=forgetting,
            tail=tail,
            drift=drift,
            rows=rows,
        )

    @property
    def w(self) -> Any:
        """What is here of the parameters, (held,) or (held, q): a copy."""
        w = tall.here(self._reading(lambda: tall.copy(self._w)))
        w.flags.writeable = False
        return w

    def save(self, path: str | os.PathLike[str], wait: bool = True) -> "Future[None] | None":
        """Write everything, each process its part: `orfit.distributed.load` reads it back.

        To a folder that all processes see: `path`, which is small, and beside it a file for each
        process. They are there when `path` says so, and until then those of before are.
        """
        if not door.flag("wait", wait):
            raise ValueError("processes save together, and wait for each other: wait must be True")
        self._reading(lambda: files.save(path, *self.state(), self.model.processes))
        return None

    def loop_obstacle(self) -> str | None:
        return "it is spread over processes"

    def merge_obstacle(self) -> str | None:
        return ALONE

    def _start(self, w0: object) -> Any:
        start = self.model.initial()
        if w0 is None or isinstance(w0, Shard):
            return tall.copy(start if w0 is None else w0)
        try:
            single = str(getattr(w0, "dtype", None)).removeprefix("torch.") == "float32"
            w = door.numbers("w0", w0, np.float32 if single else np.float64)
            if w.shape != start.local.shape:
                raise ValueError(f"w0 must have shape {start.local.shape} here; it has {w.shape}")
        except ValueError as error:
            self.model.processes.refuse(error)
            w = start.local
        return tall.copy(Shard(w, self.model.spread))

    # Where a process refuses its part of a row, the others wait for it in the first sum: so it
    # takes part in that, and they hear of it.

    def _learn_point(self, x: object, y: object, weight: object) -> Update:
        def stand_in() -> None:
            self._learn_missing(np.zeros((1, *self._label_shape)), weight)

        return self._together(super()._learn_point, stand_in, x, y, weight)

    def _learn_points(self, X: object, Y: object, weight: object) -> Update:
        def stand_in() -> None:
            self._learn_block(self._missing(rows_of(Y, X)), self._labels_for(Y, X))

        return self._together(super()._learn_points, stand_in, X, Y, weight)

    def _learn_each(self, X: object, Y: object, weight: object) -> Updates:
        def stand_in() -> None:
            self._learn_missing(self._labels_for(Y, X), weight)

        return self._together(super()._learn_each, stand_in, X, Y, weight)

    def _predicted(self, X: object, std: bool | str) -> Any:
        def stand_in() -> None:
            one = np.ndim(X) < 2 if self._input_shape is not None else np.ndim(X) < 1  # type: ignore[arg-type]
            missing: Any = self._missing(1 if one else rows_of(X))
            self._predict(missing)

        return self._together(super()._predicted, stand_in, X, std)

    def _together(self, use: Callable[..., T], stand_in: Callable[[], None], *given: Any) -> T:
        processes = self.model.processes
        before = processes.exchanges
        try:
            return use(*given)
        except ProcessLostError:
            raise
        except Exception as error:
            if processes.exchanges == before and processes.count > 1:
                with processes.refusing(error), contextlib.suppress(type(error)):
                    stand_in()
            raise

    def _learn_missing(self, Y: Array, weight: object) -> None:
        X: Any = self._missing(len(Y))
        try:
            v = None if weight is None else weights(weight, len(Y))
        except ValueError:
            v = None
        if v is not None:
            self._learn_weighted(X, Y, v)
        elif len(Y) == 1:
            self._learn_one(X, Y)
        else:
            self._learn_rows(X, Y)

    def _missing(self, rows: int) -> Missing:
        outputs = 1 if self.model.heads is not None else int(np.prod(self._label_shape))
        return Missing(rows, outputs, self._dtype)

    def _labels_for(self, *given: object) -> Array:
        return np.zeros((rows_of(*given), *self._label_shape))


def rows_of(*given: object) -> int:
    """How many rows these are, as far as that can be told."""
    for rows in given:
        try:
            return len(rows)  # type: ignore[arg-type]
        except TypeError:
            continue
    return 1
