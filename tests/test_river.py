"""orfit.river: rows by name are learned as their arrays are."""

import copy
import doctest
import pickle

import numpy as np
import pytest

pytest.importorskip("river", reason="the estimators need river")

from hypothesis import given, settings
from hypothesis import strategies as st
from river import compose, preprocessing, proba

import orfit
from orfit.faces import learner_for
from orfit.faces.evidence import most_likely_noise
from orfit.faces.rows import Rows
from orfit.learners.gain import GainLearner
from orfit.river import ORFitClassifier, ORFitMultiTargetRegressor, ORFitRegressor
from orfit.river.engine import BLOCK, FIRST

KINDS = (ORFitRegressor, ORFitClassifier, ORFitMultiTargetRegressor)
PLAIN = {"scaling": False, "fit_intercept": False, "noise": 0.1}


def problem(n, d, seed=0, scales=1.0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * scales + 3 * np.asarray(scales)
    return X, (X / scales) @ rng.standard_normal(d) + 7 + noise * rng.standard_normal(n)


def by_name(X):
    return [{f"x{j}": value for j, value in enumerate(row)} for row in X.tolist()]


def learned(model, X, Y):
    for x, y in zip(by_name(X), Y, strict=True):
        model.learn_one(x, y)
    return model


def predicted(model, X):
    return np.array([model.predict_one(x) for x in by_name(X)])


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_runs(kind):
    test = doctest.DocTestParser().get_doctest(kind.__doc__, {}, kind.__name__, None, None)
    assert test.examples
    said = []
    doctest.DocTestRunner().run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize("noise", [0.1, "auto"])
@pytest.mark.parametrize("asked", [False, True])
def test_rows_are_learned_as_their_arrays_are(noise, asked):
    X, y = problem(150, 5)
    model = ORFitRegressor(**PLAIN | {"noise": noise})
    learner = learner_for(5, None, 50, noise=noise, bias=False, growing=True)
    for x, row, label in zip(by_name(X), X, y.tolist(), strict=True):
        if asked:
            assert model.predict_one(x) == pytest.approx(learner.predict(row), abs=1e-9)
        model.learn_one(x, label)
        learner.learn(row, label)
    np.testing.assert_allclose(model.learner.w, learner.w, rtol=1e-9)


def test_once_frozen_it_is_a_learner_of_rows_in_units_of_the_first():
    scales = [1e-6, 1.0, 1e7]
    X, y = problem(FIRST + 100, 3, scales=scales)
    model = learned(ORFitRegressor(), X, y)
    first = X[:FIRST]
    Z = (X - first.mean(axis=0)) / first.std(axis=0)
    c = np.sqrt(np.mean(np.sum(Z[:FIRST] ** 2, axis=1)))
    phi, wanted = np.column_stack([np.full(len(Z), c), Z]), y - y[:FIRST].mean()
    R = most_likely_noise([Rows(phi[:FIRST], wanted[:FIRST, None])], centred=True)
    ridge = np.linalg.solve(phi.T @ phi + R * np.eye(4), phi.T @ wanted)
    np.testing.assert_allclose(model.learner.w, ridge, rtol=1e-8)
    assert np.std(predicted(model, X) - y) < 0.11


@pytest.mark.parametrize("n", [1, 2, 3, 7, 40, 100])
def test_it_predicts_from_the_first_row_on(n):
    """Whatever the units: within the labels' range after one row, and near them after some."""
    X, y = problem(n + 20, 3, scales=[1e-6, 1.0, 1e7])
    error = np.abs(predicted(learned(ORFitRegressor(), X[:n], y[:n]), X[n:]) - y[n:])
    assert np.median(error) < (3 * np.std(y) if n < 7 else 0.5)


def test_a_row_without_features_tells_the_mean():
    for features in (None, "fourier"):
        model = ORFitRegressor(features=features)
        for y in (1.0, 2.0, 3.0, 2.0):
            model.learn_one({}, y)
        assert model.predict_one({}) == pytest.approx(2)
        model.learn_one({"a": 1.0}, 3.0)
        assert 1 < model.predict_one({"a": 1.0}) < 4


def test_before_any_row():
    x = {"a": 1.0}
    assert ORFitRegressor().predict_one(x) == 0.0
    assert ORFitRegressor().predict_one(x, with_dist=True).mu == 0.0
    assert ORFitClassifier().predict_one(x) is None
    assert ORFitClassifier().predict_proba_one(x) == {}
    assert ORFitMultiTargetRegressor().predict_one(x) == {}
    assert ORFitRegressor().learner is None


@settings(max_examples=8)
@given(asks=st.lists(st.booleans(), min_size=70, max_size=70), scaling=st.booleans())
def test_to_ask_changes_nothing(asks, scaling):
    X, y = problem(70, 2)
    model = ORFitRegressor(scaling=scaling, noise=0.1)
    for x, label, ask in zip(by_name(X), y.tolist(), asks, strict=True):
        if ask:
            model.predict_one(x)
        model.learn_one(x, label)
    quiet = learned(ORFitRegressor(scaling=scaling, noise=0.1), X, y.tolist())
    np.testing.assert_allclose(predicted(model, X), predicted(quiet, X), rtol=1e-9)


@pytest.mark.parametrize("noise", [0.1, "auto"])
def test_new_features_were_zero_all_along(noise):
    """Many more than there were: the steps in which there is room for more do not show."""
    X, y = problem(4 * BLOCK, 60)
    X[:, 3:] *= np.arange(len(X))[:, None] > np.arange(57) * 3  # each later than the one before
    model = ORFitRegressor(**PLAIN | {"noise": noise})
    for x, label in zip(by_name(X), y.tolist(), strict=True):
        model.learn_one({name: value for name, value in x.items() if value}, label)
        model.predict_one(x)
    whole = learned(ORFitRegressor(**PLAIN | {"noise": noise}), X, y.tolist())
    difference = predicted(model, X) - predicted(whole, X)
    assert np.abs(difference).max() < 1e-12 * np.abs(y).max()


def test_features_that_come_after_the_scale_is_frozen():
    """In units of their first value, and 0 before."""
    X, y = problem(FIRST + 200, 4)
    late = np.arange(len(X)) >= FIRST + 50
    X[:, 3] *= late
    y += 5 * X[:, 3]
    model = ORFitRegressor(noise=1e-3)
    for x, label, new in zip(by_name(X), y.tolist(), late, strict=True):
        model.learn_one(x if new else {name: x[name] for name in ("x0", "x1", "x2")}, label)
    known = np.column_stack([X[:, :3], X[:, 3]])
    first = known[:FIRST]
    mean = np.append(first[:, :3].mean(axis=0), 0.0)
    size = np.append(first[:, :3].std(axis=0), abs(X[late, 3][0]))
    Z = (known - mean) / size
    c = np.sqrt(np.mean(np.sum(Z[:FIRST, :3] ** 2, axis=1)))
    phi, R = np.column_stack([np.full(len(Z), c), Z]), 1e-3
    w = np.linalg.solve(phi.T @ phi + R * np.eye(5), phi.T @ (y - y[:FIRST].mean()))
    np.testing.assert_allclose(predicted(model, X), phi @ w + y[:FIRST].mean(), rtol=1e-8)


def test_an_absent_feature_is_its_mean_or_nothing():
    X, y = problem(FIRST, 2)
    sparse = np.arange(FIRST) % 4 == 0
    model = ORFitRegressor()
    for x, label, there in zip(by_name(X), y.tolist(), sparse, strict=True):
        model.learn_one(x | ({"word": 1} if there else {}), label)
    at_mean = model.predict_one({"x0": X[:, 0].mean(), "x1": 2.0})
    assert model.predict_one({"x1": 2.0}) == pytest.approx(at_mean)
    assert model.predict_one({"x0": None, "x1": 2.0, "word": 0}) == pytest.approx(at_mean)
    assert model.predict_one({"x0": np.nan, "x1": 2.0, "other": 3}) == pytest.approx(at_mean)


@pytest.mark.parametrize("scaling", [True, False])
def test_new_classes_were_never_the_label(scaling):
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((4, 6)) * 3
    labels = np.repeat(["a", "b", "c", "d"], FIRST // 2)  # sorted: two come after the scale
    X = centres[np.unique(labels, return_inverse=True)[1]] + rng.standard_normal((len(labels), 6))
    model = learned(ORFitClassifier(scaling=scaling, noise=0.1), X, labels.tolist())
    assert np.mean(predicted(model, X) == labels) > 0.97
    knowing = ORFitClassifier(scaling=scaling, noise=0.1)
    for one in "abcd":
        knowing._head(one)  # told before the first row
    learned(knowing, X, labels.tolist())
    for x in by_name(X[::50]):
        told, known = model.predict_proba_one(x), knowing.predict_proba_one(x)
        assert told == pytest.approx(known, rel=1e-9)
        assert sum(told.values()) == pytest.approx(1)
        assert max(told, key=told.get) == model.predict_one(x)


def test_targets_are_learned_as_each_alone():
    X, y = problem(FIRST + 50, 3)
    Y = [{"a": label, "b": -2 * label + 1} for label in y.tolist()]
    model = learned(ORFitMultiTargetRegressor(noise=0.1), X, Y)
    alone = learned(ORFitRegressor(noise=0.1), X, y.tolist())
    for x in by_name(X[::40]):
        f = alone.predict_one(x)
        assert model.predict_one(x) == pytest.approx({"a": f, "b": -2 * f + 1})
    with pytest.raises(ValueError, match=r"a number for each of \['a', 'b'\]"):
        model.learn_one({"x0": 1.0}, {"a": 1.0})


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("weighted", [False, True])
def test_frames_are_learned_as_their_rows(library, weighted):
    frames = pytest.importorskip(library)
    X, y = problem(FIRST + 3 * BLOCK, 4)
    w = np.random.default_rng(1).integers(0, 3, len(y)).astype(float) if weighted else y**0
    classes = np.where(y > 7, "high", "low")
    for kind, labels in ((ORFitRegressor, y), (ORFitClassifier, classes)):
        one, many = kind(), kind()
        for x, label, count in zip(by_name(X), labels.tolist(), w.tolist(), strict=True):
            one.learn_one(x, label, w=count)
        for rows in (slice(30), slice(30, 300), slice(300, None)):
            part = frames.DataFrame(by_name(X[rows]))
            counts = {"w": frames.Series(w[rows])} if weighted else {}
            many.learn_many(part, frames.Series(labels[rows]), **counts)
        everything = frames.DataFrame(by_name(X))
        told = many.predict_many(everything)
        assert type(told) is frames.Series
        if kind is ORFitRegressor:
            np.testing.assert_allclose(told.to_numpy(), predicted(one, X), rtol=1e-6)
        else:
            assert list(told) == predicted(one, X).tolist()
            P = many.predict_proba_many(everything)
            expected = one.predict_proba_one(by_name(X)[5])
            assert {c: P[c][5] for c in P.columns} == pytest.approx(expected, rel=1e-6)


def test_a_row_of_weight_three_is_three_rows():
    X, y = problem(40, 3)
    weighted, repeated = ORFitRegressor(**PLAIN), ORFitRegressor(**PLAIN)
    for i, (x, label) in enumerate(zip(by_name(X), y.tolist(), strict=True)):
        weighted.learn_one(x, label, w=i % 4)
        for _ in range(i % 4):
            repeated.learn_one(x, label)
    np.testing.assert_allclose(predicted(weighted, X), predicted(repeated, X), rtol=1e-9)


@pytest.mark.parametrize("params", [{}, {"noise": 1.0}, {"features": "fourier"}])
def test_distributions_cover_what_they_say(params):
    X, y = problem(1500, 4, noise=0.7)
    if params.get("features"):
        y = y + np.sin(X[:, 0])
    model = learned(ORFitRegressor(**params), X[:1000], y[:1000].tolist())
    told = [model.predict_one(x, with_dist=True) for x in by_name(X[1000:])]
    assert isinstance(told[0], proba.Gaussian)
    means, deviations = np.array([(one.mu, one.sigma) for one in told]).T
    inside = np.abs(means - y[1000:]) < 2 * deviations
    assert 0.93 < np.mean(inside) < 0.975  # 0.954; 500 rows: ± 0.019 in two deviations
    assert told[0].mu == pytest.approx(model.predict_one(by_name(X[1000:])[0]))


@pytest.mark.parametrize("rows", [0, 5, FIRST - 1, FIRST + 5])
def test_a_copy_goes_on_as_the_original(rows):
    X, y = problem(FIRST + 40, 3)
    model = learned(ORFitRegressor(), X[:rows], y[:rows].tolist())
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for one in (model, *copies):
        learned(one, X[rows:], y[rows:].tolist())
    for one in copies:
        assert predicted(one, X).tolist() == predicted(model, X).tolist()
    assert model.clone().learner is None


def test_random_features_learn_what_is_not_linear():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (900, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1]
    model = learned(ORFitRegressor(features="fourier", seed=3), X, y.tolist())
    assert np.std(predicted(model, X) - y) < 0.2 * np.std(y)
    again = learned(ORFitRegressor(features="fourier", seed=3), X, y.tolist())
    assert predicted(again, X[:5]).tolist() == predicted(model, X[:5]).tolist()
    x = {"x0": 0.5, "x1": 1.0}
    before = model.predict_one(x)
    model.learn_one(x | {"new": 3.0}, before)  # a column that the waves do not see
    assert model.predict_one(x) == pytest.approx(before, abs=1e-6)


def test_memory_stays_as_it_is():
    X, y = problem(4000, 6)
    rows, sizes = by_name(X), []
    model = ORFitRegressor()
    for i, (x, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        model.learn_one(x, label)
        if i % 1000 >= 1000 - BLOCK:  # what waits comes and goes
            model.predict_one(x)
            sizes.append(model._raw_memory_usage)
    assert max(sizes[-BLOCK:]) < max(sizes[:BLOCK]) + 1000  # bytes, of numbers that come and go


def test_a_pipeline_may_scale_too():
    X, y = problem(600, 3, scales=[1e-6, 1.0, 1e7])
    model = compose.Pipeline(preprocessing.StandardScaler(), ORFitRegressor())
    errors = []
    for x, label in zip(by_name(X), y.tolist(), strict=True):
        errors.append(model.predict_one(x) - label)
        model.learn_one(x, label)
    assert np.std(errors[300:]) < 0.3 * np.std(y)


@pytest.mark.parametrize(
    ("x", "why"),
    [
        ({"a": "red"}, "is text: put river.compose.Select"),
        ({"a": float("inf")}, r"x\['a'\] must be finite"),
        ({"a": 10**400}, r"x\['a'\] must be finite; it is too large"),
        ({"a": 1.0, "b": 10**400}, r"x\['b'\] must be finite; it is too large"),
        ({"a": [1, 2]}, r"x\['a'\] must be a number"),
        ([1.0, 2.0], "x must be a dictionary of features"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_row_is_refused_and_changes_nothing(kind, x, why):
    label = {"y": 1.0} if kind is ORFitMultiTargetRegressor else 1.0
    model = kind()
    model.learn_one({"a": 1.0, "b": True}, label)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=why):
        model.learn_one(x, label)
    assert pickle.dumps(model) == before
    with pytest.raises(ValueError, match=why):
        model.predict_one(x)


@pytest.mark.parametrize("y", [None, np.nan, np.float32("nan"), np.datetime64("NaT", "s"), ["a"]])
def test_what_names_no_class_is_refused_and_changes_nothing(y):
    model = ORFitClassifier()
    model.learn_one({"a": 1.0}, "yes")
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="y must name a class"):
        model.learn_one({"a": 1.0, "new": 2.0}, y)
    pandas = pytest.importorskip("pandas")
    frame, labels = pandas.DataFrame({"new": [1.0, 2.0]}), pandas.Series(["b", y], dtype=object)
    with pytest.raises(ValueError, match="y must name a class"):
        model.learn_many(frame, labels)
    assert pickle.dumps(model) == before
    assert model.predict_one({"a": 1.0}) == "yes"


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_weight_zero_changes_nothing(kind):
    X, y = problem(20, 2)
    labels = {ORFitRegressor: y.tolist(), ORFitClassifier: np.sign(y - 7).tolist()}
    labels = labels.get(kind, [{"y": label} for label in y.tolist()])
    other = {"new": 1.0} if kind is ORFitMultiTargetRegressor else 50.0
    model, whole = kind(), kind()
    for x, label in zip(by_name(X), labels, strict=True):
        model.learn_one({"x0": 1e6, "late": 1e3}, other if not model._names else label, w=0)
        model.learn_one(x, label)
        whole.learn_one(x, label)
    assert [model.predict_one(x) for x in by_name(X)] == [whole.predict_one(x) for x in by_name(X)]
    assert list(model._engine.columns.places) == ["x0", "x1"]
    assert model._names == whole._names


def test_units_are_those_of_as_many_rows_as_a_weight_says():
    X, y = problem(FIRST, 2)
    w = np.random.default_rng(1).integers(1, 4, FIRST)
    model = ORFitRegressor()
    for x, label, count in zip(by_name(X), y.tolist(), w.tolist(), strict=True):
        model.learn_one(x, label, w=count)
    assert model.learner is not None
    rows = np.repeat(X, w, axis=0)
    np.testing.assert_allclose(model._engine._inputs._scale.mean, rows.mean(axis=0))
    np.testing.assert_allclose(model._engine._inputs._scale.size, rows.std(axis=0))
    np.testing.assert_allclose(model._engine._offset, np.repeat(y, w).mean())


def test_without_an_intercept_there_is_no_constant():
    X, y = problem(FIRST + 50, 2)
    model = learned(ORFitRegressor(fit_intercept=False, noise=0.1), X, y.tolist())
    assert model.predict_one({"x0": 0.0, "x1": 0.0}) == 0.0
    Z = X / np.sqrt(np.mean(X[:FIRST] ** 2, axis=0))
    w = np.linalg.solve(Z.T @ Z + 0.1 * np.eye(2), Z.T @ y)
    np.testing.assert_allclose(predicted(model, X), Z @ w, rtol=1e-8)


def test_it_is_not_sure_of_anything_after_one_row():
    model = ORFitRegressor()
    assert model.predict_one({"a": 1.0}, with_dist=True).sigma == np.inf
    model.learn_one({"a": 1.0}, 3.0)
    assert model.predict_one({"a": 1.0}, with_dist=True).sigma == np.inf
    model.learn_one({"a": 2.0}, 5.0)
    assert 0 < model.predict_one({"a": 1.0}, with_dist=True).sigma < np.inf


@pytest.mark.parametrize("y", [None, "one", np.nan, [1.0, 2.0]])
def test_what_is_no_label_is_refused(y):
    with pytest.raises(ValueError, match="y must"):
        ORFitRegressor().learn_one({"a": 1.0}, y)


@pytest.mark.parametrize("many", [False, True])
def test_a_row_that_is_refused_is_the_only_one_that_is_lost(many, monkeypatch):
    X, y = problem(3 * BLOCK, 3)
    bad = np.array([10, 50, 100])
    X[bad, 1] = 1e200
    model = ORFitRegressor(**PLAIN)
    each, one = GainLearner.learn_each, GainLearner.learn

    def learn_each(learner, inputs, labels, weight=None):
        refused = np.flatnonzero(inputs[:, 1] == 1e200)
        if len(refused):
            each(learner, inputs[: refused[0] // 2], labels[: refused[0] // 2])
            raise ValueError("not finite")
        return each(learner, inputs, labels, weight)

    def learn(learner, x, label, weight=None):
        if x[1] == 1e200:
            raise ValueError("not finite")
        return one(learner, x, label, weight)

    monkeypatch.setattr(GainLearner, "learn_each", learn_each)
    monkeypatch.setattr(GainLearner, "learn", learn)
    if many:
        pandas = pytest.importorskip("pandas")
        with pytest.raises(ValueError, match="finite"):
            model.learn_many(pandas.DataFrame(by_name(X)), pandas.Series(y))
    else:
        raised = 0
        for x, label in zip(by_name(X), y.tolist(), strict=True):
            try:
                model.learn_one(x, label)
            except ValueError:
                raised += 1
        assert raised == 2  # of three rows, two are in the same block
    monkeypatch.undo()
    good = np.delete(np.arange(len(X)), bad)
    whole = learned(ORFitRegressor(**PLAIN), X[good], y[good].tolist())
    assert model.learner.seen == len(good)
    np.testing.assert_allclose(predicted(model, X[good]), predicted(whole, X[good]), rtol=1e-9)


@pytest.mark.parametrize("scaling", [False, True])
def test_rows_that_were_interrupted_go_on_waiting(scaling, monkeypatch):
    X, y = problem(FIRST + BLOCK, 3)
    model, whole = ORFitRegressor(scaling=scaling), ORFitRegressor(scaling=scaling)
    real, calls = GainLearner.learn_each, []

    def interrupted(learner, inputs, labels, weight=None):
        calls.append(1)
        if len(calls) % 2:
            real(learner, inputs[:5], labels[:5])
            raise KeyboardInterrupt
        return real(learner, inputs, labels, weight)

    learned(whole, X, y.tolist())
    monkeypatch.setattr(GainLearner, "learn_each", interrupted)
    for x, label in zip(by_name(X), y.tolist(), strict=True):
        try:
            model.learn_one(x, label)
        except KeyboardInterrupt:
            continue
    monkeypatch.undo()
    assert calls
    assert model.learner.seen == whole.learner.seen == len(X)
    np.testing.assert_allclose(predicted(model, X), predicted(whole, X), rtol=1e-6)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"memory": 0}, "memory must be at least 1"),
        ({"noise": "some"}, 'noise must be a number or "auto"'),
        ({"forgetting": 2.0}, "forgetting must be in"),
        ({"features": "waves"}, "features must be None"),
        ({"scaling": "yes"}, "scaling must be True or False"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_what_is_no_parameter_is_refused(params, why):
    with pytest.raises(ValueError, match=why):
        ORFitRegressor(**params)


def test_text_in_a_frame_is_refused():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="X must hold numbers"):
        ORFitRegressor().learn_many(pandas.DataFrame({"a": ["red"]}), pandas.Series([1.0]))
    with pytest.raises(ValueError, match="X has 1 rows, but y has 2 labels"):
        ORFitRegressor().learn_many(pandas.DataFrame({"a": [1.0]}), pandas.Series([1.0, 2.0]))


def test_there_are_never_more_directions_than_five_times_the_memory():
    X, y = problem(100, 40)
    model = ORFitRegressor(memory=2, noise=1.0, scaling=False)
    for i, (x, label) in enumerate(zip(by_name(X), y.tolist(), strict=True)):
        model.learn_one({f"x{j}": x[f"x{j}"] for j in range(1 + i * 2 // 5)}, label)
        if i % 10 == 0:
            model.predict_one(x)
    assert model.learner.memory.rank <= 10 < model.learner.model.size


def test_a_class_between_others_is_found():
    """The largest of three numbers that are linear in x is never the middle one's."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    x = (y + 0.1 * rng.standard_normal(600)).tolist()
    model = ORFitClassifier()
    for value, one in zip(x[:500], y[:500], strict=True):
        model.learn_one({"x": value}, int(one))
    assert (
        np.mean([model.predict_one({"x": v}) == k for v, k in zip(x[500:], y[500:], strict=True)])
        > 0.98
    )
    assert model.predict_proba_one({"x": 1.0})[1] > 0.98


@pytest.mark.parametrize("weighted", [False, True])
def test_it_says_what_the_classifier_of_scikit_learn_says(weighted):
    """Both are one discriminant analysis of a regression; constant and noise differ a little."""
    ORFit = pytest.importorskip("orfit.sklearn").ORFitClassifier
    X, y = problem(600, 4, noise=1.0)
    y = np.digitize(y, np.quantile(y, [0.2, 0.7]))
    w = np.random.default_rng(1).integers(0, 3, 600).astype(float) if weighted else np.ones(600)
    model = ORFitClassifier()
    for x, one, counts in zip(by_name(X), y.tolist(), w.tolist(), strict=True):
        model.learn_one(x, one, counts)
    other = ORFit().fit(X, y, sample_weight=w)
    told = [model.predict_proba_one(x) for x in by_name(X)]
    P = np.array([[t[k] for k in (0, 1, 2)] for t in told])
    np.testing.assert_allclose(P, other.predict_proba(X), atol=0.03)


def test_a_model_that_becomes_large_says_the_same():
    """Its recursive least squares are then exchanged for five times the memory's directions."""
    X, y = problem(FIRST + 300, 8)
    model = ORFitRegressor(memory=2)
    learned(model, X, y.tolist())
    x = by_name(X)[0]
    before = model.predict_one(x, with_dist=True)
    model.learn_one(x | {"new": 1e-9, "newer": 1e-9}, before.mu)
    after = model.predict_one(x, with_dist=True)
    assert isinstance(model.learner, orfit.ORFit)
    assert model.learner.model.size > 10
    assert after.mu == pytest.approx(before.mu, rel=1e-9)
    assert after.sigma == pytest.approx(before.sigma, rel=0.01)
