"""What was seen of parameters that are no matrix, such as a norm's: of few all, of many of each."""

from typing import Any

import torch

from orfit.networks.two_sided import Changes, Moved, damped

Tensor = torch.Tensor
FEW = 600  # parameters, up to which all their covariances are kept


class Vector:
    """H = Σ g gᵀ and P = R (H + R)⁻¹, or the diagonal of H."""

    def __init__(self, size: int, like: Tensor) -> None:
        self.whole = size <= FEW
        self.H = like.new_zeros((size, size) if self.whole else size)
        self.held: tuple[str, ...] = ("H",)
        if self.whole:
            self.held = ("H", "P")
            self.P = torch.eye(size, dtype=like.dtype, device=like.device)

    def sides(self, tag: str) -> dict[str, tuple[Any, ...]]:
        return {name: tuple(getattr(self, name).shape) for name in self.held}

    @property
    def rank(self) -> int:
        return int(((self.H.diagonal() if self.whole else self.H) > 0).sum())

    def changes(self, g: Tensor, R: float) -> Changes:
        if self.whole:
            return [(self.H, lambda held: held.addmm_(g.T, g))]
        return [(self.H, lambda held: held.add_(g.square().sum(0)))]

    def look(self, R: float) -> dict[str, Any]:
        if not self.whole:
            return {}
        return {"P": damped(self.H, R)}

    def against(self, g: Tensor, R: float) -> tuple[Tensor, Moved]:
        less = g @ self.P if self.whole else g * (R / (self.H + R))
        return less @ g.T, lambda z: z @ less
