"""Noise and tail that choose themselves."""

import contextlib
import copy
import pickle
import warnings

import numpy as np
import pytest

import orfit
from covering import covering_array
from orfit import tall
from orfit.learners.guesses import Guesses
from orfit.memory.frame import Frame

WAYS = ["plain", "compiled", "coordinates"]


def stream(kind, rng, n=3000, p=60, noise=0.3):
    X = rng.standard_normal((n, p)) / (np.arange(1, p + 1) if kind == "1/i" else 1.0)
    return X, X @ rng.standard_normal(p) + noise * rng.standard_normal(n)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("heads", [None, 2])
def test_every_guess_is_the_learner_of_that_noise_while_nothing_is_dropped(way, heads, rng):
    X, y = stream("1/i", rng, 100, 8)
    Y = y if heads is None else np.column_stack([y, -y])
    model = orfit.Linear(8, heads=heads)
    auto = orfit.ORFit(model, 8, noise="auto", rows=way)
    auto.learn_each(X, Y)
    for noise, mine in auto.guesses.each():
        alone = orfit.ORFit(model, 8, noise=noise, rows="plain")
        alone.learn_each(X, Y)
        np.testing.assert_allclose(
            auto.memory.w[:, mine].reshape(alone.w.shape), alone.w, rtol=0, atol=1e-9
        )


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"noise": "auto"}, {"noise": "auto", "tail": "auto"}])
def test_all_ways_choose_alike(settings, rng):
    X, y = stream("1/i", rng, 400, 30)
    made = []
    for way in WAYS:
        learner = orfit.ORFit(orfit.Linear(30), 6, rows=way, **settings)
        updates = learner.learn_each(X, y)
        made.append((learner.noise, learner.guesses.tail, learner.w, updates.prediction))
    one_by_one = orfit.ORFit(orfit.Linear(30), 6, **settings)
    predictions = [one_by_one.learn(x, label).prediction for x, label in zip(X, y, strict=True)]
    made.append((one_by_one.noise, one_by_one.guesses.tail, one_by_one.w, predictions))
    for noise, tail, w, prediction in made[1:]:
        assert (noise, tail) == made[0][:2]
        np.testing.assert_allclose(w, made[0][2], rtol=0, atol=1e-9)
        np.testing.assert_allclose(prediction, made[0][3], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "noise", "m"),
    [("white", 0.03, 5), ("1/i", 3.0, 5), ("1/i", 0.03, 30)],
)
def test_it_ends_near_the_best_of_its_grid(kind, noise, m, rng):
    X, y = stream(kind, rng, n=2000, p=20, noise=noise)
    test, clean = X[1000:], y[1000:]
    auto = orfit.ORFit(orfit.Linear(20), m, noise="auto", rows="plain")
    auto.learn_each(X[:1000], y[:1000])
    errors = []
    for fixed, _ in auto.guesses.each():
        alone = orfit.ORFit(orfit.Linear(20), m, noise=fixed, rows="plain")
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("large", "columns"), [(1e3, 7), (1e6, 1), (1e9, 7), (1e9, 1)])
def test_columns_in_large_units_leave_the_others_to_be_learned(way, large, columns, rng):
    X = rng.standard_normal((1500, 8))
    X[:, :columns] += 5.0
    y = X @ rng.standard_normal(8) + 0.1 * rng.standard_normal(1500)
    X[:, :columns] *= large
    auto = orfit.ORFit(orfit.Linear(8), 8, noise="auto", rows=way)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", orfit.ScaleWarning)
        auto.learn_each(X[:1000], y[:1000])
    assert np.sqrt(np.mean((auto.predict(X[1000:]) - y[1000:]) ** 2)) <= 0.105


def test_which_noises_are_compared():
    def compared(first):
        learner = orfit.ORFit(orfit.Linear(len(first)), noise="auto")
        learner.learn(first, 1.0)
        return np.log10(learner.guesses.noises).tolist()

    assert compared([3.0, 0.1, 0.0]) == [-5, -4, -3, -2, -1, 0, 1, 2], "|g|² is 9, 1e2 times 2·0.1²"
    assert compared([1e4] + 9 * [1.0]) == [-5, -2, 2, 5, 6, 7, 8, 9], "down to 1e-6 times 10·1²"
    assert compared([1.0] + 9 * [1e4]) == [-5, -1, 2, 6, 7, 8, 9, 10], "few small ones count, too"
    assert compared([1e4] + 9 * [1e-9]) == [2, 3, 4, 5, 6, 7, 8, 9], "rounding beside the largest"
    assert compared([0.5] * 1000) == [-4, -3, -2, -1, 0, 1, 2, 3]


@pytest.mark.parametrize("exponent", [-320, -200, 0, 150])
def test_small_numbers_of_any_size(exponent):
    g = np.array([1.0, 1e-3, 0.0, 1e-3]) * 10.0**exponent
    length = np.sqrt(3) * 1e-3
    assert tall.small_length(g[:, None]) == pytest.approx(exponent + np.log10(length), abs=0.16)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", [1e2, 1e3, 1e6])
def test_a_first_row_that_is_far_too_long_says_nothing_for_long(way, first, rng):
    X, y = stream("white", rng, 600, 40, noise=3.0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    usual, unusual = (orfit.ORFit(orfit.Linear(40), 10, noise="auto", rows=way) for _ in range(2))
    usual.learn_each(X, y)
    X[0], y[0] = first * X[0], first * y[0]
    unusual.learn_each(X, y)
    assert np.abs(np.log10(unusual.guesses.noises / usual.guesses.noises)).max() < 1.5
    assert abs(np.log10(unusual.noise / usual.noise)) < 1.5


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", [1e-3, 1e-6, 1e-9])
def test_after_a_first_row_that_is_far_too_short_others_are_learned(way, first, rng):
    X = rng.standard_normal((600, 5))
    X[0] *= first
    y = X @ [1.0, -2.0, 3.0, 0.5, 1.0] + 0.1 * rng.standard_normal(600)
    learner = orfit.ORFit(orfit.Linear(5), 5, noise="auto", rows=way)
    residual = learner.learn_each(X, y).residual
    assert np.sqrt(np.mean(residual[300:] ** 2)) <= 0.105
    assert learner.predict(X[-1], std=True)[1] == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("settings", "first"),
    [
        *(({}, first) for first in (1e-9, 1e-2, 1e3, 1e5)),
        *(({"w0": np.arange(20.0)}, first) for first in (1e-2, 1e5)),
        *(({"tail": "auto"}, first) for first in (1e-9, 1e3)),
    ],
)
def test_guesses_that_moved_are_as_if_they_had_been_there_from_the_start(way, first, settings, rng):
    X, y = stream("white", rng, 300, 20)
    X[0], y[0] = first * X[0], first * y[0]
    auto = orfit.ORFit(orfit.Linear(20), 20, noise="auto", rows=way, **settings)
    auto.learn_each(X, y)
    assert auto.guesses.unit[0] in (0, 1, 2), "not that of the first row"
    given = {name: value for name, value in settings.items() if name == "w0"}
    for i, (noise, columns) in enumerate(auto.guesses.each()):
        fixed = orfit.ORFit(orfit.Linear(20), 20, noise=noise, **given)
        fixed.learn_each(X, y)
        apart = np.abs(auto.memory.w[:, columns][:, 0] - fixed.w).max()
        # w, where too much noise was guessed at first, is multiplied by up to R / R'.
        assert apart <= 1e-12 * max(1.0, first), i


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("dtype", "first"), [(np.float32, 1e12), (np.float64, 1e30)])
def test_rounding_is_not_magnified_where_guesses_move_far_down(way, dtype, first, rng):
    """A first row of another world: w along all others is next to nothing then, and rounding."""
    X, y = stream("white", rng, 600, 20)
    X[0] *= first if dtype == np.float64 else np.sqrt(first)
    w0 = np.zeros(20, dtype)
    auto, fixed = (
        orfit.ORFit(orfit.Linear(20), 20, noise=noise, rows=way, w0=w0) for noise in ("auto", 0.1)
    )
    residuals = [one.learn_each(X.astype(dtype), y).residual[300:] for one in (auto, fixed)]
    assert np.std(residuals[0]) <= 1.05 * np.std(residuals[1])


@pytest.mark.parametrize(
    ("m", "rest", "short"), [(5, 10, 1e-5), (5, 50, 1e-2), (20, 10, 1e-2), (20, 50, 1e-5)]
)
def test_a_start_at_rest_costs_next_to_nothing(m, rest, short, rng):
    X, y = stream("1/i", rng, 900, 20, noise=0.3)
    later = slice(max(300, 8 * rest), None)
    model, settings = orfit.Linear(20), {"noise": "auto", "rows": "plain"}
    usual, resting = (orfit.ORFit(model, m, **settings) for _ in range(2))
    wanted = np.sqrt(np.mean(usual.learn_each(X, y).residual[later] ** 2))
    X[:rest] *= short
    y[:rest] *= short
    error = np.sqrt(np.mean(resting.learn_each(X, y).residual[later] ** 2))
    assert abs(resting.guesses.unit[0] - usual.guesses.unit[0]) < 2
    assert error <= 1.05 * wanted


@pytest.mark.parametrize("first", [1e-4, 1e4])
def test_guesses_move_in_a_block_too(first, rng):
    X, y = stream("white", rng, 100, 20)
    X[0], y[0] = first * X[0], first * y[0]
    learner = orfit.ORFit(orfit.Linear(20), 10, noise="auto")  # more rows than it has room for
    learner.learn_batch(X, y)
    assert learner.guesses.unit[0] in (1, 2)
    fixed = orfit.ORFit(orfit.Linear(20), 20, noise="auto")
    fixed.learn_batch(X, y)
    for noise, columns in fixed.guesses.each():
        ridge = np.linalg.solve(X.T @ X + noise * np.eye(20), X.T @ y)
        np.testing.assert_allclose(fixed.memory.w[:, columns][:, 0], ridge, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("first", [1e-5, 1e5])
@pytest.mark.parametrize("memory", [5, "auto", None, orfit.memory.Latest, orfit.memory.Random])
def test_guesses_move_while_rows_wait(first, memory, rng):
    X, y = stream("white", rng, 40, 60)
    X[0], y[0] = first * X[0], first * y[0]
    memory = memory(5) if isinstance(memory, type) else memory
    learner = orfit.ORFit(orfit.Linear(60), memory, noise="auto")
    learner.learn_batch(X, y)
    assert learner.guesses.unit[0] in (1, 2)
    assert np.abs(learner.w).max() <= learner.memory.reach


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("weight", "zeros"), [(1e-30, slice(65, 256)), (1e30, slice(0, 64, 2)), (1e30, slice(0, 256))]
)
def test_rows_of_zeros_tell_no_length_whatever_they_weigh(way, weight, zeros, rng):
    X, y = stream("white", rng, 600, 10, noise=0.1)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    weights = np.ones(600)
    kept = X[66:255:40].copy()
    X[zeros], weights[zeros] = 0, weight
    if zeros.start:
        X[66:255:40], weights[66:255:40] = kept, 1
    learner = orfit.ORFit(orfit.Linear(10), 10, noise="auto", rows=way)
    learner.learn_each(X, y, weight=weights)
    assert learner.guesses.unit[0] == 0


@pytest.mark.parametrize("first", [1e6, 1e12])
def test_rows_of_zeros_are_no_start(first, rng):
    X, y = stream("white", rng, 600, 10, noise=0.1)
    X[:70] = 0
    X[70], y[70] = first * X[70], first * y[70]
    learner = orfit.ORFit(orfit.Linear(10), 10, noise="auto", rows="plain")
    learner.learn_each(X, y)
    assert abs(learner.guesses.unit[0]) <= 2


def test_after_a_loud_phase_guesses_come_back(rng):
    X, y = stream("white", rng, 3000, 20, noise=0.1)
    loud = slice(300, 1024)
    X[loud] *= 1e4
    y[loud] *= 1e4
    learner = orfit.ORFit(orfit.Linear(20), 20, noise="auto", rows="plain")
    learner.learn_each(X[:1024], y[:1024])
    assert learner.guesses.unit[0] >= 8
    learner.learn_each(X[1024:], y[1024:])
    assert learner.guesses.unit[0] == 1


def test_what_is_known_of_the_noise_stays_known_when_guesses_move(rng):
    X, y = rng.standard_normal((600, 10)), 1e-4 * rng.standard_normal(600)
    X[:100] *= 1e-3
    learner = orfit.ORFit(orfit.Linear(10), 10, noise="auto", rows="plain")
    units, stds = [], []
    for x, label in zip(X, y, strict=True):
        learner.learn(x, label)
        units.append(learner.guesses.unit[0])
        stds.append(learner.predict(np.zeros(10), std=True)[1])
    moved = np.flatnonzero(np.diff(units)) + 1
    assert len(moved[moved > 64])
    for row in moved[moved > 64]:
        assert 0.5 <= stds[row] / stds[row - 1] <= 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("settings", [{}, {"tail": "auto"}, {"w0": np.ones(5)}])
def test_lengths_as_far_apart_as_numbers_are(way, settings, rng):
    X, y = stream("white", rng, 80, 5)
    X *= 1e-150
    X[0] *= 1e300
    learner = orfit.ORFit(orfit.Linear(5), 5, noise="auto", rows=way, **settings)
    learner.learn_each(X, 1e-150 * y)
    assert np.isfinite(learner.w).all()


@pytest.mark.slow
def test_coordinates_between_looks_are_the_same_steps(rng):
    X, y = stream("1/i", rng, 5000, 12)
    made = []
    for way in ("compiled", "coordinates"):
        learner = orfit.ORFit(orfit.Linear(12), 5, noise="auto", rows=way)
        residual = learner.learn_each(X, y).residual
        made.append((learner.noise, learner.w, residual))
    assert made[0][0] == made[1][0]
    for ours, theirs in zip(made[0][1:], made[1][1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


def test_at_rest_later_nothing_moves(rng):
    X, y = stream("1/i", rng, 3000, 40)
    X[400:] *= 1e-4
    learner = orfit.ORFit(orfit.Linear(40), 5, noise="auto", rows="plain")
    learner.learn_each(X[:100], y[:100])
    before = learner.guesses.noises.copy()
    learner.learn_each(X[100:], y[100:])
    np.testing.assert_array_equal(learner.guesses.noises, before)


@pytest.mark.parametrize("way", WAYS)
def test_guesses_move_by_rows_as_they_came_not_by_what_they_count(way, rng):
    X, y = stream("white", rng, 300, 10)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    plain, weighted = (orfit.ORFit(orfit.Linear(10), 10, noise="auto", rows=way) for _ in range(2))
    plain.learn_each(X, y)
    weighted.learn_each(X[:200], y[:200], weight=np.geomspace(1e-8, 1e8, 200))
    weighted.learn_each(X[200:], y[200:], weight=1e6)
    assert weighted.guesses.unit == plain.guesses.unit


@pytest.mark.parametrize("way", ["plain", "compiled"])
@pytest.mark.parametrize("settings", [{}, {"forgetting": "auto"}])
@pytest.mark.parametrize("time", range(9))
def test_an_exception_while_guesses_move(way, settings, time, rng, monkeypatch):
    """What moved before it is not moved again when that is done once more."""
    X, y = stream("1/i", rng, 100, 20)
    X[0] *= 1e-6
    whole, stopped = (
        orfit.ORFit(orfit.Linear(20), 5, noise="auto", rows=way, **settings) for _ in range(2)
    )
    whole.learn_each(X, y)
    reweigh, calls = Frame.reweigh, []

    def moves(*args):
        calls.append(1)
        if len(calls) == 1 + time // 2 and time % 2:
            raise KeyboardInterrupt
        reweigh(*args)
        if len(calls) == 1 + time // 2 and not time % 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Frame, "reweigh", moves)
    with contextlib.suppress(KeyboardInterrupt):
        stopped.learn_each(X, y)
    monkeypatch.undo()
    stopped.learn_each(X[stopped.seen :], y[stopped.seen :])
    np.testing.assert_array_equal(stopped.memory.w, whole.memory.w)
    np.testing.assert_array_equal(stopped.guesses.noises, whole.guesses.noises)


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
@pytest.mark.parametrize("way", WAYS)
def test_guesses_that_move_on_do_so_alike_everywhere_and_when_saved(
    way, setting, saved, first, rng, tmp_path
):
    if setting == "forgetting" and way == "coordinates":
        pytest.skip("is refused with rows in coordinates")
    settings = {setting: "auto"}
    X, y = stream("1/i", rng, 300, 20)
    unusual = slice(1 if first > 1 else 50)
    X[unusual], y[unusual] = first * X[unusual], first * y[unusual]
    X[5:9] = 0
    learner, one_by_one = (
        orfit.ORFit(orfit.Linear(20), 5, rows=rows, **{"noise": "auto"} | settings)
        for rows in (way, "plain")
    )
    learner.learn_each(X[:saved], y[:saved])
    learner.save(tmp_path / "file")
    brought_back = orfit.load(tmp_path / "file")
    for one in (learner, brought_back):
        one.learn_each(X[saved:], y[saved:])
    np.testing.assert_array_equal(learner.memory.w, brought_back.memory.w)
    np.testing.assert_array_equal(learner.guesses.noises, brought_back.guesses.noises)
    for x, label in zip(X, y, strict=True):
        one_by_one.learn(x, label)
    assert abs(one_by_one.guesses.unit[0]) < 4, "the first row is not what counts"
    assert (learner.noise, learner.guesses.unit) == (one_by_one.noise, one_by_one.guesses.unit)
    np.testing.assert_allclose(learner.w, one_by_one.w, rtol=0, atol=1e-9)
    assert learner.scale == pytest.approx(one_by_one.scale, rel=1e-9)


@pytest.mark.filterwarnings("ignore::orfit.ScaleWarning")
@pytest.mark.parametrize(("later", "lowest"), [(1.0, False), (1e-4, True)])
def test_health_says_when_the_noise_is_the_lowest(later, lowest, rng):
    X = rng.standard_normal((300, 4))
    X[:70, 1:] = 0
    y = X.sum(axis=1) + 0.1 * rng.standard_normal(300)
    X[:, 1:] *= later
    learner = orfit.ORFit(orfit.Linear(4), 4, noise="auto")
    learner.learn_each(X, y)
    assert learner.health().lowest is lowest
    assert ("the lowest" in learner.health().advice) is lowest


@pytest.mark.parametrize("way", WAYS)
def test_saved_in_the_middle_it_goes_on_bit_by_bit(way, rng, tmp_path):
    X, y = stream("1/i", rng, 300, 20)
    whole = orfit.ORFit(orfit.Linear(20), 5, noise="auto", tail="auto", rows=way)
    whole.learn_each(X[:107], y[:107])
    whole.save(tmp_path / "half")
    half = orfit.load(tmp_path / "half")
    assert half.noise == whole.noise
    np.testing.assert_array_equal(half.w, whole.w)
    for learner in (whole, half):
        learner.learn_each(X[107:], y[107:])
    np.testing.assert_array_equal(half.memory.w, whole.memory.w)
    assert (half.noise, half.scale) == (whole.noise, whole.scale)


def test_a_refused_first_row_does_not_say_in_what_unit_to_guess(rng):
    X, y = stream("white", rng, 50, 5)
    tried, untried = (orfit.ORFit(orfit.Linear(5), 2, noise="auto") for _ in range(2))
    with pytest.raises(ValueError, match="overflow"):
        tried.learn(np.full(5, 1e-200), 1e308)
    assert tried.noise == untried.noise
    for learner in (tried, untried):
        learner.learn(np.zeros(5), 1.0)
        learner.learn_each(X, y)
    np.testing.assert_array_equal(tried.guesses.noises, untried.guesses.noises)
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
    """Typed out: guess i predicts f(w_c) + gᵀ (w_i − w_c), and takes the step of its own R."""
    X = 0.5 * rng.standard_normal((40, 4))
    y = np.sin(X @ rng.standard_normal(4)) + 0.1 * rng.standard_normal(40)
    auto = orfit.ORFit(Wave(), memory, noise="auto")
    for x, label in zip(X, y, strict=True):
        before, chosen = auto.memory.w.copy(), auto.guesses.chosen
        assert auto.w == pytest.approx(before[:, chosen])
        f, g = (part[..., 0] for part in Wave().linearize(before[:, chosen], x[None]))
        update = auto.learn(x, label)
        assert update.prediction == pytest.approx(f)
        told = f + g @ (before - before[:, [chosen]])
        moved = auto.memory.w - before
        assert np.linalg.norm(moved[:, chosen]) == pytest.approx(update.step)
        if memory is None:  # nothing is dropped: each is a Kalman filter
            if not auto.seen - 1:
                P = np.stack([np.eye(4)] * len(auto.guesses))
            for i, R in enumerate(auto.guesses.noises):
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
    errors = [learned(float(R))[1] for R in auto.guesses.noises]
    assert error <= 1.1 * min(errors) + 0.02 * sigma


@pytest.mark.slow
def test_repeated_steps_have_nothing_to_compare():
    with pytest.raises(ValueError, match="steps must be 1"):
        orfit.ORFit(Wave(), noise="auto", steps=3)
    with pytest.raises(ValueError, match="steps must be 1"):
        orfit.ORFit(Wave(), forgetting="auto", steps=3)


def test_a_huge_row_spoils_neither_file_nor_health(rng, tmp_path):
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


@pytest.mark.slow
def test_a_copy_learns_rows_in_the_same_way(rng):
    for rows in WAYS:
        learner = orfit.ORFit(orfit.Linear(6), 3, noise=0.1, rows=rows)
        for made in (copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
            assert made.way(300) == learner.way(300)
            made.noise = 0.2
            assert made.noise == 0.2


@pytest.mark.parametrize("way", WAYS)
def test_zero_rows_before_the_first_tell_nothing(way, rng):
    X, y = np.zeros((4, 6)), np.array([1.0, 1, 1, 5])
    X[3] = 1e3 * np.arange(1, 7)
    made = []
    for rows in ("plain", way):
        learner = orfit.ORFit(orfit.Linear(6), 3, noise="auto", rows=rows)
        learner.learn_each(X, y)
        made.append((learner.noise, learner.scale, learner.health().surprise))
    assert made[1] == pytest.approx(made[0])
    assert made[0][2] >= 1


def test_what_is_learned_of_several_outputs_is_not_forgotten_at_once():
    single, several = Guesses(0.1, True, 1), Guesses(0.1, True, 1)
    for residual in [100.0] * 40 + [0.0] * 40:
        single.take(1, np.array([[1.0, residual]]))
    for residual in [100.0] * 5 + [0.0] * 5:
        several.take(1, np.tile([1.0, residual], (8, 1)))
    single._count()
    several._count()
    assert several.error[0] == pytest.approx(single.error[0])
