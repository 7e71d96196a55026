"""Keep the principal directions: incremental PCA."""

import math
from typing import Any

import numpy as np

from orfit import door, tall
from orfit import tail as tails
from orfit.door import Array
from orfit.memory.basis import BasisSplit, Bounded, energy
from orfit.memory.loop import READY, Walk
from orfit.memory.motion import LEAST, kept, known, moved
from orfit.memory.seen import Axes
from orfit.schema import Fields
from orfit.tail import Tail


class Principal(Bounded):
    """The top m principal directions of all past gradients: alg:orfit_ipca, alg:borfit_ipca.

    Sequential Karhunen–Loève: after each block the m directions along which most was seen stay.
    Of all summaries of that size, exact principal directions make the worst-case forgetting
    smallest (prop:pca_analysis); this recursion comes close to them, since what it drops once
    it cannot weigh again.

    By itself it is an incremental, uncentred PCA of any stream of columns, p×n.

    Examples:
        >>> pca = orfit.memory.Principal(2)
        >>> pca.absorb(np.diag([3.0, 1.0, 2.0]))  # columns, again and again
        >>> print(pca.sigma, np.abs(pca.U[:, 0]))
        [3. 2.] [1. 0. 0.]
    """

    form = Axes
    has_moved = False  # whether A has made P another than what was seen makes it
    shrinks = False  # whether the first square that is dropped is taken off those that stay
    compiled = drops_the_least = has_tail = moves = merges = True

    def __init_subclass__(cls) -> None:
        """A subclass that trims in another way is not what the compiled loop, or `join`, does."""
        if "trim" in vars(cls):
            cls.compiled = cls.merges = False

    def walk(self, *settings: Any) -> Walk:
        return Walk(self, *settings)

    def walked(self, rows: int, guesses: Any) -> None:
        """Take note of rows that the compiled loop has learned."""

    @property
    def loop_ready(self) -> bool:
        return tall.numpy_dtype(self.frame.base) in READY

    def loop_obstacle(self, noise: float, drift: Any) -> str | None:
        return "w has moved by itself" if self.has_moved else super().loop_obstacle(noise, drift)

    def advance(self, w: Any, A: Any, drift: Any, noise: Any) -> None:
        if np.ndim(A) == 0:
            super().advance(w, A, drift, noise)
            return
        rho = tails.share(self.tail, 0, noise, True)
        U = np.asarray(tall.to_numpy(self.U), np.float64)
        U, variances, rho = moved(U, self._variances(noise), rho, A)
        door.check_finite("P after a step in time", np.array([*variances, rho]))
        drift = max(drift, LEAST)
        variances, rho = variances + drift, rho + drift
        stay, rho = kept(variances, rho, self.m, len(U))
        energies, self.tail = known(self.tail, variances[stay], rho, noise)
        order = np.argsort(-energies, kind="stable")
        self.frame.replace(tall.convert(self.frame.rows, U[:, stay[order]]))
        self.seen, self.has_moved, self.w = Axes(np.sqrt(energies[order])), True, w

    def _variances(self, noise: float) -> Array:
        """Of w, along U."""
        sigma = self.seen.sigma
        return np.asarray(noise / (tails.floor(self.tail, noise) + sigma * sigma))

    def trim(self) -> None:
        """U is in principal axes, falling: the last go."""
        sigma, m = self.seen.sigma, self.m
        if len(sigma) <= m:
            return
        rest, self._lost = sigma[:m], self._lost + energy(sigma[m:])
        if self.shrinks:
            rest = np.sqrt(np.maximum((rest - sigma[m]) * (rest + sigma[m]), 0.0))
            self._lost += m * energy(sigma[m])
        self.frame.drop(self.frame.W[:m])
        self.seen = Axes(rest)

    def _take_in(self, past: BasisSplit) -> None:
        used = past.noise > 0 and past.tailed[past.guess]
        start = past.tail.level[past.guess] if used else 0.0
        sigma, turn = past.seen.grown(past.parts.C, past.parts.T, math.sqrt(start))
        self.frame.turn(turn)
        self.seen = Axes(sigma)
        if self.has_moved and past.noise > 0:  # without noise P is a projector, whatever was seen
            self._trim_in_time(past)
            return
        self._lost -= start * len(past.parts.T)  # of which so much counts as kept again
        self.trim()
        self.tail = self._lengthened(past, sigma)

    def _trim_in_time(self, past: BasisSplit) -> None:
        """Where A has moved P, what was seen least is not what matters least: see `motion`."""
        self.tail = past.tail
        if self.rank <= self.m:
            return
        variances, rho = self._variances(past.noise), past.loose**2
        self._lost += energy(self.seen.sigma[self.m :])
        stay, rho = kept(variances, rho, self.m, self.size or 0)
        energies, self.tail = known(past.tail, variances[stay], rho, past.noise)
        self.frame.drop(self.frame.W[stay])
        self.seen = Axes(np.sqrt(energies))

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, values = super().state()
        return arrays, values | {"moved": self.has_moved}

    def fields(self) -> Fields:
        return super().fields() | {"moved": door.flag}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        super().restore(arrays, values)
        self.has_moved = values["moved"]

    def _lengthened(self, past: BasisSplit, sigma: Array) -> Tail:
        """The tail, where directions were dropped of those along which sigma was seen."""
        if self.rank == len(sigma) or not self.tailed.any():
            return past.goes_on
        with np.errstate(over="ignore"):  # the tail has a limit of its own
            energies = sigma * sigma
        rows, free = past.arrived, (self.size or 0) - self.m
        dropped, least = energies[self.rank :], energies[self.rank - 1]
        return tails.lengthened(past.goes_on, dropped, least, past.noises, rows, free)
