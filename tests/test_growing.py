"""A memory that grows as far as the stream is worth it."""

import numpy as np
import pytest

import orfit
from orfit.features import Raw
from orfit.memory import Growing
from orfit.stream.setup import Fit, Setup, make_learner


def low_rank(rng, n, p, rank, noise=0.3):
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p)) / np.sqrt(rank)
    X += 0.003 * rng.standard_normal((n, p))
    return X, X @ rng.standard_normal(p) / np.sqrt(p) + noise * rng.standard_normal(n)


def spectrum(rng, n, p, noise=0.3):
    X = rng.standard_normal((n, p)) / np.sqrt(np.arange(1, p + 1))
    return X, X @ rng.standard_normal(p) + noise * rng.standard_normal(n)


def test_it_stops_where_the_stream_has_no_more(rng):
    X, y = low_rank(rng, 1000, 200, 25)
    learner = orfit.ORFit(orfit.Linear(200), "auto", noise=0.1)
    learner.learn_each(X, y)
    assert 25 <= learner.memory.rank <= 50


def test_it_grows_where_there_is_more_to_know(rng):
    X, y = spectrum(rng, 2500, 120)
    auto, few = (orfit.ORFit(orfit.Linear(120), m, noise=0.1) for m in ("auto", 10))
    for learner in (auto, few):
        learner.learn_each(X[:1500], y[:1500])
    ridge = np.linalg.solve(X[:1500].T @ X[:1500] + 0.1 * np.eye(120), X[:1500].T @ y[:1500])

    def error(predicted):
        return np.sqrt(np.mean((predicted - y[1500:]) ** 2))

    assert auto.memory.rank > 50
    assert error(auto.predict(X[1500:])) < 1.1 * error(X[1500:] @ ridge)
    assert error(auto.predict(X[1500:])) < error(few.predict(X[1500:]))


@pytest.mark.parametrize("settings", [{}, {"noise": 0.1}, {"noise": 0.1, "tail": False}])
def test_it_never_has_more_than_it_may(settings, rng):
    X, y = spectrum(rng, 400, 60)
    learner = orfit.ORFit(orfit.Linear(60), Growing(most=23), **settings)
    ranks = learner.learn_each(X, y).rank
    assert max(ranks) == 23 == learner.memory.most
    assert max(ranks[:31]) == 10
    assert (np.diff(ranks) >= 0).all()


@pytest.mark.parametrize("settings", [{"noise": 0.1}, {"noise": "auto"}, {}])
def test_learn_grows_as_learn_each_does(settings, rng):
    X, y = spectrum(rng, 400, 60)
    each, single = (orfit.ORFit(orfit.Linear(60), Growing(50), **settings) for _ in range(2))
    updates = each.learn_each(X, y)
    predictions = [single.learn(x, label).prediction for x, label in zip(X, y, strict=True)]
    assert single.memory.rank == each.memory.rank
    np.testing.assert_array_equal(single.w, each.w)
    np.testing.assert_array_equal(predictions, updates.prediction)


def test_saved_in_the_middle_it_goes_on_bit_by_bit(rng, tmp_path):
    X, y = spectrum(rng, 300, 40)
    whole = orfit.ORFit(orfit.Linear(40), "auto", noise="auto")
    whole.learn_each(X[:107], y[:107])
    whole.save(tmp_path / "half")
    half = orfit.load(tmp_path / "half")
    for learner in (whole, half):
        learner.learn_each(X[107:], y[107:])
    np.testing.assert_array_equal(half.memory.w, whole.memory.w)
    assert half.memory.rank == whole.memory.rank


def test_blocks_let_it_grow_too(rng):
    X, y = spectrum(rng, 600, 60)
    learner = orfit.ORFit(orfit.Linear(60), "auto", noise=0.1)
    for start in range(0, 600, 50):
        learner.learn_batch(X[start : start + 50], y[start : start + 50])
    assert learner.memory.rank > 20


def test_all_settings_are_chosen_at_once(rng, tmp_path):
    X, y = spectrum(rng, 300, 40)
    learner = orfit.ORFit(orfit.Linear(40), "auto", noise="auto", tail="auto", forgetting="auto")
    learner.learn_each(X[:140], y[:140])
    learner.save(tmp_path / "half")
    loaded = orfit.load(tmp_path / "half")
    errors = [one.learn_each(X[140:], y[140:]).residual for one in (learner, loaded)]
    np.testing.assert_array_equal(*errors)
    assert np.std(errors[0][-60:]) < 0.8 * np.std(y[-60:])
    assert learner.memory.rank > 10


def test_another_word_is_refused():
    with pytest.raises(ValueError, match='"auto"'):
        orfit.ORFit(orfit.Linear(4), "automatic")
    with pytest.raises(ValueError, match="most"):
        Growing(0)


@pytest.mark.parametrize("rank", [25, pytest.param(70, marks=pytest.mark.slow)])
def test_a_stream_gets_the_directions_that_make_it_as_sure_as_all_would(rank, rng):
    X, y = low_rank(rng, 1500, 400, rank)
    setup = Setup(budget=1_100_000, noise=0.1, probes=0)  # the whole P takes 1.28 MB
    learner = make_learner(setup, Fit(Raw(), 0.1, 1.0), 400, None)
    exact = orfit.RLS(orfit.Linear(400, bias=True), prior=0.1)
    for each in (learner, exact):
        each.learn_each(X, y)
    assert rank <= learner.memory.rank < min(2 * rank, learner.memory.most)
    assert learner.health().surprise < 1.1 * exact.health().surprise


@pytest.mark.parametrize("budget", [200_000, pytest.param(600_000, marks=pytest.mark.slow)])
def test_a_stream_keeps_to_its_budget(budget, rng):
    X, y = spectrum(rng, 1500, 400)
    setup = Setup(budget=budget, noise=0.1, probes=0)
    learner = make_learner(setup, Fit(Raw(), 0.1, 1.0), 400, None)
    learner.learn_each(X, y)
    memory = learner.memory
    assert memory.rank == memory.most  # it would take more
    assert 0.8 * budget < 8 * (memory.numbers + 2 * learner.model.size) <= budget
