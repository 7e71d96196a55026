"""What the paper assumes away and a real stream has."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit

seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from([np.float32, np.float64])


def off_orthonormal(U):
    return np.abs(U.T @ U - np.eye(U.shape[1])).max(initial=0.0)


@pytest.mark.parametrize("memory", [None, 40])
def test_a_duplicate_with_another_label_disturbs_nobody(memory, rng):
    """One duplicate among 40 points, its label 5 higher: every other prediction stays put."""
    X, y = rng.standard_normal((40, 784)), rng.standard_normal(40)
    learner = orfit.ORFit(orfit.Linear(784), memory)
    learner.learn_each(X, y)
    before = learner.predict(X)
    update = learner.learn(X[17], y[17] + 5)
    assert np.abs(learner.predict(X) - before).max() <= 1e-9
    assert off_orthonormal(learner.memory.U) <= 1e-12
    assert update.conflict == pytest.approx(5)
    assert update.novelty == 0
    assert update.step == 0
    assert learner.memory.rank == 40


@given(seeds, dtypes, st.integers(1, 30))
def test_a_repeated_datapoint_changes_nothing_but_its_weight(seed, dtype, n):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, 40)).astype(dtype), rng.standard_normal(n)
    learner = orfit.ORFit(orfit.Linear(40), w0=np.zeros(40, dtype))
    learner.learn_each(X, y)
    w, sigma, rank = learner.w, learner.memory.sigma, learner.memory.rank
    for i in range(n):
        learner.learn(X[i], y[i])
    assert (learner.w == w).all()
    assert learner.memory.rank == rank
    assert np.allclose(learner.memory.sigma, np.sqrt(2) * sigma, rtol=1e-4)


def test_contradicting_labels_are_averaged_with_noise(rng):
    X = rng.standard_normal((1, 8))
    X /= np.linalg.norm(X)
    learner = orfit.ORFit(orfit.Linear(8), noise=1e-3)
    for label in (1.0, 2.0, 3.0, 6.0):
        learner.learn(X[0], label)
    assert learner.predict(X[0]) == pytest.approx(12 / (4 + 1e-3))
    assert learner.memory.rank == 1


def test_contradictions_inside_one_batch_are_settled_by_least_squares(rng):
    x, z = rng.standard_normal((2, 8))
    learner = orfit.ORFit(orfit.Linear(8))
    update = learner.learn_batch([x, z, x, 2 * x], [1.0, 5.0, 3.0, 4.0])
    expected = np.linalg.lstsq(np.array([x, z, x, 2 * x]), [1.0, 5.0, 3.0, 4.0], rcond=None)[0]
    assert np.abs(learner.w - expected).max() <= 1e-13
    left = np.array([1.0, 5.0, 3.0, 4.0]) - learner.predict([x, z, x, 2 * x])
    assert np.abs(update.conflict - left).max() <= 1e-13
    assert update.rank == 2


@given(seeds)
def test_a_batch_of_more_rows_than_parameters_is_least_squares(seed):
    rng = np.random.default_rng(seed)
    X, y, w0 = rng.standard_normal((15, 4)), rng.standard_normal(15), rng.standard_normal(4)
    learner = orfit.ORFit(orfit.Linear(4), w0=w0)
    with pytest.warns(orfit.SaturationWarning):
        update = learner.learn_batch(X, y)
    assert np.abs(learner.w - np.linalg.lstsq(X, y, rcond=None)[0]).max() <= 1e-11
    assert update.rank == 4


@given(seeds, dtypes, st.sampled_from([0.0, 0.5]))
def test_constant_and_collinear_columns_in_one_batch(seed, dtype, noise):
    rng = np.random.default_rng(seed)
    n = 12
    X = rng.standard_normal((n, 9)).astype(dtype)
    X[:, 3], X[:, 4], X[5:9], X[2], X[10] = 1, 0, X[0] * 3, 0, X[1]
    y = (X.astype(float) @ rng.standard_normal(9)).astype(dtype)
    block = orfit.ORFit(orfit.Linear(9), noise=noise, w0=np.zeros(9, dtype))
    one = orfit.ORFit(orfit.Linear(9), noise=noise, w0=np.zeros(9, dtype))
    block.learn_batch(X, y)
    one.learn_each(X, y)
    assert block.memory.rank == np.linalg.matrix_rank(X)
    # float32 holds 7 digits, of which the conditioning of 6 random rows in 8 dimensions takes some
    scale = np.linalg.norm(one.w) * np.linalg.cond(X[[0, 1, 3, 4, 9, 11]])
    assert np.abs(one.w - block.w).max() <= 1e3 * np.finfo(dtype).eps * scale
    assert off_orthonormal(block.memory.U) <= 100 * np.finfo(dtype).eps


def test_zero_rows(rng):
    for learner in (
        orfit.ORFit(orfit.Linear(5), 2),
        orfit.ORFit(orfit.Linear(5), noise=1.0),
        orfit.OneStepSGD(orfit.Linear(5)),
        orfit.RLS(orfit.Linear(5)),
        orfit.RLS(orfit.Linear(5), forgetting=0),
    ):
        learner.learn(rng.standard_normal(5), 1.0)
        w = learner.w
        update = learner.learn(np.zeros(5), 3.0)
        assert (learner.w == w).all()
        assert (update.conflict, update.novelty, update.step) == (3.0, 0.0, 0.0)


@pytest.mark.parametrize("memory", [None, 6, 100])
def test_saturation_is_said_once(memory, rng):
    X, y = rng.standard_normal((20, 6)), rng.standard_normal(20)
    learner = orfit.ORFit(orfit.Linear(6), memory)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        updates = learner.learn_each(X, y)
    assert [w.category for w in said] == [orfit.SaturationWarning]
    assert "noise > 0" in str(said[0].message)
    assert said[0].filename == __file__, "it points at the user's line"
    assert (updates.rank == np.minimum(np.arange(1, 21), 6)).all()
    assert np.abs(learner.w - np.linalg.solve(X[:6], y[:6])).max() <= 1e-10
    left = y[6:] - X[6:] @ learner.w
    assert np.abs(updates.conflict[6:] - left).max() <= 1e-9
    assert (updates.step[6:] == 0).all()


@pytest.mark.filterwarnings("ignore::orfit.InterpolationWarning")  # labels contradict each other
@given(seeds, st.integers(1, 3), st.sampled_from([0.0, 1e-12, 1e-3, 1.0]))
def test_nearly_dependent_rows(seed, digits, noise):
    """Rows that differ by 1e-3 … 1e-9 of their length: finite, and orthonormal to rounding."""
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((5, 30))
    X = np.vstack([base, base + 10.0 ** (-3 * digits) * rng.standard_normal((5, 30))])
    for learn in ("learn_each", "learn_batch"):
        learner = orfit.ORFit(orfit.Linear(30), noise=noise)
        getattr(learner, learn)(X, rng.standard_normal(10))
        assert np.isfinite(learner.w).all()
        assert off_orthonormal(learner.memory.U) <= 1e-12


@pytest.mark.filterwarnings("ignore::orfit.ScaleWarning")  # columns may be small by chance
@given(seeds, st.integers(1, 6))
def test_a_long_stream_of_low_rank(seed, rank):
    """Rounding never becomes a direction, however many rows repeat the same few."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((150, rank)) @ rng.standard_normal((rank, 20))
    y = X @ rng.standard_normal(20)
    learner = orfit.ORFit(orfit.Linear(20), rank)
    updates = learner.learn_each(X, y)
    assert learner.memory.rank == rank
    assert (updates.novelty[rank:] == 0).all()
    assert np.abs(updates.residual[rank:]).max() <= 1e-9 * np.abs(y).max()


@given(seeds, st.integers(2, 12))
def test_blocks_and_rows_of_low_rank_in_turn(seed, rank):
    """However they arrive, also where a block is larger than the memory has room for."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, rank)) @ rng.standard_normal((rank, 60))
    y = X @ rng.standard_normal(60)
    learner = orfit.ORFit(orfit.Linear(60), rank)
    learner.learn_each(X[: rank // 2], y[: rank // 2])
    learner.learn_batch(X[rank // 2 : 80], y[rank // 2 : 80])
    learner.learn(X[80], y[80])
    learner.learn_batch(X[81:150], y[81:150])
    updates = learner.learn_each(X[150:], y[150:])
    assert learner.memory.rank == rank
    assert (updates.novelty == 0).all()
    assert np.abs(learner.predict(X) - y).max() <= 1e-8 * np.abs(y).max()


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (np.float32, 1e-28),
        (np.float32, 1e28),
        (np.float64, 1e-250),
        (np.float64, 1e-30),
        (np.float64, 1e30),
        (np.float64, 1e250),
    ],
)
def test_extreme_scales(dtype, scale, rng):
    """Squares leave the range of the dtype long before the numbers do."""
    X = (rng.standard_normal((6, 12)) * scale).astype(dtype)
    y = rng.standard_normal(6)
    for learner in (
        orfit.ORFit(orfit.Linear(12), w0=np.zeros(12, dtype)),
        orfit.ORFit(orfit.Linear(12), 3, w0=np.zeros(12, dtype)),
    ):
        learner.learn_each(X, y)
        assert learner.predict(X[-1]) == pytest.approx(y[-1], rel=1e-4)
        assert off_orthonormal(learner.memory.U) <= 100 * np.finfo(dtype).eps


def test_float32_stays_orthonormal_for_ten_thousand_steps(rng):
    learner = orfit.ORFit(orfit.Linear(30), 4, w0=np.zeros(30, np.float32))
    steps = 10_000
    for _ in range(10):
        X = rng.standard_normal((steps // 10, 30)).astype(np.float32)
        learner.learn_each(X, X[:, 0])
        assert off_orthonormal(learner.memory.U) <= 1e-4
    assert learner.seen == steps
    assert learner.w.dtype == np.float32


def test_a_step_that_leaves_the_finite_numbers_is_refused():
    learner = orfit.ORFit(orfit.Linear(2))
    with pytest.raises(ValueError, match="overflows"):
        learner.learn([1e-300, 0], 1e300)
    assert (learner.w == 0).all()
    assert learner.seen == 0


def test_a_block_of_zeros_with_noise_and_nothing_remembered():
    for memory in (3, None):
        update = orfit.ORFit(orfit.Linear(5), memory, noise=0.1).learn_batch(
            np.zeros((2, 5)), [1, 2]
        )
        assert update.conflict == pytest.approx([1, 2])


def scaled_columns(rng, ratio, n=150):
    X = rng.standard_normal((n, 3))
    X[:, 1] *= ratio
    return X, rng.standard_normal(n)


@pytest.mark.parametrize("how", ["learn", "learn_each", "learn_batch"])
@pytest.mark.parametrize("make", [orfit.RLS, lambda model: orfit.ORFit(model, 2, noise=0.1)])
def test_raw_units_are_named_once(how, make, rng):
    X, y = scaled_columns(rng, 1e6)
    learner = make(orfit.Linear(3))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", orfit.ScaleWarning)
        if how == "learn":
            for x, label in zip(X, y, strict=True):
                learner.learn(x, label)
        else:
            getattr(learner, how)(X, y)
        learner.learn_each(X, y)
    (only,) = told
    assert "column 1 of x reaches" in str(only.message)
    assert only.filename == __file__


def test_units_that_do_no_harm_are_not_spoken_of(rng):
    X, y = scaled_columns(rng, 1e2)
    X[:, 2] = 0.0  # never seen: nothing to compare
    orfit.RLS(orfit.Linear(3)).learn_each(X, y)
    few, labels = scaled_columns(rng, 1e6, 50)  # too few rows to judge
    orfit.RLS(orfit.Linear(3)).learn_each(few, labels)
