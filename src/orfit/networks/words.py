"""What was seen of a table, such as an embedding: of each row how much, and the errors' covariance.

Its inputs are one-hot, so their covariance is a diagonal, and stays one.
"""

from typing import Any

import torch

from orfit.networks.gradients import Rows
from orfit.networks.two_sided import Changes, Moved, axes

Tensor = torch.Tensor
CHUNK = 1 << 24  # numbers of gradients that are written out at a time


class Words:
    """a, Σ|δ|² of each row, δ what comes back to it from a datapoint; S = Σ δ δᵀ, and its axes."""

    held = ("a", "S", "V", "s")

    def __init__(self, rows: int, columns: int, like: Tensor, sides: str) -> None:
        self.both = sides == "both"
        self.a, self.S = like.new_zeros(rows), like.new_zeros(columns, columns)
        self.V = torch.eye(columns, dtype=like.dtype, device=like.device)
        self.s = like.new_zeros(columns)

    def sides(self, tag: str) -> dict[str, tuple[Any, ...]]:
        return {name: tuple(getattr(self, name).shape) for name in self.held}

    @property
    def rank(self) -> int:
        return int((self.a > 0).sum()) * int((self.s > 0).sum())

    def changes(self, g: Rows, R: float) -> Changes:
        # The gradient of a row that a datapoint uses often is one: it adds up before it is squared.
        rows = len(self.a)
        keys = torch.arange(len(g.ids), device=g.ids.device)[:, None] * rows + g.ids
        used, place = torch.unique(keys, return_inverse=True)
        ids = used % rows
        delta = g.delta.new_zeros(len(used), g.delta.shape[2])
        delta.index_add_(0, place.flatten(), g.delta.flatten(0, 1))
        return [
            (self.a, lambda held: held.index_add_(0, ids, delta.square().sum(1))),
            (self.S, lambda held: held.addmm_(delta.T, delta)),
        ]

    def look(self, R: float) -> dict[str, Any]:
        """Axes of the errors, and s over N R; from the inputs alone, all columns are alike."""
        N = self.S.trace()
        if not N > 0:
            return {}
        if not self.both:
            return {"s": torch.full_like(self.s, 1 / (len(self.s) * R))}
        s, V = axes(self.S)
        return {"s": s.clamp(min=0) / (N * R), "V": V}

    def against(self, g: Rows, R: float) -> tuple[Tensor, Moved]:
        n, width = len(g.ids), len(self.s)
        words, place = torch.unique(g.ids, return_inverse=True)
        free = 1 / (1 + torch.outer(self.a[words], self.s))
        along = g.delta @ self.V
        K = g.delta.new_zeros(n, n)
        datapoint = torch.arange(n, device=place.device)[:, None].expand_as(place)
        step = max(1, CHUNK // max(1, n * width))
        for start in range(0, len(words), step):  # the same word adds up before it is squared
            stop = min(start + step, len(words))
            here = (place >= start) & (place < stop)
            at = datapoint[here] * (stop - start) + place[here] - start
            seen = along.new_zeros(n * (stop - start), width).index_add_(0, at, along[here])
            half = seen.view(n, stop - start, width) * free[start:stop].sqrt()
            K += half.flatten(1) @ half.flatten(1).T

        def moved(z: Tensor) -> Tensor:
            summed = along.new_zeros(len(words), width)
            weighted = (z[:, None, None] * along).flatten(0, 1)
            summed.index_add_(0, place.flatten(), weighted)
            table = along.new_zeros(len(self.a), width)
            return table.index_copy_(0, words, (summed * free) @ self.V.T)

        return K, moved
