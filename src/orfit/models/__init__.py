"""Predictions and their gradients."""

from orfit.models.base import CompleteModel, Defaults, Model, check_labels, completed, residual
from orfit.models.linear import Linear

__all__ = ["CompleteModel", "Defaults", "Linear", "Model", "check_labels", "completed", "residual"]
