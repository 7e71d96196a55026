"""A memory for networks of linear layers: principal directions as products, layer by layer.

At one datapoint the gradient of a layer's weights is an outer product δ xᵀ of its input x and the
error δ that comes back to it. Where the two are independent (the assumption of K-FAC; Martens and
Grosse, 2015), what was seen along all gradients of the layer is a Kronecker product

    Σ g gᵀ ≈ S ⊗ A / N,     A = Σ |g| x xᵀ,   S = Σ |g| δ δᵀ,   N = Σ |g|²,     |x| = |δ| = sqrt|g|

so in the principal axes of S and A the memory's P is diagonal, with R / (s a / N + R) at each pair.
That is as many directions as parameters, in the room of a few covariances.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from orfit import (
    door,
    schema,
    tall,
    tall_torch,  # noqa: F401  (registers the operations on tensors)
)
from orfit.door import Array
from orfit.memory import Memory
from orfit.memory.base import Carried
from orfit.schema import Fields, Layout

Tensor = torch.Tensor


@dataclass
class Layer:
    """What was seen of a layer's inputs (A) and errors (S), and their axes when last looked at."""

    A: Tensor
    S: Tensor
    U_A: Tensor
    U_S: Tensor
    seen: Tensor  # s a / N, along each pair of axes
    N: float = 0.0

    @classmethod
    def empty(cls, outputs: int, inputs: int, like: Tensor) -> "Layer":
        A, S = like.new_zeros(inputs, inputs), like.new_zeros(outputs, outputs)
        U_A, U_S = torch.eye(inputs).to(A), torch.eye(outputs).to(S)
        return cls(A, S, U_A, U_S, A.new_zeros(outputs, inputs))

    def absorb(self, x: Tensor, delta: Tensor) -> None:
        squares = x.square().sum(dim=1)  # |g|, as x and δ are equally long
        self.A.addmm_((squares[:, None] * x).T, x)
        self.S.addmm_((squares[:, None] * delta).T, delta)
        self.N += float(squares.square().sum())

    def look(self) -> None:
        """Find the axes anew."""
        a, U_A = torch.linalg.eigh(self.A)
        s, U_S = torch.linalg.eigh(self.S)
        # Contiguous by rows, as they are when they have been saved and restored: bit-equally.
        self.U_A, self.U_S = U_A.contiguous(), U_S.contiguous()
        if self.N > 0:
            self.seen = torch.outer(s.clamp(min=0), a.clamp(min=0)) / self.N


@dataclass(frozen=True)
class LayersSplit:
    """GᵀPG = BᵀB by its eigenvectors, and the factors of every layer's gradients."""

    layers: Sequence[Layer]
    factors: list[tuple[Tensor, Tensor]]  # x and δ, n×inputs and n×outputs
    free: list[Tensor]  # P's diagonal
    along: list[tuple[Tensor, Tensor]]  # x and δ in the layer's axes
    roots: Array
    vectors: Array
    total: float  # |G|
    along_w: Array  # Gᵀ w

    @property
    def factor(self) -> Array:
        return np.asarray(self.roots[:, None] * self.vectors.T)

    @property
    def novelty(self) -> float:
        return float(np.linalg.norm(self.roots)) / self.total if self.total > 0 else 0.0

    def displacement(self, z: Array) -> Tensor:
        """P G B⁺ z."""
        some = self.roots > 0
        weights = self.vectors[:, some] @ (z[some, 0] / self.roots[some])
        moves = []
        for layer, free, (x, delta) in zip(self.layers, self.free, self.along, strict=True):
            weighted = torch.as_tensor(weights).to(x)[:, None] * delta
            move = layer.U_S @ (free * (weighted.T @ x)) @ layer.U_A.T
            moves.append(move.reshape(-1))
        return torch.cat(moves)[:, None]

    def move(self, z: Array) -> tuple[tuple[Tensor, float], float]:
        displacement = self.displacement(z)
        length = float(tall.norms(displacement)[0])
        return (displacement, length), length


class Layers(Carried, Memory):
    """P for a network without biases whose layers' weights are outputs×inputs, in their order.

    every: after so many datapoints the axes are found anew, O(inputs³); in between P stands still.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], every: int = 1000) -> None:
        super().__init__()
        self.shapes = [(int(outputs), int(inputs)) for outputs, inputs in shapes]
        self.every = every
        self.layers: list[Layer] = []
        self._since = 0

    def bind(self, like: Any) -> None:
        self._check_size(len(like))
        if self.size is None:
            self.size = sum(outputs * inputs for outputs, inputs in self.shapes)
            self._check_size(len(like))
            self.layers = [Layer.empty(*shape, like) for shape in self.shapes]

    @property
    def rank(self) -> int:
        return sum(int((layer.seen > 0).sum()) for layer in self.layers)

    @property
    def numbers(self) -> int:
        """How many numbers are kept: covariances, their axes, and what was seen along them."""
        squares = sum(outputs**2 + inputs**2 for outputs, inputs in self.shapes)
        return 2 * squares + sum(outputs * inputs for outputs, inputs in self.shapes)

    def split(
        self, G: Tensor, noise: float = 0.0, forgetting: float = 1.0, drift: Any = 0.0
    ) -> LayersSplit:
        if noise <= 0 or forgetting != 1:
            raise ValueError("a memory of layers needs noise > 0, and does not fade")
        gram = torch.zeros((G.shape[1], G.shape[1]), dtype=torch.float64, device=G.device)
        factors, free, along = [], [], []
        sizes = [outputs * inputs for outputs, inputs in self.shapes]
        parts = torch.split(G.T, sizes, dim=1)
        for layer, shape, rows in zip(self.layers, self.shapes, parts, strict=True):
            x, delta = _outer_factors(rows.reshape(-1, *shape))
            P = noise / (layer.seen + noise)
            turned = x @ layer.U_A, delta @ layer.U_S
            half = turned[1][:, :, None] * P.sqrt()
            half *= turned[0][:, None, :]  # in place: it is as large as all gradients
            half = half.flatten(1)
            gram += half @ half.T
            factors.append((x, delta))
            free.append(P)
            along.append(turned)
        squares, vectors = np.linalg.eigh(np.asarray(gram.cpu()))
        roots = np.sqrt(np.where(squares > 1e-12 * squares[-1], squares, 0.0))
        total = float(torch.linalg.vector_norm(G))
        along_w = self._along_w(G)
        return LayersSplit(self.layers, factors, free, along, roots, vectors, total, along_w)

    def fold(self, past: LayersSplit, move: tuple[Tensor, float] | None = None) -> None:
        if move is not None:
            self._move(move)
        for layer, (x, delta) in zip(self.layers, past.factors, strict=True):
            layer.absorb(x, delta)
        self._since += len(past.vectors)
        if self._since >= self.every:
            self._since = 0
            for layer in self.layers:
                layer.look()

    def settings(self) -> dict[str, Any]:
        return {"shapes": self.shapes, "every": self.every}

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays = {name: tall.to_numpy(held) for name, held in self._held().items()}
        values = {"N": [layer.N for layer in self.layers], "since": self._since}
        return arrays | {"w": tall.to_numpy(self._w)}, values | {"reach": self.reach}

    def fields(self) -> Fields:
        N = schema.listed(door.nonnegative, len(self.layers), len(self.layers))
        return {"N": N, "since": schema.counter, "reach": door.nonnegative}

    def layout(self) -> Layout:
        held = self._held() | {"w": self._w}
        return {name: (tall.numpy_dtype(A), *A.shape) for name, A in held.items()}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        for name, held in self._held().items():
            held.copy_(torch.as_tensor(arrays[name]))
        for layer, N in zip(self.layers, values["N"], strict=True):
            layer.N = N
        self._since = values["since"]
        self._take_up(arrays, values)

    def _held(self) -> dict[str, Tensor]:
        names = "A", "S", "U_A", "U_S", "seen"
        layers = enumerate(self.layers)
        return {f"{name}_{i}": getattr(layer, name) for i, layer in layers for name in names}


def _outer_factors(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The x (n×inputs) and δ (n×outputs), equally long, whose outer products δ xᵀ the rows are."""
    lengths = torch.linalg.vector_norm(rows, dim=2)
    longest = lengths.argmax(dim=1)
    x = rows[torch.arange(len(rows)), longest]
    tiny = torch.finfo(x.dtype).tiny
    x = x / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(min=tiny)
    delta = (rows @ x[:, :, None])[:, :, 0]
    root = torch.linalg.vector_norm(delta, dim=1, keepdim=True).sqrt()
    return x * root, delta / root.clamp(min=tiny)
