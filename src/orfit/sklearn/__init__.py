"""orfit behind scikit-learn's face (extra `sklearn`)."""

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
