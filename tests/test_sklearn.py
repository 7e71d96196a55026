"""The estimators against scikit-learn's own, and against themselves in other pieces."""

import copy
import json
import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the estimators need scikit-learn")

import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import crafted
import orfit
from orfit.faces.evidence import POWERS, most_likely_noise
from orfit.faces.rows import Rows
from orfit.sklearn import ORFitClassifier, ORFitRegressor, load
from orfit.sklearn.first import FEW
from orfit.state import TABLE

RANDOM = {"features": "fourier", "n_components": 300, "memory": 20, "random_state": 0}


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True)


@pytest.fixture
def amounts(rng):
    """600 rows in units far from 1, the first of which do not tell what comes later."""
    X = rng.standard_normal((600, 5)) * [1, 1e3, 1e-3, 1, 1] + [0, 5e3, 0, 0, 7]
    X[300:] += [1, 1e3, 1e-3, -2, 0]
    y = X @ [1, 1e-3, 1e3, -1, 0.5] + rng.standard_normal(600) + 40
    return X, y


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.01, 3.0, 1e3])
def test_it_is_ridge_regression(amounts, alpha, intercept):
    X, y = amounts
    weight = np.random.default_rng(1).uniform(0, 3, len(y))
    scaler = StandardScaler(with_mean=intercept)
    if intercept:
        scaler.fit(X, sample_weight=weight)
    else:  # then columns are scaled about 0
        scaler.fit(np.vstack([X, -X]), sample_weight=np.tile(weight, 2))
    ridge = Ridge(alpha, fit_intercept=intercept).fit(scaler.transform(X), y, weight)
    model = ORFitRegressor(noise=alpha, fit_intercept=intercept).fit(X, y, weight)
    np.testing.assert_allclose(model.predict(X), ridge.predict(scaler.transform(X)), rtol=1e-6)
    np.testing.assert_allclose(model.coef_, ridge.coef_ / scaler.scale_, rtol=1e-5)
    np.testing.assert_allclose(X @ model.coef_ + model.intercept_, model.predict(X), rtol=1e-9)


def test_it_is_ridge_regression_of_a_stream_whose_mean_moves(amounts):
    """Scaled by the first call's rows; and the intercept follows without shrinkage."""
    X, y = amounts
    y = y + np.where(np.arange(600) < 300, 0, 100)
    scaler = StandardScaler().fit(X[:FEW])
    ridge = Ridge(2.0).fit(scaler.transform(X), y)
    model = ORFitRegressor(noise=2.0).partial_fit(X[:FEW], y[:FEW])
    for start in range(FEW, 600, 50):
        model.partial_fit(X[start : start + 50], y[start : start + 50])
    np.testing.assert_allclose(model.predict(X), ridge.predict(scaler.transform(X)), rtol=1e-6)


@pytest.mark.parametrize("settings", [{}, RANDOM, {"memory": 1}])
def test_where_zero_is_does_not_matter(amounts, settings):
    X, y = amounts
    plain = ORFitRegressor(**settings).fit(X, y)
    moved = ORFitRegressor(**settings).fit(X, y + 1e6)
    spread = np.std(y)
    np.testing.assert_allclose(moved.predict(X) - 1e6, plain.predict(X), atol=1e-6 * spread)


def test_the_noise_is_what_makes_labels_most_likely(rng):
    """Against the density itself, of rows that are repeated where weights say so."""
    phi = rng.standard_normal((20, 6)) * [1, 1, 1, 3, 3, 0.1]
    Y = phi @ rng.standard_normal((6, 2)) + rng.standard_normal((20, 2)) * [0.3, 3]
    weight = rng.integers(1, 4, 20).astype(float)
    A, B = np.repeat(phi, weight.astype(int), axis=0), np.repeat(Y, weight.astype(int), axis=0)
    n = len(A)
    # What is left of rows when their mean is taken off: n − 1 numbers, of which all is known.
    off_mean = np.linalg.qr(np.hstack([np.ones((n, 1)), rng.standard_normal((n, n - 1))]))[0][:, 1:]
    K, B = off_mean.T @ A @ A.T @ off_mean, off_mean.T @ B
    unit = np.trace(K) / n

    def unlikely(R):
        C = K + R * np.eye(n - 1)
        squares = np.sum(B * np.linalg.solve(C, B), axis=0)
        return np.sum((n - 1) * np.log(squares) + np.linalg.slogdet(C)[1])

    best = min(unit * 10.0**POWERS, key=unlikely)
    assert unit * 1e-6 < best < unit * 1e2  # inside the grid
    assert most_likely_noise([Rows(phi, Y, weight)], True) == pytest.approx(best)


def test_untuned_it_is_as_good_as_tuned(diabetes):
    tuned = GridSearchCV(
        make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": np.logspace(-2, 3, 11)}
    )
    here = cross_val_score(ORFitRegressor(), *diabetes).mean()
    assert here > cross_val_score(tuned, *diabetes).mean() - 0.005


@pytest.mark.parametrize("size", [1, 300])
@pytest.mark.parametrize("settings", [{}, RANDOM])
def test_how_a_stream_goes_on_does_not_matter(amounts, settings, size):
    """With the same first call, whatever comes later may come in any pieces."""
    X, y = amounts
    X, y = (X[:80], y[:80]) if size == 1 else (X, y)
    whole = ORFitRegressor(**settings).partial_fit(X[:10], y[:10]).partial_fit(X[10:], y[10:])
    pieces = ORFitRegressor(**settings).partial_fit(X[:10], y[:10])
    predicted = []
    for start in range(10, len(X), size):
        pieces.partial_fit(X[start : start + size], y[start : start + size])
        predicted.append(pieces.updates_.prediction)
    np.testing.assert_allclose(pieces.predict(X), whole.predict(X), rtol=1e-7)
    np.testing.assert_allclose(np.concatenate(predicted), whole.updates_.prediction, rtol=1e-7)


def test_few_first_rows_do_no_harm(amounts):
    """Neither does a single one, of which nobody can tell a scale."""
    X, y = amounts
    whole = ORFitRegressor().fit(X[:FEW], y[:FEW])
    model = ORFitRegressor().partial_fit(X[:1], y[:1])
    model.partial_fit(X[1:FEW], y[1:FEW])
    assert model._learned.first is None
    np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-9)


def test_updates_tell_what_was_predicted_before(amounts):
    X, y = amounts
    model = ORFitRegressor().partial_fit(X[:300], y[:300])
    expected = model.predict(X[300:301])
    model.partial_fit(X[300:], y[300:])
    assert len(model.updates_) == 300
    assert model.updates_.prediction[0] == pytest.approx(expected[0])
    np.testing.assert_allclose(model.updates_.prediction + model.updates_.residual, y[300:])


def test_half_of_the_labels_are_within_two_thirds_of_a_deviation(rng):
    X = rng.standard_normal((4000, 6))
    y = X @ rng.standard_normal(6) * 100 + 50 * rng.standard_normal(4000)
    model = ORFitRegressor().fit(X[:2000], y[:2000])
    made, std = model.predict(X[2000:], return_std=True)
    assert std.mean() == pytest.approx(50, rel=0.1)
    assert np.mean(np.abs(made - y[2000:]) < 0.6745 * std) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("settings", [{"noise": 2.0}, {"noise": 2.0, "memory": 1}])
def test_targets_share_nothing_but_the_memory(amounts, settings):
    X, y = amounts
    Y = np.column_stack([y, X[:, 0] ** 2])
    both = ORFitRegressor(**settings).fit(X, Y)
    assert both.coef_.shape == (2, 5)
    assert both.intercept_.shape == (2,)
    for j in range(2):
        one = ORFitRegressor(**settings).fit(X, Y[:, j])
        np.testing.assert_allclose(both.predict(X)[:, j], one.predict(X), rtol=1e-9)
        np.testing.assert_allclose(both.coef_[j], one.coef_, rtol=1e-6)
    assert both.predict(X, return_std=True)[1].shape == (600, 2)
    with pytest.raises(ValueError, match=r"y must have shape \(n, 2\), as before"):
        both.partial_fit(X, y)


@pytest.mark.parametrize("settings", [{}, {"features": "relu", "n_components": 300}])
def test_float32_is_kept(amounts, settings):
    X, y = amounts
    single = ORFitRegressor(**settings, random_state=0).fit(X.astype(np.float32), y)
    double = ORFitRegressor(**settings, random_state=0).fit(X, y)
    assert single.predict(X).dtype == single.coef_.dtype == single.learner_.w.dtype == np.float32
    assert double.predict(X.astype(np.float32)).dtype == np.float64
    error = np.std(single.predict(X) - double.predict(X))
    assert error < (1e-3 if not settings else 0.05) * np.std(y)
    assert ORFitRegressor(dtype="float32").fit(X, y).learner_.w.dtype == np.float32


@pytest.mark.parametrize("features", ["fourier", "relu"])
def test_random_features_learn_what_is_not_linear(rng, features):
    X = rng.uniform(-2, 2, (1200, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(1200)
    model = ORFitRegressor(features=features, n_components=150, random_state=1)
    assert model.fit(X[:700], y[:700]).score(X[700:], y[700:]) > 0.9
    assert ORFitRegressor().fit(X[:700], y[:700]).score(X[700:], y[700:]) < 0.2
    again = clone(model).fit(X[:700], y[:700])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    other = clone(model).set_params(random_state=2).fit(X[:700], y[:700])
    assert (other.predict(X) != model.predict(X)).any()
    assert model.coef_.shape == (152,)


def test_gamma_is_that_of_the_kernel(rng):
    """As the features become many, their products become exp(−gamma |x − x'|²)."""
    X = rng.standard_normal((300, 3))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = ORFitRegressor(5, features="fourier", n_components=20_000, gamma=0.2, random_state=0)
    model.fit(X[:20], X[:20, 0])
    waves = model._learned.scaled.features.make(X[:5])[:, 3:]
    apart = np.sum((X[:5, None] - X[:5]) ** 2, axis=2)
    np.testing.assert_allclose(waves @ waves.T, np.exp(-0.2 * apart), atol=0.03)


def test_forgetting_follows(rng):
    X = rng.standard_normal((1200, 3))
    y = X[:, 0] * np.where(np.arange(1200) < 800, 1, -1)
    for forgetting in (0.98, "auto"):
        model = ORFitRegressor(forgetting=forgetting).fit(X, y)
        np.testing.assert_allclose(model.coef_, [-1, 0, 0], atol=0.01)
        classes = ORFitClassifier(forgetting=forgetting).fit(X, y > 0)
        assert classes.score(X[800:], y[800:] > 0) > 0.95


def test_sparse_rows_are_as_dense_ones(rng, monkeypatch):
    X = rng.standard_normal((400, 30)) * (rng.uniform(size=(400, 30)) < 0.1)
    y = X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(400)
    dense = ORFitRegressor().fit(X, y)
    monkeypatch.setattr("orfit.faces.rows.NUMBERS", 30 * 64)  # so that there are many parts
    for kind in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
        model = ORFitRegressor().fit(kind(X), y)
        np.testing.assert_allclose(model.predict(kind(X)), dense.predict(X), rtol=1e-7, atol=1e-9)


def test_it_is_discriminant_analysis(rng):
    """Where there are many rows; of three classes in a line, too, of which one hides another."""
    means = np.array([[0.0, 0.0], [3.0, 0.5], [6.0, 0.0]])
    y = rng.choice(3, 8000, p=[0.7, 0.1, 0.2])
    X = means[y] + rng.standard_normal((8000, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
    theirs, ours = LinearDiscriminantAnalysis().fit(X, y), ORFitClassifier().fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=0.01)
    assert np.mean(ours.predict(X) == theirs.predict(X)) > 0.998
    np.testing.assert_allclose(
        X @ ours.coef_.T + ours.intercept_, ours.decision_function(X), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("settings", [{}, {"features": "fourier", "n_components": 200}])
def test_probabilities_are_about_right(settings):
    """Of those rows that are said to be of a class with 70 to 90 %, about 80 % are."""
    X, y = make_classification(5000, 10, n_informative=6, flip_y=0.1, random_state=3)
    model = ORFitClassifier(random_state=0, **settings).fit(X[:2000], y[:2000])
    likely = model.predict_proba(X[2000:])[:, 1]
    for low in (0.1, 0.7):
        some = (likely > low) & (likely < low + 0.2)
        assert y[2000:][some].mean() == pytest.approx(likely[some].mean(), abs=0.1)


@pytest.mark.parametrize("settings", [{}, {"noise": 1.0}, {"memory": 2, "noise": 1.0}])
def test_a_class_may_appear_at_any_time(settings):
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "a virginica"])[y]  # another order than they come in
    known, found = ORFitClassifier(**settings), ORFitClassifier(**settings)
    for start in range(0, 150, 30):
        rows = slice(start, start + 30)
        known.partial_fit(X[rows], names[rows], classes=np.unique(names))
        found.partial_fit(X[rows], names[rows])
    assert found.classes_.tolist() == ["a virginica", "setosa", "versicolor"]
    np.testing.assert_allclose(found.predict_proba(X), known.predict_proba(X), rtol=1e-6, atol=1e-9)
    assert found.score(X, names) > (0.9 if "memory" not in settings else 0.6)


def test_classes_that_never_came_are_not_likely():
    X, y = load_iris(return_X_y=True)
    model = ORFitClassifier().partial_fit(X[:100], y[:100], classes=[0, 1, 2, 7])
    likely = model.predict_proba(X[:100])
    assert likely.shape == (100, 4)
    assert likely[:, 2:].max() < 0.01
    with pytest.raises(ValueError, match="classes are text and numbers"):
        model.partial_fit(X[:1], ["setosa"])
    alone = ORFitClassifier().fit(X[:50], y[:50])
    assert alone.predict(X[:2]).tolist() == [0, 0]
    assert alone.predict_proba(X[:2]).tolist() == [[1.0], [1.0]]


def test_digits_are_read(rng):
    X, y = load_digits(return_X_y=True)
    model = ORFitClassifier(features="relu", n_components=500, random_state=0)
    for start in range(0, 1200, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
    assert model.score(X[1200:], y[1200:]) > 0.9


MODELS = {
    "exact": (ORFitRegressor(), 0),
    "few": (ORFitRegressor(forgetting="auto"), FEW - 200),
    "directions": (ORFitRegressor(**RANDOM), 0),
    "single": (ORFitRegressor(dtype=np.float32, memory=1), 0),
    "single features": (ORFitRegressor(dtype=np.float32, **RANDOM), 0),
    "targets": (ORFitRegressor(), 2),
    "classes": (ORFitClassifier(), 3),
    "fading": (ORFitClassifier(forgetting="auto"), 3),
    "names": (ORFitClassifier(**RANDOM), 4),
}


def learned(kind, amounts):
    """An estimator that has learned, and rows that are still to come."""
    model, what = MODELS[kind]
    X, y = amounts
    first = slice(what if kind == "few" else 400)
    if kind == "targets":
        y = np.column_stack([y, -y])
    if kind in ("classes", "fading", "names"):
        y = (y > np.median(y)).astype(int)
        y = np.array(["no", "yes"])[y] if kind == "names" else y
    return clone(model).fit(X[first], y[first]), X[400:], y[400:]


@pytest.mark.parametrize("kind", MODELS)
def test_saved_and_copied_it_goes_on_bit_for_bit(kind, amounts, tmp_path):
    model, X, y = learned(kind, amounts)
    model.save(tmp_path / "model.safetensors")
    others = [load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))]
    others.append(copy.deepcopy(model))
    expected = model.partial_fit(X, y).predict(X)
    for other in others:
        assert str(other.get_params()).replace("'float32'", str(np.float32)) == str(
            model.get_params()
        )
        np.testing.assert_array_equal(other.partial_fit(X, y).predict(X), expected)
        assert other.n_features_in_ == 5


def test_a_pickle_holds_no_features_and_no_room_to_work_in(rng):
    X = rng.standard_normal((300, 50))
    model = ORFitRegressor(features="fourier", memory=3, n_components=20_000, noise=1.0)
    model.fit(X, X[:, 0])
    parameters = 8 * model.learner_.model.size
    assert len(pickle.dumps(model)) < (3 + 4) * parameters  # the basis, w, and little else


def test_what_is_damaged_is_said_to_be(amounts, tmp_path):
    path = tmp_path / "model.safetensors"
    learned("exact", amounts)[0].learner_.save(path)
    with pytest.raises(orfit.CheckpointError, match="holds no estimator"):
        load(path)
    model = learned("names", amounts)[0]
    model.save(path)
    with pytest.raises(orfit.CheckpointError):
        orfit.load(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(orfit.CheckpointError):
        load(path)
    path.write_bytes(whole)
    header, arrays = crafted.parts(path)

    def every(part, at=()):
        for key, value in part.items():
            yield (*at, key)
            if isinstance(value, dict):
                yield from every(value, (*at, key))

    for place in every(header):
        for value in (None, -1, "x", [], {}, 1e300):
            changed = json.loads(json.dumps(header))
            part = changed
            for key in place[:-1]:
                part = part[key]
            part[place[-1]] = value
            crafted.write(path, json.dumps(changed), arrays)
            loads_or_complains(path, amounts[0])
    for name, array in arrays.items():
        shorter = np.atleast_1d(array)[:-1]
        for other in (shorter, np.zeros_like(array) - 1, array.astype(np.float32)):
            crafted.write(path, json.dumps(header), arrays | {name: other})
            loads_or_complains(path, amounts[0])
        crafted.write(path, json.dumps(header), {n: a for n, a in arrays.items() if n != name})
        field = TABLE.get(name.rpartition(".")[2])
        if field is not None and field.optional:
            loads_or_complains(path, amounts[0])
        else:
            with pytest.raises(orfit.CheckpointError):
                load(path)


def loads_or_complains(path, X):
    """What nothing contradicts is taken as it is; no other exception may come."""
    try:
        model = load(path)
    except orfit.CheckpointError:
        return
    model.predict(X)


def test_names_of_columns(diabetes, tmp_path):
    pandas = pytest.importorskip("pandas", reason="the test of names needs pandas")
    frame, y = load_diabetes(return_X_y=True, as_frame=True)
    model = ORFitRegressor().partial_fit(frame, y)
    model.save(tmp_path / "model.safetensors")
    for each in (model, load(tmp_path / "model.safetensors")):
        assert each.feature_names_in_.tolist() == list(frame.columns)
        with pytest.raises(ValueError, match="same order"):
            each.predict(frame[frame.columns[::-1]])
        with pytest.raises(ValueError, match="missing:\n- age"):
            each.partial_fit(frame.drop(columns="age"), y)
    plain = ORFitRegressor().fit(frame.to_numpy(), y.to_numpy())
    np.testing.assert_array_equal(plain.coef_, model.coef_)
    assert isinstance(pandas.Series(model.predict(frame)), pandas.Series)


def test_polars(diabetes):
    polars = pytest.importorskip("polars", reason="the test of its frames needs polars")
    X, y = diabetes
    frame = polars.DataFrame({f"x{j}": X[:, j] for j in range(10)})
    model = ORFitRegressor().fit(frame, polars.Series(y))
    np.testing.assert_array_equal(model.coef_, ORFitRegressor().fit(X, y).coef_)
    if not hasattr(StandardScaler().fit(frame), "feature_names_in_"):
        pytest.skip("this scikit-learn does not read the names of this polars")
    assert model.feature_names_in_[0] == "x0"
    with pytest.raises(ValueError, match="same order"):
        model.predict(frame[frame.columns[::-1]])


def test_the_tools_of_scikit_learn(diabetes):
    X, y = diabetes
    pipeline = make_pipeline(StandardScaler(), ORFitRegressor())
    settings = {"orfitregressor__noise": [1.0, "auto"]}
    search = GridSearchCV(pipeline, settings, n_jobs=2).fit(X, y)
    assert search.best_score_ > 0.45
    with sklearn.config_context(enable_metadata_routing=True):
        model = ORFitRegressor().set_fit_request(sample_weight=True)
        model.set_partial_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        weight = np.arange(len(y), dtype=float)
        routed = make_pipeline(StandardScaler().set_fit_request(sample_weight=True), model)
        routed.fit(X, y, sample_weight=weight)
        scores = cross_val_score(model, X, y, params={"sample_weight": weight})
    alone = ORFitRegressor().fit(X, y, weight)
    np.testing.assert_allclose(routed.predict(X), alone.predict(X), rtol=1e-7)
    assert scores.min() > 0.3


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"memory": 0}, "^memory must be at least 1"),
        ({"noise": "much"}, 'noise must be a number or "auto"'),
        ({"noise": None}, '^noise must be a number or "auto"; it is None'),
        ({"gamma": "mean"}, '^gamma must be a number or "median"'),
        ({"noise": -1}, "^noise must not be negative"),
        ({"forgetting": 0}, r"forgetting must be in \(0, 1\]"),
        ({"features": "waves"}, 'features must be None, "fourier" or "relu"'),
        ({"features": "fourier", "gamma": 0}, "gamma must be positive"),
        ({"dtype": int}, "dtype must be None, float32 or float64"),
        ({"fit_intercept": 1}, "fit_intercept must be True or False"),
    ],
)
def test_what_cannot_be_is_refused(amounts, settings, match):
    with pytest.raises(ValueError, match=match):
        ORFitRegressor(**settings).fit(*amounts)


def test_weights_are_checked(amounts):
    X, y = amounts
    model = ORFitRegressor().fit(X, y)
    for weight, match in [
        (np.zeros(600), "zero for every row"),
        (np.full(600, -1), "must not be negative"),
        (np.ones(3), "must have shape"),
    ]:
        with pytest.raises(ValueError, match=match):
            ORFitRegressor().fit(X, y, weight)
    before = model.predict(X)
    model.partial_fit(X, y + 9, np.zeros(600))
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(AttributeError, match="has not learned anything"):
        _ = ORFitRegressor().coef_


def test_without_noise_it_interpolates(rng):
    X = rng.standard_normal((8, 20))
    y = rng.standard_normal(8)
    np.testing.assert_allclose(ORFitRegressor(noise=0).fit(X, y).predict(X), y, atol=1e-8)


def refuse_after(rows, model, monkeypatch):
    """Let the learner be stopped, by a signal for instance, when it has learned so many rows."""
    kind = type(model.learner_)
    learn_each = kind.learn_each

    def stopped(self, X, Y, weight=None):
        learn_each(self, X[:rows], Y[:rows], None if weight is None else weight[:rows])
        raise KeyboardInterrupt

    monkeypatch.setattr(kind, "learn_each", stopped)


def test_a_class_keeps_its_name_where_learning_stops(rng, monkeypatch):
    X = rng.standard_normal((400, 2)) + np.repeat([[0.0, 0.0], [9.0, 0.0]], 200, axis=0)
    model = ORFitClassifier().fit(X, np.repeat(["b", "a"], 200))
    refuse_after(5, model, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(rng.standard_normal((20, 2)), ["lost"] * 20)
    monkeypatch.undo()
    assert model.classes_.tolist() == ["a", "b", "lost"]
    later = rng.standard_normal((200, 2)) - [0, 9]
    model.partial_fit(later, ["found"] * 200)
    for each in (model, pickle.loads(pickle.dumps(model))):
        assert each.classes_.tolist() == ["a", "b", "found", "lost"]
        assert np.mean(each.predict(later) == "found") > 0.95
        assert np.mean(each.predict(X) == np.repeat(["b", "a"], 200)) > 0.95


def test_nothing_changes_where_a_number_is_none_in_these_units(rng):
    X = rng.standard_normal((400, 2)) * 1e-200
    model = ORFitClassifier().fit(X, X[:, 0] > 0)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="X, in units of the first rows, must be finite"):
        model.partial_fit([[0.0, 0.0], [1e200, 0.0]], [True, 2])
    assert model.classes_.tolist() == [False, True]
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("start", [20, 400])
def test_rows_that_were_learned_before_it_stopped_are_counted(rng, start, monkeypatch):
    """Whether first rows are still kept or not; a row without weight is none."""
    X = rng.standard_normal((start, 2))
    model = ORFitClassifier(noise=1.0).fit(X, X[:, 0] > 0)
    more, weight = rng.standard_normal((16, 2)), np.ones(16)
    weight[3] = 0
    refuse_after(8, model, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(more, more[:, 0] > 0, sample_weight=weight)
    learned = model._learned
    assert learned.scaled.classes.rows == model.learner_.seen == start + 7
    assert learned.first is None if start == 400 else len(learned.first) == start + 8
    expected = np.append(X[:, 0] > 0, np.delete(more[:8, 0] > 0, 3))
    assert learned.scaled.classes.labels.tolist() == [np.sum(~expected), np.sum(expected)]


def test_a_decision_that_fails_leaves_what_was_decided(amounts, monkeypatch):
    X, y = amounts
    model = ORFitRegressor().fit(X[:20], y[:20])
    scaled = model._learned.scaled
    calls = []

    def fails(self, rows):
        calls.append(len(rows))
        raise MemoryError

    learn = type(scaled).learn
    monkeypatch.setattr(
        type(scaled), "learn", lambda self, rows: (learn if self is scaled else fails)(self, rows)
    )
    with pytest.raises(MemoryError):
        model.partial_fit(X[20:50], y[20:50])
    monkeypatch.undo()
    assert calls == [40]
    assert model._learned.scaled is scaled
    model = pickle.loads(pickle.dumps(model))
    model.partial_fit(X[40:FEW], y[40:FEW])
    again = ORFitRegressor().fit(X[:20], y[:20]).partial_fit(X[20:FEW], y[20:FEW])
    np.testing.assert_allclose(model.predict(X), again.predict(X), rtol=1e-9)


def test_weights_that_add_up_to_one_do_no_harm(amounts):
    """Only how they compare matters then: the fit is that of weights whose mean is 1."""
    X, y = amounts
    weight = np.random.default_rng(2).uniform(0.1, 1.9, len(y))
    weight /= weight.mean()
    plain = ORFitRegressor().fit(X, y, weight)
    for total in (1.0, 30.0):
        model = ORFitRegressor().fit(X, y, weight * total / len(y))
        np.testing.assert_allclose(model.predict(X), plain.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    "change",
    [{"noise": 3.0}, {"memory": 7}, {"gamma": 0.5}, {"dtype": "float32"}, {"random_state": 5}],
)
def test_a_setting_that_came_too_late_is_refused(amounts, change):
    X, y = amounts
    model = ORFitRegressor(**RANDOM).fit(X[:50], y[:50])
    before = model.get_params()
    model.set_params(**change)
    with pytest.raises(ValueError, match=f"^{next(iter(change))} was set after rows"):
        model.partial_fit(X[50:60], y[50:60])
    assert model.learner_.seen == 50
    model.set_params(**before).partial_fit(X[50:60], y[50:60])
    model.set_params(**change).fit(X[:50], y[:50])


def test_one_row_tells_no_deviation():
    model = ORFitRegressor().partial_fit([[1.0]], [2.0])
    assert model.predict([[1.0], [5.0]], return_std=True)[1].tolist() == [np.inf, np.inf]
    std = model.partial_fit([[2.0]], [3.0]).predict([[1.0]], return_std=True)[1]
    assert 0 < std[0] < np.inf


@pytest.mark.parametrize("size", [2.0**530, 2.0**-530])
def test_units_may_be_as_large_as_numbers(amounts, size):
    X, y = amounts
    plain = ORFitRegressor().fit(X, y).predict(X)
    model = ORFitRegressor().fit(X * size, y * size)
    np.testing.assert_array_equal(model.predict(X * size) / size, plain)


def test_few_rows_are_learned_as_any_others():
    """Arrays of known classes take a shorter way: without scikit-learn's own checks."""
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((400, 4)), rng.integers(0, 3, 400)
    for kind, y in ((ORFitClassifier, labels), (ORFitRegressor, X @ [1.0, 2.0, 3.0, 4.0])):
        short, long = kind().partial_fit(X[:300], y[:300]), kind().partial_fit(X[:300], y[:300])
        for i in range(300, 400):
            row = slice(i, i + 1)
            short.partial_fit(X[row], y[row])
            long.partial_fit(X[row].tolist(), y[row].tolist())
        assert (short.predict(X[:1]) == long.predict(X[:1].tolist())).all()
        assert (short.coef_ == long.coef_).all()
        for wrong, match in (
            (X[:1, :3], "X has 3 features, but ORFit"),
            (X[0], "Expected 2D array, got 1D array instead"),
            (np.full((1, 4), np.nan), "Input X contains NaN"),
            (X[:0], "Found array with 0 sample"),
        ):
            for use in (short.predict, lambda X, m=short, y=y: m.partial_fit(X, y[: len(X)])):
                with pytest.raises(ValueError, match=match):
                    use(wrong)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            short.partial_fit(X[:2], y[:1])
        with pytest.raises(ValueError, match="NaN"):
            short.partial_fit(X[:1], np.array([np.nan]))
        seen = short.learner_.seen
        short.set_params(memory=7)
        with pytest.raises(ValueError, match="memory was set after rows"):
            short.partial_fit(X[:1], y[:1])
        assert short.learner_.seen == seen
