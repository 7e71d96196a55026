"""Keep every direction."""

from orfit.memory.vectors import BasisVectors


class Unlimited(BasisVectors):
    """Every direction ever seen stays: alg:orfit1_infmem and alg:borfit_infmem.

    Memory grows with the rank of what was seen, up to p×p; past predictions of a linear model do
    not move at all (lem:step). `Principal` bounds the memory.

    Examples:
        >>> memory = orfit.memory.Unlimited()
        >>> memory.absorb([[1.0, 1.0], [0.0, 0.0], [0.0, 2.0]])
        >>> memory.rank
        2
    """

    merges = True
