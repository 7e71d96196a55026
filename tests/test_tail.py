"""The tail: what a bounded memory knows of what it dropped."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit
from oracles import ridge, ridge_with_tail

STREAMS = {
    "white": lambda n, p, rng: rng.standard_normal((n, p)),
    "1/i": lambda n, p, rng: rng.standard_normal((n, p)) / np.arange(1, p + 1),
    "rank 5": lambda n, p, rng: (
        rng.standard_normal((n, 5)) @ rng.standard_normal((5, p))
        + 0.1 * rng.standard_normal((n, p))
    ),
}


def stream(kind, n, p, rng):
    X = STREAMS[kind](n, p, rng)
    return X, X @ rng.standard_normal(p) + 0.3 * rng.standard_normal(n)


def tail_of(learner):
    s = learner._cell.state
    return s.tail_level, s.tail_dropped, s.tail_rows, s.tail_dropping, s.prior_variance


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(sorted(STREAMS)),
    m=st.integers(1, 6),
    noise=st.sampled_from([1e-3, 0.1, 10.0]),
    forgetting=st.sampled_from([1.0, 0.97]),
)
def test_rows_with_a_tail_are_what_its_equations_say(seed, kind, m, noise, forgetting):
    rng = np.random.default_rng(seed)
    X, y = stream(kind, 40, 12, rng)
    w0 = rng.standard_normal(12)
    settings = {"noise": noise, "forgetting": forgetting}
    learner = orfit.ORFit(orfit.Linear(12), m, w0=w0, **settings)
    learner.learn_each(X, y)
    rows = [(X[i : i + 1], y[i : i + 1]) for i in range(len(X))]
    expected, tau = ridge_with_tail(rows, w0, m, noise, forgetting)
    np.testing.assert_allclose(learner._cell.state.tail_level[0], tau, rtol=1e-7)
    np.testing.assert_allclose(learner.w, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


@given(seed=st.integers(0, 2**32 - 1), block=st.integers(2, 20), m=st.integers(1, 6))
def test_blocks_with_a_tail_are_what_its_equations_say(seed, block, m):
    rng = np.random.default_rng(seed)
    X, y = stream("1/i", 60, 15, rng)
    blocks = [(X[i : i + block], y[i : i + block]) for i in range(0, 60, block)]
    learner = orfit.ORFit(orfit.Linear(15), m, noise=0.1)
    for A, b in blocks:
        learner.learn_batch(A, b)
    expected, tau = ridge_with_tail(blocks, np.zeros(15), m, 0.1)
    np.testing.assert_allclose(learner._cell.state.tail_level[0], tau, rtol=1e-7)
    np.testing.assert_allclose(learner.w, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


def test_while_nothing_is_dropped_it_is_ridge(rng):
    X, y = stream("rank 5", 20, 30, rng)
    learner = orfit.ORFit(orfit.Linear(30), 20, noise=0.1)
    learner.learn_each(X, y)
    assert learner._cell.state.tail_level[0] == 0
    np.testing.assert_allclose(learner.w, ridge(X, y, np.zeros(30), 0.1), rtol=0, atol=1e-12)


def test_without_noise_the_tail_changes_nothing(rng):
    X, y = stream("white", 100, 20, rng)
    learners = [orfit.ORFit(orfit.Linear(20), 5, tail=tail) for tail in (True, False)]
    for learner in learners:
        learner.learn_each(X, y)
    np.testing.assert_array_equal(learners[0].w, learners[1].w)
    np.testing.assert_array_equal(learners[0].memory.U, learners[1].memory.U)


@pytest.mark.parametrize(
    ("m", "rows_per_parameter", "bar"), [(1, 80, 1.1), (8, 80, 1.1), (15, 20, 1.25)]
)
def test_on_white_rows_any_memory_comes_near_rls(m, rows_per_parameter, bar, rng):
    p, ratios = 30, []
    for _ in range(3):  # the ratio of one stream has a standard deviation of about 0.07
        X = rng.standard_normal((rows_per_parameter * p, p))
        truth = rng.standard_normal(p)
        y = X @ truth + rng.standard_normal(len(X))
        bounded = orfit.ORFit(orfit.Linear(p), m, noise=1.0)
        bounded.learn_each(X, y)
        exact = ridge(X, y, np.zeros(p), 1.0)  # which is what RLS ends with
        ratios.append(np.linalg.norm(bounded.w - truth) / np.linalg.norm(exact - truth))
    assert np.mean(ratios) <= bar


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_on_white_rows_one_direction_is_as_good_as_one_variance_can_be(noise, rng):
    """The best filter with P = v I: v ← v − v² |x|² / p / (v |x|² + R), the mean of P's trace."""
    p, ratios = 40, []
    for _ in range(5):  # of one stream the two differ by some hundredths, to either side
        X, w = rng.standard_normal((20 * p, p)), rng.standard_normal(p)
        y = X @ w + np.sqrt(noise) * rng.standard_normal(20 * p)
        found, v = np.zeros(p), 1.0
        for x, label in zip(X, y, strict=True):
            square = x @ x
            found += v * x * (label - x @ found) / (v * square + noise)
            v -= v * v * square / p / (v * square + noise)
        learner = orfit.ORFit(orfit.Linear(p), 1, noise=noise)
        learner.learn_each(X, y)
        ratios.append(np.linalg.norm(learner.w - w) / np.linalg.norm(found - w))
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)


def test_a_block_as_large_as_what_is_dropped_is_no_worse_than_rows(rng):
    X = rng.standard_normal((1200, 40)) @ rng.standard_normal((40, 150)) / np.sqrt(40)
    w = np.ones(150) / np.sqrt(150)
    y = X @ w + 0.05 * rng.standard_normal(1200)
    rows, blocks = (orfit.ORFit(orfit.Linear(150), 25, noise=0.05**2) for _ in range(2))
    rows.learn_each(X, y)
    for i in range(0, 1200, 15):
        blocks.learn_batch(X[i : i + 15], y[i : i + 15])
    by_rows, by_blocks = (np.linalg.norm(X @ (learner.w - w)) for learner in (rows, blocks))
    assert by_blocks <= 1.2 * by_rows


def test_saved_refused_and_resumed_the_tail_goes_on(rng, tmp_path):
    X, y = stream("1/i", 120, 20, rng)
    settings = {"noise": 0.1, "forgetting": 0.99}
    whole, halves = (orfit.ORFit(orfit.Linear(20), 4, **settings) for _ in range(2))
    whole.learn_each(X[:60], y[:60])
    whole.learn_each(X[60:], y[60:])
    halves.learn_each(X[:60], y[:60])
    before = tail_of(halves)
    with pytest.raises(ValueError, match="not finite|finite numbers"):
        halves.learn(1.5e308 * np.sign(halves.w), 1.0)
    np.testing.assert_equal(tail_of(halves), before)
    halves.save(tmp_path / "halves")
    halves = orfit.load(tmp_path / "halves")
    halves.learn_each(X[60:], y[60:])
    np.testing.assert_array_equal(whole.w, halves.w)
    np.testing.assert_equal(tail_of(whole), tail_of(halves))


def test_rows_whose_energies_are_no_numbers(rng):
    X = 1e160 * rng.standard_normal((30, 6))
    learner = orfit.ORFit(orfit.Linear(6), 2, noise=1.0)
    learner.learn_each(X, X @ np.full(6, 1e-160))
    assert np.isfinite(learner.w).all()
    assert np.isfinite(learner.memory.sigma).all()


def test_a_memory_without_a_tail_has_none(rng):
    X, y = stream("1/i", 30, 5, rng)
    kinds = [orfit.memory.Latest, orfit.memory.Random, orfit.memory.FrequentDirections]
    for make in kinds:
        one, other = (
            orfit.ORFit(orfit.Linear(5), make(2), noise=1.0, tail=tail) for tail in (True, False)
        )
        one.learn_each(X, y)
        other.learn_each(X, y)
        np.testing.assert_array_equal(one.w, other.w)
        np.testing.assert_array_equal(one.predict(X, std=True)[1], other.predict(X, std=True)[1])
    with pytest.raises(ValueError, match="tail must be True, False or"):
        orfit.ORFit(orfit.Linear(5), 2, noise=1.0, tail="yes")
