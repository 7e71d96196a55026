"""Stochastic gradient descent with a fixed step size."""

from typing import Any

from orfit import validation
from orfit.learners.learner import Learner, setting
from orfit.learners.update import Update, Updates
from orfit.meter import Meter
from orfit.models import Model
from orfit.small_linalg import frobenius
from orfit.state import State
from orfit.step import check_step
from orfit.store import arithmetic
from orfit.validation import Array


class SGD(Learner):
    """w ← w − lr ∇|y − f|², the squared error averaged over the datapoints of a block.

    The paper's multi-pass baseline: on a linear, overparameterized model and with a small enough
    step size it converges to what ORFit finds in one pass (the corollary of thm:implicit_bias).

    Examples:
        >>> learner = orfit.SGD(orfit.Linear(1), lr=0.25)
        >>> updates = learner.learn_each([[1.0], [1.0]], [8.0, 8.0], passes=2)
        >>> print(learner.w)
        [7.5]
    """

    lr = setting("lr", validation.positive)

    def __init__(
        self, model: Model, *, lr: float, w0: object = None, meter: Meter | None = None
    ) -> None:
        self.lr = lr
        super().__init__(model, w0, meter=meter)

    def settings(self) -> dict[str, Any]:
        return {"lr": self.lr}

    def learn_each(
        self, X: object, Y: object, weight: object = None, *, passes: int = 1
    ) -> Updates:
        """Row after row, `passes` times over; returns the last pass."""
        return self._change(self._learn_passes, X, Y, weight, passes)

    def _learn_passes(self, X: object, Y: object, weight: object, passes: int) -> Updates:
        for _ in range(validation.count("passes", passes) - 1):
            self._learn_each(X, Y, weight)
        return self._learn_each(X, Y, weight)

    def _step(self, s: State, X: Any, Y: Array, roots: Array | None) -> Update:
        F, residual, G = self._linearize(s.w, X, Y, roots)
        ops, g = arithmetic(G), descent(G, residual, s.w)
        length = self.lr * frobenius(ops.norms(g.reshape(len(g), -1)))
        check_step(length, "lower lr")
        s.w = s.w + self.lr * g
        left = residual - self.lr * ops.inner(G, g).reshape(residual.shape)
        self._probe(s, G, s.w, left)
        return Update(F, residual, length, 1.0, left, 0)


def descent(G: Any, residual: Array, w: Any) -> Any:
    """−∇ of the squared error, shaped like w: 2 G (y − f), averaged over the block's datapoints."""
    columns = residual.reshape(G.shape[1], -1) * (2 / len(residual))
    return arithmetic(G).combine(G, columns).reshape(w.shape)
