"""Predictions and their gradients."""

from orfit.models.base import Model
from orfit.models.linear import Linear

__all__ = ["Linear", "Model"]
