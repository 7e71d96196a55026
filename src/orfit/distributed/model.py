"""What a learner asks of a model that is spread over processes, besides what it asks of any."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from orfit import door, tall
from orfit.distributed.processes import Processes, current
from orfit.door import Array
from orfit.models.base import Defaults
from orfit.tall_shards import Shard, Spread


class SpreadModel(Defaults):
    """Of its p parameters some are this process' own: `held` of them, `here` in all."""

    def __init__(self, size: int, shares: Sequence[int] | None) -> None:
        self.processes = current()
        self.size = door.count("size", size)
        self.spread = Spread(self.processes, _bounds(self.size, self.processes, shares))
        self.here = self.spread.here
        self.held = self.here.stop - self.here.start

    def part_of(self, w0: object) -> Shard:
        """What is here of the w0 that a user hands in, checked."""
        raise NotImplementedError

    def prepare(self, learner: Any) -> None:
        """What is to be had from all processes before a step begins."""

    def told(self, w: Shard) -> Any:
        """w, as a user is told it."""
        raise NotImplementedError


class Missing:
    """Rows that this process has refused, while the others wait for its part in a sum."""

    def __init__(self, rows: int, outputs: int, dtype: Any) -> None:
        self.rows, self.outputs, self.dtype = rows, outputs, dtype

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, rows: Any) -> "Missing":
        return Missing(len(np.arange(self.rows)[rows]), self.outputs, self.dtype)

    def gradients(self, model: Any, like: Any) -> tuple[tuple[int, ...], Shard]:
        """Nothing, of the size that the others have. like: an array of their kind."""
        outputs = () if self.outputs == 1 else (self.outputs,)
        shape = (self.rows, *outputs) if model.heads is None else (self.rows, model.heads)
        columns = self.rows * (self.outputs if model.heads is None else 1)
        nothing = np.zeros((model.held, columns), order="F")
        return shape, Shard(tall.convert(like, nothing), model.spread)


def checked_w0(w0: Any, shape: tuple[int, ...], where: str = "") -> Array:
    """What a user hands in as w0: numbers of this shape, float32 where they are."""
    single = str(getattr(w0, "dtype", None)).removeprefix("torch.") == "float32"
    w = door.numbers("w0", w0, np.float32 if single else np.float64)
    if w.shape != shape:
        raise ValueError(f"w0 must have shape {shape}{where}; it has {w.shape}")
    return w


def _bounds(size: int, processes: Processes, shares: Sequence[int] | None) -> tuple[int, ...]:
    count = processes.count
    if shares is None:
        if size < count:
            raise ValueError(f"{count} processes cannot share {size} parameters: each needs one")
        return tuple(size * r // count for r in range(count + 1))
    counts = [door.count(f"shares[{r}]", share) for r, share in enumerate(shares)]
    if len(counts) != count or sum(counts) != size:
        raise ValueError(
            f"shares must be {count} numbers, one for each process, that add up to {size}; "
            f"they are {counts}"
        )
    return tuple(int(bound) for bound in np.cumsum([0, *counts]))
