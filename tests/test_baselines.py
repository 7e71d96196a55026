"""Baselines of a stream against their definitions."""

import numpy as np
import pytest

from orfit.stream.baselines import LastValue, Majority, RunningMean


def test_running_mean_is_the_mean_of_all_earlier_rows(rng):
    Y = rng.standard_normal((30, 2))
    baseline = RunningMean(2)
    predicted = np.vstack([baseline.made(piece) for piece in np.split(Y, [1, 7, 20])])
    assert (predicted[0] == 0).all()
    for i in range(1, 30):
        # A sum of 30 numbers of size 1: 30 eps.
        assert predicted[i] == pytest.approx(Y[:i].mean(axis=0), abs=30 * np.finfo(float).eps)


def test_last_value_is_the_row_before(rng):
    Y = rng.standard_normal((10, 2))
    baseline = LastValue(2)
    predicted = np.vstack([baseline.made(piece) for piece in np.split(Y, [3, 4])])
    assert (predicted[0] == 0).all()
    assert (predicted[1:] == Y[:-1]).all()


def test_majority_is_the_most_frequent_class_so_far():
    """Of equally frequent classes, the one that reached this number first."""
    Y = np.array([[1.0], [2.0], [2.0], [1.0], [1.0], [0.0]])
    assert Majority(1).made(Y)[1:, 0].tolist() == [1, 1, 2, 2, 1]


@pytest.mark.parametrize("kind", [RunningMean, LastValue, Majority])
def test_restored_baseline_continues(kind, rng):
    Y = rng.integers(0, 3, (20, 1)).astype(float)
    first, second = kind(1), kind(1)
    first.made(Y[:9])
    second.restore(first.state())
    assert (first.made(Y[9:]) == second.made(Y[9:])).all()
