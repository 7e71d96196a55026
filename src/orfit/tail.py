"""What P is outside the directions that are kept: a few numbers.

    P = U R (Γ Γᵀ + κ I)⁻¹ Uᵀ + ρ (I − U Uᵀ),     ρ = R / (κ + τ),     κ = R / prior

A memory drops directions. If a dropped one counted as never seen, w would move along it for ever
as boldly as on the first day. So τ, the tail, is the energy that was seen along each direction that
is not kept; the same for all of them, since nothing more is known. A direction that is begun anew
starts at τ, not at nothing. R = 0: ρ = 1.

The prior's variance is 1, and grows where w drifts: P ← P + q I turns Γ Γᵀ, τ and the prior each
into another of its kind, exactly.

The functions are plain Python, and `kernels` compiles these very functions.
"""

from typing import NamedTuple

import numpy as np

from orfit.door import Array

LARGEST = 1e300  # energies beyond are no numbers when they are added up


class Tail(NamedTuple):
    """What is known of directions that are not kept, of gradients faded as the rest is.

    Several guesses of R may share a memory: each has a level of its own.
    """

    level: Array  # τ, one for each guess
    dropped: Array  # the energy that was dropped, less what was known of it
    rows: float  # gradients seen
    dropping: float  # those of them at which something was dropped
    prior: float  # the variance of w along a direction never seen


def unseen(guesses: int) -> Tail:
    """Where nothing has been seen yet."""
    return Tail(np.zeros(guesses), np.zeros(guesses), 0.0, 0.0, 1.0)


def floor(tail: Tail, noise: float) -> float:
    """κ, what the prior counts for beside energies."""
    return noise / tail.prior


def share(tail: Tail, guess: int, noise: float, used: bool) -> float:
    """ρ; where the tail is not used, as if nothing had been dropped."""
    if noise == 0:
        return 1.0
    return float(noise / (floor(tail, noise) + (tail.level[guess] if used else 0.0)))


def drift_share(energy: float, tail: Tail, noise: float, drift: float) -> float:
    """How much of an energy e is left when P grows by `drift`: R / (κ + e), and R / κ too."""
    prior = floor(tail, noise)
    return noise / (noise + drift * (energy + prior)) * (noise / (noise + drift * prior))


def aged(tail: Tail, noise: float, forgetting: float, drift: float, rows: float) -> Tail:
    """When the past counts less, w may have drifted (by one guess), and more gradients arrive."""
    left = forgetting
    if drift > 0:
        left *= drift_share(forgetting * tail.level[0], tail, noise, drift)
    level, dropped = left * tail.level, left * tail.dropped
    return Tail(level, dropped, left * tail.rows + rows, left * tail.dropping, tail.prior + drift)


def lengthened(
    tail: Tail, dropped: Array, least: float, noises: Array, rows: float, free: int
) -> Tail:
    """After directions were dropped, of which so much was seen: energies, positive.

    least: the least energy that is kept. noises: R of each guess. rows: how many gradients there
    were at once. free: how many directions are not kept.

    The tail keeps the mean variance R / (κ + e) of its directions, not their mean energy: what a
    prediction is uncertain by. Of how many directions it is the mean? As many as it would take, at
    the least energy that is kept, to hold what is dropped; and more where κ is small beside that,
    since then what was seen little of counts for most.
    """
    if not (noises[0] > 0 and least > 0):
        return tail
    d, dropping = len(dropped), tail.dropping + rows
    energies, least = np.minimum(dropped, LARGEST), min(least, LARGEST)
    level, total = np.empty(len(noises)), np.empty(len(noises))
    for guess in range(len(noises)):
        prior, before = floor(tail, noises[guess]), tail.level[guess]
        news = np.maximum(energies - before, 0.0).sum()
        total[guess] = min(tail.dropped[guess] + news, LARGEST)
        energy = total[guess] / dropping / least
        spread = 2 * tail.rows * energy * (1 + np.log1p(least / prior))
        weight = 1 / max(1.0, float(d), min(float(free), spread))
        variance = (1 - weight * d) / (prior + before) + weight * (1 / (prior + energies)).sum()
        # As much as along the least that is kept: more was never dropped, but for rounding.
        level[guess] = min(max(1 / variance - prior, 0.0), least)
    return Tail(level, total, tail.rows, dropping, tail.prior)
