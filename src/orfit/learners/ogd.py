"""Orthogonal gradient descent."""

import functools
from typing import Any

from orfit import validation
from orfit.learners.learner import Learner, setting
from orfit.learners.orfit import as_memory
from orfit.learners.sgd import descent
from orfit.learners.update import Update
from orfit.memory import Basis, Memory
from orfit.memory.base import plain_settings
from orfit.meter import Meter
from orfit.models import Model
from orfit.small_linalg import frobenius
from orfit.state import State
from orfit.step import check_step
from orfit.store import arithmetic
from orfit.validation import Array

MOST_STEPS = 1000  # on one block

number_of_steps = functools.partial(validation.count, most=MOST_STEPS)


class OGD(Learner):
    """Orthogonal gradient descent (eq:ogd_projection): several projected steps on each block.

    memory: as for `ORFit`.
    lr: the step size, on the squared error |y − f|² (averaged over the datapoints of a block).
    steps: how many on each block.

    After the steps it remembers the fresh gradient, at the updated parameters, where ORFit
    remembers the one it used; for linear models they are the same.

    Examples:
        >>> learner = orfit.OGD(orfit.Linear(3), memory=2, lr=0.5)
        >>> updates = learner.learn_each([[1, 0, 0], [1, 1, 0]], [4.0, 8.0])
        >>> print(learner.predict([1, 0, 0]))  # the second step left it alone
        4.0
    """

    memory: Any
    lr = setting("lr", validation.positive)
    steps = setting("steps", number_of_steps)

    def __init__(
        self,
        model: Model,
        memory: Basis | int | None = None,
        *,
        lr: float,
        steps: int = 1,
        w0: object = None,
        meter: Meter | None = None,
    ) -> None:
        self.lr, self.steps = lr, steps
        super().__init__(model, w0, self._directions(memory), meter)

    @staticmethod
    def _directions(memory: Any) -> Memory:
        made = as_memory(memory)
        if not hasattr(made, "project"):
            raise ValueError(f"OGD needs a memory of directions; {made!r} is none")
        return made

    def settings(self) -> dict[str, Any]:
        return {"memory": self.memory, "lr": self.lr, "steps": self.steps}

    def _step(self, s: State, X: Any, Y: Array, roots: Array | None) -> Update:
        before = self._parameters(s)
        ops = arithmetic(before)
        w = ops.copy(before)
        prediction, residual, G = self._linearize(w, X, Y, roots)
        left = residual
        for _ in range(self.steps):
            w += self.lr * self.memory.project(descent(G, left, w))
            _, left, G = self._linearize(w, X, Y, roots)
        d = self.memory.decompose(s, G, plain_settings())
        moved = w - before
        length = frobenius(ops.norms(moved.reshape(len(moved), -1)))
        check_step(length, "lower lr")
        self._set_parameters(s, w)
        self.memory.absorb_block(s, d)
        self._probe(s, G, self._carried(w), left)
        return Update(prediction, residual, length, d.novelty, left, self.memory.rank_in(s))
