"""The memory of a table, such as an embedding.

Its inputs are one-hot, so their covariance is diagonal.
"""

from dataclasses import dataclass, replace

import torch

from orfit.networks.gradients import Rows
from orfit.networks.unit_memory import Direction, Operation, UnitMemory, align, principal_axes

Tensor = torch.Tensor
CHUNK = 1 << 24  # numbers of gradients that are written out at a time


@dataclass(frozen=True, eq=False)
class Embedding(UnitMemory):
    """Σ|δ|² of each row, where δ is a datapoint's error there; S = Σ δ δᵀ, and its axes."""

    a: Tensor
    S: Tensor
    V: Tensor
    s: Tensor  # over N R

    @classmethod
    def empty(cls, rows: int, columns: int, like: Tensor) -> "Embedding":
        identity = torch.eye(columns, dtype=like.dtype, device=like.device)
        S = align(torch.zeros_like(identity))
        return cls(like.new_zeros(rows), S, align(identity), like.new_zeros(columns))

    @property
    def rank(self) -> int:
        return int((self.a > 0).sum()) * int((self.s > 0).sum())

    def accumulate(self, g: Rows) -> list[Operation]:
        # A datapoint may use a row several times: its errors are added before they are squared.
        rows = len(self.a)
        keys = torch.arange(len(g.ids), device=g.ids.device)[:, None] * rows + g.ids
        used, place = torch.unique(keys, return_inverse=True)
        delta = g.delta.new_zeros(len(used), g.delta.shape[2])
        delta.index_add_(0, place.flatten(), g.delta.flatten(0, 1))
        return [
            (self.a, lambda a: a.index_add_(0, used % rows, delta.square().sum(1))),
            (self.S, lambda S: S.addmm_(delta.T, delta)),
        ]

    def refresh(self, R: float) -> "Embedding":
        N = self.S.trace()
        if not N > 0:
            return self
        s, V = principal_axes(self.S)
        return replace(self, s=s / (N * R), V=align(V))

    def project(self, g: Rows, R: float) -> tuple[Tensor, Direction]:
        n, width = len(g.ids), len(self.s)
        rows, place = torch.unique(g.ids, return_inverse=True)
        P = 1 / (1 + torch.outer(self.a[rows], self.s))
        along = g.delta @ self.V
        K = g.delta.new_zeros(n, n)
        datapoint = torch.arange(n, device=place.device)[:, None].expand_as(place)
        step = max(1, CHUNK // max(1, n * width))
        for start in range(0, len(rows), step):  # errors of one row are added before the product
            stop = min(start + step, len(rows))
            here = (place >= start) & (place < stop)
            at = datapoint[here] * (stop - start) + place[here] - start
            sums = along.new_zeros(n * (stop - start), width).index_add_(0, at, along[here])
            half = sums.view(n, stop - start, width) * P[start:stop].sqrt()
            K += half.flatten(1) @ half.flatten(1).T

        def direction(z: Tensor) -> Tensor:
            sums = along.new_zeros(len(rows), width)
            sums.index_add_(0, place.flatten(), (z[:, None, None] * along).flatten(0, 1))
            table = along.new_zeros(len(self.a), width)
            return table.index_copy_(0, rows, (sums * P) @ self.V.T)

        return K, direction
