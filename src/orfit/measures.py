"""How much a learner forgot, from how well it did on every task after every task.

Examples:
    >>> scores = [[0.9, 0.1], [0.6, 0.8]]  # of two tasks, after the first and after both
    >>> round(orfit.measures.forgetting(scores), 6)
    0.3
"""

import numpy as np

from orfit import validation
from orfit.validation import Array


def forgetting(scores: object) -> float:
    """How far a task fell from its best score since it was learned, on average.

    Over all tasks but the last, which had no time to be forgotten. scores[i, j] is how well task j
    was done after task i was learned; higher is better. What is above the diagonal, on tasks that
    were yet to come, is not looked at, and may be NaN.

    Examples:
        >>> round(orfit.measures.forgetting([[0.9, np.nan], [0.6, 0.8]]), 6)
        0.3
    """
    table = _square(scores)
    best = np.where(np.tri(len(table), dtype=bool), table, -np.inf).max(axis=0)
    return float((best - table[-1])[:-1].mean()) if len(table) > 1 else 0.0


def backward_transfer(scores: object) -> float:
    """How much better a task is done in the end than just after it was learned, on average.

    Negative where learning the later ones did harm; scores as for `forgetting`.

    Examples:
        >>> round(orfit.measures.backward_transfer([[0.9, np.nan], [0.6, 0.8]]), 6)
        -0.3
    """
    table = _square(scores)
    return float((table[-1] - np.diag(table))[:-1].mean()) if len(table) > 1 else 0.0


def _square(scores: object) -> Array:
    given = np.array(scores, float)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or not len(given):
        raise ValueError(f"scores must be tasks×tasks, one row after each; they are {given.shape}")
    return validation.numbers("scores", np.where(np.tri(len(given), dtype=bool), given, 0.0))
