"""One step is the whole system: project off the past, fit, remember."""

from typing import Any

import numpy as np

from orfit import small
from orfit.door import Array
from orfit.memory import Memory


def step(
    memory: Memory, past: Any, residual: Array, noise: float, most: float
) -> tuple[float, Array]:
    """Move w so that the gradients of `past` fit the residual (n×q), and remember them.

        w ← w + P G (Gᵀ P G + R I)⁺ residual,   P G = D B,  Gᵀ P G = Bᵀ B   (`Split`)

    which is D z with z = B (BᵀB + R I)⁺ residual, small. Returns |Δw| and what is left of the
    residual; raises where a parameter might become larger than `most`: nothing has changed then.
    """
    z, left = small.fit(past.factor, noise, residual)
    check_step(z)
    move, length = past.move(z)
    if not memory.reach + length < most:  # steps there and back add up: see how far w really is
        reach = memory.largest()
        if not reach + length < most:
            check_step(np.inf)
        memory.reach = reach
    memory.fold(past, move)
    return length, left


def check_step(step: Array | float, remedy: str = "scale x or y") -> None:
    """Refuse a step that would leave the finite numbers."""
    if not np.isfinite(step).all():
        raise ValueError(f"the step overflows: {remedy}")
