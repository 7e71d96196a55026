"""How much a learner forgot, from how well it did on every task after every task."""

import numpy as np

from orfit import door
from orfit.door import Array


def forgetting(scores: object) -> float:
    """How far a task fell from its best score, on average over all tasks but the last.

    scores: scores[i, j] is how well task j was done after task i was learned; higher is better.
    """
    table = _square(scores)
    return float((table.max(axis=0) - table[-1])[:-1].mean()) if len(table) > 1 else 0.0


def backward_transfer(scores: object) -> float:
    """How much better a task is done in the end than just after it was learned, on average.

    Negative where learning the later ones did harm; scores as for `forgetting`.
    """
    table = _square(scores)
    return float((table[-1] - np.diag(table))[:-1].mean()) if len(table) > 1 else 0.0


def _square(scores: object) -> Array:
    table = door.numbers("scores", scores)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not len(table):
        raise ValueError(f"scores must be tasks×tasks, one row after each; they are {table.shape}")
    return table
