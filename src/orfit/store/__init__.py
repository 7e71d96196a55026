"""Arrays with p numbers per row: the stored gradients and the base parameters."""

from orfit.store.host import (
    HOST,
    LEAST_EXPONENT,
    Arithmetic,
    Store,
    arithmetic,
    cutoff,
    largest_allowed,
    numpy_dtype,
)

__all__ = [
    "HOST",
    "LEAST_EXPONENT",
    "Arithmetic",
    "Store",
    "arithmetic",
    "cutoff",
    "largest_allowed",
    "numpy_dtype",
]
