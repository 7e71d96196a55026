"""The gradients of a layer at many datapoints, by their factors.

At one datapoint the gradient of a matrix of weights (outputs×inputs) is a sum of outer products,
Σ_t δ_t x_tᵀ, of the layer's inputs and of the errors at its outputs. t runs over the positions of a
sequence or an image, or over several uses of the layer; in a network of plain layers there is one
term. So x (n, T, inputs) and δ (n, T, outputs) represent n gradients.
"""

from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor


@dataclass(frozen=True)
class Product:
    """The step of a matrix, not written out: leftᵀ right, of few rows each."""

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

    def add_to(self, tensor: Tensor) -> None:
        """Add it to a contiguous tensor, in place."""
        tensor.view(self.left.shape[1], self.right.shape[1]).addmm_(self.left.T, self.right)


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

    def add_inputs(self, A: Tensor) -> None:
        """A += Σ gᵀg, inputs×inputs, in place."""
        _add(A, self.x, self.delta)

    def add_outputs(self, S: Tensor) -> None:
        """S += Σ g gᵀ, outputs×outputs, in place."""
        _add(S, self.delta, self.x)


@dataclass(frozen=True)
class Dense:
    """The matrices themselves."""

    matrices: Tensor  # n×outputs×inputs

    single = False

    def summed(self, z: Tensor) -> Tensor:
        made: Tensor = torch.tensordot(z, self.matrices, 1)
        return made

    weighted = summed

    def add_inputs(self, A: Tensor) -> None:
        rows = self.matrices.flatten(0, 1)
        A.addmm_(rows.T, rows)

    def add_outputs(self, S: Tensor) -> None:
        columns = self.matrices.transpose(0, 1).flatten(1)
        S.addmm_(columns, columns.T)


def _add(A: Tensor, x: Tensor, delta: Tensor) -> None:
    """A += Σ gᵀg: an x is weighted with the products of its δ and those of the same datapoint."""
    single = x.shape[1] == 1
    weighted = delta.square().sum(2, True) * x if single else (delta @ delta.mT) @ x
    A.addmm_(x.flatten(0, 1).T, weighted.flatten(0, 1))


Matrices = Outer | Dense


@dataclass(frozen=True)
class Rows:
    """The gradient of a table: the errors at the rows that a datapoint uses."""

    ids: Tensor  # n×T
    delta: Tensor  # n×T×columns
    count: int  # of all rows

    def summed(self, z: Tensor) -> Tensor:
        weighted = (z[:, None, None] * self.delta).flatten(0, 1)
        table = self.delta.new_zeros(self.count, self.delta.shape[2])
        return table.index_add_(0, self.ids.flatten(), weighted)


Gradients = Outer | Dense | Rows | Tensor  # a tensor: of a vector of parameters


def squared(g: Gradients) -> Tensor:
    """Σ |g_i|²."""
    if isinstance(g, Tensor):
        return g.square().sum()
    if isinstance(g, Dense):
        return g.matrices.square().sum()
    products: Tensor = g.delta @ g.delta.mT
    same = g.x @ g.x.mT if isinstance(g, Outer) else g.ids[:, :, None] == g.ids[:, None]
    return (same * products).sum()


def add_up(parts: list[Any]) -> Gradients:
    """The sum of the gradients from all layers that use the same parameters."""
    first = parts[0]
    if isinstance(first, Rows):
        ids, delta = (torch.cat([getattr(p, name) for p in parts], 1) for name in ("ids", "delta"))
        return Rows(ids, delta, first.count)
    if all(isinstance(part, Outer) for part in parts):
        x, delta = (torch.cat([getattr(p, name) for p in parts], 1) for name in ("x", "delta"))
        many = x.shape[1] > min(x.shape[2], delta.shape[2])
        joined = Outer(x, delta)
        return Dense(joined.matrices) if many else joined  # whichever takes less work
    if isinstance(first, Tensor):
        return torch.stack(parts).sum(0)
    return Dense(torch.stack([part.matrices for part in parts]).sum(0))


def length(step: Tensor | Product) -> Tensor:
    """|step|, in double precision."""
    if isinstance(step, Product):
        return step.squared.sqrt()
    plain: Tensor = torch.linalg.vector_norm(step)
    return plain.double()


def gram(rows: Tensor) -> Tensor:
    """The inner products of n gradients of any shape."""
    flat = rows.flatten(1)
    return flat @ flat.T
