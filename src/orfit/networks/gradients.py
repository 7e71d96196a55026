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

    def weighted(self, z: Tensor) -> Tensor:
        """Σ z_i g_i."""
        return (z[:, None, None] * self.delta).flatten(0, 1).T @ self.x.flatten(0, 1)

    @property
    def shortest(self) -> "Outer | Dense":
        """The same in the form that takes less work: many positions are best added up at once."""
        many = self.x.shape[1] > min(self.x.shape[2], self.delta.shape[2])
        return Dense(self.matrices) if many else self

    def covariances(self) -> tuple[Tensor, Tensor]:
        """Σ gᵀg, inputs×inputs, and Σ g gᵀ, outputs×outputs."""
        x, delta = self.x, self.delta
        if self.single:
            lengths_x, lengths_delta = x.square().sum(2, True), delta.square().sum(2, True)
            weighted_x, weighted_delta = lengths_delta * x, lengths_x * delta
        else:
            weighted_x = (delta @ delta.mT) @ x
            weighted_delta = (x @ x.mT) @ delta
        A = x.flatten(0, 1).T @ weighted_x.flatten(0, 1)
        return A, delta.flatten(0, 1).T @ weighted_delta.flatten(0, 1)


@dataclass(frozen=True)
class Dense:
    """The matrices themselves."""

    matrices: Tensor  # n×outputs×inputs

    single = False

    def weighted(self, z: Tensor) -> Tensor:
        return torch.tensordot(z, self.matrices, 1)

    @property
    def shortest(self) -> "Dense":
        return self

    def covariances(self) -> tuple[Tensor, Tensor]:
        by_rows, g = self.matrices.flatten(0, 1), self.matrices
        by_columns = g.transpose(0, 1).flatten(1)
        return by_rows.T @ by_rows, by_columns @ by_columns.T


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
        return ((g.x @ g.x.mT) * (g.delta @ g.delta.mT)).sum()
    return ((g.ids[:, :, None] == g.ids[:, None]) * (g.delta @ g.delta.mT)).sum()


def together(parts: list[Matrices]) -> Matrices:
    """The sum of gradients of the same matrix, used in several places."""
    if len(parts) == 1:
        return parts[0].shortest
    if all(isinstance(part, Outer) for part in parts):
        outer = [part for part in parts if isinstance(part, Outer)]
        x, delta = (torch.cat([getattr(p, name) for p in outer], 1) for name in ("x", "delta"))
        return Outer(x, delta).shortest
    return Dense(torch.stack([part.matrices for part in parts]).sum(0))


def gram(rows: Tensor) -> Tensor:
    """The inner products of n gradients of whatever shape."""
    flat = rows.flatten(1)
    return flat @ flat.T
