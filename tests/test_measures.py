"""Forgetting and backward transfer, against their formulas typed out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orfit.measures import backward_transfer, forgetting


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_the_formulas_of_the_literature(tasks, seed):
    """max over l = j … T−1 of a[l, j] − a[T, j] (Chaudhry et al. 2018); a[T, j] − a[j, j]."""
    scores = np.random.default_rng(seed).random((tasks, tasks))
    scores[np.triu_indices(tasks, 1)] = np.nan  # tasks that were yet to come
    fell = [max(scores[j:, j]) - scores[-1, j] for j in range(tasks - 1)]
    gained = [scores[-1, j] - scores[j, j] for j in range(tasks - 1)]
    assert forgetting(scores) == pytest.approx(np.mean(fell))
    assert backward_transfer(scores) == pytest.approx(np.mean(gained))


def test_a_lucky_guess_before_a_task_was_learned_is_not_forgotten():
    assert forgetting([[0.9, 0.99], [0.9, 0.5]]) == 0.0
    assert forgetting([[0.9, 0.9, 0.1], [0.9, 0.2, 0.1], [0.9, 0.2, 0.9]]) == 0.0
    assert forgetting([[0.9]]) == backward_transfer([[0.9]]) == 0.0


@pytest.mark.parametrize("scores", [[0.9, 0.1], [[0.9, 0.1]], np.empty((0, 0))])
def test_scores_that_are_no_square(scores):
    with pytest.raises(ValueError, match="tasks×tasks"):
        forgetting(scores)


def test_scores_of_learned_tasks_are_numbers():
    with pytest.raises(ValueError, match="scores must be finite"):
        forgetting([[0.9, np.nan], [np.nan, 0.5]])
