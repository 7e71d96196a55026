"""What the comparison on real streams shows its learners of a row comes from no later row."""

import runpy
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
DATA = runpy.run_path(str(BENCHMARKS / "stream_data.py"))
standardise_so_far, compute_fourier_features = (
    DATA["standardise_so_far"],
    DATA["compute_fourier_features"],
)


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5)) * [1, 1e-3, 1e3, 1, 1] + [0, 1, 736_389, 5, 7]
    X[:50, 3] = 5.0  # has not varied yet
    X[:, 4] = 7.1  # never does
    return X


def test_standardised_by_the_rows_up_to_itself(X):
    Z = standardise_so_far(X)
    for i in (1, 49, 50, 199):
        seen = X[: i + 1]
        spread = seen.std(axis=0)
        constant = spread < 1e-12
        expected = np.where(constant, 0, (X[i] - seen.mean(axis=0)) / np.where(constant, 1, spread))
        assert Z[i] == pytest.approx(expected, abs=1e-8)
    assert not Z[0].any()


def test_no_row_sees_a_later_one(X):
    features = compute_fourier_features(standardise_so_far(X))
    other = X.copy()
    other[100:] = 1e6 * np.random.default_rng(1).standard_normal((100, 5))
    changed = compute_fourier_features(standardise_so_far(other))
    assert np.array_equal(features[:100], changed[:100])
    assert not np.array_equal(features[100], changed[100])


def test_lags_are_what_came_before():
    X, y = DATA["make_lags"](np.arange(10), 3)
    assert np.array_equal(X[:, 0], y - 1)
    assert np.array_equal(X[:, 2], y - 3)
    assert np.array_equal(y, np.arange(3, 10))


def test_what_is_asked_at_the_end_was_not_learned():
    y = np.arange(23.0)
    X = y[:, None]
    learned, _, asked, labels = DATA["hold_out"](X, y, np.arange(23), 5)
    assert np.array_equal(labels, [0, 5, 10, 15, 20])
    assert np.array_equal(asked[:, 0], labels)
    assert sorted([*learned[:, 0], *labels]) == y.tolist()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NUMBERS", "orfit.sklearn"),
        ("NUMBERS", "sklearn SGD"),
        ("NUMBERS", "exact RLS"),
        ("CLASSES", "exact RLS"),
        ("CLASSES", "last value"),
    ],
)
def test_no_entrant_sees_a_later_row(kind, name):
    pytest.importorskip("river")
    pytest.importorskip("sklearn")
    entrant = runpy.run_path(str(BENCHMARKS / "entrants.py"))[kind][name]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((280, 3))
    y = (X[:, 0] > 0).astype(float)
    later = np.arange(280) >= 260  # exact RLS has the scale of 256
    made, _ = entrant.run(X, y)
    changed, _ = entrant.run(np.where(later[:, None], 5 * X[::-1], X), np.where(later, 1 - y, y))
    assert len(made) == len(y)
    assert np.array_equal(made[:260], changed[:260])
