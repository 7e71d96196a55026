"""A small nonlinear model in NumPy, whose Jacobian is written out."""

from typing import Any

import numpy as np

from orfit.validation import Array


class TanhNetwork:
    """f(x; w) = V tanh(A x), with w = (A, V)."""

    linear = False
    heads = None

    def __init__(self, inputs: int, hidden: int, outputs: int | None = None, seed: int = 0) -> None:
        self.inputs, self.hidden, self.outputs = inputs, hidden, outputs
        self.input_shape = (inputs,)
        self.size = hidden * (inputs + (outputs or 1))
        rng = np.random.default_rng(seed)
        self._start: Array = rng.standard_normal(self.size) / np.sqrt(hidden)

    def initial(self) -> Array:
        return self._start

    def settings(self) -> dict[str, Any]:
        return {}

    def _unpack(self, w: Array) -> tuple[Array, Array]:
        A = w[: self.hidden * self.inputs].reshape(self.hidden, self.inputs)
        return A, w[self.hidden * self.inputs :].reshape(self.outputs or 1, self.hidden)

    def predict(self, w: Array, X: Array) -> Array:
        A, V = self._unpack(w)
        F = np.tanh(X @ A.T) @ V.T
        return np.asarray(F[:, 0] if self.outputs is None else F)

    def linearize(self, w: Array, X: Array) -> tuple[Array, Array]:
        A, V = self._unpack(w)
        columns = []
        for x, h in zip(X, np.tanh(X @ A.T), strict=True):
            for j in range(len(V)):
                to_A = np.outer(V[j] * (1 - h**2), x)
                to_V = np.zeros_like(V)
                to_V[j] = h
                columns.append(np.concatenate([to_A.ravel(), to_V.ravel()]))
        return self.predict(w, X), np.asfortranarray(np.array(columns).T)
