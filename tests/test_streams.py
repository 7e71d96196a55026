"""What the comparison on real streams shows its learners of a row comes from no later row."""

import runpy
from pathlib import Path

import numpy as np
import pytest

DATA = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "stream_data.py"))
standardised_so_far, fourier_features = DATA["standardised_so_far"], DATA["fourier_features"]


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5)) * [1, 1e-3, 1e3, 1, 1] + [0, 1, 736_389, 5, 7]
    X[:50, 3] = 5.0  # has not varied yet
    X[:, 4] = 7.1  # never does
    return X


def test_standardised_by_the_rows_up_to_itself(X):
    Z = standardised_so_far(X)
    for i in (1, 49, 50, 199):
        seen = X[: i + 1]
        spread = seen.std(axis=0)
        constant = spread < 1e-12
        expected = np.where(constant, 0, (X[i] - seen.mean(axis=0)) / np.where(constant, 1, spread))
        assert Z[i] == pytest.approx(expected, abs=1e-8)
    assert not Z[0].any()


def test_no_row_sees_a_later_one(X):
    features = fourier_features(standardised_so_far(X))
    other = X.copy()
    other[100:] = 1e6 * np.random.default_rng(1).standard_normal((100, 5))
    changed = fourier_features(standardised_so_far(other))
    assert np.array_equal(features[:100], changed[:100])
    assert not np.array_equal(features[100], changed[100])


def test_lags_are_what_came_before():
    X, y = DATA["lagged"](np.arange(10), 3)
    assert np.array_equal(X[:, 0], y - 1)
    assert np.array_equal(X[:, 2], y - 3)
    assert np.array_equal(y, np.arange(3, 10))
