"""Predictions and their gradients."""

from orfit.models.base import CompleteModel, Defaults, Model, completed, residual
from orfit.models.linear import Linear

__all__ = ["CompleteModel", "Defaults", "Linear", "Model", "completed", "residual"]
