"""Keep random directions."""

from typing import Any

from orfit import validation
from orfit.memory.basis import BasisDecomposition
from orfit.memory.vectors import BasisVectors, drop_vector
from orfit.state import State

WORD = 2**64 - 1  # whole numbers are taken modulo 2⁶⁴
GAMMA = 0x9E3779B97F4A7C15


class Random(BasisVectors):
    """Any m of the basis vectors, chosen after each block: the paper's ORFit-random.

    Examples:
        >>> learner = orfit.ORFit(orfit.Linear(9), orfit.memory.Random(3, seed=1))
        >>> updates = learner.learn_each(np.eye(9), np.ones(9))
        >>> learner.memory.rank
        3
    """

    drops_the_least = False

    def __init__(self, m: int, seed: int = 0) -> None:
        super().__init__(validation.count("m", m))
        self.seed = validation.count("seed", seed, least=0)

    def new_state(self, ops: Any, like: Any, columns: int) -> State:
        s = super().new_state(ops, like, columns)
        s.draws = 0
        return s

    def _drop(self, s: State, d: BasisDecomposition) -> None:
        while len(s.W) > self.m:
            s.draws += 1
            drop_vector(s, draw(self.seed, s.draws, len(s.W)))

    def settings(self) -> dict[str, Any]:
        return {"m": self.m, "seed": self.seed}


def draw(seed: int, draws: int, count: int) -> int:
    """A random index below `count` < 2³², determined by the seed and the number of draws.

    u = mix(mix(seed) + draws γ), by SplitMix64 (Steele, Lea, Flood 2014); the index is the whole
    part of count u' / 2³², where u' is the upper half of u.
    """
    u = mix(mix(seed) + draws * GAMMA)
    return (u >> 32) * count >> 32


def mix(x: int) -> int:
    """The bits of x modulo 2⁶⁴, mixed: the last step of SplitMix64."""
    x &= WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31
