"""Orthogonal gradient descent."""

from typing import Any

from orfit import door, small, tall
from orfit.door import Array
from orfit.learners.base import Learner, setting
from orfit.learners.orfit import as_memory, number_of_steps
from orfit.learners.sgd import descent
from orfit.learners.step import check_step
from orfit.learners.update import Update
from orfit.memory import Basis, Memory
from orfit.meter import Meter
from orfit.models import Model


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
    lr = setting("lr", door.positive)
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

    def _learn(self, X: Array, Y: Array) -> Update:
        w = tall.copy(self._w)
        prediction, residual, G = self._linearize(w, X, Y)
        left = residual
        for _ in range(self.steps):
            g = self.memory.project(descent(G, left, w))
            w += self.lr * g
            _, left, G = self._linearize(w, X, Y)
        past = self.memory.split(G)
        moved = w - self._w
        length = small.frobenius(tall.norms(moved.reshape(len(moved), -1)))
        check_step(length, "lower lr")
        self._w = w
        self.memory.remember(past)
        self._probe(G, self._carried(w), left)
        return Update(prediction, residual, length, past.novelty, left, self.memory.rank)
