"""A system that moves, with a P of m directions: ORFit in time."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit

seeds = st.integers(0, 2**32 - 1)
P = 8


def whole(**settings):
    return orfit.EKF(orfit.Linear(P), noise=0.3, **settings)


def variance(learner, G):
    """gᵀPg for each column of G."""
    return learner._expected_variance(learner._cell.state, np.zeros(G.shape[1]), G, noisy=False)


def covariance(learner):
    """P, from variances along the axes and along their sums."""
    axes = np.eye(P)
    K = variance(learner, axes)
    sums = variance(learner, (axes[:, :, None] + axes[:, None]).reshape(P, -1))
    return (sums.reshape(P, P) - K[:, None] - K[None]) / 2


def close(learner, dense, tolerance=1e-8):
    assert np.abs(learner.w - dense.w).max() <= tolerance * (1 + np.abs(dense.w).max())
    difference = np.abs(covariance(learner) - dense.memory.P).max()
    assert difference <= tolerance * (1 + np.abs(dense.memory.P).max())


@given(seeds, st.sampled_from(["learn", "blocks", "gaps"]))
def test_control_and_missing_labels_are_exact_while_nothing_is_dropped(seed, how):
    rng = np.random.default_rng(seed)
    gamma, B = rng.uniform(0.5, 1.1), rng.standard_normal((P, 2))
    X, y, u = rng.standard_normal((30, P)), rng.standard_normal(30), rng.standard_normal((30, 2))
    settings = {"dynamics": gamma, "control": B, "drift": 0.05, "w0": rng.standard_normal(P)}
    few = orfit.ORFit(orfit.Linear(P), P, noise=0.3, **settings)
    dense = whole(**settings)
    for i in range(0, 30, 3):
        for learner in (few, dense):
            if i % 2:
                learner.advance(u[i])
            if how == "blocks":
                learner.learn_batch(X[i : i + 3], y[i : i + 3])
            else:
                learner.learn(X[i], None if how == "gaps" and i % 4 == 0 else y[i])
    close(few, dense)


@given(seeds, st.floats(0.3, 1.2), st.sampled_from([0.0, 0.2]))
def test_a_number_is_exact_and_leaves_directions_alone(seed, gamma, drift):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((12, P)), rng.standard_normal(12)
    settings = {"dynamics": gamma, "drift": drift}
    few, dense = orfit.ORFit(orfit.Linear(P), noise=0.3, **settings), whole(**settings)
    for learner in (few, dense):
        learner.learn_each(X[:5], y[:5])
    U = few.memory.U
    few.advance()
    dense.advance()
    np.testing.assert_allclose(few.memory.U @ (few.memory.U.T @ U), U, atol=1e-12)
    close(few, dense)


@pytest.mark.parametrize("m", [2, 3, 5])
def test_a_step_in_time_is_exact_where_directions_were_dropped(m, rng):
    """P ← γ² P + q I, along U and outside it."""
    learner = orfit.ORFit(orfit.Linear(P), m, noise=0.3)
    learner.learn_each(rng.standard_normal((20, P)), rng.standard_normal(20))
    before = covariance(learner)
    learner.advance(dynamics=0.8, drift=0.1)
    np.testing.assert_allclose(covariance(learner), 0.64 * before + 0.1 * np.eye(P), atol=1e-13)


@pytest.mark.parametrize("memory", [3, "auto"])
def test_saved_copied_and_refused_in_time(memory, rng, tmp_path):
    X, y = rng.standard_normal((20, P)), rng.standard_normal(20)
    first = orfit.ORFit(orfit.Linear(P), memory, noise=0.3, dynamics=0.9, drift=0.1)
    first.learn_each(X[:10], y[:10])
    first.advance()
    first.save(tmp_path / "half")
    others = [orfit.load(tmp_path / "half"), copy.deepcopy(first)]
    others[1].learn_each(X[10:12], y[10:12])
    with pytest.raises(ValueError, match="shape"):
        others[1].learn(X[12], [1.0, 2.0])  # refused after time has made its step
    others[1].learn_each(X[12:], y[12:])
    first.learn_each(X[10:], y[10:])
    others[0].learn_each(X[10:], y[10:])
    for learner in others:
        np.testing.assert_array_equal(learner.w, first.w)
        np.testing.assert_array_equal(learner.memory.sigma, first.memory.sigma)


@pytest.mark.parametrize(
    ("memory", "settings", "message"),
    [
        (3, {"noise": 0.0}, "number > 0"),
        (3, {"noise": "auto"}, "number > 0"),
        (3, {"noise": 0.1, "forgetting": "auto"}, "number > 0"),
        (3, {"noise": 0.1, "forgetting": 0.9}, "forgetting must be 1"),
        (
            3,
            {"noise": 0.1, "dynamics": lambda w, u: (w, np.eye(P))},
            "must be a number γ.*orfit.EKF",
        ),
        (3, {"noise": 0.1, "dynamics": np.eye(P)}, "must be a number γ.*orfit.EKF"),
        (orfit.memory.Sketch(3), {"noise": 0.1}, "does not support dynamics"),
    ],
)
def test_systems_that_cannot_move(memory, settings, message):
    for _ in range(2):  # what was refused leaves the memory free
        with pytest.raises(ValueError, match=message):
            orfit.ORFit(orfit.Linear(P), memory, **{"dynamics": 0.9} | settings)


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_what_vanishes_is_known_to_be_nothing(gamma):
    learner = orfit.ORFit(orfit.Linear(P), 3, noise=0.1)
    learner.learn(np.ones(P), 1.0)
    for _ in range(700):
        learner.advance(dynamics=gamma)
    assert covariance(learner).max() < 1e-100
    learner.learn(np.ones(P), 1.0)
    np.testing.assert_allclose(learner.w, 0.0, atol=1e-12)


@pytest.mark.slow
def test_what_grows_unseen_takes_nothing_from_what_is_measured():
    few = orfit.ORFit(orfit.Linear(2), 2, noise=1.0, dynamics=1.01)
    dense = orfit.EKF(orfit.Linear(2), noise=1.0, dynamics=1.01)
    for _ in range(5000):
        few.learn([1.0, 0.0], 0.0)
        dense.learn([1.0, 0.0], 0.0)
    measured = np.array([[1.0], [0.0]])
    assert variance(few, measured) == pytest.approx(variance(dense, measured))


@pytest.mark.parametrize("settings", [{}, {"noise": "auto"}, {"noise": 0.1, "forgetting": "auto"}])
def test_time_that_moves_nothing_changes_nothing(settings, rng):
    learner = orfit.ORFit(orfit.Linear(P), 3, **settings)
    learner.learn_each(rng.standard_normal((10, P)), rng.standard_normal(10))
    w, sigma = learner.w, learner.memory.sigma
    learner.advance()
    np.testing.assert_array_equal(learner.w, w)
    np.testing.assert_array_equal(learner.memory.sigma, sigma)
    for system in ({"dynamics": 0.9}, {"drift": 0.1}):
        with pytest.raises(ValueError, match="number > 0"):
            learner.advance(**system)
    learner.learn(np.ones(P), 1.0)


def test_a_missing_label_leaves_the_order_of_directions(rng):
    axes = np.eye(5)
    learner = orfit.ORFit(orfit.Linear(5), orfit.memory.Latest(3), noise=0.1, drift=1e-9)
    for i in range(3):
        learner.learn((i + 1) * axes[i], 1.0)
    learner.learn(axes[0], None)
    learner.learn(axes[3], 1.0)
    assert set(np.abs(learner.memory.U).T.argmax(axis=1)) == {1, 2, 3}


def test_settings_that_time_does_not_go_with(rng):
    learner = orfit.ORFit(orfit.Linear(P), 3, noise=0.1, dynamics=0.9)
    learner.learn(np.ones(P), 1.0)
    with pytest.raises(ValueError, match="units of the noise"):
        learner.noise = 0.2
    with pytest.raises(ValueError, match="forgetting must be 1"):
        learner.forgetting = 0.9
    fading = orfit.ORFit(orfit.Linear(P), 3, noise=0.1, drift=0.1, forgetting=0.9)
    with pytest.raises(ValueError, match="rows alone"):
        fading.advance()


def test_without_time_nothing_may_be_missing():
    with pytest.raises(ValueError, match="NaN"):
        orfit.ORFit(orfit.Linear(2), noise=0.1).learn([1.0, 2.0], np.nan)


def test_without_noise_it_does_not_matter_that_w_has_moved(rng):
    """P is a projector then."""
    learner = orfit.ORFit(orfit.Linear(8), 3, noise=0.1)
    learner.learn_each(rng.standard_normal((5, 8)), rng.standard_normal(5))
    learner.advance(dynamics=0.5)
    learner.learn(rng.standard_normal(8), 1.0)
    learner.noise = 0.0
    for _ in range(5):
        x = rng.standard_normal(8)
        learner.learn(x, 1.0)
        assert learner.predict(x) == pytest.approx(1.0)
    U = learner.memory.U
    assert np.abs(U.T @ U - np.eye(3)).max() < 1e-12
