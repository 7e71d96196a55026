"""Keep a random sketch of all gradients."""

from typing import Any, NamedTuple

import numpy as np

from orfit import validation
from orfit.growth import Growth, refuse
from orfit.memory import frame
from orfit.memory.base import StepSettings
from orfit.memory.basis import Basis, BasisDecomposition, energy
from orfit.state import State
from orfit.store import numpy_dtype
from orfit.store.host import SAFE
from orfit.validation import Array

WAYS = ("fresh", "kept", "symmetric")


class SketchDecomposition(NamedTuple):
    """A decomposition with its gradients, which the sketch needs whole."""

    basis: BasisDecomposition
    G: Any

    @property
    def novelty(self) -> float:
        return self.basis.novelty

    @property
    def prediction(self) -> Array:
        return self.basis.prediction


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

    drifts = shares_candidates = False  # it needs gradients whole, and as they were

    def __init__(self, m: int, way: str = "kept", seed: int = 0) -> None:
        super().__init__(validation.count("m", m, least=2 if way == "symmetric" else 1))
        if way not in WAYS:
            raise ValueError(f"way must be one of {', '.join(WAYS)}; it is {way!r}")
        self.way = way
        self.seed = validation.count("seed", seed, least=0)

    def settings(self) -> dict[str, Any]:
        return {"m": self.m, "way": self.way, "seed": self.seed}

    def room(self, size: int) -> int:
        return int(self.m)

    @property
    def _widths(self) -> tuple[int, int]:
        """How many rows Y has, and W."""
        return (self.m // 2, 2 * (self.m // 2) + 1) if self.way == "symmetric" else (self.m, 0)

    def new_state(self, ops: Any, like: Any, columns: int) -> State:
        s, (width, core) = super().new_state(ops, like, columns), self._widths
        size, rows = len(like), s.store.rows
        s.sketch, s.core = ops.empty(rows, width, size), ops.empty(rows, core, size)
        s.sketch[:], s.core[:] = 0, 0
        s.draws, s.total_energy = 0, 0.0
        # Ω and Ψ, which the seed determines.
        random = np.random.Generator(np.random.PCG64([self.seed, 0, 1]))
        kept = 0 if self.way == "fresh" else width
        self._test = ops.convert(rows, random.standard_normal((kept, size)))
        self._left = ops.convert(rows, random.standard_normal((core, size)) / np.sqrt(size))
        return s

    def decompose(self, s: State, G: Any, settings: StepSettings) -> Any:
        d = super().decompose(s, G, settings)
        # The sketch sums products with gradients, and unless it is fresh, of their squares.
        most = SAFE[numpy_dtype(G)][1]
        norms = d.projection.gradients.norms
        if norms.max() > (most if self.way == "fresh" else most**0.5):
            raise ValueError("a gradient is too long for a sketch of its squares: scale x")
        return SketchDecomposition(d, G)

    def factors(self, s: State, d: Any) -> Array:
        return super().factors(s, d.basis)

    def direction(self, s: State, d: Any, Z: Array) -> tuple[Array, Array]:
        return super().direction(s, d.basis, Z)

    def absorb_block(self, s: State, d: Any, along: Array | None = None) -> None:
        (basis, G), ops = d, s.store.ops
        if along is not None:
            self.set_parameters(
                s, self.parameters(s) + frame.displacement(s, basis.projection, along)
            )
        forgetting = basis.settings.forgetting
        fading, n, width = forgetting, G.shape[1], len(s.sketch)
        if self.way == "fresh":
            s.draws += 1
            random = np.random.Generator(np.random.PCG64([self.seed, s.draws]))
            coefficients = random.standard_normal((n, width))
            fading = fading**0.5
        else:
            coefficients = ops.inner(G, self._test.T)
        s.sketch = fading * s.sketch + ops.combine(G, coefficients).T
        if self.way == "symmetric":
            s.core = fading * s.core + ops.combine(G, ops.inner(G, self._left.T)).T
        U, square = self._summary(s)
        squares, V = np.linalg.eigh((square + square.T) / 2)
        frame.replace(s, U)
        frame.rotate(s, V[:, ::-1])
        s.sigma = np.sqrt(np.maximum(squares[::-1], 0.0))
        s.total_energy = forgetting * s.total_energy + energy(basis.projection.gradients.norms)
        s.dropped_energy = max(0.0, s.total_energy - energy(s.sigma))

    def norms(self, d: Any) -> Array:
        return super().norms(d.basis)

    def check_state(self, s: State) -> None:
        frame.check(s)
        self._check_spectrum(s)

    def grow(self, s: State, growth: Growth) -> None:
        if growth.features:
            refuse(self, "its random numbers are for a fixed number of parameters")
        super().grow(s, growth)

    def _summary(self, s: State) -> tuple[Any, Array]:
        """U (p×k), and the k×k estimate of UᵀA Aᵀ U."""
        ops, Y = s.store.ops, s.sketch.T
        Q, R = _orthonormal(ops, Y)
        if self.way == "fresh":
            return Q, R @ R.T / len(s.sketch)
        if self.way == "kept":  # Nyström: A Aᵀ ≈ Y (ΩᵀY)⁺ Yᵀ
            inverse = np.linalg.pinv(ops.inner(self._test.T, Y), rcond=1e-12)
            return Q, R @ inverse @ R.T
        k = Q.shape[1]
        X = ops.combine(s.core.T, np.linalg.pinv(ops.inner(self._left.T, Q)).T)  # Xᵀ, p×k
        both = ops.empty(s.store.rows, 2 * k, len(Q))
        both[:k], both[k:] = Q.T, X.T
        U, R = _orthonormal(ops, both.T)
        half = R[:, :k] @ R[:, k:].T  # A Aᵀ ≈ Q X, made symmetric
        return U, (half + half.T) / 2

    def needs(self, size: int) -> dict[str, tuple[int, ...]]:
        width, core = self._widths
        return {"sketch": (width, size), "core": (core, size)}


def _orthonormal(ops: Any, Y: Any) -> tuple[Any, Array]:
    """Y = Q R, with as many columns of Q as Y has directions."""
    Q, R, _ = frame.orthonormalize(ops, Y, np.empty((0, Y.shape[1])), ops.norms(Y), None)
    return Q, R
