"""One step is the whole system: project off the past, fit, remember."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit import small
from orfit.door import Array
from orfit.learners.guesses import Guesses
from orfit.memory import Memory


@dataclass(frozen=True, slots=True)
class Step:
    """What came of it, under each guess of the noise."""

    length: float  # |Δw|, of the chosen guess
    left: Array  # n×q, what is left of the residual, of the chosen guess
    variance: Array  # n×e, GᵀPG + R on the diagonal: what each guess expects of the residual
    whitened: Array  # n×b, the residual, each line beside what those before it let expect


def step(memory: Memory, past: Any, residual: Array, guesses: Guesses, most: float) -> Step:
    """Move w so that the gradients of `past` fit the residual (n×b), and remember them.

        w ← w + P G (Gᵀ P G + R I)⁺ residual,   P G = D B,  Gᵀ P G = Bᵀ B   (`Split`)

    which is D z with z = B (BᵀB + R I)⁺ residual, small. Raises where a parameter might become
    larger than `most`: nothing has changed then.
    """
    moves, lengths, left, variances, whitened = [], [], residual, [], []
    for guess, (noise, mine) in enumerate(guesses.each()):
        view = past if len(guesses) == 1 else past.under(guess)
        B, wanted = view.factor, residual[:, mine]
        with np.errstate(over="ignore", invalid="ignore"):  # refused in the next line
            z, unfitted = small.fit(B, noise, wanted)
        check_step(z)
        move, length = view.move(z)
        moves.append(move)
        lengths.append(length)
        u, variance = small.innovations(B, noise, wanted, z)
        whitened.append(u)
        variances.append(variance)
        if guess == guesses.chosen:
            left, chosen = unfitted, view
    move = moves[0] if len(moves) == 1 else past.joined(moves)
    total = small.frobenius(np.array(lengths))
    if not memory.reach + total < most:  # steps there and back add up: see how far w really is
        reach = memory.largest()
        if not reach + total < most:
            check_step(np.inf)
        memory.reach = reach
    memory.remember(chosen, move)
    length = lengths[guesses.chosen]
    return Step(length, left, np.column_stack(variances), np.hstack(whitened))


def check_step(step: Array | float, remedy: str = "scale x or y") -> None:
    """Refuse a step that would leave the finite numbers."""
    if not np.isfinite(step).all():
        raise ValueError(f"the step overflows: {remedy}")
