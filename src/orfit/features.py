"""Features of a row, in which the model is linear. A file stores the seed that determines them."""

import math
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy

from orfit import schema, validation
from orfit.schema import Fields
from orfit.validation import Array

PAIRS = 500  # rows whose distances determine the width of a kernel


class Features(Protocol):
    """A map from a row's columns, as numbers, to its features."""

    kind: str

    def size(self, columns: int) -> int:
        """The number of features for so many columns."""

    def learn(self, X: Array) -> None:
        """Learn from the first rows, once, before `make`."""

    def make(self, X: Array) -> Array:
        """n×d → n×size."""

    def settings(self) -> dict[str, Any]:
        """The arguments to construct them again."""


class Raw:
    """The columns themselves."""

    kind = "raw"
    fields: ClassVar[Fields] = {}

    def size(self, columns: int) -> int:
        return columns

    def learn(self, X: Array) -> None:
        """Nothing is learned."""

    def make(self, X: Array) -> Array:
        return X

    def settings(self) -> dict[str, Any]:
        return {}

    def __str__(self) -> str:
        return self.kind


class Polynomial(Raw):
    """The columns and all products of two of them."""

    kind = "poly"

    def size(self, columns: int) -> int:
        return columns + columns * (columns + 1) // 2

    def make(self, X: Array) -> Array:
        i, j = np.triu_indices(X.shape[1])
        return np.hstack([X, X[:, i] * X[:, j]])

    def __str__(self) -> str:
        return "poly:2"


class Drawn:
    """Features of x·ω + b, with ω and b from a seed; a file stores only the seed.

    The columns, times 1/sqrt(d), are features, too, so that a linear function is exact, also
    outside the range of the rows so far.
    """

    kind: str
    fields: ClassVar[Fields] = {"count": validation.count, "seed": schema.counter}

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count, self.seed = count, seed
        self._drawn: tuple[Array, Array] | None = None

    def size(self, columns: int) -> int:
        return columns + self.count

    def learn(self, X: Array) -> None:
        """Nothing is learned."""

    def make(self, X: Array) -> Array:
        d = X.shape[1]
        if self._drawn is None or self._drawn[0].dtype != X.dtype:
            # In the precision of these rows, whatever came before, so the result is reproducible.
            omega, b = self.draw(np.random.default_rng(self.seed), d)
            self._drawn = omega.astype(X.dtype), b.astype(X.dtype)
        omega, b = self._drawn
        bent = self.bend(X @ omega + b) * math.sqrt(2 / self.count)
        return np.hstack([X / math.sqrt(d), bent])

    def draw(self, rng: np.random.Generator, columns: int) -> tuple[Array, Array]:
        """ω, columns×count, and b."""
        raise NotImplementedError

    def bend(self, Z: Array) -> Array:
        """The function that is applied to each x·ω + b."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        return {"count": self.count, "seed": self.seed}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_drawn": None}

    def __str__(self) -> str:
        return f"{self.kind}:{self.count}"


class Fourier(Drawn):
    """sqrt(2/N) cos(x·ω + b): their inner products approach a Gaussian kernel as N grows.

    The width of the kernel, the inverse of that of ω, is the median distance of the first rows
    unless it is given.
    """

    kind = "fourier"
    fields: ClassVar[Fields] = {**Drawn.fields, "width": validation.positive}

    def __init__(self, count: int, seed: int = 0, width: float | None = None) -> None:
        super().__init__(count, seed)
        self.width = width

    def learn(self, X: Array) -> None:
        if self.width is not None:
            return
        few = X[np.linspace(0, len(X) - 1, min(PAIRS, len(X))).astype(int)]
        apart = scipy.spatial.distance.pdist(few)
        apart = apart[apart > 0]
        self.width = float(np.median(apart)) if len(apart) else 1.0

    def draw(self, rng: np.random.Generator, columns: int) -> tuple[Array, Array]:
        assert self.width is not None
        omega = rng.standard_normal((columns, self.count)) / self.width
        return omega, rng.uniform(0, 2 * math.pi, self.count)

    def bend(self, Z: Array) -> Array:
        return np.cos(Z)

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"width": self.width}


class ReLU(Drawn):
    """sqrt(2/N) max(0, x·ω + b): the hidden layer of an untrained network.

    If columns have variance 1, x·ω has the same variance as b, so the kinks lie among the rows.
    """

    kind = "relu"

    def draw(self, rng: np.random.Generator, columns: int) -> tuple[Array, Array]:
        omega = rng.standard_normal((columns, self.count)) / math.sqrt(columns)
        return omega, rng.standard_normal(self.count)

    def bend(self, Z: Array) -> Array:
        return np.maximum(Z, 0)


KINDS: dict[str, Any] = {kind.kind: kind for kind in (Raw, Polynomial, Fourier, ReLU)}
