"""The means by which candidates are compared, against direct formulas."""

import numpy as np
import pytest

import orfit
from orfit.learners.candidates import (
    AS_GOOD,
    GRID,
    LARGEST,
    RECENCY,
    RECENT,
    START,
    WINDOW,
    Candidates,
)

FAR, MOST_SURPRISE = 25.0, 1e3  # of core/candidates.c


def observe(candidates, s, variance, residual, innovation=None, roots=None):
    """Observe rows one by one. variance: n×e. residual, innovation: n×e×q."""
    innovation = residual if innovation is None else innovation
    for i in range(len(residual)):
        root = None if roots is None else roots[i : i + 1]
        candidates.observe(
            s, variance[i, :, None], residual[i, :, None], innovation[i, :, None], root
        )


def recency_weights(n, window):
    """Weights of n rows in a mean of rate min(1, max(3/i, 1/window))."""
    rates = np.minimum(1.0, np.maximum(RECENCY / np.arange(1, n + 1), 1 / window))
    left = np.append(np.cumprod((1 - rates)[::-1])[::-1][1:], 1.0)
    return rates * left


@pytest.mark.parametrize("n", [3, 10, 300])
def test_row_i_of_n_has_a_weight_like_i_squared(n):
    """The closed form of the recursion until the window is full: 3 (i−1) (i−2) / n (n−1) (n−2)."""
    i = np.arange(1, n + 1)
    expected = 3 * (i - 1) * (i - 2) / (n * (n - 1) * (n - 2))
    np.testing.assert_allclose(recency_weights(n, RECENT), expected, rtol=1e-11)


@pytest.mark.parametrize("n", [1, 2, 40, 3500])
def test_errors_are_means_with_these_weights(n, rng):
    candidates = Candidates("auto", True, 2)
    s = candidates.new_state()
    residual = rng.standard_normal((n, len(GRID), 2))
    observe(candidates, s, np.ones((n, len(GRID))), residual)
    expected = recency_weights(n, WINDOW) @ (residual**2).sum(axis=2)
    np.testing.assert_allclose(s.error, expected, rtol=1e-12)
    assert s.error_rows == n


@pytest.mark.parametrize("n", [5, 700])
def test_means_of_innovations(n, rng):
    """Innovations of such even size are not clipped."""
    R = 0.5
    candidates = Candidates(R, True, 3)
    s = candidates.new_state()
    u = rng.uniform(1, 2, (n, 1, 3)) * rng.choice([-1.0, 1.0], (n, 1, 3))
    variance = rng.uniform(1, 4, (n, 1))
    observe(candidates, s, variance, u)
    long, recent = recency_weights(n, WINDOW), recency_weights(n, RECENT)
    before = np.vstack([np.zeros((1, 3)), u[:-1, 0]])
    np.testing.assert_allclose(s.scale, long @ u[:, 0] ** 2, rtol=1e-12)
    np.testing.assert_allclose(s.recent_scale, recent @ u[:, 0] ** 2, rtol=1e-12)
    np.testing.assert_allclose(s.neighbours, recent @ (u[:, 0] * before), rtol=0, atol=1e-12)
    np.testing.assert_allclose(s.surprise, recent @ variance / R, rtol=1e-12)
    np.testing.assert_array_equal(s.last, u[-1, 0])
    surprise, mean, correlation = candidates.recent(s)
    assert surprise == s.surprise[0]
    assert mean == pytest.approx(s.recent_scale.mean())
    assert correlation == pytest.approx(s.neighbours.mean() / s.recent_scale.mean())
    np.testing.assert_array_equal(candidates.scale_of(s), s.scale)


def test_an_outlier_counts_as_five_standard_deviations(rng):
    candidates = Candidates(1.0, True, 1)
    s = candidates.new_state()
    observe(candidates, s, np.ones((50, 1)), rng.standard_normal((50, 1, 1)))
    before, recent, last = s.scale.copy(), s.recent_scale.copy(), s.last.copy()
    observe(candidates, s, np.ones((1, 1)), np.full((1, 1, 1), -1e6))
    clipped = np.sqrt(FAR * before)
    rate = RECENCY / 51
    np.testing.assert_allclose(s.scale, before + rate * (FAR - 1) * before)
    np.testing.assert_allclose(s.recent_scale, recent + rate * (FAR * before - recent))
    np.testing.assert_allclose(s.last, -clipped)
    assert last * s.last != 0


def test_a_scale_of_zero_clips_nothing():
    candidates = Candidates(1.0, True, 1)
    s = candidates.new_state()
    observe(candidates, s, np.ones((20, 1)), np.zeros((20, 1, 1)))
    observe(candidates, s, np.ones((1, 1)), np.full((1, 1, 1), 7.0))
    np.testing.assert_allclose(s.scale, RECENCY / 21 * 49)


def test_limits_keep_means_finite():
    candidates = Candidates("auto", True, 1)
    s = candidates.new_state()
    s.noises = np.geomspace(1e-300, 1e300, len(GRID))
    with np.errstate(over="raise"):
        huge = np.full((2, len(GRID), 1), 1e300)
        observe(candidates, s, np.full((2, len(GRID)), 1e308), huge)
    assert (s.error == LARGEST**2).all()
    assert (s.scale == LARGEST**2).all()
    assert s.surprise[0] == MOST_SURPRISE


def test_rows_of_which_nothing_was_expected_do_not_change_the_scale():
    candidates = Candidates(0.0, True, 1)
    s = candidates.new_state()
    observe(candidates, s, np.zeros((3, 1)), np.array([1.0, -4.0, 2.0]).reshape(3, 1, 1))
    assert (s.scale_rows, s.unfitted) == (0, 4.0)
    assert candidates.scale_of(s) == 1
    assert np.isnan(candidates.recent(s)).all()


def test_a_block_is_observed_as_its_rows(rng):
    candidates = Candidates("auto", "auto", 2)
    one, block = candidates.new_state(), candidates.new_state()
    e = len(candidates)
    variance, residual = rng.uniform(1, 2, (9, e)), rng.standard_normal((9, e, 2))
    observe(candidates, one, variance, residual, residual / 2)
    swapped = residual.transpose(1, 0, 2)
    candidates.observe(block, variance.T, swapped, swapped / 2)
    for name in ("error", "scale", "recent_scale", "neighbours", "surprise", "last"):
        np.testing.assert_array_equal(getattr(block, name), getattr(one, name))
    assert block.chosen == one.chosen


@pytest.mark.parametrize("R", [0.0, 0.3])
def test_weighted_rows_have_the_scale_of_rows_as_they_came(R, rng):
    """A row of weight v has √v times the residual and gradient, and the same noise."""
    candidates = Candidates(R, True, 1)
    weighted, single = candidates.new_state(), candidates.new_state()
    r, spread, roots = rng.standard_normal(6), rng.uniform(1, 2, 6), rng.uniform(0.1, 9, 6)
    S = (spread + R).reshape(6, 1)
    u = r.reshape(6, 1, 1) / np.sqrt(S)[:, :, None]
    observe(candidates, single, S, r.reshape(6, 1, 1), u)
    S = (roots**2 * spread + R).reshape(6, 1)
    r = (roots * r).reshape(6, 1, 1)
    observe(candidates, weighted, S, r, r / np.sqrt(S)[:, :, None], roots)
    for name in ("scale", "recent_scale", "neighbours", "surprise"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(single, name), rtol=1e-9)


def errors_of(s, **better):
    """All errors 2, but these: best=(indices)."""
    s.error = np.full(len(s.noises), 2.0)
    for error, places in better.items():
        s.error[list(places)] = {"best": 1.0, "as_good": 1 + 0.9 * AS_GOOD}[error]
    return s


def test_the_most_noise_of_those_that_are_as_good_is_chosen():
    candidates = Candidates("auto", True, 1)
    s = candidates.new_state()
    assert candidates._best(errors_of(s)) == s.chosen == len(GRID) // 2  # nothing differs
    assert candidates._best(errors_of(s, best=[2])) == 2
    assert candidates._best(errors_of(s, best=[2], as_good=[1, 5])) == 5
    assert candidates._best(errors_of(s, best=[5], as_good=[2])) == 5
    assert not candidates.lowest(s)
    s.chosen = 0
    assert candidates.lowest(s)


def test_the_largest_forgetting_comes_first():
    candidates = Candidates("auto", True, 1, (1.0, 0.9))
    s, e = candidates.new_state(), len(GRID)
    assert candidates._best(errors_of(s, best=[e + 7], as_good=[3])) == 3
    assert candidates._best(errors_of(s, best=[e + 2, e + 6])) == e + 6
    s.chosen = e + 6
    assert candidates.forgetting(s) == 1
    settings = candidates.step_settings(s, 0.0, 1)
    assert (settings.forgetting, settings.chosen, len(settings.noises)) == (0.9, 6, e)
    assert settings.noise == candidates.noise(s)


def test_the_grid_moves_to_the_usual_length(rng):
    candidates = Candidates("auto", True, 1)
    s = candidates.new_state()
    s.unit = (0, 0)
    s.error, s.scale = np.arange(1.0, 9.0), np.ones(8)
    assert candidates.review_grid(s, np.array([1.0]), None) is None
    before = s.noises
    assert candidates.review_grid(s, np.array([1e2, 1e2]), None) is not None
    np.testing.assert_allclose(s.noises, 1e4 * before)
    assert s.unit == (4, 4)
    # Each candidate continues from the one with the nearest noise.
    np.testing.assert_array_equal(s.error[:4], np.arange(5.0, 9.0))
    np.testing.assert_allclose(s.error[4:], 8 * (1 + AS_GOOD) ** 2)
    np.testing.assert_allclose(s.scale, [1, 1, 1, 1, 1e-1, 1e-2, 1e-3, 1e-4])
    # Zero gradients have no length; weights do not count.
    assert candidates.review_grid(s, np.zeros(9), None) is None
    assert candidates.review_grid(s, np.array([1e8] * 3), np.full(3, 1e6)) is None
    assert s.unit == (4, 4)


def test_after_the_start_the_grid_does_not_move_below_its_unit():
    candidates = Candidates("auto", True, 1)
    s = candidates.new_state()
    s.unit = (0, 0)
    candidates.review_grid(s, np.ones(START), None)
    assert s.least_unit == 0
    candidates.review_grid(s, np.full(2 * START, 1e-5), None)
    assert s.unit == (0, 0)
    candidates.review_grid(s, np.full(4 * START, 1e5), None)
    assert s.unit == (10, 10)


def test_merged_means_weigh_rows_up_to_the_window():
    candidates = Candidates(1.0, True, 1)
    one, other = candidates.new_state(), candidates.new_state()
    one.scale_rows, other.scale_rows = 5000, 500
    one.scale, other.scale = np.array([1.0]), np.array([4.0])
    one.recent_scale, other.recent_scale = np.array([1.0]), np.array([4.0])
    candidates.merge(one, other)
    np.testing.assert_allclose(one.scale, (1000 * 1 + 500 * 4) / 1500)
    np.testing.assert_allclose(one.recent_scale, 2.5)
    assert one.scale_rows == 5500


@pytest.mark.parametrize("weight", [0.01, 1.0, 100.0])
def test_scale_of_a_weighted_block_is_that_of_its_rows(weight):
    """Orthogonal rows of weight v: u² = 1 / (1 + R) each, whatever v is."""
    block, rows = (orfit.ORFit(orfit.Linear(2), noise=0.01) for _ in range(2))
    block.learn_batch(np.eye(2), [1.0, 1.0], weight=weight)
    rows.learn_each(np.eye(2), [1.0, 1.0], weight=weight)
    assert block.scale == pytest.approx(1 / 1.01, rel=1e-12)
    assert rows.scale == pytest.approx(1 / 1.01, rel=1e-12)
