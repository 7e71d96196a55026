"""Estimators with `fit` and `partial_fit`, for scikit-learn (extra `sklearn`).

Examples:
    >>> from orfit.sklearn import ORFitRegressor
    >>> from sklearn.pipeline import make_pipeline
    >>> model = make_pipeline(ORFitRegressor(features="relu", random_state=0))
    >>> print(model.fit([[0.0], [1.0], [2.0]], [1.0, 0.0, 1.0]).predict([[1.0]]).shape)
    (1,)
"""

try:
    from orfit.sklearn.classifier import ORFitClassifier
    from orfit.sklearn.regressor import ORFitRegressor
    from orfit.sklearn.saved import load
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "sklearn":
        raise
    advice = "pip install '.[sklearn]' in orfit's folder"
    raise ImportError(f"orfit.sklearn needs scikit-learn: {advice} ({error})") from None

__all__ = ["ORFitClassifier", "ORFitRegressor", "load"]
