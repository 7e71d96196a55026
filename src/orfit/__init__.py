"""orfit: learn from a stream in one pass, without forgetting."""

from importlib.metadata import version

from orfit import datasets, memory
from orfit.checkpoint import CheckpointError
from orfit.learners import (
    EKF,
    NTKRLS,
    OGD,
    RLS,
    SGD,
    Greedy,
    OneStepSGD,
    ORFit,
    SaturationWarning,
    Update,
    Updates,
    load,
)
from orfit.models import Linear

__version__ = version("orfit")

__all__ = [
    "EKF",
    "NTKRLS",
    "OGD",
    "RLS",
    "SGD",
    "CheckpointError",
    "Greedy",
    "Linear",
    "ORFit",
    "OneStepSGD",
    "SaturationWarning",
    "Update",
    "Updates",
    "datasets",
    "load",
    "memory",
]
