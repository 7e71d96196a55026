"""More features or heads: as if they had been there from the start, with zeros."""

import copy
import threading

import numpy as np
import pytest

import orfit
from interrupts import raised_at
from orfit.memory import FrequentDirections, Growing, Latest, Nothing, Random, Sketch
from orfit.reproduce.tanh import TanhNetwork

pytestmark = pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")

METER = orfit.Meter(5)


def on(memory, **settings):
    return lambda model: orfit.ORFit(model, memory(), **settings)


LEARNERS = {
    "unlimited": on(lambda: None),
    "unlimited noisy": on(lambda: None, noise=0.5),
    "principal": on(lambda: 3, noise=0.5, meter=METER),
    "principal noiseless": on(lambda: 3, meter=METER),
    "no tail": on(lambda: 3, noise=0.5, tail=False),
    "noise auto": on(lambda: 3, noise="auto", meter=METER),
    "tails and fadings": on(lambda: 3, noise=0.5, tail="auto", forgetting="auto"),
    "fading": on(lambda: 3, noise=0.5, forgetting=0.9),
    "drifting": on(lambda: 3, noise=0.5, drift=0.1),
    "growing": on(lambda: Growing(20), noise=0.5, tail=False),
    "latest": on(lambda: Latest(3)),
    "random": on(lambda: Random(3, seed=2)),
    "frequent": on(lambda: FrequentDirections(3), noise=0.5),
    "nothing": on(Nothing),
    "RLS": lambda model: orfit.RLS(model, prior=0.5, meter=METER),
    "RLS limit": lambda model: orfit.RLS(model, forgetting=0),
    "NTKRLS": orfit.NTKRLS,
    "EKF": lambda model: orfit.EKF(model, noise=0.5),
    "OneStepSGD": lambda model: orfit.OneStepSGD(model, meter=METER),
    "SGD": lambda model: orfit.SGD(model, lr=0.01, meter=METER),
    "OGD": lambda model: orfit.OGD(model, 3, lr=0.01),
}
# The tail is a mean over directions that are not kept, and all of these count where much is dropped
# of a row: there a learner that has always had more of them differs.
TAILED = {"principal", "noise auto", "tails and fadings", "fading", "drifting"}
every_learner = pytest.mark.parametrize("name", LEARNERS)


class Stream:
    """Rows of 14 features for 4 heads, of which the first have numbers from the start."""

    def __init__(self, bias, heads, few, n=60):
        """few: all but three directions, with the bias, are short."""
        rng = np.random.default_rng(0)
        self.X, self.Y = rng.standard_normal((n, 14)), rng.standard_normal((n, 4))
        if few:
            self.X[:, 3 - bias :] *= 0.02
        self.Y += self.X @ rng.standard_normal((14, 4))
        self.bias, self.heads = bias, heads

    def model(self, size, heads):
        return orfit.Linear(size, heads=heads if self.heads else None, bias=self.bias)

    def rows(self, part, known, heads, size, outputs):
        """Rows of a size, with zeros where nothing is known yet."""
        X, Y = np.zeros((len(self.X[part]), size)), np.zeros((len(self.X[part]), outputs))
        X[:, :known], Y[:, :heads] = self.X[part, :known], self.Y[part, :heads]
        return X, (Y if self.heads else Y[:, 0])


def learn(learner, X, Y):
    """Two thirds each, some alone, some together."""
    third = len(X) // 3
    learner.learn_each(X[:third], Y[:third])
    for x, y in zip(X[third:-5], Y[third:-5], strict=True):
        learner.learn(x, y)
    learner.learn_batch(X[-5:], Y[-5:])


def check_alike(grown, twin, X):
    def close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12 * (1 + np.abs(b).max(initial=0)))

    assert grown.w.shape == twin.w.shape
    close(grown.w, twin.w)
    close(grown.predict(X), twin.predict(X))
    assert grown.seen == twin.seen
    if hasattr(grown, "health"):
        close(grown.predict(X, std=True)[1], twin.predict(X, std=True)[1])
        for name, value in vars(twin.health()).items():
            if isinstance(value, float):
                close(getattr(grown.health(), name), np.array(value))
    memory = grown.memory
    if memory is not None and hasattr(memory, "sigma"):
        (U, s), (V, t) = (twin.memory.U, twin.memory.sigma), (memory.U, memory.sigma)
        close((V * t**2) @ V.T, (U * s**2) @ U.T)
        close(memory.lost, np.array(twin.memory.lost))
    if hasattr(memory, "P"):
        close(memory.P, twin.memory.P)
    if grown.meter is not None:
        close(grown.meter.change.value, np.array(twin.meter.change.value))
        close(grown.meter.error.value, np.array(twin.meter.error.value))
        assert grown.meter.labels == twin.meter.labels


# Sizes and heads, one after another.
STEPS = {
    "features": (False, None, [(9, 1), (14, 1)]),
    "bias": (True, None, [(9, 1), (12, 1), (14, 1)]),
    "heads": (False, 4, [(14, 2), (14, 4)]),
    "both": (True, 4, [(9, 1), (12, 3), (14, 4)]),
}


@pytest.mark.parametrize("steps", STEPS)
@every_learner
def test_it_is_as_if_zeros_had_been_there(name, steps, tmp_path):
    if name == "growing" and steps in ("bias", "both"):
        pytest.skip("there cannot be more directions than parameters, so it decides otherwise")
    bias, outputs, sizes = STEPS[steps]
    # A memory that grows decides so every 32 rows; and noise is chosen better of more of them, so
    # that nothing hangs on how the tail is counted.
    n = 120 if name in ("growing", "noise auto") else 60
    stream = Stream(bias, outputs, name in TAILED, n)
    size, heads = sizes[-1]
    grown = LEARNERS[name](stream.model(*sizes[0]))
    twin = LEARNERS[name](stream.model(size, heads))
    share = len(stream.X) // len(sizes)
    for i, (known, known_heads) in enumerate(sizes):
        if i:
            before = grown.model
            grown.grow(size=known, heads=known_heads if outputs else None)
            assert grown.model is not before
        part = slice(i * share, (i + 1) * share)
        if i:  # right after it has grown
            X, _ = stream.rows(part, known, known_heads, known, known_heads)
            Z, _ = stream.rows(part, known, known_heads, size, heads)
            f, g = grown.predict(X), twin.predict(Z)
            assert np.abs(f - (g[:, :known_heads] if outputs else g)).max() < 1e-10
        learn(grown, *stream.rows(part, known, known_heads, known, known_heads))
        learn(twin, *stream.rows(part, known, known_heads, size, heads))
    check_alike(grown, twin, stream.X)
    grown.save(tmp_path / "file")
    again = orfit.load(tmp_path / "file")
    assert repr(again) == repr(grown)
    X, Y = stream.rows(slice(None), size, heads, size, heads)
    for learner in (grown, again):
        learn(learner, X, Y)
    assert everything(again) == everything(grown)


def everything(learner):
    arrays, header = learner._read(learner.state)
    return {k: (v.dtype, v.shape, v.tobytes()) for k, v in arrays.items()}, header


@every_learner
def test_right_after_it_has_grown(name):
    stream = Stream(True, 4, name in TAILED)
    grown, twin = LEARNERS[name](stream.model(9, 2)), LEARNERS[name](stream.model(14, 4))
    learn(grown, *stream.rows(slice(60), 9, 2, 9, 2))
    learn(twin, *stream.rows(slice(60), 9, 2, 14, 4))
    grown.grow(14, 4)
    check_alike(grown, twin, stream.X)


def test_of_longer_rows_fewer_are_kept(tmp_path):
    """A memory has room for more rows where they are short; now it has less than it has rows."""
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((70, 1000)), rng.standard_normal(70)
    for stop in range(25, 41, 3):
        grown = orfit.ORFit(orfit.Linear(1000), 5, noise=0.5)
        twin = orfit.ORFit(orfit.Linear(6000), 5, noise=0.5)
        wide = np.pad(X, ((0, 0), (0, 5000)))
        grown.learn_each(X[:stop], y[:stop])
        grown.grow(6000)
        twin.learn_each(wide[:stop], y[:stop])
        np.testing.assert_allclose(grown.w, twin.w, atol=1e-12)
        if stop % 2:
            grown.save(tmp_path / "file")
            again = orfit.load(tmp_path / "file")
            for learner in (grown, again, twin):
                learner.learn_each(wide[stop:], y[stop:])
            assert everything(grown) == everything(again)
            np.testing.assert_allclose(grown.w, twin.w, atol=1e-12)


def test_features_of_ones_own_have_more_heads():
    def features(X):
        return np.stack([X, X**2], axis=1)

    learner = orfit.RLS(orfit.Linear(2, features=features, heads=1))
    learner.learn(2.0, [3.0])
    learner.grow(heads=2)
    learner.learn(1.0, [1.0, 2.0])
    assert learner.w.shape == (2, 2)
    with pytest.raises(ValueError, match="features are code, which cannot grow"):
        learner.grow(size=3)


REFUSED = {
    "fewer features": (orfit.RLS, {"size": 2}, "size must be at least 3"),
    "no features": (orfit.RLS, {"size": 0}, "size must be at least 1"),
    "half a feature": (orfit.RLS, {"size": 4.5}, "size must be a whole number"),
    "fewer heads": (orfit.RLS, {"heads": 1}, "heads must be at least 2"),
    "no heads": (orfit.RLS, {"heads": 0}, "heads must be at least 1"),
    "nothing": (orfit.RLS, {}, "there is nothing to grow"),
    "prior": (lambda m: orfit.RLS(m, prior=[1, 2, 3]), {"size": 4}, "its prior is given for each"),
    "drift": (lambda m: orfit.RLS(m, drift=[1, 2, 3]), {"size": 4}, "drift is given for each"),
    "dynamics": (
        lambda m: orfit.EKF(m, noise=1, dynamics=np.eye(3)), {"size": 4}, "dynamics and control"
    ),
    "sketch": (lambda m: orfit.ORFit(m, Sketch(3)), {"size": 4}, "Sketch.* cannot grow"),
    "greedy": (orfit.Greedy, {"size": 4}, "cannot grow"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_changes_nothing(case):
    make, arguments, message = REFUSED[case]
    learner = make(orfit.Linear(3, heads=2))
    learner.learn([1.0, 2.0, 3.0], [1.0, 2.0])
    before = everything(learner)
    with pytest.raises(ValueError, match=message):
        learner.grow(**arguments)
    assert everything(learner) == before
    learner.learn([1.0, 2.0, 3.0], [1.0, 2.0])


def test_models_that_cannot_grow():
    for model in (TanhNetwork(2, 3), TanhNetwork(2, 3, 2)):
        with pytest.raises(ValueError, match="a learner of an orfit.Linear can"):
            orfit.ORFit(model).grow(heads=3)
    with pytest.raises(ValueError, match="the model has no heads"):
        orfit.ORFit(orfit.Linear(3)).grow(heads=3)


def test_heads_grow_where_settings_are_for_each_parameter():
    settings = {"drift": np.arange(3.0), "dynamics": np.eye(3), "prior": np.ones(3)}
    learner = orfit.EKF(orfit.Linear(3, heads=1), noise=1.0, **settings)
    learner.learn([1.0, 2.0, 3.0], [1.0])
    learner.grow(heads=2)
    learner.learn([1.0, 2.0, 3.0], [1.0, 5.0])
    assert learner.scale.shape == (2,)


def test_a_model_is_not_changed_for_others():
    model = orfit.Linear(3)
    one, other = orfit.RLS(model), orfit.RLS(model)
    one.grow(5)
    other.learn(np.ones(3), 1.0)
    one.learn(np.ones(5), 1.0)
    assert (model.size, one.model.size, other.model.size) == (3, 5, 3)
    with pytest.raises(ValueError, match=r"x must have shape \(5,\)"):
        one.learn(np.ones(3), 1.0)


@pytest.mark.parametrize("name", ["principal", "tails and fadings", "RLS"])
def test_an_exception_at_any_moment(name):
    stream = Stream(True, 4, False)
    learner = LEARNERS[name](stream.model(9, 2))
    learn(learner, *stream.rows(slice(60), 9, 2, 9, 2))
    before, after = everything(learner), copy.deepcopy(learner)
    after.grow(14, 4)
    after = everything(after)
    count = raised_at(None, lambda: copy.deepcopy(learner).grow(14, 4))
    rng = np.random.default_rng(0)
    for moment in rng.integers(1, count, 10):
        one = copy.deepcopy(learner)
        raised_at(moment, lambda one=one: one.grow(14, 4))
        assert everything(one) in (before, after)


def test_threads_find_it_before_or_after():
    learner = orfit.ORFit(orfit.Linear(3), 2, noise=0.5)
    learner.learn_each(np.eye(3), np.ones(3))
    shapes, done = set(), threading.Event()

    def look():
        while not done.is_set():
            shapes.add(learner.w.shape)

    thread = threading.Thread(target=look)
    thread.start()
    for size in range(4, 60):
        learner.grow(size)
        learner.learn(np.ones(size), 1.0)
    done.set()
    thread.join()
    assert shapes <= {(size,) for size in range(3, 60)}
