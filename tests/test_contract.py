"""One contract for every learner. A new learner is one more line in LEARNERS."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import orfit
from covering import covering_array
from interrupts import everything as state
from orfit.reproduce.tanh import TanhNetwork

NOISE = [[1.0, 0.3], [0.3, 0.5]]
LEARNERS = {
    "ORFit": orfit.ORFit,
    "ORFit limited": lambda model, **k: orfit.ORFit(model, 3, **k),
    "ORFit noisy": lambda model, **k: orfit.ORFit(model, noise=0.5, **k),
    "ORFit limited noisy": lambda model, **k: orfit.ORFit(model, 3, noise=0.5, **k),
    "ORFit fading": lambda model, **k: orfit.ORFit(model, 3, noise=0.1, forgetting=0.9, **k),
    "ORFit latest": lambda model, **k: orfit.ORFit(model, orfit.memory.Latest(3), **k),
    "ORFit random": lambda model, **k: orfit.ORFit(model, orfit.memory.Random(3, seed=5), **k),
    "ORFit frequent": lambda model, **k: orfit.ORFit(
        model, orfit.memory.FrequentDirections(3), noise=0.2, **k
    ),
    "ORFit sketch fresh": lambda model, **k: orfit.ORFit(
        model, orfit.memory.Sketch(3, "fresh"), **k
    ),
    "ORFit sketch kept": lambda model, **k: orfit.ORFit(
        model, orfit.memory.Sketch(3), noise=0.2, forgetting=0.9, **k
    ),
    "ORFit sketch symmetric": lambda model, **k: orfit.ORFit(
        model, orfit.memory.Sketch(4, "symmetric", seed=2), **k
    ),
    "ORFit nothing": lambda model, **k: orfit.ORFit(model, orfit.memory.Nothing(), **k),
    "OneStepSGD": orfit.OneStepSGD,
    "ORFit auto": lambda model, **k: orfit.ORFit(model, 3, noise="auto", **k),
    "ORFit fading auto": lambda model, **k: orfit.ORFit(
        model, 3, noise=0.1, tail="auto", forgetting="auto", **k
    ),
    "ORFit growing": lambda model, **k: orfit.ORFit(model, "auto", noise=0.1, **k),
    "RLS": lambda model, **k: orfit.RLS(model, prior=np.full(model.size, 0.5), **k),
    "RLS weighted": lambda model, **k: orfit.RLS(model, forgetting=0.95, **k),
    "RLS drifting": lambda model, **k: orfit.RLS(
        model, forgetting=0.9, drift=np.arange(model.size) / 10, **k
    ),
    "RLS limit": lambda model, **k: orfit.RLS(model, forgetting=0, **k),
    "NTKRLS": lambda model, **k: orfit.NTKRLS(model, prior=2 * np.eye(model.size), **k),
    "EKF": lambda model, **k: orfit.EKF(model, noise=0.3, **k),
    "EKF noiseless": lambda model, **k: orfit.EKF(model, noise=0, **k),
    "EKF matrix": lambda model, **k: orfit.EKF(model, noise=NOISE, **k),
    "EKF drifting": lambda model, **k: orfit.EKF(model, noise=0.3, drift=0.1, **k),
    "OGD": lambda model, **k: orfit.OGD(model, 3, lr=0.01, steps=2, **k),
    "SGD": lambda model, **k: orfit.SGD(model, lr=0.01, **k),
    "Greedy": orfit.Greedy,
}
# Small models run full here, which is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")

LINEAR_ONLY = {name for name in LEARNERS if name.startswith("RLS")}


def polynomial(X):
    return X.reshape(len(X), -1)[:, :1] ** np.arange(12)


def two_outputs(X):
    return np.stack([X @ np.eye(5, 12), X @ np.eye(5, 12, 3)], axis=2)


MODELS = {
    "scalar": (lambda: orfit.Linear(12), (12,), ()),
    "bias": (lambda: orfit.Linear(11, bias=True), (11,), ()),
    "heads": (lambda: orfit.Linear(12, heads=3), (12,), (3,)),
    "one head": (lambda: orfit.Linear(12, heads=1), (12,), (1,)),
    "features": (lambda: orfit.Linear(12, features=polynomial), (2, 2), ()),
    "numbers": (lambda: orfit.Linear(12, features=polynomial), (), ()),
    "outputs": (lambda: orfit.Linear(12, features=two_outputs), (5,), (2,)),
    "network": (lambda: TanhNetwork(2, 4), (2,), ()),
    "network outputs": (lambda: TanhNetwork(2, 3, 2), (2,), (2,)),
}

PAIRS = [
    (a, b)
    for a in LEARNERS
    for b in MODELS
    if not (a in LINEAR_ONLY and "network" in b) and ("outputs" in b or a != "EKF matrix")
]
STREAMS = ("random", "repeated", "single precision")
# The tests that `everywhere` marks, here and in test_weights.py.
TESTS = (
    "test_each_is_a_loop_of_learn",
    "test_an_update_describes_its_step",
    "test_predicting_one_is_predicting_many_and_changes_nothing",
    "test_an_empty_batch_changes_nothing",
    "test_bad_input_is_refused_and_changes_nothing",
    "test_a_restored_learner_learns_bit_by_bit_as_the_saved_one",
    "test_weight_one_is_none",
    "test_weight_zero_changes_nothing",
    "test_each_with_weights_is_a_loop_of_learn",
)
# Each test has each learner, each model and each kind of stream; each learner has each model.
CASES = covering_array(
    {"test": TESTS, "learner": tuple(LEARNERS), "model": tuple(MODELS), "kind": STREAMS},
    lambda case: case[1:3] in PAIRS,
    times=2,
)


def everywhere(test):
    """Run a test with the learners, models and streams that the covering array has for it."""
    cases = [case[1:] for case in CASES if case[0] == test.__name__]
    return pytest.mark.parametrize(("learner", "model", "kind"), cases)(test)


with_parameters = pytest.mark.parametrize(
    "learner", [name for name in LEARNERS if name not in ("Greedy", "EKF matrix")]
)


def make(learner, model, **settings):
    return LEARNERS[learner](MODELS[model][0](), **settings)


def stream(model, n, kind="random", seed=0):
    """Inputs and labels: random numbers, with rows of zeros and repeated rows, or in float32."""
    rng = np.random.default_rng(seed)
    _, shape, labels = MODELS[model]
    X, Y = rng.uniform(-1, 1, (n, *shape)), rng.standard_normal((n, *labels))
    if kind == "repeated":
        X[2::3], Y[2::3] = X[: len(X[2::3])], Y[: len(Y[2::3])]
        X[3::7] = 0
    if kind == "single precision":
        return X.astype(np.float32), Y.astype(np.float32)
    return X, Y


def same(one, other):
    return state(one) == state(other)


@everywhere
def test_each_is_a_loop_of_learn(learner, model, kind):
    X, Y = stream(model, 7, kind)
    loop, each = make(learner, model), make(learner, model)
    updates_of_loop = [loop.learn(x, y) for x, y in zip(X, Y, strict=True)]
    updates = each.learn_each(X, Y)
    assert np.abs(each.w - loop.w).max() <= 1e-12 * (1 + np.abs(loop.w).max())
    assert each.seen == loop.seen == len(updates) == 7
    for field in ("prediction", "residual", "step", "novelty", "conflict", "rank"):
        rows = getattr(updates, field)
        expected = np.array([getattr(update, field) for update in updates_of_loop])
        assert rows.shape == expected.shape
        assert np.abs(rows - expected).max() <= 1e-10 * (1 + np.abs(expected).max())


@everywhere
def test_an_update_describes_its_step(learner, model, kind):
    X, Y = stream(model, 5, kind)
    learner, chooses = make(learner, model), "auto" in learner
    for x, y in zip(X, Y, strict=True):
        before, w = learner.predict(x), learner.w
        update = learner.learn(x, y)
        assert np.shape(update.prediction) == Y.shape[1:]
        assert np.allclose(update.prediction, before, rtol=1e-12)
        assert np.allclose(update.residual, y - before, rtol=1e-12)
        assert 0 <= update.novelty <= 1 + 1e-12
        if chooses:  # the row may have made another candidate the best
            continue
        assert update.step == pytest.approx(np.linalg.norm(learner.w - w), rel=1e-12, abs=1e-12)
        if learner.model.linear:
            assert np.allclose(update.conflict, y - learner.predict(x), atol=1e-9)
    block = learner.learn_batch(X, Y)
    assert np.shape(block.prediction) == np.shape(block.conflict) == Y.shape
    assert learner.seen == 10


@everywhere
def test_predicting_one_is_predicting_many_and_changes_nothing(learner, model, kind):
    X, Y = stream(model, 6, kind)
    learner = make(learner, model)
    learner.learn_each(X, Y)
    before = state(learner)
    many = learner.predict(X)
    assert many.shape == Y.shape
    for x, f in zip(X, many, strict=True):
        assert np.allclose(learner.predict(x), f, rtol=1e-13, atol=1e-13)
    assert learner.predict(X[:0]).shape == Y[:0].shape
    assert state(learner) == before


@everywhere
def test_an_empty_batch_changes_nothing(learner, model, kind):
    X, Y = stream(model, 4, kind)
    learner = make(learner, model)
    for _ in range(2):  # before the first datapoint, and after
        before = state(learner)
        update = learner.learn_batch(X[:0], Y[:0])
        assert np.shape(update.prediction) == np.shape(update.conflict) == Y[:0].shape
        assert (update.step, update.novelty) == (0, 0)
        updates = learner.learn_each(X[:0], Y[:0])
        assert len(updates) == 0
        assert updates.residual.shape == Y[:0].shape
        assert len(learner.learn_each([], [])) == 0
        assert state(learner) == before
        learner.learn_batch(X, Y)


def bad_inputs(x, y, may_be_missing):
    nan = np.array(x, float)
    nan.flat[-1] = np.nan
    infinite = np.array(x, float)
    infinite.flat[0] = np.inf
    yield nan, y, "x must be finite.*NaN"
    yield infinite, y, "x must be finite"
    if not may_be_missing:
        yield x, np.full_like(y, np.nan), "y must be finite"
        yield x, None, "y must hold real numbers"
    yield x, np.full_like(y, -np.inf), "y must be finite"
    yield np.append(x, 1.0).reshape(-1), y, "x must have shape"
    yield x[None], y, "x must have shape"
    yield x, np.append(y, [1.0, 1.0]), "y (must|has shape)"
    yield np.array(x, object), y, "x must hold real numbers; it holds object"
    yield np.array(x, complex), y, "x must hold real numbers; it holds complex"
    yield x, "seven", "y must hold real numbers"
    yield [[1.0, 2.0], [3.0]], y, "x is not a rectangular array"


@everywhere
def test_bad_input_is_refused_and_changes_nothing(learner, model, kind):
    X, Y = stream(model, 5, kind)
    X, bad_x, Y, bad_y = X[1:], X[0], Y[1:], Y[0]
    learner = make(learner, model)
    learner.learn_each(X, Y)
    before = state(learner)
    for x, y, message in bad_inputs(bad_x, bad_y, isinstance(learner, orfit.EKF)):
        with pytest.raises(ValueError, match=message):
            learner.learn(x, y)
        assert state(learner) == before
    spoiled = np.array([*X, bad_x])
    spoiled[2] = np.nan
    for method in (learner.learn_batch, learner.learn_each):
        for A, B, message in (
            (spoiled, np.array([*Y, bad_y]), r"X must be finite.*the first at index \(?2"),
            (X, Y[:-1], "X has 4 datapoints, but Y has 3"),
            (X, np.full_like(Y, np.inf), "Y must be finite"),
            (X, np.zeros((4, 9)), "y (must|has shape)"),
            (X, 1.0, "many datapoints"),
            (np.zeros((4, 7, 7)), Y, "X must have shape"),
            ("abc", Y, "X must hold real numbers"),
        ):
            with pytest.raises(ValueError, match=message):
                method(A, B)
            assert state(learner) == before
    for X_bad in (np.full_like(X, np.nan), np.zeros((4, 7, 7)), "abc"):
        with pytest.raises(ValueError, match=r"X must (be finite|have shape|hold)"):
            learner.predict(X_bad)


@everywhere
def test_a_restored_learner_learns_bit_by_bit_as_the_saved_one(learner, model, kind, tmp_path):
    X, Y = stream(model, 25, kind)
    learner = make(learner, model)
    needs_model = not learner.model.settings() or learner.model.features is not None
    again = {"model": MODELS[model][0]()} if needs_model else {}
    learner.save(tmp_path / "fresh")
    assert same(orfit.load(tmp_path / "fresh", **again), learner)
    for x, y in zip(X[:15], Y[:15], strict=True):
        learner.learn(x, y)
    learner.save(tmp_path / "file")
    restored = orfit.load(tmp_path / "file", **again)
    assert type(restored) is type(learner)
    assert same(restored, learner)
    for each in (learner, restored):
        for x, y in zip(X[15:], Y[15:], strict=True):
            each.learn(x, y)
        each.learn_batch(X[:5], Y[:5])
    assert same(restored, learner)
    assert (restored.predict(X) == learner.predict(X)).all()
    if needs_model:
        with pytest.raises(orfit.CheckpointError, match="Python code"):
            orfit.load(tmp_path / "file")


@with_parameters
def test_float32(learner):
    X, Y = stream("scalar", 20)
    w0 = np.zeros(12)
    double, single = (make(learner, "scalar", w0=start) for start in (w0, w0.astype("f")))
    assert single.w.dtype == np.float32
    assert single.predict(X).dtype == np.float32
    double.learn_each(X[:8], Y[:8])
    single.learn_each(X[:8], Y[:8])
    assert np.abs(single.w - double.w).max() <= 1e-4 * (1 + np.abs(double.w).max())


@with_parameters
def test_settings_and_starting_point(learner):
    X, Y = stream("scalar", 3)
    w0 = np.arange(12)
    started = make(learner, "scalar", w0=w0)
    assert started.w.dtype == np.float64
    assert np.allclose(started.predict(X), X @ w0)
    for bad in (np.zeros(11), np.zeros((12, 1)), np.full(12, np.nan), "w"):
        with pytest.raises(ValueError, match="w0"):
            make(learner, "scalar", w0=bad)
    made = make(learner, "scalar")
    before = made.w
    made.learn(X[0], Y[0])
    assert (before == 0).all()  # a copy, which the step left alone
    with pytest.raises(ValueError, match="read-only"):
        made.w[...] = 1


def test_lists_and_numbers_are_data_too():
    learner = orfit.ORFit(orfit.Linear(2))
    learner.learn([1, 2], 3)
    learner.learn_batch([[True, False]], [1])
    assert learner.predict([1, 2]) == pytest.approx(3)


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda m: orfit.ORFit(m, 0), "memory must be at least 1"),
        (lambda m: orfit.ORFit(m, 2.5), 'memory must be None, a whole number, "auto", or'),
        (lambda m: orfit.ORFit(m, "many"), "a memory such as"),
        (lambda m: orfit.OGD(m, orfit.memory.Dense(), lr=1), "OGD needs a memory of directions"),
        (lambda m: orfit.ORFit(orfit.Linear), "not a class"),
        (lambda m: orfit.ORFit(3), "model must be a model"),
        (lambda m: orfit.ORFit(m, noise=-1), "noise must not be negative"),
        (lambda m: orfit.ORFit(m, noise=[1, 2]), "noise must be a single number"),
        (lambda m: orfit.ORFit(m, forgetting=0), r"forgetting must be in \(0, 1\]"),
        (lambda m: orfit.ORFit(m, forgetting=1.1), r"forgetting must be in \(0, 1\]"),
        (lambda m: orfit.RLS(m, forgetting=-0.1), r"forgetting must be in \[0, 1\]"),
        (lambda m: orfit.RLS(m, prior=0), "prior must be positive"),
        (lambda m: orfit.RLS(m, prior=[1, 2]), "prior is for 2 parameters"),
        (lambda m: orfit.RLS(m, prior=[[1, 2], [3, 4]]), "prior must be symmetric"),
        (lambda m: orfit.RLS(m, prior=-np.eye(3)), "prior must be positive definite"),
        (lambda m: orfit.RLS(m, prior=np.ones((3, 2))), "prior must be a number"),
        (lambda m: orfit.EKF(m, noise=-1), "noise must not be negative"),
        (lambda m: orfit.EKF(m, noise=[[1, 2], [0, 1]]), "symmetric"),
        (lambda m: orfit.EKF(m, noise=-np.eye(2)), "positive semidefinite"),
        (lambda m: orfit.EKF(m, noise=np.eye(2)).learn([1, 2, 3], 1), "noise is 2×2, but y has"),
        (lambda m: orfit.EKF(orfit.Linear(3, heads=2), noise=np.eye(2)), "heads share"),
        (lambda m: orfit.SGD(m, lr=0), "lr must be positive"),
        (lambda m: orfit.OGD(m, lr=1, steps=0), "steps must be at least 1"),
        (lambda m: orfit.SGD(m, lr=1).learn_each([], [], passes=0), "passes must be at least 1"),
        (lambda m: orfit.RLS(TanhNetwork(2, 2)), "RLS needs a linear model"),
        (lambda m: orfit.Linear(0), "size must be at least 1"),
        (lambda m: orfit.Linear(3, heads=0), "heads must be at least 1"),
        (lambda m: orfit.Linear(3, features=7), "features must be a function"),
    ],
)
def test_invalid_settings_are_refused(make_it, message):
    with pytest.raises(ValueError, match=message):
        make_it(orfit.Linear(3))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (lambda X: X[:, :3], r"features must return shape \(1, 4\)"),
        (lambda X: X[0], "features must return shape"),
        (lambda X: X * np.nan, "what features returned must be finite"),
        (lambda X: X[:, :, None] * np.ones(2), "exclude each other"),
    ],
)
def test_features_with_invalid_output_are_refused(features, message):
    learner = orfit.ORFit(orfit.Linear(4, heads=2, features=features))
    before = state(learner)
    with pytest.raises(ValueError, match=message):
        learner.learn(np.ones(4), np.ones(2))
    assert state(learner) == before


def test_features_may_work_in_place_and_get_a_batch():
    def in_place(X):
        X *= 2
        return X

    x = np.ones(3)
    orfit.ORFit(orfit.Linear(3, features=in_place)).learn(x, 1.0)
    assert (x == 1).all()
    learner = orfit.ORFit(orfit.Linear(2, features=lambda x: np.array([x[0], x[1]])))
    with pytest.raises(ValueError, match="it is given many inputs at once"):
        learner.learn([1.0, 2.0], 1.0)


def test_invalid_models_are_refused():
    class Transposed(TanhNetwork):
        def linearize(self, w, X):
            F, G = super().linearize(w, X)
            return F, G.T

    class Long(TanhNetwork):
        def initial(self):
            return np.zeros(self.size + 1)

    class Mute:
        size = 3

    with pytest.raises(ValueError, match=r"gradient of shape \(9, 1\); it returned \(1, 9\)"):
        orfit.ORFit(Transposed(2, 3)).learn([1, 2], 1)
    with pytest.raises(ValueError, match=r"initial\(\) must have shape \(9,\); it has \(10,\)"):
        orfit.ORFit(Long(2, 3))
    with pytest.raises(ValueError, match="no heads, no input_shape"):
        orfit.ORFit(Mute())


def test_masked_values_are_refused():
    learner = orfit.ORFit(orfit.Linear(3))
    with pytest.raises(ValueError, match="x has masked values"):
        learner.learn(np.ma.masked_equal([1.0, 2.0, 9.0], 9.0), 1.0)
    learner.learn(np.ma.masked_equal([1.0, 2.0, 3.0], 9.0), 1.0)


def test_repr_shows_the_settings():
    learner = orfit.ORFit(orfit.Linear(3, heads=2), 2, noise=0.5)
    expected = "<ORFit(Linear(3, heads=2), Principal(m=2), noise=0.5), seen=0>"
    assert repr(learner) == expected


def test_a_gradient_that_is_not_finite_is_refused():
    class Broken(TanhNetwork):
        def linearize(self, w, X):
            F, G = super().linearize(w, X)
            return F, G * np.nan

    for learner in (orfit.ORFit(Broken(2, 3)), orfit.EKF(Broken(2, 3), noise=1.0)):
        before = state(learner)
        with pytest.raises(ValueError, match="gradient is not finite"):
            learner.learn([1, 2], 1)
        assert state(learner) == before


def test_import_loads_no_optional_package():
    """Neither importing orfit nor heads without a network load an optional package."""
    script = (
        "import sys, orfit; orfit.Heads(memory=2);"
        "print(' '.join({name.split('.')[0] for name in sys.modules}))"
    )
    root = Path(__file__).parent
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root
    ).stdout.split()
    assert not set(found) & {"torch", "sklearn", "matplotlib", "rich", "pandas", "pyarrow"}


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_rows_before_one_whose_features_are_refused_are_learned(noise, rng):
    def features(X):
        if (X > 9).any():
            raise RuntimeError("out of range")
        return X

    learner = orfit.ORFit(orfit.Linear(3, features=features), 2, noise=noise)
    X, y = rng.standard_normal((12, 3)), rng.standard_normal(12)
    X[7, 0] = 10.0
    with pytest.raises(ValueError, match="out of range"):
        learner.learn_each(X, y)
    assert learner.seen == 7
