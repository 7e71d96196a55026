"""Step rules on a memory and a model."""

from orfit.learners.advice import InterpolationWarning, SaturationWarning, ScaleWarning
from orfit.learners.base import Learner
from orfit.learners.ekf import EKF
from orfit.learners.fleet import Fleet
from orfit.learners.greedy import Greedy
from orfit.learners.load import load
from orfit.learners.merging import merge
from orfit.learners.ogd import OGD
from orfit.learners.orfit import OneStepSGD, ORFit
from orfit.learners.rls import NTKRLS, RLS
from orfit.learners.sgd import SGD
from orfit.learners.update import Update, Updates
from orfit.learners.warm_up import warm_up

__all__ = [
    "EKF",
    "NTKRLS",
    "OGD",
    "RLS",
    "SGD",
    "Fleet",
    "Greedy",
    "InterpolationWarning",
    "Learner",
    "ORFit",
    "OneStepSGD",
    "SaturationWarning",
    "ScaleWarning",
    "Update",
    "Updates",
    "load",
    "merge",
    "warm_up",
]
