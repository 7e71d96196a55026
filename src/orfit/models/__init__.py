"""Predictions and their gradients."""

from orfit.models.base import Model, check_model
from orfit.models.linear import Linear

__all__ = ["Linear", "Model", "check_model"]
