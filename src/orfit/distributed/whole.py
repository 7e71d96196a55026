"""A model that every process has whole, such as a network; what is spread is the memory."""

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from orfit import door, tall
from orfit.distributed.model import Missing, SpreadModel, checked_w0
from orfit.distributed.processes import DivergedError
from orfit.door import Array
from orfit.models import Model, completed
from orfit.tall_shards import Shard, joined


class Whole(SpreadModel):
    """A model of which each process has all, and remembers a part of every gradient.

    model: an `orfit.TorchModel`, or any other, the same on all processes.
    shares: how many parameters of each gradient each process holds, as for `Linear`.

    Every process is given all of x, and makes all of G of it, of which it keeps what is here. w is
    put together where the model needs it: one message of p numbers for each block that is learned,
    unless it is linear in w, and one where somebody asks after that. So `learner.w` is all of w.
    What the model itself refuses on one process, or finds not finite, all refuse.

    Examples:
        >>> import torch
        >>> import orfit.distributed  # torchrun --nproc-per-node 4 this.py
        >>> _ = torch.manual_seed(0)  # the same network everywhere
        >>> network = orfit.TorchModel(torch.nn.Linear(3, 1).double())
        >>> learner = orfit.distributed.ORFit(orfit.distributed.Whole(network), 10, noise=0.1)
        >>> update = learner.learn([1.0, 2.0, 3.0], 1.0)
        >>> learner.w.shape
        torch.Size([4])
    """

    def __init__(self, model: Model, *, shares: Sequence[int] | None = None) -> None:
        self.model = completed(model)
        self.alone = model  # what this is in one process
        super().__init__(model.size, shares)
        self.heads, self.input_shape = model.heads, model.input_shape
        self.linear = model.linear
        self.may_differ = getattr(model, "may_differ", ())
        self._outputs: int | None = None  # gradients for each row, known from the first one on
        self._check_same()

    def _check_same(self) -> None:
        """Raise where processes have different models: parts of different w are none."""
        said = json.dumps(self.settings(), sort_keys=True, default=lambda part: None)
        numbers = np.ascontiguousarray(tall.to_numpy(self.model.initial()))
        try:
            self.processes.sum(np.zeros(0), zlib.crc32(numbers.data, zlib.crc32(said.encode())))
        except DivergedError:
            raise ValueError(
                f"{self.alone!r} is not the same on all processes: let each make it from the same "
                "seed, or load the same parameters"
            ) from None

    def initial(self) -> Shard:
        return Shard(self.model.initial()[self.here], self.spread)

    @property
    def origin(self) -> Any:
        origin = self.model.origin
        return None if origin is None else Shard(origin[self.here], self.spread)

    def part_of(self, w0: object) -> Shard:
        """What a user hands in is all of it."""
        w = checked_w0(w0, tuple(self.model.initial().shape))
        return Shard(w[self.here], self.spread)

    def prepare(self, learner: Any) -> None:
        if not self.linear:  # where gradients depend on it
            joined(learner._w)

    def told(self, w: Shard) -> Any:
        """All of it."""
        return joined(w)

    def accept(self, name: str, X: object, dtype: Any) -> Any:
        return self.model.accept(name, X, dtype)

    def sync(self, w: Shard) -> None:
        self.model.sync(joined(w))

    def predict(self, w: Shard, X: Any) -> Array:
        return self._agreed(lambda: self.model.predict(joined(w), X), w, X)  # type: ignore[no-any-return]

    def linearize(self, w: Shard, X: Any) -> tuple[Array, Shard]:
        F, G = self._agreed(lambda: self.model.linearize(joined(w), X), w, X)
        return F, self._part(G)

    def observe(self, w: Shard, X: Any, Y: Array) -> tuple[Array, Array, Shard]:
        joined(w)  # not only where the rows are not missing
        return self._of_rows(lambda: self.model.observe(joined(w), X, Y), X, Y)

    def affine(self, X: Any, Y: Array) -> tuple[Array, Array, Shard]:
        return self._of_rows(lambda: self.model.affine(X, Y), X, Y)

    def _agreed(self, find: Callable[[], Any], w: Shard, X: Any) -> Any:
        """What all processes have found, or none: where no sum follows in which they would hear."""
        joined(w)
        error: Exception | None = None
        try:
            found = None if isinstance(X, Missing) else find()
        except Exception as why:
            error = why
        self.processes.together(error)
        return found

    def _of_rows(
        self, find: Callable[[], tuple[Array, Array, Any]], X: Any, Y: Array
    ) -> tuple[Array, Array, Shard]:
        """F, what is wanted and G of rows; where they are refused, the sum that follows says so."""
        if not isinstance(X, Missing):
            try:
                F, wanted, G = find()
                if not door.finite(F):
                    raise ValueError(
                        f"the model's prediction leaves the finite numbers of {G.dtype}"
                    )
                self._outputs = G.shape[1] // len(Y)
                return F, wanted, self._part(G)
            except Exception as why:  # whatever it is: the others have theirs, and wait
                self.processes.refuse(why)
        outputs = self._outputs or Y.size // len(Y)
        shape, nothing = Missing(len(Y), outputs, None).gradients(self, self.model.initial())
        return np.zeros(shape), np.zeros(shape), nothing

    def _part(self, G: Any) -> Shard:
        """What is here of gradients, columns contiguous: a copy, so that the rest can go."""
        rows = tall.empty(G, G.shape[1], self.held)
        rows[:] = G.T[:, self.here]
        return Shard(rows.T, self.spread)

    def settings(self) -> dict[str, Any]:
        return self.model.settings()

    def __repr__(self) -> str:
        return repr(self.alone)


def spread_out(model: Any) -> Any:
    """The model, of which each process has a part; or has all, and remembers a part."""
    return model if isinstance(model, SpreadModel) else Whole(model)
