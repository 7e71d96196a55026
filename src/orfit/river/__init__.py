"""orfit behind river's face (extra `river`): `learn_one`, `predict_one`, features by name."""

try:
    from orfit.river.classifier import ORFitClassifier
    from orfit.river.multi_target import ORFitMultiTargetRegressor
    from orfit.river.regressor import ORFitRegressor
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "river":
        raise
    advice = "pip install '.[river]' in orfit's folder"
    raise ImportError(f"orfit.river needs river ≥ 0.26: {advice} ({error})") from None

__all__ = ["ORFitClassifier", "ORFitMultiTargetRegressor", "ORFitRegressor"]
