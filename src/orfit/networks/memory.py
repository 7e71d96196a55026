"""The memory of a whole network: P has one block for each unit, so GᵀPG is a sum over units."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from orfit.networks.gradients import Gradients, Product, length, squared
from orfit.networks.unit_memory import Direction, Operation, UnitMemory
from orfit.networks.units import Unit
from orfit.state import State
from orfit.validation import Array

Tensor = torch.Tensor
Steps = list[Tensor | Product | None]  # of each unit; None if it does not move
ROUNDING = 1e-12  # eigenvalues of GᵀPG below this share of the largest count as zero


@dataclass(frozen=True)
class Decomposition:
    """GᵀPG = BᵀB by its eigenvectors, and the functions that compute P G z of each unit."""

    directions: list[Direction | None]
    roots: Array
    vectors: Array
    norm: float  # |G|
    like: Tensor

    @property
    def B(self) -> Array:
        return np.asarray(self.roots[:, None] * self.vectors.T)

    @property
    def novelty(self) -> float:
        """sqrt(Σ gᵀPg / Σ |g|²)."""
        return float(np.linalg.norm(self.roots)) / self.norm if self.norm > 0 else 0.0

    def step(self, z: Array) -> tuple[Steps, float]:
        """P G B⁺ z and its length. A length that is small beside |G z| has half of the digits."""
        some = self.roots > 0
        weights = self.vectors[:, some] @ (z[some, 0] / self.roots[some])
        on_device = torch.as_tensor(weights).to(self.like)
        steps = [None if compute is None else compute(on_device) for compute in self.directions]
        lengths = [length(step) for step in steps if step is not None]
        return steps, float(torch.stack(lengths).norm())


def decompose(
    memories: Sequence[UnitMemory], gradients: Sequence[Gradients | None], R: float
) -> Decomposition:
    """Compute GᵀPG and its eigenvectors. gradients: of each unit; None if it was not used."""
    pairs = zip(memories, gradients, strict=True)
    found = [None if g is None else memory.project(g, R) for memory, g in pairs]
    grams = [one[0].double() for one in found if one is not None]
    if not grams:
        raise ValueError("the network's outputs depend on no parameter that is learned")
    values, vectors = np.linalg.eigh(torch.stack(grams).sum(0).cpu().numpy())
    roots = np.sqrt(np.where(values > ROUNDING * values[-1], values, 0.0))
    norm = torch.stack([squared(g).double() for g in gradients if g is not None]).sum().sqrt()
    directions = [None if one is None else one[1] for one in found]
    like = next(iter(memories[0].tensors.values()))
    return Decomposition(directions, roots, vectors, float(norm), like)


def plan_changes(
    units: list[Unit],
    memories: Sequence[UnitMemory],
    gradients: Sequence[Gradients | None],
    steps: Steps,
) -> list[tuple[Operation, int]]:
    """The changes in place that complete a step, each with the version of its tensor before."""
    operations: list[Operation] = []
    for unit, memory, g, step in zip(units, memories, gradients, steps, strict=True):
        if g is not None:
            operations += memory.accumulate(g)
        if step is not None:
            operations += unit.displace(step)
    return [(operation, operation[0]._version) for operation in operations]


def apply_pending(s: State) -> None:
    """Apply the changes in place that a committed step has left.

    If an exception interrupts it, the next call continues: an operation on a tensor happens fully
    or not at all, and the version of the tensor shows whether it happened.
    """
    for (tensor, change), version in s.pending:
        if tensor._version == version:
            change(tensor)
    s.pending = []


def largest_parameter(units: list[Unit]) -> float:
    """The largest absolute value of all parameters."""
    each = [p.detach().abs().max() for unit in units for p in unit.parameters if p.numel()]
    return float(torch.stack(each).max())
