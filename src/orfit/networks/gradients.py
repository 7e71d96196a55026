"""The gradients of a layer at many datapoints, by their factors.

At one datapoint the gradient of a matrix of weights (outputs×inputs) is a sum of outer products,
Σ_t δ_t x_tᵀ, of what went into the layer and of the error that comes back to what came out: over
the positions t of a sequence or an image, or over several uses of the layer; of one term in a
network of plain layers. So n gradients are known by x (n, T, inputs) and δ (n, T, outputs).
"""

from dataclasses import dataclass

import torch

Tensor = torch.Tensor


@dataclass(frozen=True)
class Product:
    """A step of a matrix that is not written out: leftᵀ right, of few rows each."""

    left: Tensor  # r×outputs
    right: Tensor  # r×inputs
    squared: Tensor  # |leftᵀ right|²

    @classmethod
    def of(cls, left: Tensor, right: Tensor) -> "Product":
        products = (left @ left.T).double() * (right @ right.T).double()
        return cls(left, right, products.sum().clamp(min=0))

    @property
    def matrix(self) -> Tensor:
        return self.left.T @ self.right


@dataclass(frozen=True)
class Outer:
    """g_i = Σ_t δ_it x_itᵀ."""

    x: Tensor  # n×T×inputs
    delta: Tensor  # n×T×outputs

    @property
    def single(self) -> bool:
        """Whether each is one outer product."""
        return self.x.shape[1] == 1

    @property
    def matrices(self) -> Tensor:
        """All of them, n×outputs×inputs."""
        return self.delta.mT @ self.x

    def weighted(self, z: Tensor) -> "Tensor | Product":
        """Σ z_i g_i."""
        if self.single:
            return Product.of(z[:, None] * self.delta[:, 0], self.x[:, 0])
        return self.summed(z)

    def summed(self, z: Tensor) -> Tensor:
        """Σ z_i g_i, written out."""
        return (z[:, None, None] * self.delta).flatten(0, 1).T @ self.x.flatten(0, 1)

    @property
    def shortest(self) -> "Outer | Dense":
        """The same in the form that takes less work: many positions are best added up at once."""
        many = self.x.shape[1] > min(self.x.shape[2], self.delta.shape[2])
        return Dense(self.matrices) if many else self

    def add_inputs(self, A: Tensor, share: float = 1.0) -> None:
        """A += share Σ gᵀg, inputs×inputs, in place."""
        _add(A, self.x, self.delta, share)

    def add_outputs(self, S: Tensor) -> None:
        """S += Σ g gᵀ, outputs×outputs, in place."""
        _add(S, self.delta, self.x, 1.0)


@dataclass(frozen=True)
class Dense:
    """The matrices themselves."""

    matrices: Tensor  # n×outputs×inputs

    single = False

    def summed(self, z: Tensor) -> Tensor:
        made: Tensor = torch.tensordot(z, self.matrices, 1)
        return made

    weighted = summed

    @property
    def shortest(self) -> "Dense":
        return self

    def add_inputs(self, A: Tensor, share: float = 1.0) -> None:
        rows = self.matrices.flatten(0, 1)
        A.addmm_(rows.T, rows, alpha=share)

    def add_outputs(self, S: Tensor) -> None:
        columns = self.matrices.transpose(0, 1).flatten(1)
        S.addmm_(columns, columns.T)


def _add(A: Tensor, x: Tensor, delta: Tensor, share: float) -> None:
    """A += share Σ gᵀg: each x counts as much as the δ beside it, and those of its datapoint."""
    one = x.shape[1] == 1
    weighted = delta.square().sum(2, True) * x if one else (delta @ delta.mT) @ x
    A.addmm_(x.flatten(0, 1).T, weighted.flatten(0, 1), alpha=share)


Matrices = Outer | Dense


@dataclass(frozen=True)
class Rows:
    """Of a table of which a datapoint uses some rows: the errors that come back to them."""

    ids: Tensor  # n×T
    delta: Tensor  # n×T×columns


def squared(g: "Matrices | Rows | Tensor") -> Tensor:
    """Σ |g_i|² of all."""
    if isinstance(g, Tensor):
        return g.square().sum()
    if isinstance(g, Dense):
        return g.matrices.square().sum()
    if isinstance(g, Outer):
        products: Tensor = (g.x @ g.x.mT) * (g.delta @ g.delta.mT)
        return products.sum()
    same: Tensor = g.ids[:, :, None] == g.ids[:, None]
    return (same * (g.delta @ g.delta.mT)).sum()


def together(parts: list[Matrices]) -> Matrices:
    """The sum of gradients of the same matrix, used in several places."""
    if len(parts) == 1:
        return parts[0].shortest
    if all(isinstance(part, Outer) for part in parts):
        outer = [part for part in parts if isinstance(part, Outer)]
        x, delta = (torch.cat([getattr(p, name) for p in outer], 1) for name in ("x", "delta"))
        return Outer(x, delta).shortest
    return Dense(torch.stack([part.matrices for part in parts]).sum(0))


def length(way: "Tensor | Product") -> Tensor:
    """How long a step is."""
    if isinstance(way, Product):
        return way.squared.sqrt()
    plain: Tensor = torch.linalg.vector_norm(way)
    return plain.double()


def gram(rows: Tensor) -> Tensor:
    """The inner products of n gradients of whatever shape."""
    flat = rows.flatten(1)
    return flat @ flat.T
