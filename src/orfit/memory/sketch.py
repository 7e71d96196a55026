"""Keep a random sketch of all gradients."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit import door, small, tall
from orfit.door import Array
from orfit.growth import Growth, refuse
from orfit.memory.basis import Basis, BasisSplit, energy
from orfit.memory.chance import GENERATOR, Chance
from orfit.memory.seen import Triangle
from orfit.schema import Fields, Layout

WAYS = ("fresh", "kept", "symmetric")


@dataclass(frozen=True)
class SketchSplit(BasisSplit):
    """A split that has kept its gradients: the sketch wants them whole."""

    G: Any = None


class Sketch(Basis):
    """At most m directions of a random sketch of the past, as in SketchOGD (Wright et al. 2023).

    way: how A, all gradients, is sketched with random numbers Ω.
        "fresh": Y = A Ω, Y ← Y + g ωᵀ with a new ω for each gradient.
        "kept": Y = A AᵀΩ, Y ← Y + g (gᵀΩ) with one Ω, p×m, for all.
        "symmetric": that with m/2 columns, and W ← W + (Ψ g) gᵀ; the directions are those of
            [Q, Xᵀ], Q = orth Y, X = (Ψ Q)⁺ W.

    U is an orthonormal basis of the sketch; along it, what was seen (`sigma`) is estimated. As long
    as A has at most m directions (m/2 where symmetric), all are there. Unlike `Principal`, a sketch
    is linear in A Aᵀ: two of them can be added, and nothing depends on the order of the gradients.
    O(m² p) a step.

    Examples:
        >>> sketch = orfit.memory.Sketch(3, way="kept", seed=0)
        >>> sketch.absorb(np.eye(5)[:, :2])
        >>> sketch.rank, round(float(abs(sketch.project(np.eye(5)[:, :1])).max()), 12)
        (2, 0.0)
    """

    coordinates = drifts = False  # it wants gradients whole, and as they were

    def __init__(self, m: int, way: str = "kept", seed: int = 0) -> None:
        super().__init__()
        self.m = door.count("m", m, least=2 if way == "symmetric" else 1)
        if way not in WAYS:
            raise ValueError(f"way must be one of {', '.join(WAYS)}; it is {way!r}")
        self.way = way
        self.seed = door.count("seed", seed, least=0)
        self._chance = Chance.of(self.seed)
        self._total = 0.0  # squared length of all gradients

    def settings(self) -> dict[str, Any]:
        return {"m": self.m, "way": self.way, "seed": self.seed}

    def room(self, size: int) -> int:
        return int(self.m)

    def bind(self, like: Any) -> None:
        first = self._frame is None
        super().bind(like)
        if not first:
            return
        size = len(like)
        width, core = self._widths
        # Sketches are kept as rows, as all that is tall.
        self._sketch, self._core = self._zeros(width), self._zeros(core)
        random = np.random.Generator(np.random.PCG64([self.seed, 1]))
        kept = 0 if self.way == "fresh" else width
        self._test = tall.normal(self.frame.rows, random, kept)
        self._left = tall.normal(self.frame.rows, random, len(self._core), np.sqrt(size))

    @property
    def _widths(self) -> tuple[int, int]:
        """How many rows Y has, and W."""
        return (self.m // 2, 2 * (self.m // 2) + 1) if self.way == "symmetric" else (self.m, 0)

    def _zeros(self, rows: int) -> Any:
        made = tall.empty(self.frame.rows, rows, self.frame.rows.shape[1])
        made[:] = 0
        return made

    def split(
        self, G: Any, noise: Any = 0.0, forgetting: float = 1.0, drift: float = 0.0
    ) -> SketchSplit:
        past = super().split(G, noise, forgetting)
        # What is kept are sums of products with gradients; but for the fresh way, of their squares.
        most = tall.SAFE[tall.numpy_dtype(G)][1]
        if past.parts.reading.norms.max() > (most if self.way == "fresh" else most**0.5):
            raise ValueError("a gradient is too long for a sketch of its squares: scale x")
        return SketchSplit(
            past.parts, past.seen, past.tail, past.noises, past.tailed, past.forgetting, G=G
        )

    def remember(self, past: BasisSplit, move: Array | None = None) -> None:
        assert isinstance(past, SketchSplit)
        if move is not None:
            self.w = self.w + past.parts.combine(move)
        G, fading = past.G, past.forgetting
        n, width = G.shape[1], len(self._sketch)
        if self.way == "fresh":
            coefficients, self._chance = self._chance.drawn(
                lambda random: random.standard_normal((n, width))
            )
            fading = fading**0.5
        else:
            coefficients = tall.inner(G, self._test.T)
        self._sketch = fading * self._sketch + tall.combine(G, coefficients).T
        if self.way == "symmetric":
            core = tall.combine(G, tall.inner(G, self._left.T)).T
            self._core = fading * self._core + core
        U, square = self._summary()
        self.frame.replace(U)
        squares, V = np.linalg.eigh((square + square.T) / 2)
        root = np.sqrt(np.maximum(squares, 0.0))[:, None] * V.T
        self.seen = Triangle({0.0: small.triangle(root)})
        self._total = past.forgetting * self._total + energy(past.parts.reading.norms)
        self._lost = max(0.0, self._total - energy(root))

    def grow(self, growth: Growth) -> None:
        if growth.features:
            refuse(self, "its random numbers are for as many parameters as there are")
        super().grow(growth)

    def settle(self) -> None:
        """Nothing is left to be done: a step writes all rows anew."""

    def _summary(self) -> tuple[Any, Array]:
        """U (p×k), and the k×k estimate of UᵀA Aᵀ U."""
        Y = self._sketch.T
        Q, R = _orthonormal(Y)
        if self.way == "fresh":
            return Q, R @ R.T / len(self._sketch)
        if self.way == "kept":  # Nyström: A Aᵀ ≈ Y (ΩᵀY)⁺ Yᵀ
            inverse = np.linalg.pinv(tall.inner(self._test.T, Y), rcond=1e-12)
            return Q, R @ inverse @ R.T
        k = Q.shape[1]
        X = tall.combine(self._core.T, np.linalg.pinv(tall.inner(self._left.T, Q)).T)  # Xᵀ, p×k
        both = tall.empty(self.frame.rows, 2 * k, len(Q))
        both[:k], both[k:] = Q.T, X.T
        U, R = _orthonormal(both.T)
        half = R[:, :k] @ R[:, k:].T  # A Aᵀ ≈ Q X, made symmetric
        return U, (half + half.T) / 2

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, values = super().state()
        arrays |= {"sketch": tall.to_numpy(self._sketch), "core": tall.to_numpy(self._core)}
        values |= {"generator": self._chance.state, "total": self._total}
        return arrays, values

    def fields(self) -> Fields:
        return super().fields() | {"generator": GENERATOR, "total": door.nonnegative}

    def layout(self) -> Layout:
        dtype, of_sketch = tall.numpy_dtype(self._sketch), self.needs(self.size or 0)
        return super().layout() | {name: (dtype, *sides) for name, sides in of_sketch.items()}

    def needs(self, size: int) -> dict[str, tuple[int, ...]]:
        width, core = self._widths
        return {"sketch": (width, size), "core": (core, size)}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        super().restore(arrays, values)
        for name, held in (("sketch", self._sketch), ("core", self._core)):
            held[:] = tall.convert(held, arrays[name])
        self._chance = self._chance.at(values["generator"])
        self._total = values["total"]


def _orthonormal(Y: Any) -> tuple[Any, Array]:
    """Y = Q R, with as many columns of Q as Y has directions."""
    Q, R, _ = tall.orthonormalise(Y, np.empty((0, Y.shape[1])), tall.norms(Y), None)
    return Q, R
