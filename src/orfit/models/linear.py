"""Linear models: features, outputs, heads."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from orfit import validation
from orfit.models.base import Defaults
from orfit.store import HOST
from orfit.validation import Array

Features = Callable[[Any], Any]


class Linear(Defaults):
    """f(x; w) = Φ(x)ᵀ w.

    size: how many features Φ(x) has.
    features: maps a batch of inputs, X (n, ...) → (n, size), or → (n, size, c) for c outputs that
        share one w (the paper's Φ(x), p×c). The identity unless given.
    heads: q outputs with their own weights on shared features; w is p×q. Heads share one memory,
        so ten classes cost what one costs.
    bias: one more feature, the constant 1, the last row of w: p = size + 1.

    Examples:
        >>> orfit.Linear(10, heads=3, bias=True).initial().shape
        (11, 3)
        >>> line = orfit.Linear(3, features=lambda X: np.stack([X**0, X, X**2], axis=1))
        >>> learner = orfit.RLS(line, prior=1e-9)
        >>> updates = learner.learn_each([0.0, 1.0, 2.0], [2.0, 3.0, 6.0])  # 2 + x²
        >>> print(np.abs(learner.w).round(3))
        [2. 0. 1.]
    """

    linear = True
    ops = HOST  # the operations on p-sized arrays

    def __init__(
        self,
        size: int,
        *,
        heads: int | None = None,
        bias: bool = False,
        features: Features | None = None,
    ) -> None:
        self._features_size = validation.count("size", size)
        self.heads = None if heads is None else validation.count("heads", heads)
        if features is not None and not callable(features):
            raise ValueError("features must be a function from a batch of inputs to its features")
        self.bias = validation.flag("bias", bias)
        self.features = features
        self.size = self._features_size + self.bias
        self.input_shape = (self._features_size,) if features is None else None

    @property
    def own_gradient(self) -> bool:  # type: ignore[override]
        return self.features is None and not self.bias and type(self) is Linear

    def initial(self) -> Array:
        shape = (self.size,) if self.heads is None else (self.size, self.heads)
        return np.broadcast_to(0.0, shape)  # zeros that take no room: they are copied to be learned

    def predict(self, w: Array, X: Array) -> Array:
        return self.linearize(w, X)[0].astype(w.dtype)

    def linearize(self, w: Array, X: Array) -> tuple[Array, Array]:
        shape, G = self._gradients(X, w.dtype)
        return self.ops.inner(G, w).reshape(shape), G

    def affine(self, X: Array, Y: Array) -> tuple[Array, Array, Array]:
        shape, G = self._gradients(X, X.dtype)
        return np.zeros(shape), Y, G

    def _gradients(self, X: Array, dtype: Any) -> tuple[tuple[int, ...], Array]:
        """The shape of the outputs, and G."""
        phi = self.phi(X, dtype)
        # One gradient is one row, so G has contiguous columns.
        rows = phi if phi.ndim == 2 else np.swapaxes(phi, 1, 2).reshape(-1, self.size)
        heads = () if self.heads is None else (self.heads,)
        return (len(phi), *phi.shape[2:], *heads), rows.T

    def grown(self, size: int | None, heads: int | None) -> tuple["Linear", int]:
        """One like this with more features or heads, and where the parameters of those begin."""
        made, before = copy.copy(self), self._features_size
        if size is not None:
            made._features_size = validation.count("size", size)
            if self.features is not None:
                raise ValueError("features are code, which cannot grow: leave size out")
            if made._features_size < before:
                raise ValueError(f"size must be at least {before}, as it is; it is {size}")
            made.size = made._features_size + self.bias
            made.input_shape = (made._features_size,)
        if heads is not None:
            made.heads = validation.count("heads", heads)
            if self.heads is None:
                raise ValueError("the model has no heads, of which there could be more")
            if made.heads < self.heads:
                raise ValueError(f"heads must be at least {self.heads}, as it is; it is {heads}")
        return made, before

    def settings(self) -> dict[str, Any]:
        plain = {"size": self._features_size, "heads": self.heads, "bias": self.bias}
        return plain if self.features is None else plain | {"features": "code"}

    def __repr__(self) -> str:
        heads = "" if self.heads is None else f", heads={self.heads}"
        bias = ", bias=True" if self.bias else ""
        features = "" if self.features is None else ", features=…"
        return f"Linear({self._features_size}{heads}{bias}{features})"

    def phi(self, X: Array, dtype: Any) -> Array:
        """Φ of many inputs: (n, p), or (n, p, c)."""
        phi = X if self.features is None else self._featured(X, dtype)
        if self.bias:
            ones = np.ones((len(phi), 1, *phi.shape[2:]), dtype)
            phi = np.concatenate([phi, ones], axis=1)
        return np.ascontiguousarray(phi)

    def _featured(self, X: Array, dtype: Any) -> Array:
        assert self.features is not None
        n = len(X)
        try:
            given = self.features(X.copy())  # a copy: features may work in place, on the caller's X
        except Exception as error:
            raise ValueError(
                f"features failed on a batch of shape {X.shape} ({type(error).__name__}: {error}); "
                "it is given many inputs at once, one for each index of the first axis"
            ) from error
        phi = validation.numbers("what features returned", given, dtype)
        if phi.ndim not in (2, 3) or phi.shape[:2] != (n, self._features_size):
            expected = f"({n}, {self._features_size}) or ({n}, {self._features_size}, c)"
            raise ValueError(f"features must return shape {expected}; it returned {phi.shape}")
        if phi.ndim == 3 and self.heads is not None:
            raise ValueError("features of shape (n, size, c) and heads= exclude each other")
        return phi
