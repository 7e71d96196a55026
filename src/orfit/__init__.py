"""orfit: learn from a stream in one pass, without forgetting.

Examples:
    >>> import orfit
    >>> learner = orfit.ORFit(orfit.Linear(3))
    >>> update = learner.learn([1, 2, 2], y=9)
    >>> print(learner.w)
    [1. 2. 2.]
    >>> orfit.__version__.count(".")
    2
"""

from typing import Any

from orfit import datasets, measures, memory
from orfit.checkpoint import CheckpointError
from orfit.learners import (
    EKF,
    NTKRLS,
    OGD,
    RLS,
    SGD,
    Fleet,
    Greedy,
    InterpolationWarning,
    OneStepSGD,
    ORFit,
    SaturationWarning,
    ScaleWarning,
    Update,
    Updates,
    load,
    merge,
    warm_up,
)
from orfit.meter import Meter, Reading, Readings
from orfit.models import Linear
from orfit.version import __version__


def __getattr__(name: str) -> Any:
    if name != "TorchModel":
        raise AttributeError(f"module 'orfit' has no attribute {name!r}")
    try:  # torch is imported by those who use it
        from orfit.models.torch_model import TorchModel
    except ImportError as error:
        advice = "pip install '.[torch]' in orfit's folder"
        raise ImportError(f"TorchModel needs torch: {advice} ({error})") from None
    return TorchModel


__all__ = [
    "EKF",
    "NTKRLS",
    "OGD",
    "RLS",
    "SGD",
    "CheckpointError",
    "Fleet",
    "Greedy",
    "InterpolationWarning",
    "Linear",
    "Meter",
    "ORFit",
    "OneStepSGD",
    "Reading",
    "Readings",
    "SaturationWarning",
    "ScaleWarning",
    "TorchModel",
    "Update",
    "Updates",
    "__version__",
    "datasets",
    "load",
    "measures",
    "memory",
    "merge",
    "warm_up",
]
