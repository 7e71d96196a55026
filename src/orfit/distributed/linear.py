"""A linear model of which each process has a part."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from orfit import door, models, tall
from orfit.distributed.model import Missing, SpreadModel, checked_w0
from orfit.door import Array
from orfit.models.linear import Features
from orfit.tall_shards import Shard


class Linear(SpreadModel):
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
        super().__init__(size, shares)
        self._part = models.Linear(self.held, heads=heads, features=features)
        self.heads, self.features = self._part.heads, features
        self.input_shape = (self.size,) if features is None else None

    def initial(self) -> Any:
        return Shard(self._part.initial(), self.spread)

    def part_of(self, w0: object) -> Shard:
        """What a user hands in is what is here."""
        return Shard(checked_w0(w0, self._part.initial().shape, " here"), self.spread)

    def told(self, w: Shard) -> Any:
        """What is here of it."""
        return w.local

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
            return X.gradients(self, np.empty(0, dtype))
        try:
            shape, G = self._part._gradients(tall.here(X), dtype)
        except ValueError as error:  # of features: the others have theirs, and wait
            self.processes.refuse(error)
            return Missing(len(X), 1, dtype).gradients(self, np.empty(0, dtype))
        return shape, Shard(G, self.spread)

    def settings(self) -> dict[str, Any]:
        """Those of `orfit.Linear`, which this is in one process."""
        return {**self._part.settings(), "size": self.size}

    def __repr__(self) -> str:
        heads = "" if self.heads is None else f", heads={self.heads}"
        features = "" if self.features is None else ", features=…"
        return f"Linear({self.size}{heads}{features})"
