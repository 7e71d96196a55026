"""Features of a row: what the model is linear in. Made from a seed, so that no file holds them."""

import math
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.spatial import distance

from orfit import door, schema
from orfit.door import Array
from orfit.schema import Fields
from orfit.stream.block import StreamError

MOST = 100_000  # features: a slip of the keyboard asks for more
PAIRS = 500  # rows, the distances of which tell how wide a kernel is


class Features(Protocol):
    """A map from a row's columns, as numbers, to its features."""

    kind: str

    def size(self, columns: int) -> int:
        """How many there are of so many columns."""

    def learn(self, X: Array) -> None:
        """See the first rows, once, before any are made."""

    def make(self, X: Array) -> Array:
        """n×d → n×size."""

    def settings(self) -> dict[str, Any]:
        """The arguments to make them again."""


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


class Fourier:
    """sqrt(2/N) cos(x·ω + b): their products are a Gaussian kernel's, as N grows.

    Beside them are the columns, 1/sqrt(d) of each, so that what is linear need not be made of
    waves, and goes on beyond the rows that were seen. ω is as wide as the kernel is narrow: its
    width is the median distance of the first rows.
    """

    kind = "fourier"
    fields: ClassVar[Fields] = {
        "count": door.count,
        "seed": schema.counter,
        "width": schema.optional(door.positive),
    }

    def __init__(self, count: int, seed: int = 0, width: float | None = None) -> None:
        self.count, self.seed, self.width = count, seed, width
        self._waves: tuple[Array, Array] | None = None

    def size(self, columns: int) -> int:
        return columns + self.count

    def learn(self, X: Array) -> None:
        few = X[np.linspace(0, len(X) - 1, min(PAIRS, len(X))).astype(int)]
        apart = distance.pdist(few)
        apart = apart[apart > 0]
        self.width = float(np.median(apart)) if len(apart) else 1.0

    def make(self, X: Array) -> Array:
        d = X.shape[1]
        if self._waves is None:
            assert self.width is not None
            rng = np.random.default_rng(self.seed)
            omega = rng.standard_normal((d, self.count)) / self.width
            self._waves = omega, rng.uniform(0, 2 * math.pi, self.count)
        omega, phase = self._waves
        waves = np.cos(X @ omega + phase) * math.sqrt(2 / self.count)
        return np.hstack([X / math.sqrt(d), waves])

    def settings(self) -> dict[str, Any]:
        return {"count": self.count, "seed": self.seed, "width": self.width}

    def __str__(self) -> str:
        return f"fourier:{self.count}"


KINDS: dict[str, Any] = {kind.kind: kind for kind in (Raw, Polynomial, Fourier)}


def parse(text: str, seed: int) -> tuple[int, Features | None]:
    """What --features says: how many lags, and which features; None where they are to be chosen.

    "raw", "poly:2", "fourier:500", "lags:12", or lags and others: "lags:12+fourier:500".
    """
    lags = 0
    made: Features | None = None
    for part in text.split("+"):
        name, _, number = part.strip().partition(":")
        if name == "lags" and not lags:
            lags = _count(part, number)
        elif name == "raw" and not number and made is None:
            made = Raw()
        elif name == "poly" and number == "2" and made is None:
            made = Polynomial()
        elif name == "fourier" and made is None:
            made = Fourier(_count(part, number), seed)
        elif part.strip() != "auto":
            raise StreamError(
                f"--features {text} is not known; there are raw, poly:2, fourier:N, lags:N, and "
                "lags with one of the others, as in lags:12+fourier:500"
            )
    return lags, made


def _count(part: str, number: str) -> int:
    if not number.isdecimal() or not 0 < int(number) <= MOST:
        raise StreamError(f"--features {part} needs a whole number up to {MOST} after the colon")
    return int(number)


def leave_one_out(phi: Array, Y: Array, noises: Array) -> Array:
    """Of ridge regression with each noise, the mean squared error on rows left out, in closed form.

    r_i / (1 − h_ii), with h of H = K (K + R I)⁻¹, K = Φ Φᵀ: the residual of row i when all others
    were learned. Φ has a column of ones beside the features.
    """
    phi = np.hstack([phi, np.ones((len(phi), 1))])
    energies, V = np.linalg.eigh(phi @ phi.T)
    energies = np.maximum(energies, 0.0)
    along, errors = V.T @ Y, []
    for noise in noises:
        left = noise / (energies + noise)  # of I − H, along each axis
        residual = V @ (left[:, None] * along)
        leverage = (V * V) @ left
        errors.append(float(np.mean((residual / leverage[:, None]) ** 2)))
    return np.array(errors)
