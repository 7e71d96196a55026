"""Keep the latest directions."""

from orfit import validation
from orfit.memory.basis import BasisDecomposition
from orfit.memory.vectors import BasisVectors, drop_vector
from orfit.state import State


class Latest(BasisVectors):
    """The m latest basis vectors: the paper's ORFit-latest (subsec:exp_limit).

    Examples:
        >>> learner = orfit.ORFit(orfit.Linear(3), orfit.memory.Latest(1))
        >>> updates = learner.learn_each(np.eye(3), [1.0, 2.0, 3.0])
        >>> print(np.abs(learner.memory.U).ravel())
        [0. 0. 1.]
    """

    drops_the_least = False

    def __init__(self, m: int) -> None:
        super().__init__(validation.count("m", m))

    def _drop(self, s: State, d: BasisDecomposition) -> None:
        while len(s.W) > self.m:
            drop_vector(s, 0)
