"""orfit.sklearn.onnx: another runtime predicts what the estimator does."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the estimators need scikit-learn")
pytest.importorskip("onnx", reason="a graph is made with onnx, which is no part of any extra")
runtime = pytest.importorskip("onnxruntime", reason="a graph is run by onnxruntime")

from orfit.sklearn import ORFitClassifier, ORFitRegressor
from orfit.sklearn.onnx import export


def run(model, X):
    session = runtime.InferenceSession(
        export(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"X": X})


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("features", [None, "fourier", "relu"])
@pytest.mark.parametrize("targets", [1, 2])
def test_numbers(dtype, features, targets, rng):
    X = (rng.standard_normal((300, 4)) * [1, 10, 0.1, 1] + 5).astype(dtype)
    Y = (X @ rng.standard_normal((4, targets)) + 7).astype(dtype)
    model = ORFitRegressor(features=features, n_components=60, random_state=0)
    model.fit(X, Y[:, 0] if targets == 1 else Y)
    (made,) = run(model, X)
    assert made.dtype == dtype
    wanted = model.predict(X).reshape(len(X), -1)
    close = 1e-10 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(made, wanted, atol=close * np.abs(wanted).max())


@pytest.mark.parametrize("names", [["a", "b", "c"], [3, 5, 4], ["no", "yes"]])
@pytest.mark.parametrize("features", [None, "fourier"])
def test_classes(names, features, rng):
    y = rng.integers(0, len(names), 300)
    X = rng.standard_normal((300, 3)) + y[:, None]
    model = ORFitClassifier(features=features, n_components=60, random_state=0)
    model.fit(X, np.array(names)[y])
    label, probabilities = run(model, X)
    assert label.tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-10)
