"""A stream's model in MLflow: logged, loaded elsewhere, asked; then it goes on learning.

Needs `pip install mlflow-skinny pandas` beside orfit's extra `sklearn`. The estimator is logged as
orfit's own file; MLflow pickles the class `Stream` around it.
"""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # runs in a folder, without a server

import mlflow
import numpy as np
from sklearn.datasets import load_diabetes

from orfit.sklearn import ORFitRegressor, load


class Stream(mlflow.pyfunc.PythonModel):
    """What MLflow serves: the estimator of one file."""

    def load_context(self, context):
        self.model = load(context.artifacts["model"])

    def predict(self, context, model_input, params=None):
        return self.model.predict(np.asarray(model_input, float))


X, y = load_diabetes(return_X_y=True)
model = ORFitRegressor(memory=20)
for start in range(0, 400, 100):  # a stream, a hundred rows at a time
    model.partial_fit(X[start : start + 100], y[start : start + 100])

with tempfile.TemporaryDirectory() as folder:
    mlflow.set_tracking_uri((Path(folder) / "runs").as_uri())
    file = Path(folder) / "model.safetensors"
    model.save(file)
    with mlflow.start_run():
        logged = mlflow.pyfunc.log_model(
            name="stream",
            python_model=Stream(),
            artifacts={"model": str(file)},
            pip_requirements=[],
        )
        mlflow.log_metric("rows", model.learner_.seen)
    served = mlflow.pyfunc.load_model(logged.model_uri)
    same = np.array_equal(served.predict(X[400:]), model.predict(X[400:]))
    again = served.unwrap_python_model().model.partial_fit(X[400:], y[400:])
print(f"served as learned: {same}; {again.learner_.seen} rows after it went on")
