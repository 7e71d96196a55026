"""The forgetting meter, beside the truth on rows that the test keeps."""

import copy
import json
import pickle

import numpy as np
import pytest

import crafted
import orfit
from orfit.meter.signs import signs
from orfit.reproduce.tanh import TanhNetwork

MANY = 3000  # probes, with which an estimate is off by 2.6 %
CLOSE = 5 * np.sqrt(2 / MANY)

pytestmark = pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")


def stream(n, p, outputs=(), seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    Y = X @ rng.standard_normal((p, *outputs)) + rng.standard_normal((n, *outputs))
    return X, Y


def two_outputs(X):
    return np.stack([X, np.roll(X, 1, axis=1) ** 2], axis=2)


def tangent(p):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = torch.nn.Linear(p, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)
    return orfit.TorchModel(torch.nn.Sequential(*layers).double(), tangent=True)


MODELS = {
    "scalar": (orfit.Linear, ()),
    "bias": (lambda p: orfit.Linear(p, bias=True), ()),
    "heads": (lambda p: orfit.Linear(p, heads=3), (3,)),
    "outputs": (lambda p: orfit.Linear(p, features=two_outputs), (2,)),
    "tangent": (tangent, (2,)),
}
LEARNERS = {
    "ORFit": lambda model, **k: orfit.ORFit(model, 4, noise=0.5, **k),
    "ORFit noiseless": lambda model, **k: orfit.ORFit(model, 4, **k),
    "ORFit auto": lambda model, **k: orfit.ORFit(model, 4, noise="auto", tail="auto", **k),
    "ORFit fading": lambda model, **k: orfit.ORFit(model, 4, noise=0.5, forgetting="auto", **k),
    "ORFit drifting": lambda model, **k: orfit.ORFit(model, 4, noise=0.5, drift=0.1, **k),
    "RLS": lambda model, **k: orfit.RLS(model, forgetting=0.9, **k),
    "EKF": lambda model, **k: orfit.EKF(model, noise=0.5, drift=0.1, **k),
    "OGD": lambda model, **k: orfit.OGD(model, 4, lr=0.01, steps=2, **k),
    "SGD": lambda model, **k: orfit.SGD(model, lr=0.01, **k),
    "OneStepSGD": orfit.OneStepSGD,
}


def truth(learner, X, Y, then):
    F = learner.predict(X)
    return np.sum((F - then) ** 2), np.sum((Y - F) ** 2)


def taught(learner, X, Y):
    """What it predicts for each row when it has learned it: by one, and in batches of five."""
    then, half = np.empty_like(Y), len(X) // 2
    for i in range(half):
        then[i] = Y[i] - learner.learn(X[i], Y[i]).conflict
    for i in range(half, len(X), 5):
        then[i : i + 5] = Y[i : i + 5] - learner.learn_batch(X[i : i + 5], Y[i : i + 5]).conflict
    return then


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_it_shows_the_truth(learner, model):
    make, outputs = MODELS[model]
    learner = LEARNERS[learner](make(7), meter=orfit.Meter(MANY))
    X, Y = stream(60, 7, outputs)
    then = taught(learner, X, Y)
    change, error = truth(learner, X, Y, then)
    found = learner.meter
    assert found.change.value == pytest.approx(change, rel=CLOSE)
    assert found.error.value == pytest.approx(error, rel=CLOSE)
    assert found.labels == Y.size
    assert found.error.rms.value == pytest.approx(np.sqrt(error / Y.size), rel=CLOSE)


def test_a_network_is_measured_along_its_gradients():
    model = TanhNetwork(3, 4)
    X, Y = stream(40, 3)
    for learner in (
        orfit.ORFit(model, 3, noise=0.5, meter=orfit.Meter(MANY)),
        orfit.NTKRLS(model, meter=orfit.Meter(MANY)),
        orfit.OGD(model, 3, lr=0.01, meter=orfit.Meter(MANY)),
    ):
        change, gradients = 0.0, []
        for x, y in zip(X, Y, strict=True):
            before = learner.w
            learner.learn(x, y)
            w = learner.w
            # OGD remembers the gradient at the end of its steps.
            at = w if isinstance(learner, orfit.OGD) else before
            gradients.append((model.linearize(at, x[None])[1][:, 0], w))
        change = sum((g @ (learner.w - w)) ** 2 for g, w in gradients)
        assert learner.meter.change.value == pytest.approx(change, rel=CLOSE)


@pytest.mark.parametrize("heads", [None, 5])
def test_it_has_no_bias_and_its_interval_holds(heads):
    """Of many probes, each 32 are a meter of their own."""
    X, Y = stream(80, 6, () if heads is None else (heads,), seed=3)
    if heads:  # that go together, more or less
        Y = Y @ np.diag([3.0, 1.0, 1.0, 0.3, 0.1]) + Y[:, :1]
    model, meters = orfit.Linear(6, heads=heads), 500
    learner = orfit.ORFit(model, 3, noise=0.5, meter=orfit.Meter(32 * meters))
    then = taught(learner, X, Y)
    sums = learner._probes.sums(learner._cell.state, learner.w.reshape(6, -1))
    for expected, each in zip(truth(learner, X, Y, then), sums, strict=True):
        made = [orfit.Reading.of(part, 1) for part in np.split(each, meters)]
        ratio = np.array([reading.value for reading in made]) / expected
        assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(meters)
        assert ratio.std() < 0.27  # √(2/32) is 0.25
        assert np.abs(ratio - 1).max() < 5 * 0.25
        inside = np.mean([reading.low <= expected <= reading.high for reading in made])
        assert 0.92 < inside < 0.99


def test_an_unlimited_memory_forgets_nothing():
    X, Y = stream(30, 40)
    learner = orfit.ORFit(orfit.Linear(40), meter=orfit.Meter())
    learner.learn_each(X[:10], Y[:10])
    learner.learn_batch(X[10:20], Y[10:20])
    for x, y in zip(X[20:], Y[20:], strict=True):
        learner.learn(x, y)
    assert learner.meter.change.rms.high < 1e-12  # (lem:step)
    assert learner.meter.error.rms.high < 1e-12


def everything(learner):
    arrays, header = learner.state()
    numbers = {k: (v.dtype, v.shape, v.tobytes()) for k, v in arrays.items()}
    return numbers, header


@pytest.mark.parametrize("rows_before", [3, 37])
def test_a_meter_is_saved_and_copied(rows_before, tmp_path):
    X, Y = stream(70, 6)
    learner = orfit.ORFit(orfit.Linear(6), 3, noise=0.5, meter=orfit.Meter(70, 5))
    learner.learn_each(X[:rows_before], Y[:rows_before])
    learner.save(tmp_path / "file")
    others = (
        orfit.load(tmp_path / "file"),
        copy.deepcopy(learner),
        pickle.loads(pickle.dumps(learner)),
    )
    assert "meter=Meter(probes=70, seed=5)" in repr(others[0])
    for one in (learner, *others):
        for x, y in zip(X[rows_before:50], Y[rows_before:50], strict=True):
            one.learn(x, y)
        one.learn_each(X[50:], Y[50:])
        assert everything(one) == everything(learner)
        assert one.meter == learner.meter


def test_what_is_refused_is_not_measured():
    X, Y = stream(40, 5)
    learner = orfit.ORFit(orfit.Linear(5), 3, meter=orfit.Meter(4))
    learner.learn_each(X, Y)
    before = everything(learner)
    for x, y in (([np.nan] * 5, 1.0), (X[0], np.inf), (1e-300 * X[0], 1e308), (X[:2], Y[0])):
        with pytest.raises(ValueError):
            learner.learn(x, y)
        assert everything(learner) == before


def test_rows_before_one_that_is_refused_are_measured():
    X, Y = stream(12, 5)
    learner = orfit.ORFit(orfit.Linear(5), 3, meter=orfit.Meter(4))
    Y[8], X[8] = 1e308, 1e-300 * X[7]
    with pytest.raises(ValueError, match="overflows"):
        learner.learn_each(X, Y)
    assert learner.meter.labels == learner.seen == 8


def test_labels_that_are_missing_are_not_measured():
    learner = orfit.EKF(orfit.Linear(2, features=two_outputs), noise=np.eye(2), meter=orfit.Meter())
    learner.learn([1.0, 2.0], [1.0, np.nan])
    learner.learn([1.0, 0.0], [np.nan, np.nan])
    assert learner.meter.labels == 1
    assert learner.meter.change.rms.value < 1e-14


def test_another_guess_is_a_change():
    X, Y = stream(200, 5)
    learner = orfit.ORFit(orfit.Linear(5), noise="auto", meter=orfit.Meter(MANY))
    then, chosen = [], set()
    for x, y in zip(X, Y, strict=True):
        update = learner.learn(x, y)
        then.append(y - update.conflict)
        chosen.add(learner.noise)
    assert len(chosen) > 1
    change, _ = truth(learner, X, Y, np.array(then))
    assert learner.meter.change.value == pytest.approx(change, rel=CLOSE)


def test_before_any_row():
    learner = orfit.RLS(orfit.Linear(3), meter=orfit.Meter())
    found = learner.meter
    assert (found.change.value, found.error.high, found.labels) == (0, 0, 0)
    assert np.isnan(found.error.rms.value)
    assert str(found)
    assert orfit.RLS(orfit.Linear(3)).meter is None


def test_numbers_of_any_size():
    X, Y = stream(60, 4)
    for scale in (1e-100, 1e100):
        learner = orfit.RLS(orfit.Linear(4), prior=scale**2, meter=orfit.Meter(MANY))
        learner.learn_each(scale * X, Y)
        error = np.mean((Y - learner.predict(scale * X)) ** 2)
        assert learner.meter.error.mean.value == pytest.approx(error, rel=CLOSE)
    learner = orfit.RLS(orfit.Linear(2), meter=orfit.Meter())
    for _ in range(40):
        learner.learn([1e308, 0.0], 1.0)
    assert not np.isnan(learner.meter.change.value)


def test_float32():
    X, Y = stream(100, 6)
    made = [
        orfit.ORFit(orfit.Linear(6), 3, noise=0.5, w0=np.zeros(6, dtype), meter=orfit.Meter(9))
        for dtype in (np.float32, np.float64)
    ]
    for learner in made:
        learner.learn_each(X, Y)
    assert made[0].meter.change.value == pytest.approx(made[1].meter.change.value, rel=1e-3)


def test_signs():
    whole = signs(3, 0, 5000, 100)
    assert set(np.unique(whole)) == {-1.0, 1.0}
    np.testing.assert_array_equal(np.vstack([signs(3, 0, 7, 100), signs(3, 7, 9, 100)]), whole[:16])
    assert np.abs(whole.mean(axis=0)).max() < 5 / np.sqrt(5000)
    together = whole.T @ whole / 5000 - np.eye(100)
    assert np.abs(together).max() < 6 / np.sqrt(5000)
    neighbours = np.mean(whole[1:] * whole[:-1], axis=0)
    assert np.abs(neighbours).max() < 5 / np.sqrt(5000)
    assert np.abs(np.mean(whole * signs(4, 0, 5000, 100), axis=0)).max() < 5 / np.sqrt(5000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: orfit.Meter(0), "probes must be at least 1"),
        (lambda: orfit.Meter(2.5), "probes must be a whole number"),
        (lambda: orfit.Meter(seed=-1), "seed must be at least 0"),
        (lambda: orfit.RLS(orfit.Linear(3), meter=32), r"such as orfit.Meter\(32\); it is 32"),
        (lambda: orfit.Greedy(orfit.Linear(3), meter=orfit.Meter()), "Greedy has no parameters"),
    ],
)
def test_meters_that_make_no_sense(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_file_that_asks_for_other_probes_is_refused(tmp_path):
    learner = orfit.RLS(orfit.Linear(3), meter=orfit.Meter(4))
    learner.learn([1.0, 2.0, 3.0], 1.0)
    path = tmp_path / "file"

    def more_probes(header, arrays):
        header["settings"]["meter"]["probes"] = 60_000

    def no_gradients(header, arrays):
        arrays["state.meter_gradients"] = np.array(0)

    for spoil, message in ((more_probes, "no meter_sums of shape"), (no_gradients, "cannot wait")):
        learner.save(path)
        header, arrays = crafted.parts(path)
        spoil(header, arrays)
        crafted.write(path, json.dumps(header), arrays)
        with pytest.raises(orfit.CheckpointError, match=message):
            orfit.load(path)


@pytest.mark.parametrize("heads", [None, 3])
def test_rows_that_come_together_are_measured_as_if_each_came_alone(rng, heads):
    X, Y = rng.standard_normal((150, 6)), rng.standard_normal((150, heads or 1))
    Y = Y if heads else Y[:, 0]
    for make in (
        lambda: orfit.RLS(orfit.Linear(6, heads=heads, bias=True), meter=orfit.Meter(8)),
        lambda: orfit.ORFit(orfit.Linear(6, heads=heads), 3, noise=0.5, meter=orfit.Meter(8)),
    ):
        together, alone = make(), make()
        for rows in (slice(0, 5), slice(5, 21), slice(21, 22), slice(22, 150)):
            together.learn_each(X[rows], Y[rows])
        for x, y in zip(X, Y, strict=True):
            alone.learn(x, y)
        for name in ("meter_sums", "meter_waiting", "meter_gradients"):
            both = [getattr(learner._cell.state, name) for learner in (together, alone)]
            np.testing.assert_array_equal(*both)
        error = np.square(alone.predict(X) - Y).sum()
        assert alone.meter.error.low / 3 < error < 3 * alone.meter.error.high


def test_rows_before_a_signal_are_measured(rng, monkeypatch):
    X, y = rng.standard_normal((60, 6)), rng.standard_normal(60)
    learner, twin = (orfit.RLS(orfit.Linear(6), meter=orfit.Meter(8)) for _ in range(2))
    learner.learn_each(X[:20], y[:20])
    rows = learner._cell.held
    whole = type(rows).learn_each

    def interrupted(self, gradients, offsets, labels, outputs, first):
        whole(self, gradients[:13], offsets, labels, outputs, first)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(rows), "learn_each", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learner.learn_each(X[20:], y[20:])
    monkeypatch.undo()
    assert learner.seen == 33
    twin.learn_each(X[:33], y[:33])
    assert learner.meter == twin.meter
