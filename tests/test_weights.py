"""A row of weight v counts as v rows; one of weight 0 changes nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit
from oracles import ridge
from test_contract import PAIRS, everywhere, make, same, stream

pytestmark = pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")

# Those to which many rows at one moment are the same as many rows: none fade, drift or round.
EXACT = ["ORFit", "ORFit noisy", "RLS", "NTKRLS", "EKF", "EKF matrix"]
repeated = pytest.mark.parametrize(
    ("learner", "model"), [(a, b) for a, b in PAIRS if a in EXACT and "network" not in b]
)


@repeated
def test_a_weight_is_as_many_rows(learner, model):
    """In blocks, for linear models: the sum of squared errors is the same sum."""
    X, Y = stream(model, 9)
    v = np.array([1, 3, 0, 2, 1, 0, 4, 1, 2])
    if learner == "ORFit":  # where nothing is noise, contradictions count
        Y = make(learner, model).predict(X) + 1.0 if model == "bias" else 0 * Y
    one, many, each = (make(learner, model) for _ in range(3))
    one.learn_batch(X, Y, weight=v)
    many.learn_batch(X.repeat(v, axis=0), Y.repeat(v, axis=0))
    each.learn_each(X, Y, weight=v)
    np.testing.assert_allclose(one.w, many.w, atol=1e-9)
    np.testing.assert_allclose(each.w, many.w, atol=1e-9)
    assert one.seen == each.seen == (v > 0).sum()


@everywhere
def test_weight_one_is_none(learner, model, kind):
    X, Y = stream(model, 6, kind)
    for learn in ("learn_batch", "learn_each"):
        plain, weighted = make(learner, model), make(learner, model)
        updates, also = getattr(plain, learn)(X, Y), getattr(weighted, learn)(X, Y, weight=1.0)
        assert same(plain, weighted)
        for name in ("prediction", "residual", "conflict", "step", "novelty", "rank", "variance"):
            np.testing.assert_array_equal(getattr(updates, name), getattr(also, name), name)


@everywhere
def test_weight_zero_changes_nothing(learner, model, kind):
    X, Y = stream(model, 6, kind)
    one, other = make(learner, model), make(learner, model)
    one.learn_each(X[:4], Y[:4])
    other.learn_each(X[:4], Y[:4])
    F = one.predict(X)
    for updates in (
        other.learn_batch(X, Y, weight=0),
        other.learn_each(X, Y, weight=np.zeros(6)),
    ):
        np.testing.assert_allclose(updates.prediction, F, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(updates.residual, Y - F, rtol=1e-12, atol=1e-12)
        assert not np.any(updates.step)
    update = other.learn(X[5], Y[5], weight=0.0)
    np.testing.assert_allclose(update.prediction, F[5], rtol=1e-12, atol=1e-12)
    assert np.shape(update.residual) == Y.shape[1:]
    assert one.seen == other.seen
    one.learn_each(X[4:], Y[4:])
    other.learn_each(X[4:], Y[4:])
    assert same(one, other)


@everywhere
def test_each_with_weights_is_a_loop_of_learn(learner, model, kind):
    X, Y = stream(model, 8, kind)
    v = np.array([2.0, 0.0, 0.5, 1.0, 0.0, 0.0, 3.0, 1e-3])
    loop, each = make(learner, model), make(learner, model)
    updates = each.learn_each(X, Y, weight=v)
    of_loop = [loop.learn(x, y, weight=w) for x, y, w in zip(X, Y, v, strict=True)]
    assert same(loop, each)
    for name in ("prediction", "residual", "conflict", "step", "variance"):
        expected = np.array([getattr(update, name) for update in of_loop])
        np.testing.assert_allclose(getattr(updates, name), expected, 1e-12, 1e-14, err_msg=name)
    np.testing.assert_allclose(updates.prediction + updates.residual, Y, rtol=1e-9, atol=1e-9)


@given(
    v=st.lists(st.floats(0, 1e3), min_size=12, max_size=12),
    noise=st.sampled_from([1e-3, 1.0, 30.0]),
)
def test_it_is_weighted_ridge_regression(v, noise):
    """argmin Σ v (y − f)² + R |w|², with a bias."""
    rng, v = np.random.default_rng(4), np.array(v)
    X, Y = rng.standard_normal((12, 5)), rng.standard_normal(12)
    learner = orfit.ORFit(orfit.Linear(5, bias=True), 6, noise=noise)
    learner.learn_each(X, Y, weight=v)
    phi = np.column_stack([X, np.ones(12)])
    root = np.sqrt(v)
    np.testing.assert_allclose(
        learner.w, ridge(phi * root[:, None], Y * root, np.zeros(6), noise), rtol=1e-6, atol=1e-9
    )


def test_variance_is_that_of_the_row_with_less_noise():
    learner = orfit.EKF(orfit.Linear(2), noise=0.6)
    update = learner.learn([3.0, 4.0], 1.0, weight=2.0)
    assert update.variance == pytest.approx(25 + 0.3)
    assert update.conflict == pytest.approx(0.3 / 25.3)
    (of_none,) = learner.learn_each([[3.0, 4.0]], [1.0], weight=[0.0]).variance
    assert of_none == pytest.approx(learner.predict([3.0, 4.0], std=True)[1] ** 2)


@pytest.mark.parametrize("noise", [0.1, "auto"])
def test_standard_deviations_do_not_depend_on_weights(noise, rng):
    """Labels of rows that count more are no less noisy: as if each had come so often."""
    X, v = rng.standard_normal((600, 3)), rng.integers(1, 4, 600)
    Y = X @ [1.0, 2.0, 3.0] + 0.5 * rng.standard_normal(600)
    once, weighted, blocks, often = (orfit.ORFit(orfit.Linear(3), 3, noise=noise) for _ in range(4))
    once.learn_each(X, Y)
    weighted.learn_each(X, Y, weight=v)
    often.learn_each(X.repeat(v, axis=0), Y.repeat(v))
    for start in range(0, 600, 40):
        part = slice(start, start + 40)
        blocks.learn_batch(X[part], Y[part], weight=v[part])
    std = [learner.predict(X[0], std=True)[1] for learner in (once, weighted, blocks, often)]
    np.testing.assert_allclose(std, 0.5, rtol=0.06)
    assert weighted.health().surprise == pytest.approx(often.health().surprise, rel=0.01)


def test_the_first_weight_does_not_change_the_grid_of_noises(rng):
    X, Y = rng.standard_normal((200, 5)), rng.standard_normal(200)
    chosen = []
    for first in (1.0, 1e-12, 1e12):
        learner = orfit.ORFit(orfit.Linear(5), 5, noise="auto")
        learner.learn_each(X, Y, weight=[first] + [1.0] * 199)
        chosen.append(learner._cell.state.unit)
    assert len(set(chosen)) == 1


def test_no_rows():
    learner = orfit.RLS(orfit.Linear(2))
    empty = np.empty((0, 2)), np.empty(0)
    assert len(learner.learn_each(*empty, weight=1.0)) == 0
    assert learner.learn_batch(*empty, weight=[]).step == 0
    assert learner.seen == 0


def test_rows_before_one_that_is_refused_are_learned(rng):
    X, v = rng.standard_normal((12, 30)), np.ones(12)
    X[7] *= 1e200
    v[7] = 1e300
    learner = orfit.ORFit(orfit.Linear(30), 4, noise=1.0)
    with pytest.raises(ValueError, match="leaves the finite numbers"):
        learner.learn_each(X, np.ones(12), weight=v)
    assert learner.seen == 7


def test_sgd_multiplies_the_squared_error_by_the_weight(rng):
    one, other = (orfit.SGD(orfit.Linear(3), lr=0.01) for _ in range(2))
    x = rng.standard_normal(3)
    one.learn(x, 2.0, weight=3.0)
    other.lr = 0.03
    other.learn(x, 2.0)
    np.testing.assert_allclose(one.w, other.w, rtol=1e-15)


def test_the_meter_multiplies_rows_by_their_weight(rng):
    X, Y, v = rng.standard_normal((60, 8)), rng.standard_normal(60), rng.integers(1, 4, 60)
    learner = orfit.ORFit(orfit.Linear(8), 2, noise=0.1, meter=orfit.Meter(2000))
    learner.learn_each(X, Y, weight=v)
    error = np.sum(v * (learner.predict(X) - Y) ** 2)
    assert learner.meter.error.low < error < learner.meter.error.high


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (-1.0, "negative"),
        ([1.0, np.nan], "finite"),
        ([1.0, 2.0, 3.0], "each of 2 rows"),
        ("much", "real numbers"),
        (np.ones((2, 1)), "each of 2 rows"),
        (1e300, "leaves the finite numbers"),
    ],
)
def test_an_invalid_weight_is_refused_and_nothing_changes(weight, says):
    learner = orfit.ORFit(orfit.Linear(2), 2, noise=1.0)
    learner.learn([1.0, 2.0], 3.0)
    before = learner.w
    X, Y = np.array([[1e200, 2.0], [3.0, -1e200]]), [1.0, 2.0]
    for learn in (learner.learn_batch, learner.learn_each):
        with pytest.raises(ValueError, match=says):
            learn(X, Y, weight=weight)
        assert learner.seen == 1
        np.testing.assert_array_equal(learner.w, before)


def test_float32_stays(rng):
    learner = orfit.ORFit(orfit.Linear(4), 2, noise=1.0, w0=np.zeros(4, np.float32))
    learner.learn_each(rng.standard_normal((5, 4)), np.ones(5), weight=2.0)
    assert learner.w.dtype == np.float32
    assert learner.memory.U.dtype == np.float32


def test_networks(rng):
    torch = pytest.importorskip("torch", reason="networks need torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    net = net.double()
    X, Y = rng.standard_normal((5, 3)), rng.standard_normal((5, 2))
    one, many = (orfit.ORFit(orfit.TorchModel(net), noise=0.5) for _ in range(2))
    v = np.array([1, 0, 2, 3, 1])
    one.learn_batch(X, Y, weight=v)
    many.learn_batch(X.repeat(v, axis=0), Y.repeat(v, axis=0))
    np.testing.assert_allclose(one.w, many.w, atol=1e-10)
