"""A linear model of which each process has a part."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from orfit import door, models, tall
from orfit.distributed.processes import Processes, current
from orfit.door import Array
from orfit.models.base import Defaults
from orfit.models.linear import Features
from orfit.tall_shards import Shard, Spread


class Linear(Defaults):
    """f(x; w) = Φ(x)ᵀ w, of which each process has some features and their parameters.

    size: how many features there are on all processes together.
    heads: q outputs with their own weights on shared features, as for `orfit.Linear`.
    features: maps a batch of inputs to the features that are held here, X (n, …) → (n, held), or
        → (n, held, c). Unless given, x is these features: what `here` cuts out of all.
    shares: how many each process holds, one after another; about as many each, unless given.

    `here` says which features are this process' own. There is no bias: let one of the features, on
    one process, be the constant 1.

    Examples:
        >>> import orfit.distributed
        >>> model = orfit.distributed.Linear(1000, heads=2)  # started alone, it holds all
        >>> model.here, model.held
        (slice(0, 1000, None), 1000)
    """

    linear = True

    def __init__(
        self,
        size: int,
        *,
        heads: int | None = None,
        features: Features | None = None,
        shares: Sequence[int] | None = None,
    ) -> None:
        self.processes = current()
        self.size = door.count("size", size)
        self.spread = Spread(self.processes, _bounds(self.size, self.processes, shares))
        self.here = self.spread.here
        self.held = self.here.stop - self.here.start
        self._part = models.Linear(self.held, heads=heads, features=features)
        self.heads, self.features = self._part.heads, features
        self.input_shape = (self.size,) if features is None else None

    def initial(self) -> Any:
        return Shard(self._part.initial(), self.spread)

    def accept(self, name: str, X: object, dtype: Any) -> Any:
        """What is here of inputs, checked."""
        given = door.numbers(name, X, dtype)
        if self.features is not None:
            return given
        if given.ndim not in (1, 2) or given.shape[-1] != self.held:
            raise ValueError(
                f"{name} must hold the {self.held} features of this process, which are "
                f"{self.here.start} to {self.here.stop} of all; it has shape {given.shape}"
            )
        return Shard(given, self.spread, given.ndim - 1)

    def predict(self, w: Any, X: Any) -> Array:
        return self.linearize(w, X)[0].astype(w.dtype)

    def linearize(self, w: Any, X: Any) -> tuple[Array, Any]:
        shape, G = self._gradients(X, w.dtype)
        return tall.inner(G, w).reshape(shape), G

    def affine(self, X: Any, Y: Array) -> tuple[Array, Array, Any]:
        shape, G = self._gradients(X, X.dtype)
        return np.zeros(shape), Y, G

    def _gradients(self, X: Any, dtype: Any) -> tuple[tuple[int, ...], Any]:
        if isinstance(X, Missing):
            return X.gradients(self, dtype)
        try:
            shape, G = self._part._gradients(tall.here(X), dtype)
        except ValueError as error:  # of features: the others have theirs, and wait
            self.processes.refuse(error)
            return Missing(len(X), 1, dtype).gradients(self, dtype)
        return shape, Shard(G, self.spread)

    def settings(self) -> dict[str, Any]:
        """Those of `orfit.Linear`, which this is in one process."""
        return {**self._part.settings(), "size": self.size}

    def __repr__(self) -> str:
        heads = "" if self.heads is None else f", heads={self.heads}"
        features = "" if self.features is None else ", features=…"
        return f"Linear({self.size}{heads}{features})"


class Missing:
    """Rows that this process has refused, while the others wait for its part in a sum."""

    def __init__(self, rows: int, outputs: int, dtype: Any) -> None:
        self.rows, self.outputs, self.dtype = rows, outputs, dtype

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, rows: Any) -> "Missing":
        return Missing(len(np.arange(self.rows)[rows]), self.outputs, self.dtype)

    def gradients(self, model: Linear, dtype: Any) -> tuple[tuple[int, ...], Any]:
        """Nothing, of the size that the others have."""
        outputs = () if self.outputs == 1 else (self.outputs,)
        shape = (self.rows, *outputs) if model.heads is None else (self.rows, model.heads)
        columns = self.rows * (self.outputs if model.heads is None else 1)
        return shape, Shard(np.zeros((model.held, columns), dtype, order="F"), model.spread)


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
