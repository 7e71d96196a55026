"""Keep the latest directions."""

from orfit.memory.basis import Bounded


class Latest(Bounded):
    """The m latest basis vectors: the paper's ORFit-latest (subsec:exp_limit).

    Examples:
        >>> learner = orfit.ORFit(orfit.Linear(3), orfit.memory.Latest(1))
        >>> updates = learner.learn_each(np.eye(3), [1.0, 2.0, 3.0])
        >>> print(np.abs(learner.memory.U).ravel())
        [0. 0. 1.]
    """

    def trim(self) -> None:
        while self.rank > self.m:
            self.delete(0)
