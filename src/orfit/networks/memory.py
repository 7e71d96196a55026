"""The memories of all layers as one: what a step asks for."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from orfit.door import Array
from orfit.networks.gradients import Product, length, squared
from orfit.networks.layout import aligned
from orfit.networks.two_sided import Changes
from orfit.networks.units import Plan

Tensor = torch.Tensor
Way = Tensor | Product | None  # what a step does to a unit
FIRST = 50  # datapoints, after which axes are first looked for; then after twice as many


@dataclass(frozen=True)
class LayersSplit:
    """GᵀPG = BᵀB by its eigenvectors, and what makes P G z of z, layer by layer."""

    gradients: list[Any]
    moved: list[Any]  # of each layer, a function of z
    roots: Array
    vectors: Array
    total: float  # |G|
    like: Tensor

    @property
    def factor(self) -> Array:
        return np.asarray(self.roots[:, None] * self.vectors.T)

    @property
    def novelty(self) -> float:
        return float(np.linalg.norm(self.roots)) / self.total if self.total > 0 else 0.0

    def move(self, z: Array) -> tuple[list[Way], float]:
        """P G B⁺ z, and its length: where it was small beside G z, to half of the digits."""
        some = self.roots > 0
        weights = self.vectors[:, some] @ (z[some, 0] / self.roots[some])
        on_device = torch.as_tensor(weights).to(self.like)
        moves = [None if move is None else move(on_device) for move in self.moved]
        lengths = [length(m) for m in moves if m is not None]
        return moves, float(torch.stack(lengths).norm())


class LayerMemory:
    """A memory for each unit of a network; what it carries is the network itself.

    every: after so many datapoints axes are found anew, O(inputs³); in the beginning more often.
    """

    def __init__(self, plan: Plan, noise: float, every: int) -> None:
        self.plan, self.noise, self.every = plan, noise, every
        self.seen = self._since = 0
        self.pending: list[tuple[Tensor, int, Any]] = []  # what is to be done in place
        self.dtype = plan.units[0].parameters[0].dtype
        self.reach = self.largest()

    def largest(self) -> float:
        """How large the largest parameter is."""
        each = [p.detach().abs().max() for u in self.plan.units for p in u.parameters if p.numel()]
        return float(torch.stack(each).max())

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self, *(unit.memory for unit in self.plan.units))

    @property
    def rank(self) -> int:
        return sum(unit.memory.rank for unit in self.plan.units)

    @property
    def numbers(self) -> int:
        """How many numbers are kept."""
        memories = [unit.memory for unit in self.plan.units]
        return sum(getattr(memory, name).numel() for memory in memories for name in memory.held)

    def split(self, gradients: list[Any]) -> LayersSplit:
        """How gradients lie to the past. Changes nothing."""
        like = self.plan.units[0].parameters[0].detach()
        K: Tensor | None = None
        moved: list[Any] = []
        squares = []
        for unit, g in zip(self.plan.units, gradients, strict=True):
            if g is None:
                moved.append(None)
                continue
            gram, move = unit.memory.against(g, self.noise)
            K = gram.double() if K is None else K + gram.double()
            moved.append(move)
            squares.append(squared(g).double())
        if K is None:
            raise ValueError("the network's outputs depend on no parameter that is learned")
        values, vectors = np.linalg.eigh(np.asarray(K.cpu()))
        roots = np.sqrt(np.where(values > 1e-12 * values[-1], values, 0.0))
        total = float(torch.stack(squares).sum().sqrt())
        return LayersSplit(gradients, moved, roots, vectors, total, like)

    def remember(self, past: LayersSplit, move: list[Way] | None = None) -> None:
        """Take gradients in, and let the network move: when this has happened, in `settle`."""
        changes: Changes = []
        for unit, g in zip(self.plan.units, past.gradients, strict=True):
            if g is not None:
                changes += unit.memory.changes(g, self.noise)
        for unit, M in zip(self.plan.units, move or [], strict=move is not None):
            if M is not None:
                changes += [(p.detach(), change) for p, change in unit.displaced(M)]
        self.pending = [(held, held._version, change) for held, change in changes]

    def settle(self) -> None:
        """Do what is left to be done in place.

        It may be cut short, and is called again then. An operation on a tensor happens or does not,
        and its version tells.
        """
        with torch.inference_mode(False), torch.no_grad():
            for held, version, change in self.pending:
                if held._version == version:
                    change(held)
        self.pending = []

    def count(self, datapoints: int) -> None:
        """Note that so many were seen."""
        self.seen += datapoints
        self._since += datapoints

    def look_if_due(self) -> None:
        """Find all axes anew, if enough were seen since."""
        if self._since >= min(self.every, max(FIRST, self.seen - self._since)):
            self.look()

    def look(self) -> None:
        """Find all axes anew."""
        self._since = 0
        for unit in self.plan.units:
            found = unit.memory.look(self.noise)
            vars(unit.memory).update({name: aligned(t) for name, t in found.items()})
