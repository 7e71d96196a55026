"""The memory of a vector of many parameters, of which all covariances would take too much space."""

from dataclasses import dataclass

import torch

from orfit.networks.unit_memory import Direction, Operation, UnitMemory

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class Diagonal(UnitMemory):
    """h = Σ g² and P = R / (h + R)."""

    h: Tensor

    @property
    def rank(self) -> int:
        return int((self.h > 0).sum())

    def accumulate(self, g: Tensor) -> list[Operation]:
        return [(self.h, lambda h: h.add_(g.square().sum(0)))]

    def refresh(self, R: float) -> "Diagonal":
        return self

    def project(self, g: Tensor, R: float) -> tuple[Tensor, Direction]:
        Pg = g * (R / (self.h + R))
        return Pg @ g.T, lambda z: z @ Pg
