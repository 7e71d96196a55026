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

from orfit.networks.gradients import Matrices, Outer, Product, gram
from orfit.networks.layout import aligned

Tensor = torch.Tensor
Moved = Callable[[Tensor], Tensor | Product]
Changes = list[tuple[Tensor, Callable[[Tensor], Any]]]  # a tensor, and one operation on it

CUT = 0.05  # of R: along a pair of axes on which less was seen, P is taken to be 1
TERMS = 24  # of D, at most


class TwoSided:
    """The covariances of both sides, and their axes when last looked at."""

    held = ("A", "S", "U", "V", "a", "s", "left", "right")

    def __init__(self, outputs: int, inputs: int, like: Tensor, cut: float = CUT) -> None:
        self.cut = cut
        self.A, self.S = (aligned(like.new_zeros(n, n)) for n in (inputs, outputs))
        self.U, self.V = like.new_zeros(inputs, 0), like.new_zeros(outputs, 0)
        self.a, self.s = like.new_zeros(0), like.new_zeros(0)  # the latter over N R
        self.left, self.right = like.new_zeros(0, 0), like.new_zeros(0, 0)  # terms of D
        self._found: tuple[Tensor, Tensor] | None = None  # the a of which D is, and D

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
        """I − P, along each pair of axes; it stands still between looks."""
        if self._found is None or self._found[0] is not self.a:
            seen = torch.outer(self.s, self.a)
            self._found = self.a, seen.div_(1 + seen)
        return self._found[1]

    def changes(self, g: Matrices, R: float) -> Changes:
        """What is to be done in place when these have been seen."""
        return [(self.A, g.add_inputs), (self.S, g.add_outputs)]

    def look(self, R: float) -> dict[str, Any]:
        """The attributes that change when axes are found anew."""
        N = self.A.trace()
        if not N > 0:
            return {}
        (a, U), (s, V) = axes(self.A), axes(self.S)
        a, s = a.clamp(min=0), s.clamp(min=0) / (N * R)
        least = max(self.cut, torch.finfo(a.dtype).eps)
        along, across = a * s.max() > least, s * a.max() > least
        a, s = a[along], s[across]
        left, right = _products_of(s, a)
        return {"U": U[:, along], "V": V[:, across], "a": a, "s": s, "left": left, "right": right}

    def against(self, g: Matrices, R: float) -> tuple[Tensor, Moved]:
        """GᵀPG, and the function that makes P G z of z."""
        if not self.rank:
            seen = g.matrices if not g.single else None
            return (gram(seen) if seen is not None else _products(g)), g.weighted
        if isinstance(g, Outer) and g.single:
            return self._single(g.x[:, 0], g.delta[:, 0])
        along = self._along(g)
        K = gram(g.matrices) - gram(along * self.D.sqrt())
        return K, lambda z: self._less(g.summed(z), self.D * torch.tensordot(z, along, 1))

    def _along(self, g: Matrices) -> Tensor:
        """The gradients in the axes."""
        if isinstance(g, Outer):
            return (g.delta @ self.V).mT @ (g.x @ self.U)
        return self.V.T @ g.matrices @ self.U

    def _single(self, x: Tensor, delta: Tensor) -> tuple[Tensor, Moved]:
        xa, da = x @ self.U, delta @ self.V
        K = (x @ x.T) * (delta @ delta.T)
        left, right = self._terms()
        for u, v in zip(left, right, strict=True):
            K = K - ((da * u) @ da.T) * ((xa * v) @ xa.T)

        def moved(z: Tensor) -> Product:
            back, along = z[:, None] * delta, z[:, None] * da
            T = along.T @ xa  # what P leaves out of M is V C Uᵀ, C = D T
            C, plain = self.D * T, Product.of(back, x)
            squared = plain.squared - (C * (2 * T - C)).sum(dtype=torch.float64)
            if len(left) * len(z) < min(C.shape):  # a row for each term and datapoint
                outer = (left[:, None] * -along).flatten(0, 1) @ self.V.T
                inner = (right[:, None] * xa).flatten(0, 1) @ self.U.T
            elif len(self.a) <= len(self.s):  # or one for each axis of a side
                outer, inner = (self.V @ -C).T, self.U.T
            else:
                outer, inner = self.V.T, -C @ self.U.T
            both = torch.cat([back, outer]), torch.cat([x, inner])
            if squared <= torch.finfo(x.dtype).eps ** 0.5 * plain.squared:  # digits have gone
                squared = (both[0].T @ both[1]).square().sum(dtype=torch.float64)
            return Product(*both, squared.clamp(min=0))

        return K, moved

    def _terms(self) -> tuple[Tensor, Tensor]:
        """D as a sum of products: those that are held, or its rows or columns, if few."""
        if len(self.left):
            return self.left, self.right
        D = self.D
        few = torch.eye(min(D.shape), dtype=D.dtype, device=D.device)
        return (few, D) if D.shape[0] <= D.shape[1] else (D.T, few)

    def _less(self, M: Tensor, C: Tensor) -> Tensor:
        """M − V C Uᵀ, in the place of M, by the side that takes less work."""
        first_outputs = C.shape[1] * (self.V.numel() + M.numel())
        first_inputs = C.shape[0] * (self.U.numel() + M.numel())
        if first_outputs <= first_inputs:
            return M.addmm_(self.V @ C, self.U.T, alpha=-1)
        return M.addmm_(self.V, C @ self.U.T, alpha=-1)


def damped(A: Tensor, R: float) -> Tensor:
    """R (A + R)⁻¹; what rounding has made of A may be below −R."""
    shifted = A.clone()
    shifted.diagonal().add_(R)
    root, failed = torch.linalg.cholesky_ex(shifted)
    if not int(failed):
        return R * torch.cholesky_inverse(root)
    a, U = torch.linalg.eigh(A.double())
    inverse: Tensor = ((U * (R / (a.clamp(min=0) + R))) @ U.T).to(A)
    return inverse


def axes(A: Tensor) -> tuple[Tensor, Tensor]:
    """The principal axes, and how much lies along each."""
    try:
        a, U = torch.linalg.eigh(A)
    except RuntimeError:  # no convergence: of few rows, in single precision, now and then
        a, U = (part.to(A) for part in torch.linalg.eigh(A.double()))
    return a, U


def _products(g: Any) -> Tensor:
    x, delta = g.x[:, 0], g.delta[:, 0]
    K: Tensor = (x @ x.T) * (delta @ delta.T)
    return K


def _products_of(s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """D as a sum of products, up to half of the digits that numbers have.

    Its columns are one function, x / (1 + x), of s a: smooth in log a, so those at a few nodes
    between the least a and the largest span all of them. None where D has few rows or columns.
    """
    if min(len(s), len(a)) <= TERMS:
        return s.new_zeros(0, len(s)), s.new_zeros(0, len(a))
    ends = a.min().log(), a.max().log()
    angles = torch.linspace(0, torch.pi, TERMS, dtype=a.dtype, device=a.device)
    nodes = torch.outer(s, (ends[0] + (ends[1] - ends[0]) * (1 - angles.cos()) / 2).exp())
    Q, _ = torch.linalg.qr(nodes / (1 + nodes))
    seen = torch.outer(s, a)
    W, sizes, Z = torch.linalg.svd(Q.T @ (seen / (1 + seen)), full_matrices=False)
    some = sizes > torch.finfo(a.dtype).eps ** 0.5
    return (Q @ W[:, some]).T, sizes[some, None] * Z[some]
