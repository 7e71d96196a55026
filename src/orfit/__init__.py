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

import importlib
from typing import Any

from orfit import datasets, measures, memory
from orfit.checkpoint import CheckpointError
from orfit.learners.advice import InterpolationWarning, SaturationWarning, ScaleWarning
from orfit.learners.ekf import EKF
from orfit.learners.fleet import Fleet
from orfit.learners.greedy import Greedy
from orfit.learners.load import READERS, load
from orfit.learners.ogd import OGD
from orfit.learners.orfit import OneStepSGD, ORFit
from orfit.learners.rls import NTKRLS, RLS
from orfit.learners.sgd import SGD
from orfit.learners.update import Update, Updates
from orfit.merge import merge
from orfit.meter import Meter, Reading, Readings
from orfit.models import Linear
from orfit.version import __version__

# Where the names are that need torch, or use it: it is imported by those who use them.
LATER = {
    "TorchModel": "orfit.models.torch_model",
    "Heads": "orfit.networks.heads",
    "PerLayer": "orfit.networks.per_layer",
    "register_layer": "orfit.networks.rules",
}


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module 'orfit' has no attribute {name!r}")
    return getattr(_imported(name), name)


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(LATER[name])
    except ImportError as error:
        advice = "pip install '.[torch]' in orfit's folder"
        raise ImportError(f"{name} needs torch: {advice} ({error})") from None


READERS["Heads"] = lambda: _imported("Heads").load
READERS["PerLayer"] = lambda: _imported("PerLayer").load


__all__ = [
    "EKF",
    "NTKRLS",
    "OGD",
    "RLS",
    "SGD",
    "CheckpointError",
    "Fleet",
    "Greedy",
    "Heads",
    "InterpolationWarning",
    "Linear",
    "Meter",
    "ORFit",
    "OneStepSGD",
    "PerLayer",
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
    "register_layer",
]
