"""A forgetting λ that chooses itself."""

import copy
import pickle

import numpy as np
import pytest

import orfit
from orfit.learners.gain import FORGETTINGS

P = 12


def moving(rng, step, n=1500, noise=0.3):
    """Rows whose w wanders by so much at each of them."""
    X = rng.standard_normal((n, P))
    W = np.cumsum(step * rng.standard_normal((n, P)), axis=0) + rng.standard_normal(P)
    return X, (X * W).sum(axis=1) + noise * rng.standard_normal(n)


def orfit_limited(**settings):
    return orfit.ORFit(orfit.Linear(P), 5, noise=0.1, **settings)


def orfit_unlimited(**settings):
    return orfit.ORFit(orfit.Linear(P), noise=0.1, **settings)


def frequent(**settings):
    memory = orfit.memory.FrequentDirections(5)
    return orfit.ORFit(orfit.Linear(P), memory, noise=0.1, **settings)


def interpolating(**settings):
    return orfit.ORFit(orfit.Linear(P), 5, **settings)


def two_heads(**settings):
    return orfit.ORFit(orfit.Linear(P, heads=2), 5, noise=0.1, **settings)


def whole(**settings):
    return orfit.RLS(orfit.Linear(P), **settings)


EVERY = [orfit_limited, orfit_unlimited, frequent, interpolating, two_heads, whole]


def labels_for(make, y):
    return np.column_stack([y, -2 * y]) if make is two_heads else y


def parameters_of_each(auto):
    """w of each λ."""
    return [auto.memory.parameters(part) for part in auto._cell.state.parts]


@pytest.mark.parametrize("make", EVERY)
def test_each_is_the_learner_of_that_forgetting(make, rng):
    X, y = moving(rng, 0.05, 150)
    Y = labels_for(make, y)
    auto = make(forgetting="auto")
    auto.learn_each(X, Y)
    for w, fade in zip(parameters_of_each(auto), FORGETTINGS, strict=True):
        alone = make(forgetting=fade)
        alone.learn_each(X, Y)
        np.testing.assert_allclose(w.reshape(alone.w.shape), alone.w, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "step"), [(orfit_limited, 0.1), (orfit_limited, 0.0), (whole, 0.0), (whole, 0.1)]
)
def test_it_is_as_good_as_the_best_of_them(make, step, rng):
    X, y = moving(rng, step, 1200)
    auto = make(forgetting="auto")

    def error(learner):
        return np.sqrt(np.mean(learner.learn_each(X, y).residual[600:] ** 2))

    errors = [error(make(forgetting=fade)) for fade in FORGETTINGS]
    assert error(auto) <= 1.03 * min(errors)
    if step == 0.0:
        assert auto.forgetting == 1.0
    if step == 0.1:
        assert auto.forgetting == 0.95


@pytest.mark.parametrize("settings", [{}, {"noise": "auto"}, {"noise": "auto", "tail": "auto"}])
def test_learn_chooses_as_learn_each_does(settings, rng):
    X, y = moving(rng, 0.03, 150)
    each, single = (
        orfit.ORFit(orfit.Linear(P), 5, forgetting="auto", **settings) for _ in range(2)
    )
    updates = each.learn_each(X, y)
    predictions = [single.learn(x, label).prediction for x, label in zip(X, y, strict=True)]
    assert (single.forgetting, single.noise) == (each.forgetting, each.noise)
    np.testing.assert_array_equal(single.w, each.w)
    np.testing.assert_array_equal(predictions, updates.prediction)


def test_windup_of_one_does_not_change_the_others(rng):
    """A row that is repeated for long winds up the smallest λ alone."""
    X, y = moving(rng, 0.0, 100)
    X, y = np.vstack([X, np.tile(X[-1], (700, 1)), X]), np.concatenate([y, np.full(700, y[-1]), y])
    learner = whole(forgetting="auto")
    learner.learn_each(X, y)
    assert learner._cell.state.parts[-1].wound_up
    assert not learner._cell.state.parts[1].wound_up
    for fade, w in zip(FORGETTINGS, parameters_of_each(learner), strict=True):
        alone = whole(forgetting=fade)
        alone.learn_each(X, y)
        np.testing.assert_allclose(w[:, 0], alone.w, rtol=0, atol=1e-6)


@pytest.mark.parametrize("make", [orfit_limited, orfit_unlimited, two_heads, whole])
def test_saved_copied_or_pickled_it_goes_on_bit_by_bit(make, rng, tmp_path):
    X, y = moving(rng, 0.05, 120)
    Y = labels_for(make, y)
    first = make(forgetting="auto")
    first.learn_each(X[:61], Y[:61])
    first.save(tmp_path / "half")
    others = [orfit.load(tmp_path / "half"), copy.deepcopy(first)]
    others.append(pickle.loads(pickle.dumps(first)))
    first.learn_each(X[61:], Y[61:])
    for other in others:
        other.learn_each(X[61:], Y[61:])
        np.testing.assert_array_equal(other.memory.w, first.memory.w)
        assert other.forgetting == first.forgetting
        np.testing.assert_array_equal(other.scale, first.scale)
        np.testing.assert_array_equal(other.predict(X), first.predict(X))


def test_a_refused_row_changes_none_of_them(rng):
    X, y = moving(rng, 0.05, 64)
    learner, other = (interpolating(forgetting="auto") for _ in range(2))
    X[40] = 1e-200
    y[40] = 1e308
    with pytest.raises(ValueError, match="overflow"):
        learner.learn_each(X, y)
    other.learn_each(X[:40], y[:40])
    assert learner.seen == 40
    np.testing.assert_array_equal(learner.memory.w, other.memory.w)


def test_what_it_tells_is_told_of_the_one_that_is_used(rng):
    X, y = moving(rng, 0.1, 500)
    auto, alone = orfit_limited(forgetting="auto"), orfit_limited(forgetting=0.95)
    for learner in (auto, alone):
        learner.learn_each(X, y)
    assert auto.forgetting == 0.95
    np.testing.assert_allclose(auto.predict(X[:5], std="mean")[0], alone.predict(X[:5]))
    np.testing.assert_allclose(auto.memory.sigma, alone.memory.sigma)
    np.testing.assert_allclose(np.abs(auto.memory.U.T @ alone.memory.U), np.eye(5), atol=1e-9)
    spread = [learner.predict(X[:5], std=True)[1] for learner in (auto, alone)]
    np.testing.assert_allclose(*spread)
    assert auto.memory.numbers == len(FORGETTINGS) * alone.memory.numbers
    assert "auto" in repr(auto)


def test_blocks_are_learned_as_well(rng):
    X, y = moving(rng, 0.05, 300)
    auto = orfit_limited(forgetting="auto")
    for start in range(0, 300, 30):
        auto.learn_batch(X[start : start + 30], y[start : start + 30])
    alone = orfit_limited(forgetting=0.99)
    for start in range(0, 300, 30):
        alone.learn_batch(X[start : start + 30], y[start : start + 30])
    np.testing.assert_allclose(parameters_of_each(auto)[2][:, 0], alone.w, rtol=0, atol=1e-10)


def test_what_cannot_be_compared_is_refused():
    memory = orfit.memory.Principal(3)
    with pytest.raises(ValueError, match='a number or "auto"'):
        orfit.ORFit(orfit.Linear(P), memory, forgetting="automatic")
    first = orfit.ORFit(orfit.Linear(P), memory, forgetting="auto")
    with pytest.raises(ValueError, match="another learner"):
        orfit.ORFit(orfit.Linear(P), memory, forgetting="auto")
    with pytest.raises(ValueError, match="two learners"):
        first.forgetting = 0.9
    with pytest.raises(ValueError, match="two learners"):
        orfit_limited().forgetting = "auto"
