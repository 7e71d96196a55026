"""Covering arrays: cases for every pair of values, not for every combination of all factors."""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

Case = tuple[Hashable, ...]


def covering_array(
    factors: Mapping[str, Sequence[Hashable]],
    is_allowed: Callable[[Case], bool] = lambda case: True,
    times: int = 1,
) -> list[Case]:
    """Choose cases such that each pair of values that is allowed is in `times` of them.

    factors: the values of each factor. is_allowed: whether a combination of values is possible.

    The search is greedy and deterministic: each next case has the most pairs that are still
    missing. A pair that is in fewer than `times` possible cases is in all of these.
    """
    combinations = [case for case in itertools.product(*factors.values()) if is_allowed(case)]
    # Without a shuffle the first values of all factors would be in most cases.
    order = np.random.default_rng(0).permutation(len(combinations))
    combinations = [combinations[i] for i in order]
    numbers: dict[tuple, int] = {}
    pairs = np.array([
        [
            numbers.setdefault((i, case[i], j, case[j]), len(numbers))
            for i, j in itertools.combinations(range(len(factors)), 2)
        ]
        for case in combinations
    ])  # fmt: skip
    missing = np.minimum(times, np.bincount(pairs.ravel(), minlength=len(numbers)))
    is_left = np.ones(len(combinations), bool)
    chosen = []
    while missing.any():
        gains = (missing[pairs] > 0).sum(axis=1) * is_left
        best = int(gains.argmax())
        is_left[best] = False
        missing[pairs[best]] = np.maximum(missing[pairs[best]] - 1, 0)
        chosen.append(best)
    return [combinations[i] for i in sorted(chosen, key=lambda i: order[i])]
