"""What was seen of a matrix of weights, on both of its sides.

Where x and δ are independent (the assumption of K-FAC; Martens and Grosse, 2015), what was seen
along all gradients of a layer is a Kronecker product,

    Σ vec(g) vec(g)ᵀ ≈ S ⊗ A / N,    A = Σ gᵀg,   S = Σ g gᵀ,   N = Σ |g|²

so in the principal axes V of S and U of A, P is diagonal: I − P has s a / (s a + N R) at each pair
of them, D. Pairs along which hardly anything was seen are left out, D = 0. D is smooth in both, so
that few products of functions of s and of a give all of it: D ≈ Σ_r left_r right_rᵀ. With these,
GᵀPG of outer products takes no array of the size of G.
"""

from collections.abc import Callable
from typing import Any

import torch

from orfit.networks.gradients import Matrices, Outer, gram

Tensor = torch.Tensor
Moved = Callable[[Tensor], Tensor]

CUT = 1e-2  # of R: along a pair of axes on which less was seen, P is taken to be 1
TERMS = 24  # of D


class TwoSided:
    """The covariances of both sides, and their axes when last looked at."""

    held = ("A", "S", "U", "V", "a", "s", "left", "right")

    def __init__(self, outputs: int, inputs: int, like: Tensor, cut: float = CUT) -> None:
        self.cut = cut
        self.A, self.S = like.new_zeros(inputs, inputs), like.new_zeros(outputs, outputs)
        self.U, self.V = like.new_zeros(inputs, 0), like.new_zeros(outputs, 0)
        self.a, self.s = like.new_zeros(0), like.new_zeros(0)  # the latter over N R
        self.left, self.right = like.new_zeros(0, 0), like.new_zeros(0, 0)

    def sides(self, tag: str) -> dict[str, tuple[Any, ...]]:
        """Of what is held; those that are found from the data have names."""
        outputs, inputs, along, across = len(self.S), len(self.A), f"k{tag}", f"l{tag}"
        axes = {"U": (inputs, along), "V": (outputs, across), "a": (along,), "s": (across,)}
        terms = {"left": (f"r{tag}", across), "right": (f"r{tag}", along)}
        return {"A": (inputs, inputs), "S": (outputs, outputs)} | axes | terms

    @property
    def rank(self) -> int:
        """Along how many pairs of axes P is not 1."""
        return len(self.a) * len(self.s)

    @property
    def D(self) -> Tensor:
        """I − P, along each pair of axes."""
        seen = torch.outer(self.s, self.a)
        return seen / (1 + seen)

    def with_gradients(self, g: Matrices, R: float) -> dict[str, Any]:
        """The attributes that change when these have been seen."""
        A, S = g.covariances()
        return {"A": self.A + A, "S": self.S + S}

    def look(self, R: float) -> dict[str, Any]:
        """The attributes that change when axes are found anew."""
        N = self.A.trace()
        if not N > 0:
            return {}
        a, U = torch.linalg.eigh(self.A)
        s, V = torch.linalg.eigh(self.S)
        a, s = a.clamp(min=0), s.clamp(min=0) / (N * R)
        along, across = a * s.max() > self.cut, s * a.max() > self.cut
        a, s = a[along], s[across]
        left, right = _terms(s, a)
        # Contiguous by rows, as they are when they have been saved and restored: bit-equally.
        axes = {"U": U[:, along].contiguous(), "V": V[:, across].contiguous()}
        return axes | {"a": a, "s": s, "left": left, "right": right}

    def against(self, g: Matrices, R: float) -> tuple[Tensor, Moved]:
        """GᵀPG, and the function that makes P G z of z."""
        if not self.rank:
            seen = g.matrices if not g.single else None
            return (gram(seen) if seen is not None else _products(g)), g.weighted
        if isinstance(g, Outer) and g.single:
            return self._single(g.x[:, 0], g.delta[:, 0])
        along = self._along(g)
        K = gram(g.matrices) - gram(along * self.D.sqrt())
        return K, lambda z: g.weighted(z) - self._back(self.D * torch.tensordot(z, along, 1))

    def _along(self, g: Matrices) -> Tensor:
        """The gradients in the axes."""
        if isinstance(g, Outer):
            return (g.delta @ self.V).mT @ (g.x @ self.U)
        return self.V.T @ g.matrices @ self.U

    def _single(self, x: Tensor, delta: Tensor) -> tuple[Tensor, Moved]:
        xa, da = x @ self.U, delta @ self.V
        K = (x @ x.T) * (delta @ delta.T)
        for u, v in zip(self.left, self.right, strict=True):
            K = K - ((da * u) @ da.T) * ((xa * v) @ xa.T)

        def moved(z: Tensor) -> Tensor:
            M = (z[:, None] * delta).T @ x
            by_terms = len(z) * len(self.left) * (self.V.numel() + self.U.numel() + M.numel())
            by_axes = len(self.a) * (self.V.numel() + M.numel())
            if by_axes <= by_terms:
                return M - self._back(self.D * ((z[:, None] * da).T @ xa))
            back = (self.left[:, None] * (z[:, None] * da)).flatten(0, 1) @ self.V.T
            return M - back.T @ ((self.right[:, None] * xa).flatten(0, 1) @ self.U.T)

        return K, moved

    def _back(self, C: Tensor) -> Tensor:
        """From the axes back to weights."""
        first_outputs = C.shape[1] * (self.V.numel() + len(self.V) * len(self.U))
        first_inputs = C.shape[0] * (self.U.numel() + len(self.V) * len(self.U))
        if first_outputs <= first_inputs:
            return (self.V @ C) @ self.U.T
        return self.V @ (C @ self.U.T)


def _products(g: Any) -> Tensor:
    x, delta = g.x[:, 0], g.delta[:, 0]
    K: Tensor = (x @ x.T) * (delta @ delta.T)
    return K


def _terms(s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """D as a sum of products, by some of its columns: those of the largest a, and ever fewer."""
    seen = torch.outer(s, a)
    D = seen / (1 + seen)
    rows, columns = D.shape
    if rows <= TERMS:
        return torch.eye(rows, dtype=D.dtype, device=D.device), D
    if columns <= TERMS:
        return D.T.contiguous(), torch.eye(columns, dtype=D.dtype, device=D.device)
    ranks = torch.logspace(0, 1, TERMS, base=float(columns), dtype=torch.float64)
    picked = columns - ranks.floor().long().clamp(1, columns).unique()  # largest last
    Q, _ = torch.linalg.qr(D[:, picked.to(D.device)])
    return Q.T.contiguous(), Q.T @ D
