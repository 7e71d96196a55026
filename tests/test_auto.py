"""Noise and tail that choose themselves."""

import contextlib
import warnings

import numpy as np
import pytest

import orfit
from covering import covering_array
from orfit.learners.candidates import _log_small_length
from orfit.memory import frame
from orfit.store import HOST


def candidates_of(learner):
    """R and w of each candidate."""
    q, w = learner.candidates.columns, learner.memory.w
    noises = learner._cell.state.noises
    return [(R, w[:, i * q : (i + 1) * q]) for i, R in enumerate(noises)]


def unit_of(learner):
    """The power of ten that is the unit of the grid."""
    return learner._cell.state.unit[0]


def stream(kind, rng, n=3000, p=60, noise=0.3):
    X = rng.standard_normal((n, p)) / (np.arange(1, p + 1) if kind == "1/i" else 1.0)
    return X, X @ rng.standard_normal(p) + noise * rng.standard_normal(n)


@pytest.mark.parametrize("heads", [None, 2])
def test_every_candidate_is_the_learner_of_that_noise_while_nothing_is_dropped(heads, rng):
    X, y = stream("1/i", rng, 100, 8)
    Y = y if heads is None else np.column_stack([y, -y])
    model = orfit.Linear(8, heads=heads)
    auto = orfit.ORFit(model, 8, noise="auto")
    auto.learn_each(X, Y)
    for noise, w in candidates_of(auto):
        alone = orfit.ORFit(model, 8, noise=noise)
        alone.learn_each(X, Y)
        np.testing.assert_allclose(w.reshape(alone.w.shape), alone.w, rtol=0, atol=1e-9)


@pytest.mark.parametrize("settings", [{"noise": "auto"}, {"noise": "auto", "tail": "auto"}])
def test_learn_chooses_as_learn_each_does(settings, rng):
    X, y = stream("1/i", rng, 400, 30)
    each, single = (orfit.ORFit(orfit.Linear(30), 6, **settings) for _ in range(2))
    updates = each.learn_each(X, y)
    predictions = [single.learn(x, label).prediction for x, label in zip(X, y, strict=True)]
    assert (single.noise, single.tail) == (each.noise, each.tail)
    np.testing.assert_array_equal(single.w, each.w)
    np.testing.assert_array_equal(predictions, updates.prediction)


@pytest.mark.parametrize(
    ("kind", "noise", "m"),
    [("white", 0.03, 5), ("1/i", 3.0, 5), ("1/i", 0.03, 30)],
)
def test_it_ends_near_the_best_of_its_grid(kind, noise, m, rng):
    X, y = stream(kind, rng, n=2000, p=20, noise=noise)
    test, clean = X[1000:], y[1000:]
    auto = orfit.ORFit(orfit.Linear(20), m, noise="auto")
    auto.learn_each(X[:1000], y[:1000])
    errors = []
    for fixed, _ in candidates_of(auto):
        alone = orfit.ORFit(orfit.Linear(20), m, noise=fixed)
        alone.learn_each(X[:1000], y[:1000])
        errors.append(np.sqrt(np.mean((alone.predict(test) - clean) ** 2)))
    error = np.sqrt(np.mean((auto.predict(test) - clean) ** 2))
    assert error <= 1.03 * min(errors)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_unit_of_the_inputs_does_not_matter(scale, rng):
    X, y = stream("1/i", rng, 500, 20)
    X = scale * X / np.linalg.norm(X[0])
    auto = orfit.ORFit(orfit.Linear(20), 5, noise="auto")
    reference = orfit.ORFit(orfit.Linear(20), 5, noise="auto")
    auto.learn_each(X, y)
    reference.learn_each(X / scale, y)
    assert auto.noise == pytest.approx(scale**2 * reference.noise)
    np.testing.assert_allclose(auto.predict(X), reference.predict(X / scale), rtol=1e-6)


@pytest.mark.parametrize(("large", "columns"), [(1e3, 7), (1e6, 1), (1e9, 7), (1e9, 1)])
def test_columns_in_large_units_leave_the_others_to_be_learned(large, columns, rng):
    X = rng.standard_normal((1500, 8))
    X[:, :columns] += 5.0
    y = X @ rng.standard_normal(8) + 0.1 * rng.standard_normal(1500)
    X[:, :columns] *= large
    auto = orfit.ORFit(orfit.Linear(8), 8, noise="auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", orfit.ScaleWarning)
        auto.learn_each(X[:1000], y[:1000])
    assert np.sqrt(np.mean((auto.predict(X[1000:]) - y[1000:]) ** 2)) <= 0.105


def test_which_noises_are_compared():
    def compared(first):
        learner = orfit.ORFit(orfit.Linear(len(first)), noise="auto")
        learner.learn(first, 1.0)
        return np.log10(learner._cell.state.noises).tolist()

    assert compared([3.0, 0.1, 0.0]) == [-5, -4, -3, -2, -1, 0, 1, 2], "|g|² is 9, 1e2 times 2·0.1²"
    assert compared([1e4] + 9 * [1.0]) == [-5, -2, 2, 5, 6, 7, 8, 9], "down to 1e-6 times 10·1²"
    assert compared([1.0] + 9 * [1e4]) == [-5, -1, 2, 6, 7, 8, 9, 10], "few small ones count, too"
    assert compared([1e4] + 9 * [1e-9]) == [2, 3, 4, 5, 6, 7, 8, 9], "rounding beside the largest"
    assert compared([0.5] * 1000) == [-4, -3, -2, -1, 0, 1, 2, 3]


@pytest.mark.parametrize("exponent", [-320, -200, 0, 150])
def test_small_numbers_of_any_size(exponent):
    g = np.array([1.0, 1e-3, 0.0, 1e-3]) * 10.0**exponent
    length = np.sqrt(3) * 1e-3
    found = _log_small_length(HOST.exponents(g))
    assert found == pytest.approx(exponent + np.log10(length), abs=0.16)


@pytest.mark.parametrize("first", [1e2, 1e3, 1e6])
def test_a_far_too_long_first_row_has_no_lasting_effect(first, rng):
    X, y = stream("white", rng, 600, 40, noise=3.0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    usual, unusual = (orfit.ORFit(orfit.Linear(40), 10, noise="auto") for _ in range(2))
    usual.learn_each(X, y)
    X[0], y[0] = first * X[0], first * y[0]
    unusual.learn_each(X, y)
    assert np.abs(np.log10(unusual._cell.state.noises / usual._cell.state.noises)).max() < 1.5
    assert abs(np.log10(unusual.noise / usual.noise)) < 1.5


@pytest.mark.parametrize("first", [1e-3, 1e-6, 1e-9])
def test_after_a_first_row_that_is_far_too_short_others_are_learned(first, rng):
    X = rng.standard_normal((600, 5))
    X[0] *= first
    y = X @ [1.0, -2.0, 3.0, 0.5, 1.0] + 0.1 * rng.standard_normal(600)
    learner = orfit.ORFit(orfit.Linear(5), 5, noise="auto")
    residual = learner.learn_each(X, y).residual
    assert np.sqrt(np.mean(residual[300:] ** 2)) <= 0.105
    assert learner.predict(X[-1], std=True)[1] == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        *(({}, first) for first in (1e-9, 1e-2, 1e3, 1e5)),
        *(({"w0": np.arange(20.0)}, first) for first in (1e-2, 1e5)),
        *(({"tail": "auto"}, first) for first in (1e-9, 1e3)),
    ],
)
def test_candidates_that_moved_are_as_if_they_had_been_there_from_the_start(first, settings, rng):
    X, y = stream("white", rng, 300, 20)
    X[0], y[0] = first * X[0], first * y[0]
    auto = orfit.ORFit(orfit.Linear(20), 20, noise="auto", **settings)
    auto.learn_each(X, y)
    assert unit_of(auto) in (0, 1, 2), "not that of the first row"
    given = {name: value for name, value in settings.items() if name == "w0"}
    for i, (noise, w) in enumerate(candidates_of(auto)):
        fixed = orfit.ORFit(orfit.Linear(20), 20, noise=noise, **given)
        fixed.learn_each(X, y)
        apart = np.abs(w[:, 0] - fixed.w).max()
        # w, where the noise was too large at first, is multiplied by up to R / R'.
        assert apart <= 1e-12 * max(1.0, first), i


@pytest.mark.parametrize(("dtype", "first"), [(np.float32, 1e12), (np.float64, 1e30)])
def test_rounding_is_not_magnified_where_candidates_move_far_down(dtype, first, rng):
    """A first row of another world: w along all others is next to nothing then, and rounding."""
    X, y = stream("white", rng, 600, 20)
    X[0] *= first if dtype == np.float64 else np.sqrt(first)
    w0 = np.zeros(20, dtype)
    auto, fixed = (orfit.ORFit(orfit.Linear(20), 20, noise=noise, w0=w0) for noise in ("auto", 0.1))
    residuals = [one.learn_each(X.astype(dtype), y).residual[300:] for one in (auto, fixed)]
    assert np.std(residuals[0]) <= 1.05 * np.std(residuals[1])


@pytest.mark.parametrize(
    ("m", "rest", "short"), [(5, 10, 1e-5), (5, 50, 1e-2), (20, 10, 1e-2), (20, 50, 1e-5)]
)
def test_a_start_at_rest_costs_next_to_nothing(m, rest, short, rng):
    X, y = stream("1/i", rng, 900, 20, noise=0.3)
    later = slice(max(300, 8 * rest), None)
    model, settings = orfit.Linear(20), {"noise": "auto"}
    usual, resting = (orfit.ORFit(model, m, **settings) for _ in range(2))
    wanted = np.sqrt(np.mean(usual.learn_each(X, y).residual[later] ** 2))
    X[:rest] *= short
    y[:rest] *= short
    error = np.sqrt(np.mean(resting.learn_each(X, y).residual[later] ** 2))
    assert abs(unit_of(resting) - unit_of(usual)) < 2
    assert error <= 1.05 * wanted


@pytest.mark.parametrize("first", [1e-4, 1e4])
def test_candidates_move_in_a_block(first, rng):
    X, y = stream("white", rng, 100, 20)
    X[0], y[0] = first * X[0], first * y[0]
    learner = orfit.ORFit(orfit.Linear(20), 10, noise="auto")  # more rows than it has room for
    learner.learn_batch(X, y)
    assert unit_of(learner) in (1, 2)
    fixed = orfit.ORFit(orfit.Linear(20), 20, noise="auto")
    fixed.learn_batch(X, y)
    for noise, w in candidates_of(fixed):
        ridge = np.linalg.solve(X.T @ X + noise * np.eye(20), X.T @ y)
        np.testing.assert_allclose(w[:, 0], ridge, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("first", [1e-5, 1e5])
@pytest.mark.parametrize("memory", [5, "auto", None, orfit.memory.Latest, orfit.memory.Random])
def test_parameter_bound_holds_after_candidates_move(first, memory, rng):
    X, y = stream("white", rng, 40, 60)
    X[0], y[0] = first * X[0], first * y[0]
    memory = memory(5) if isinstance(memory, type) else memory
    learner = orfit.ORFit(orfit.Linear(60), memory, noise="auto")
    learner.learn_batch(X, y)
    assert unit_of(learner) in (1, 2)
    assert np.abs(learner.w).max() <= learner._cell.state.parameter_bound


@pytest.mark.parametrize(
    ("weight", "zeros"), [(1e-30, slice(65, 256)), (1e30, slice(0, 64, 2)), (1e30, slice(0, 256))]
)
def test_zero_rows_do_not_change_the_unit_whatever_their_weight(weight, zeros, rng):
    X, y = stream("white", rng, 600, 10, noise=0.1)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    weights = np.ones(600)
    kept = X[66:255:40].copy()
    X[zeros], weights[zeros] = 0, weight
    if zeros.start:
        X[66:255:40], weights[66:255:40] = kept, 1
    learner = orfit.ORFit(orfit.Linear(10), 10, noise="auto")
    learner.learn_each(X, y, weight=weights)
    assert unit_of(learner) == 0


@pytest.mark.parametrize("first", [1e6, 1e12])
def test_zero_rows_do_not_count_as_start(first, rng):
    X, y = stream("white", rng, 600, 10, noise=0.1)
    X[:70] = 0
    X[70], y[70] = first * X[70], first * y[70]
    learner = orfit.ORFit(orfit.Linear(10), 10, noise="auto")
    learner.learn_each(X, y)
    assert abs(unit_of(learner)) <= 2


def test_candidates_return_after_long_gradients(rng):
    X, y = stream("white", rng, 6000, 20, noise=0.1)
    loud = slice(300, 1024)
    X[loud] *= 1e4
    y[loud] *= 1e4
    learner = orfit.ORFit(orfit.Linear(20), 20, noise="auto")
    learner.learn_each(X[:1024], y[:1024])
    assert unit_of(learner) >= 8
    learner.learn_each(X[1024:], y[1024:])
    assert unit_of(learner) == 1


def test_scale_is_kept_when_candidates_move(rng):
    X, y = rng.standard_normal((600, 10)), 1e-4 * rng.standard_normal(600)
    X[:100] *= 1e-3
    learner = orfit.ORFit(orfit.Linear(10), 10, noise="auto")
    units, stds = [], []
    for x, label in zip(X, y, strict=True):
        learner.learn(x, label)
        units.append(unit_of(learner))
        stds.append(learner.predict(np.zeros(10), std=True)[1])
    moved = np.flatnonzero(np.diff(units)) + 1
    assert len(moved[moved > 64])
    for row in moved[moved > 64]:
        assert 0.5 <= stds[row] / stds[row - 1] <= 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("settings", [{}, {"tail": "auto"}, {"w0": np.ones(5)}])
def test_lengths_as_far_apart_as_numbers_are(settings, rng):
    X, y = stream("white", rng, 80, 5)
    X *= 1e-150
    X[0] *= 1e300
    learner = orfit.ORFit(orfit.Linear(5), 5, noise="auto", **settings)
    learner.learn_each(X, 1e-150 * y)
    assert np.isfinite(learner.w).all()


def test_at_rest_later_nothing_moves(rng):
    X, y = stream("1/i", rng, 3000, 40)
    X[400:] *= 1e-4
    learner = orfit.ORFit(orfit.Linear(40), 5, noise="auto")
    learner.learn_each(X[:100], y[:100])
    before = learner._cell.state.noises.copy()
    learner.learn_each(X[100:], y[100:])
    np.testing.assert_array_equal(learner._cell.state.noises, before)


def test_weights_do_not_change_the_unit(rng):
    X, y = stream("white", rng, 300, 10)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    plain, weighted = (orfit.ORFit(orfit.Linear(10), 10, noise="auto") for _ in range(2))
    plain.learn_each(X, y)
    weighted.learn_each(X[:200], y[:200], weight=np.geomspace(1e-8, 1e8, 200))
    weighted.learn_each(X[200:], y[200:], weight=1e6)
    assert weighted._cell.state.unit == plain._cell.state.unit


@pytest.mark.parametrize("settings", [{}, {"forgetting": "auto"}])
@pytest.mark.parametrize("time", range(9))
def test_an_exception_while_candidates_move(settings, time, rng, monkeypatch):
    """The row is learned again from the state before it."""
    X, y = stream("1/i", rng, 100, 20)
    X[0] *= 1e-6
    whole, stopped = (orfit.ORFit(orfit.Linear(20), 5, noise="auto", **settings) for _ in range(2))
    whole.learn_each(X, y)
    rescale, calls = frame.rescale, []

    def moves(*args):
        calls.append(1)
        if len(calls) == 1 + time // 2 and time % 2:
            raise KeyboardInterrupt
        rescale(*args)
        if len(calls) == 1 + time // 2 and not time % 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(frame, "rescale", moves)
    with contextlib.suppress(KeyboardInterrupt):
        stopped.learn_each(X, y)
    monkeypatch.undo()
    stopped.learn_each(X[stopped.seen :], y[stopped.seen :])
    np.testing.assert_array_equal(stopped.memory.w, whole.memory.w)
    np.testing.assert_array_equal(stopped._cell.state.noises, whole._cell.state.noises)


@pytest.mark.parametrize(
    ("setting", "saved", "first"),
    [
        *covering_array({
            "setting": ("noise", "tail"), "saved": (1, 63, 64, 256), "first": (1e5, 1e-8)
        }),
        ("forgetting", 64, 1e5),
        ("forgetting", 10, 1e-8),
    ],
)  # fmt: skip
def test_candidates_that_move_after_loading_are_the_same(setting, saved, first, rng, tmp_path):
    settings = {setting: "auto"}
    X, y = stream("1/i", rng, 300, 20)
    unusual = slice(1 if first > 1 else 50)
    X[unusual], y[unusual] = first * X[unusual], first * y[unusual]
    X[5:9] = 0
    learner, one_by_one = (
        orfit.ORFit(orfit.Linear(20), 5, **{"noise": "auto"} | settings) for _ in range(2)
    )
    learner.learn_each(X[:saved], y[:saved])
    learner.save(tmp_path / "file")
    brought_back = orfit.load(tmp_path / "file")
    for one in (learner, brought_back):
        one.learn_each(X[saved:], y[saved:])
    np.testing.assert_array_equal(learner.memory.w, brought_back.memory.w)
    np.testing.assert_array_equal(learner._cell.state.noises, brought_back._cell.state.noises)
    for x, label in zip(X, y, strict=True):
        one_by_one.learn(x, label)
    assert abs(unit_of(one_by_one)) < 4, "the first row is not what counts"
    assert learner.noise == one_by_one.noise
    assert learner._cell.state.unit == one_by_one._cell.state.unit
    np.testing.assert_array_equal(learner.w, one_by_one.w)
    assert learner.scale == one_by_one.scale


@pytest.mark.filterwarnings("ignore::orfit.ScaleWarning")
@pytest.mark.parametrize(("later", "lowest"), [(1.0, False), (1e-4, True)])
def test_health_reports_when_the_noise_is_the_lowest(later, lowest, rng):
    X = rng.standard_normal((300, 4))
    X[:70, 1:] = 0
    y = X.sum(axis=1) + 0.1 * rng.standard_normal(300)
    X[:, 1:] *= later
    learner = orfit.ORFit(orfit.Linear(4), 4, noise="auto")
    learner.learn_each(X, y)
    assert learner.health().lowest is lowest
    assert ("the lowest" in learner.health().advice) is lowest


def test_saved_in_the_middle_it_goes_on_bit_by_bit(rng, tmp_path):
    X, y = stream("1/i", rng, 300, 20)
    whole = orfit.ORFit(orfit.Linear(20), 5, noise="auto", tail="auto")
    whole.learn_each(X[:107], y[:107])
    whole.save(tmp_path / "half")
    half = orfit.load(tmp_path / "half")
    assert half.noise == whole.noise
    np.testing.assert_array_equal(half.w, whole.w)
    for learner in (whole, half):
        learner.learn_each(X[107:], y[107:])
    np.testing.assert_array_equal(half.memory.w, whole.memory.w)
    assert (half.noise, half.scale) == (whole.noise, whole.scale)


def test_a_refused_first_row_does_not_determine_the_unit(rng):
    X, y = stream("white", rng, 50, 5)
    tried, untried = (orfit.ORFit(orfit.Linear(5), 2, noise="auto") for _ in range(2))
    with pytest.raises(ValueError, match="overflow"):
        tried.learn(np.full(5, 1e-200), 1e308)
    assert tried.noise == untried.noise
    for learner in (tried, untried):
        learner.learn(np.zeros(5), 1.0)
        learner.learn_each(X, y)
    np.testing.assert_array_equal(tried._cell.state.noises, untried._cell.state.noises)
    np.testing.assert_array_equal(tried.w, untried.w)


class Wave:
    """sin(X w): not linear in w."""

    size, heads, input_shape, linear = 4, None, (4,), False

    def initial(self):
        return np.full(4, 0.5)

    def predict(self, w, X):
        return np.sin(X @ w)

    def linearize(self, w, X):
        return np.sin(X @ w), (np.cos(X @ w)[:, None] * X).T

    def settings(self):
        return {}


@pytest.mark.parametrize("memory", [None, 2])
def test_a_nonlinear_model_is_compared_along_the_tangent_of_the_chosen_one(memory, rng):
    """Typed out: candidate i predicts f(w_c) + gᵀ (w_i − w_c), and takes the step of its own R."""
    X = 0.5 * rng.standard_normal((40, 4))
    y = np.sin(X @ rng.standard_normal(4)) + 0.1 * rng.standard_normal(40)
    auto = orfit.ORFit(Wave(), memory, noise="auto")
    for x, label in zip(X, y, strict=True):
        before, chosen = auto.memory.w.copy(), auto._cell.state.chosen
        assert auto.w == pytest.approx(before[:, chosen])
        f, g = (part[..., 0] for part in Wave().linearize(before[:, chosen], x[None]))
        update = auto.learn(x, label)
        assert update.prediction == pytest.approx(f)
        told = f + g @ (before - before[:, [chosen]])
        moved = auto.memory.w - before
        assert np.linalg.norm(moved[:, chosen]) == pytest.approx(update.step)
        if memory is None:  # nothing is dropped: each is a Kalman filter
            if not auto.seen - 1:
                P = np.stack([np.eye(4)] * len(auto.candidates))
            for i, R in enumerate(auto._cell.state.noises):
                gain = P[i] @ g / (g @ P[i] @ g + R)
                np.testing.assert_allclose(moved[:, i], gain * (label - told[i]), atol=1e-9)
                P[i] -= np.outer(gain, g @ P[i])


@pytest.mark.parametrize("sigma", [0.05, 0.5])
def test_a_nonlinear_model_ends_near_the_best_of_the_grid(sigma, rng):
    X = rng.standard_normal((700, 4))
    clean = np.sin(X @ np.array([0.3, 0.8, 0.1, 0.6]))
    y = clean + sigma * rng.standard_normal(700)

    def learned(noise):
        learner = orfit.ORFit(Wave(), 4, noise=noise)
        learner.learn_each(X[:400], y[:400])
        return learner, np.sqrt(np.mean((learner.predict(X[400:]) - clean[400:]) ** 2))

    auto, error = learned("auto")
    errors = [learned(float(R))[1] for R in auto._cell.state.noises]
    assert error <= 1.1 * min(errors) + 0.02 * sigma


def test_a_huge_row_damages_neither_file_nor_health(rng, tmp_path):
    for settings in ({"noise": 0.1}, {"noise": "auto"}, {}):
        learner = orfit.ORFit(orfit.Linear(3), 2, **settings)
        learner.learn(np.full(3, 1e160), 1.0)
        learner.save(tmp_path / "early")
        orfit.load(tmp_path / "early")
        for _ in range(100):
            learner.learn(rng.standard_normal(3), 1.0)
        learner.save(tmp_path / "late")
        orfit.load(tmp_path / "late")
        assert learner.noise == 0 or np.isfinite(learner.health().surprise)


def test_zero_rows_before_the_first_do_not_determine_the_grid(rng):
    X, y = np.zeros((4, 6)), np.array([1.0, 1, 1, 5])
    X[3] = 1e3 * np.arange(1, 7)
    learner, other = (orfit.ORFit(orfit.Linear(6), 3, noise="auto") for _ in range(2))
    learner.learn_each(X, y)
    other.learn(X[3], y[3])
    np.testing.assert_array_equal(learner._cell.state.noises, other._cell.state.noises)
    assert learner.health().surprise >= 1
