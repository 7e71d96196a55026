"""The memories of all layers as one: what a step asks for."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from orfit.door import Array
from orfit.networks.gradients import squared
from orfit.networks.units import Plan

Tensor = torch.Tensor
FIRST = 32  # datapoints, after which axes are first looked for


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

    def move(self, z: Array) -> tuple[list[Tensor | None], float]:
        """P G B⁺ z, and its length."""
        some = self.roots > 0
        weights = self.vectors[:, some] @ (z[some, 0] / self.roots[some])
        on_device = torch.as_tensor(weights).to(self.like)
        moves = [None if move is None else move(on_device) for move in self.moved]
        squares = [m.square().sum() for m in moves if m is not None]
        return moves, float(torch.stack(squares).sum().sqrt()) if squares else 0.0


class LayerMemory:
    """A memory for each unit of a network; what it carries is the network itself.

    every: after so many datapoints axes are found anew, O(inputs³); in the beginning more often.
    """

    def __init__(self, plan: Plan, noise: float, every: int) -> None:
        self.plan, self.noise, self.every = plan, noise, every
        self.seen = self._since = 0
        self.pending: list[tuple[Tensor, Tensor]] = []  # parameters, and what they are to be
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

    def fold(self, past: LayersSplit, move: list[Tensor | None] | None = None) -> None:
        """Take gradients in, and let the network move; the latter when this has happened."""
        if move is not None:
            self.pending = self._displaced(move)
        for unit, g in zip(self.plan.units, past.gradients, strict=True):
            if g is not None:
                vars(unit.memory).update(unit.memory.with_gradients(g, self.noise))

    def count(self, datapoints: int) -> None:
        """Note that so many were seen, after which it may be time to look for axes."""
        self.seen += datapoints
        self._since += datapoints
        if self._since >= min(self.every, max(FIRST, self.seen // 2)):
            self.look()

    def look(self) -> None:
        """Find all axes anew."""
        self._since = 0
        for unit in self.plan.units:
            vars(unit.memory).update(unit.memory.look(self.noise))

    def settle(self) -> None:
        """Write the parameters as they are to be; cut short, it can be done again."""
        with torch.no_grad():
            for parameter, values in self.pending:
                parameter.copy_(values)
        self.pending = []

    def _displaced(self, moves: list[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
        made: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for unit, M in zip(self.plan.units, moves, strict=True):
                if M is not None:
                    made += [(p.detach(), p + step) for p, step in unit.displaced(M)]
        return made
