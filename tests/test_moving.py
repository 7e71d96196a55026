"""A system that moves, with a P of m directions: ORFit in time."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import orfit

seeds = st.integers(0, 2**32 - 1)
P = 8


def orthogonal(rng, p=P):
    return np.linalg.qr(rng.standard_normal((p, p)))[0]


def whole(**settings):
    return orfit.EKF(orfit.Linear(P), noise=0.3, **settings)


def covariance(learner):
    """P of a memory of directions, from what it tells of single ones."""
    axes = np.eye(P)
    K = learner.memory.variance(axes, learner.noise)
    sums = learner.memory.variance((axes[:, :, None] + axes[:, None]).reshape(P, -1), learner.noise)
    return (sums.reshape(P, P) - K[:, None] - K[None]) / 2


def close(learner, dense, tolerance=1e-8):
    assert np.abs(learner.w - dense.w).max() <= tolerance * (1 + np.abs(dense.w).max())
    difference = np.abs(covariance(learner) - dense.memory.P).max()
    assert difference <= tolerance * (1 + np.abs(dense.memory.P).max())


@pytest.mark.slow
@given(seeds, st.sampled_from(["learn", "blocks", "gaps"]))
def test_an_orthogonal_motion_is_exact_while_nothing_is_dropped(seed, how):
    rng = np.random.default_rng(seed)
    A, B = rng.uniform(0.5, 1.1) * orthogonal(rng), rng.standard_normal((P, 2))
    X, y, u = rng.standard_normal((30, P)), rng.standard_normal(30), rng.standard_normal((30, 2))
    settings = {"dynamics": A, "control": B, "drift": 0.05, "w0": rng.standard_normal(P)}
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


@pytest.mark.slow
@given(seeds, st.booleans())
def test_any_motion_is_exact_with_all_directions(seed, as_sparse):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((P, P)) / np.sqrt(P)
    X, y = rng.standard_normal((40, P)), rng.standard_normal(40)
    few, dense = orfit.ORFit(orfit.Linear(P), P, noise=0.3), whole()
    for learner in (few, dense):
        learner.learn_batch(X[:20], y[:20])  # now all p directions are there
        for x, label in zip(X[20:], y[20:], strict=True):
            learner.advance(dynamics=sparse.csr_array(A) if as_sparse else A, drift=0.1)
            learner.learn(x, label)
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


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 3, 5])
def test_what_is_exact_of_a_step_in_time(m, rng):
    """Along A U, P is A P Aᵀ; outside it has the same trace; P stays positive."""
    A = rng.standard_normal((P, P)) / np.sqrt(P)
    learner = orfit.ORFit(orfit.Linear(P), m, noise=0.3)
    learner.learn_each(rng.standard_normal((20, P)), rng.standard_normal(20))
    before = covariance(learner)
    learner.advance(dynamics=A, drift=0.1)
    after, wanted = covariance(learner), A @ before @ A.T + 0.1 * np.eye(P)
    Q = learner.memory.U
    np.testing.assert_allclose(Q.T @ after @ Q, Q.T @ wanted @ Q, rtol=1e-9, atol=1e-12)
    assert np.trace(after) == pytest.approx(np.trace(wanted))
    assert np.linalg.eigvalsh(after).min() > 0


@pytest.mark.slow
def test_more_directions_come_nearer_to_the_whole_filter():
    """Heat on a ring, with random sources, measured at eight places at a time."""
    p, rng = 60, np.random.default_rng(3)
    ring = sparse.csr_array(
        0.5 * np.eye(p) + 0.25 * np.roll(np.eye(p), 1, 0) + 0.25 * np.roll(np.eye(p), -1, 0)
    )
    settings = {"noise": 0.1, "dynamics": ring, "drift": 0.02}
    model = orfit.Linear(p)
    dense = orfit.EKF(model, **settings)
    few = [orfit.ORFit(model, m, **settings) for m in (5, 15, 30, 60)]
    w, errors = rng.standard_normal(p), np.zeros(4)
    for t in range(150):
        w = ring @ w + np.sqrt(0.02) * rng.standard_normal(p)
        X = np.eye(p)[rng.choice(p, 8, replace=False)]
        y = X @ w + np.sqrt(0.1) * rng.standard_normal(8)
        for learner in (dense, *few):
            learner.learn_batch(X, y)
        if t >= 50:
            errors += [np.mean((learner.w - dense.w) ** 2) for learner in few]
    assert (np.diff(errors) < 0).all()
    assert errors[-1] < 1e-3 * errors[0]


@pytest.mark.parametrize("memory", [3, "auto"])
def test_saved_copied_and_refused_in_time(memory, rng, tmp_path):
    A = 0.9 * orthogonal(rng)
    X, y = rng.standard_normal((20, P)), rng.standard_normal(20)
    first = orfit.ORFit(orfit.Linear(P), memory, noise=0.3, dynamics=A, drift=0.1)
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


@pytest.mark.slow
def test_a_sparse_matrix_is_passed_to_load(rng, tmp_path):
    A = sparse.diags(rng.uniform(0.5, 1, P))
    learner = orfit.ORFit(orfit.Linear(P), 3, noise=0.3, dynamics=A)
    learner.learn(rng.standard_normal(P), 1.0)
    learner.save(tmp_path / "file")
    with pytest.raises(orfit.CheckpointError, match="dynamics"):
        orfit.load(tmp_path / "file")
    again = orfit.load(tmp_path / "file", dynamics=A)
    for each in (learner, again):
        each.learn(np.ones(P), 2.0)
    np.testing.assert_array_equal(again.w, learner.w)


@pytest.mark.parametrize(
    ("memory", "settings", "message"),
    [
        (3, {"noise": 0.0}, "number > 0"),
        (3, {"noise": "auto"}, "number > 0"),
        (3, {"noise": 0.1, "forgetting": "auto"}, "stands still|number > 0"),
        (3, {"noise": 0.1, "forgetting": 0.9}, "forgetting must be 1"),
        (3, {"noise": 0.1, "tail": False}, "tail must be True"),
        (orfit.memory.Unlimited(), {"noise": 0.1}, "stands still"),
        (orfit.memory.Latest(3), {"noise": 0.1}, "stands still"),
        (orfit.memory.FrequentDirections(3), {"noise": 0.1}, "stands still"),
        (orfit.memory.Sketch(3), {"noise": 0.1}, "stands still"),
    ],
)
def test_systems_that_cannot_move(memory, settings, message):
    for _ in range(2):  # what was refused leaves the memory free
        with pytest.raises(ValueError, match=message):
            orfit.ORFit(orfit.Linear(P), memory, dynamics=0.9 * np.eye(P), **settings)


@pytest.mark.slow
def test_a_state_that_is_only_seen_through_the_motion(rng):
    """Places are measured, and speeds found."""
    A = np.array([[1.0, 1.0], [0.0, 1.0]])
    made = [
        orfit.EKF(orfit.Linear(2), noise=0.01, dynamics=A),
        orfit.ORFit(orfit.Linear(2), 2, noise=0.01, dynamics=A),
    ]
    for t in range(1, 51):
        y = 0.5 * t + 0.1 * rng.standard_normal()
        for learner in made:
            learner.learn([1.0, 0.0], y)
    # Not the same: the very first step, before any row, makes of P = I not A Aᵀ but its mean.
    np.testing.assert_allclose(made[1].w, made[0].w, atol=1e-3)
    assert made[1].w[1] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("drift", [0.0, 1e-3])
def test_what_lasts_is_kept_where_the_rest_fades(drift, rng):
    """Two parameters stay, the system forgets six: m = 3 has room for what lasts."""
    A = np.diag([1.0, 1.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    truth = np.array([1.0, -1.0, 0, 0, 0, 0, 0, 0])
    dense = orfit.EKF(orfit.Linear(P), noise=0.1, dynamics=A, drift=drift)
    few = orfit.ORFit(orfit.Linear(P), 3, noise=0.1, dynamics=A, drift=drift)
    for _ in range(200):
        x = rng.standard_normal(P)
        y = x @ truth + np.sqrt(0.1) * rng.standard_normal()
        for learner in (dense, few):
            learner.learn(x, y)
    errors = [np.mean((learner.w[:2] - truth[:2]) ** 2) for learner in (few, dense)]
    assert errors[0] < 2 * errors[1] + 0.01
    axes = np.eye(P)[:, :2]
    variances = few.memory.variance(axes, 0.1), dense.memory.variance(axes, 0.1)
    assert (variances[0] > variances[1] / 3).all()


@pytest.mark.parametrize("A", [0.0, 0.5, np.zeros((P, P)), 0.5 * np.eye(P)])
def test_what_vanishes_is_known_to_be_nothing(A):
    learner = orfit.ORFit(orfit.Linear(P), 3, noise=0.1)
    learner.learn(np.ones(P), 1.0)
    for _ in range(700):
        learner.advance(dynamics=A)
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
    assert few.memory.variance(measured, 1.0) == pytest.approx(dense.memory.variance(measured, 1.0))


@pytest.mark.slow
def test_small_noise_and_a_rotation_in_float32(rng):
    A = orthogonal(rng).astype(np.float32)
    few = orfit.ORFit(orfit.Linear(P), P, noise=1e-6, dynamics=A, w0=np.zeros(P, np.float32))
    still = orfit.ORFit(orfit.Linear(P), P, noise=1e-6)
    turned = np.eye(P)
    for _ in range(40):
        x, y = rng.standard_normal(P), rng.standard_normal()
        turned = A.astype(float) @ turned
        few.learn(x, y)
        still.learn(turned.T @ x, y)
    spread = few.predict(x, std="mean")[1] / few.scale**0.5
    expected = still.predict(turned.T @ x, std="mean")[1] / still.scale**0.5
    assert spread == pytest.approx(expected, rel=0.05)


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
    """P is a projector then, so that what was seen least goes, as ever."""
    learner = orfit.ORFit(orfit.Linear(8), 3, noise=0.1)
    learner.learn_each(rng.standard_normal((5, 8)), rng.standard_normal(5))
    learner.advance(dynamics=np.linalg.qr(rng.standard_normal((8, 8)))[0])
    learner.learn(rng.standard_normal(8), 1.0)
    learner.noise = 0.0
    for _ in range(5):
        x = rng.standard_normal(8)
        learner.learn(x, 1.0)
        assert learner.predict(x) == pytest.approx(1.0)
    U = learner.memory.U
    assert np.abs(U.T @ U - np.eye(3)).max() < 1e-12
