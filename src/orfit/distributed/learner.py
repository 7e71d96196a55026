"""ORFit, spread over processes."""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np

from orfit import door, learners, tall
from orfit.distributed import files
from orfit.distributed.model import Missing, SpreadModel
from orfit.distributed.processes import ProcessLostError, RefusalError, RefusedElsewhereError
from orfit.distributed.whole import spread_out
from orfit.door import Array
from orfit.learners.rows import Auto
from orfit.learners.update import Update, Updates
from orfit.learners.weights import weights
from orfit.memory import Memory
from orfit.models import Model
from orfit.tall_shards import Shard

T = TypeVar("T")

ALONE = "it is spread over processes: save it, and orfit.distributed.load(path, whole=True) has it"


class ORFit(learners.ORFit):
    """`orfit.ORFit`, each process having a part of every direction.

    Every process makes the same calls in the same order: of x with what is here of it, of y and
    all else with the same. A row is learned by all or by none: where one process refuses its part
    (a NaN), it says why, and on the others `RefusedElsewhereError` is raised. Where a process has
    ended, the others raise `ProcessLostError`.

    model: an `orfit.distributed.Linear`, of which each process has a part. Any other, such as an
        `orfit.TorchModel`, each process has whole, and is given all of x (`Whole`).
    memory: as for `orfit.ORFit`; `RLS`' dense P cannot be spread.
    w0: what is here of it, or all where the model is whole; float32 makes a learner float32.
    noise, forgetting, tail, drift, rows: as for `orfit.ORFit`. With rows="compiled" there is none.

    One message of (s + q + n) n numbers goes around for each block of n rows, s the rows stored and
    q the heads; two where hardly anything of a row is new. `learn_each` takes apart many rows at
    once, by one message. `learner.model.processes.exchanges` counts them, `gathers` those of all of
    w, which only a `Whole` needs.

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
        model: Model | SpreadModel,
        memory: Memory | int | str | None = None,
        *,
        w0: object = None,
        noise: float | str = 0.0,
        forgetting: float | str = 1.0,
        tail: bool | str = True,
        drift: float = 0.0,
        rows: str | Auto = "auto",
    ) -> None:
        self._known: Any = None  # w, and of what
        super().__init__(
            spread_out(model),
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
        """The parameters as the model has them here, a copy: those of this process, or all."""
        w = self._reading(lambda: tall.copy(self.model.told(self._w)))
        if isinstance(w, np.ndarray):
            w.flags.writeable = False
        return w

    @property
    def _w(self) -> Any:
        # The same one until it moves: what is asked of the others once, all know then.
        carried, mine = self._carrier.w, self._mine
        if self._known is None or self._known[0] is not carried or self._known[1] != mine:
            self._known = carried, mine, super()._w
        return self._known[2]

    @_w.setter
    def _w(self, w: Any) -> None:
        self._carrier.w = self._carried(w)

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
        if w0 is not None and not isinstance(w0, Shard):
            try:
                w0 = self.model.part_of(w0)
            except ValueError as error:
                self.model.processes.refuse(error)
                w0 = None
        if w0 is None:
            return tall.copy(start)
        # NumPy models take w0's dtype; a network has its own.
        return tall.copy(w0 if isinstance(start.local, np.ndarray) else tall.convert(start, w0))

    def undivided(self, change: Callable[..., T], *args: Any) -> T:
        """With a model that is ready for it: what one process takes back, the others have, too."""
        if self._now.change is not None:
            self._finish()
        self.model.prepare(self)
        return super().undivided(change, *args)

    # Where a process refuses its part of a row, the others wait for it in the first sum: so it
    # takes part in that, and they hear of it.

    def _learn_point(self, x: object, y: object, weight: object) -> Update:
        def stand_in() -> None:
            self._learn_missing(self._labels_for(1, [y]), weight)

        return self._together(super()._learn_point, stand_in, x, y, weight)

    def _learn_points(self, X: object, Y: object, weight: object) -> Update:
        def stand_in() -> None:
            labels = self._labels_for(rows_of(Y, X), Y)
            self._learn_block(self._missing(labels), labels)

        return self._together(super()._learn_points, stand_in, X, Y, weight)

    def _learn_each(self, X: object, Y: object, weight: object) -> Updates:
        def stand_in() -> None:
            self._learn_missing(self._labels_for(rows_of(Y, X), Y), weight)

        return self._together(super()._learn_each, stand_in, X, Y, weight)

    def _predicted(self, X: object, std: bool | str) -> Any:
        def stand_in() -> None:
            one = np.ndim(X) < 2 if self._input_shape is not None else np.ndim(X) < 1  # type: ignore[arg-type]
            labels = np.zeros((1 if one else rows_of(X), *self._label_shape))
            self._predict(self._missing(labels))

        return self._together(super()._predicted, stand_in, X, std)

    def _together(self, use: Callable[..., T], stand_in: Callable[[], None], *given: Any) -> T:
        processes = self.model.processes
        before = processes.exchanges
        try:
            return use(*given)
        except (ProcessLostError, RefusedElsewhereError):
            raise  # of which all know
        except RefusalError as refusal:
            raise refusal.error from None
        except Exception as error:
            if processes.exchanges == before and processes.count > 1:
                with processes.refusing(error), contextlib.suppress(type(error), RefusalError):
                    stand_in()
            raise

    def _learn_missing(self, Y: Array, weight: object) -> None:
        X: Any = self._missing(Y)
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

    def _missing(self, Y: Array) -> Any:
        """Rows in the place of those with these labels."""
        outputs = 1 if self.model.heads is not None else int(np.prod(Y.shape[1:]))
        return Missing(len(Y), outputs, self._dtype)

    def _labels_for(self, rows: int, Y: Any) -> Array:
        """Zeros in the place of labels, for so many rows: of their shape, if that can be told."""
        shape = self._label_shape
        if not self._seen and self.model.heads is None:  # it is for these to say
            with contextlib.suppress(ValueError):
                shape = np.shape(Y)[1:]
        return np.zeros((rows, *shape))


def rows_of(*given: object) -> int:
    """How many rows these are, as far as that can be told."""
    for rows in given:
        try:
            return len(rows)  # type: ignore[arg-type]
        except TypeError:
            continue
    return 1
