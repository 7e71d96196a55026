"""A nonlinear model in NumPy with a hand-made Jacobian: f(x; w) = V tanh(A x), w = (A, V)."""

import numpy as np


class TanhNetwork:
    linear = False
    heads = None

    def __init__(self, inputs, hidden, outputs=None, seed=0):
        self.inputs, self.hidden, self.outputs = inputs, hidden, outputs
        self.input_shape = (inputs,)
        self.size = hidden * (inputs + (outputs or 1))
        self._start = np.random.default_rng(seed).standard_normal(self.size) / np.sqrt(hidden)

    def initial(self):
        return self._start

    def settings(self):
        return {}

    def _unpack(self, w):
        A = w[: self.hidden * self.inputs].reshape(self.hidden, self.inputs)
        return A, w[self.hidden * self.inputs :].reshape(self.outputs or 1, self.hidden)

    def predict(self, w, X):
        A, V = self._unpack(w)
        F = np.tanh(X @ A.T) @ V.T
        return F[:, 0] if self.outputs is None else F

    def linearize(self, w, X):
        A, V = self._unpack(w)
        hidden = np.tanh(X @ A.T)
        columns = []
        for x, h in zip(X, hidden, strict=True):
            for j in range(len(V)):
                to_A = np.outer(V[j] * (1 - h**2), x)
                to_V = np.zeros_like(V)
                to_V[j] = h
                columns.append(np.concatenate([to_A.ravel(), to_V.ravel()]))
        return self.predict(w, X), np.asfortranarray(np.array(columns).T)
