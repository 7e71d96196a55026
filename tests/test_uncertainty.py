"""How sure a prediction is, what residuals are expected, and a w that drifts."""

import functools
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit
from covering import covering_array
from oracles import kalman


def problem(rng, n=40, p=12, noise=0.3):
    X = rng.standard_normal((n, p)) / np.arange(1, p + 1) ** 0.5
    return X, X @ rng.standard_normal(p) + noise * rng.standard_normal(n)


@pytest.mark.parametrize("memory", [None, 12, 20])
@given(
    seed=st.integers(0, 2**32 - 1),
    noise=st.sampled_from([1e-3, 0.1, 10.0]),
    drift=st.sampled_from([0.0, 1e-4, 0.1, 10.0]),
)
def test_what_nothing_was_dropped_from_is_a_kalman_filter(memory, seed, noise, drift):
    rng = np.random.default_rng(seed)
    X, y = problem(rng)
    learner = orfit.ORFit(orfit.Linear(12), memory, noise=noise, drift=drift)
    updates = learner.learn_each(X, y)
    w, P, S = kalman(X, y, np.zeros(12), np.eye(12), noise, drift)
    np.testing.assert_allclose(learner.w, w, rtol=0, atol=1e-8 * np.abs(w).max())
    np.testing.assert_allclose(updates.variance, S, rtol=1e-8)
    Z = rng.standard_normal((5, 12))
    f, spread = learner.predict(Z, std=True)
    expected = np.sqrt(learner.scale * (np.einsum("np,pq,nq->n", Z, P, Z) + noise))
    np.testing.assert_allclose(f, Z @ w, rtol=0, atol=1e-8 * np.abs(Z @ w).max())
    np.testing.assert_allclose(spread, expected, rtol=1e-8)


@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_bounded_memory_tells_the_p_that_it_steps_with(heads, noise, rng):
    """The variance that a row was expected to have is the one that predict tells before it."""
    X, y = problem(rng, 60)
    Y = y if heads is None else np.column_stack([y, 2 * y, -y])
    learner = orfit.ORFit(orfit.Linear(12, heads=heads), 4, noise=noise)
    for i in range(50):
        told = learner.predict(X[i], std=True)[1] ** 2 / learner.scale
        update = learner.learn(X[i], Y[i])
        np.testing.assert_allclose(told, update.variance, rtol=1e-9)
    many, model = learner.predict(X[50:], std=True)[1], learner.predict(X[50:], std="mean")[1]
    assert many.shape == Y[50:].shape
    np.testing.assert_allclose(many**2 - model**2, (noise * learner.scale) * np.ones(many.shape))


@pytest.mark.parametrize("make", [orfit.RLS, lambda model: orfit.EKF(model, noise=0.5)])
def test_a_dense_p_tells_the_same(make, rng):
    X, y = problem(rng)
    learner = make(orfit.Linear(12))
    R = 1.0 if isinstance(learner, orfit.RLS) else 0.5
    learner.learn_each(X, y)
    _, P, _ = kalman(X, y, np.zeros(12), np.eye(12), R, 0.0)
    spread = learner.predict(X[:5], std=True)[1]
    expected = learner.scale * (np.einsum("np,pq,nq->n", X[:5], P, X[:5]) + R)
    np.testing.assert_allclose(spread**2, expected, rtol=1e-8)


def test_scale_is_the_variance_of_the_noise_beside_r(rng):
    for factor in (0.1, 1.0, 30.0):
        X = rng.standard_normal((1200, 10))
        y = factor * (X @ rng.standard_normal(10) + 0.5 * rng.standard_normal(1200))
        learner = orfit.ORFit(orfit.Linear(10), noise=0.25)
        learner.learn_each(X, y)
        assert learner.scale == pytest.approx(factor**2, rel=0.1)


@pytest.mark.parametrize(
    ("memory", "noise", "stream"),
    covering_array({
        "memory": (None, 5, 20), "noise": (1e-3, 0.1, "auto"), "stream": ("white", "1/i")
    }),
)  # fmt: skip
def test_intervals_hold_what_they_say(memory, noise, stream):
    inside = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((2800, 20)) / (np.arange(1, 21) if stream == "1/i" else 1.0)
        y = X @ rng.standard_normal(20) + 0.3 * rng.standard_normal(2800)
        learner = orfit.ORFit(orfit.Linear(20), memory, noise=noise)
        learner.learn_each(X[:800], y[:800])
        f, spread = learner.predict(X[800:], std=True)
        inside.append(np.abs(y[800:] - f) / spread)
    error = np.concatenate(inside)
    assert np.mean(error < 1.96) == pytest.approx(0.95, abs=0.02)
    assert np.mean(error < 1.645) == pytest.approx(0.90, abs=0.03)


def test_a_network_is_as_sure_as_its_tangent(rng):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    learner = orfit.ORFit(orfit.TorchModel(net.double()), 10, noise=0.1)
    X, Y = rng.standard_normal((30, 3)), rng.standard_normal((30, 2))
    learner.learn_each(X, Y)
    f, spread = learner.predict(X, std=True)
    assert f.shape == spread.shape == (30, 2)
    G = learner.model.linearize(learner.w, torch.as_tensor(X))[1]
    U, sigma = np.asarray(learner.memory.U), learner.memory.sigma
    C = U.T @ np.asarray(G)
    share = 0.1 / (0.1 + learner._cell.state.tail_level[0])
    beyond = (np.asarray(G) ** 2).sum(0) - (C**2).sum(0)
    expected = (C**2 * (0.1 / (0.1 + sigma**2))[:, None]).sum(0) + share * beyond + 0.1
    np.testing.assert_allclose(spread.ravel() ** 2, learner.scale * expected, rtol=1e-6)


def test_what_does_not_know_says_so(rng):
    with pytest.raises(ValueError, match="SGD does not know how sure it is"):
        orfit.SGD(orfit.Linear(3), lr=0.1).predict([1, 2, 3], std=True)
    with pytest.raises(ValueError, match='std must be True, False or "mean"'):
        orfit.ORFit(orfit.Linear(3)).predict([1, 2, 3], std="both")
    empty = orfit.ORFit(orfit.Linear(3), noise=1.0).predict(np.empty((0, 3)), std=True)
    assert [len(part) for part in empty] == [0, 0]


@functools.cache
def a_system_that_moves(p=12, n=800):
    """Rows of a w that wanders; for each drift, the w of an unlimited memory, and its error."""
    rng = np.random.default_rng(20)
    X = rng.standard_normal((n, p))
    W = np.cumsum(0.03 * rng.standard_normal((n, p)), axis=0)
    y = (X * W).sum(1) + 0.3 * rng.standard_normal(n)
    ends = {}
    for drift in (0.0, 0.03**2):
        learner = orfit.ORFit(orfit.Linear(p), noise=0.09, drift=drift)
        error = np.abs(learner.learn_each(X, y).residual[n // 2 :]).mean()
        ends[drift] = learner.w, error
    return X, y, ends


def test_drift_follows_a_system_that_moves():
    X, y, ends = a_system_that_moves()
    for drift, (w, _) in ends.items():
        bounded = orfit.ORFit(orfit.Linear(12), 12, noise=0.09, drift=drift)
        bounded.learn_each(X, y)
        np.testing.assert_allclose(bounded.w, w, rtol=0, atol=1e-8)
    assert ends[0.03**2][1] < 0.6 * ends[0.0][1]


def test_saved_with_drift_it_goes_on(rng, tmp_path):
    X, y = problem(rng, 80)
    whole = orfit.ORFit(orfit.Linear(12), 4, noise=0.1, drift=0.01)
    whole.learn_each(X[:40], y[:40])
    whole.save(tmp_path / "half")
    half = orfit.load(tmp_path / "half")
    for learner in (whole, half):
        learner.learn_each(X[40:], y[40:])
    np.testing.assert_array_equal(whole.w, half.w)
    assert whole.scale == half.scale
    assert half.drift == 0.01


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"drift": -1, "noise": 1.0}, "drift must not be negative"),
        ({"drift": 0.1}, "noise must be a number > 0"),
        ({"drift": 0.1, "noise": "auto"}, "noise must be a number > 0"),
        ({"noise": "some"}, 'noise must be a number or "auto"'),
        ({"noise": -1}, "noise must not be negative"),
        ({"memory": orfit.memory.Sketch(3), "noise": 1.0, "drift": 0.1}, "does not support drift"),
        ({"memory": orfit.memory.Sketch(3), "noise": "auto"}, "needs a memory of directions"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        orfit.ORFit(orfit.Linear(5), **settings)


def test_how_it_is_doing(rng):
    X = rng.standard_normal((1200, 40)) / np.arange(1, 41)
    y = X @ rng.standard_normal(40) + 0.1 * rng.standard_normal(1200)
    whole = orfit.ORFit(orfit.Linear(40), 40, noise=0.01)
    assert "Too early" in whole.health().advice
    updates = whole.learn_each(X, y)
    health = whole.health()
    assert health.surprise == pytest.approx(updates.variance[-1000:].mean() / 0.01, rel=0.1)
    assert health.dropped == 0
    assert health.innovation == pytest.approx(1, abs=0.4)
    assert abs(health.correlation) < 0.3
    assert health.advice == "Residuals are what was expected of them, and look like noise."
    assert "S/R" in str(health)
    few = orfit.ORFit(orfit.Linear(40), 2, noise=0.01)
    few.learn_each(X, y)
    assert few.health().dropped > 10
    assert "more than 2 directions" in few.health().advice
    whole.learn_each(X[:100], -y[:100])
    assert whole.health().innovation > 2
    assert "moves" in whole.health().advice


def test_what_cannot_be_told_yet_is_a_dash():
    settings = [{}, {"noise": 0.1}, {"noise": "auto", "forgetting": "auto"}]
    for learner in [orfit.ORFit(orfit.Linear(3), 2, **each) for each in settings]:
        table = str(learner.health())
        assert "nan" not in table
        assert "–" in table
        assert "Too early to tell: 0 rows." in table
        learner.learn([1.0, 2.0, 3.0], 1.0)
        assert "nan" not in str(learner.health())


def test_residuals_that_are_correlated_are_told(rng):
    X, error = rng.standard_normal((2000, 5)), np.zeros(2000)
    for i in range(1, 2000):
        error[i] = 0.9 * error[i - 1] + rng.standard_normal()
    learner = orfit.ORFit(orfit.Linear(5), noise=1.0)
    learner.learn_each(X, X.sum(1) + error)
    assert learner.health().correlation > 0.5
    assert "correlated" in learner.health().advice


@pytest.mark.parametrize("each", [True, False])
def test_w_that_explodes_without_noise_is_told_once(each, rng):
    """Nearly collinear rows of noisy labels, as most streams of raw measurements are."""
    X = 1 + 1e-8 * rng.standard_normal((300, 6))
    y = 1 + 0.1 * rng.standard_normal(300)
    learner = orfit.ORFit(orfit.Linear(6), 3)
    blocks = np.array_split(np.arange(300), 2 if each else 300)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for rows in blocks:
            learner.learn_each(X[rows], y[rows])
    assert [warning.category for warning in told] == [orfit.InterpolationWarning]
    assert 'noise="auto"' in str(told[0].message)
    calm = orfit.ORFit(orfit.Linear(6), 3, noise="auto")
    calm.learn_each(X, y)
    assert np.abs(calm.w).max() < 10


def test_a_filter_is_told_that_its_noise_is_too_small(rng):
    X = rng.standard_normal((400, 3))
    y = X @ np.ones(3) + rng.standard_normal(400)
    right, wrong = (orfit.EKF(orfit.Linear(3), noise=R) for R in (1.0, 0.01))
    for learner in (right, wrong):
        learner.learn_each(X, y)
    assert right.health().innovation == pytest.approx(1, abs=0.4)
    assert wrong.health().innovation > 50
    assert "noise or drift are too small" in wrong.health().advice


def test_after_a_jump_intervals_are_said_to_be_too_wide(rng):
    X = rng.standard_normal((900, 3))
    y = X @ np.ones(3) + 0.1 * rng.standard_normal(900)
    y[300:] -= 40 * X[300:, 0]
    learner = orfit.RLS(orfit.Linear(3), forgetting=0.95)
    learner.learn_each(X, y)
    assert "too wide" in learner.health().advice


def test_one_bad_reading_does_not_widen_intervals_for_long(rng):
    X = rng.standard_normal((2500, 3))
    y = X @ np.ones(3) + 0.1 * rng.standard_normal(2500)
    y[2000] += 100
    learner = orfit.RLS(orfit.Linear(3))
    learner.learn_each(X[:2000], y[:2000])
    before = learner.scale
    learner.learn_each(X[2000:2020], y[2000:2020])
    assert learner.scale < 1.5 * before  # counted whole, it would be 1,000 times as much
    learner.learn_each(X[2020:], y[2020:])
    assert learner.scale < 2 * before  # w has moved a little, and residuals are larger


def test_noise_that_grows_for_good_is_followed(rng):
    X = rng.standard_normal((3000, 3))
    y = X @ np.ones(3) + np.repeat([0.1, 10.0], [1000, 2000]) * rng.standard_normal(3000)
    learner = orfit.RLS(orfit.Linear(3), forgetting=0.99)
    learner.learn_each(X, y)
    fresh = orfit.RLS(orfit.Linear(3), forgetting=0.99)
    fresh.learn_each(X[2000:], y[2000:])
    assert learner.scale == pytest.approx(fresh.scale, rel=0.3)


@pytest.mark.parametrize("noise", [0.1, "auto"])
def test_the_scale_does_not_depend_on_the_pieces_of_a_stream(noise, rng):
    X, y = problem(rng, 300)
    y[::37] *= 50
    scales = []
    for pieces in (1, 9, 300):
        learner = orfit.ORFit(orfit.Linear(12), 5, noise=noise)
        for rows in np.array_split(np.arange(300), pieces):
            learner.learn_each(X[rows], y[rows])
        scales.append(learner.scale)
    assert scales == [scales[0]] * 3


def test_noise_that_begins_after_exact_rows_is_known_soon(rng):
    """Beside residuals of rounding, noise is not one bad reading after another."""
    X = rng.standard_normal((2200, 3))
    y = X @ np.ones(3) + np.repeat([0.0, 1.0], [1000, 1200]) * rng.standard_normal(2200)
    learner = orfit.RLS(orfit.Linear(3))
    learner.learn_each(X[:1000], y[:1000])
    learner.learn_each(X[1000:1200], y[1000:1200])
    assert learner.predict(X[0], std=True)[1] > 0.3
    learner.learn_each(X[1200:], y[1200:])
    assert learner.predict(X[0], std=True)[1] == pytest.approx(1, abs=0.2)
