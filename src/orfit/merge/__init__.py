"""Merge learners, express them as rows, and remove rows from them."""

from orfit.merge.merging import merge

__all__ = ["merge"]
