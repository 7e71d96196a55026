"""Keep the principal directions: incremental PCA."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from orfit import small_linalg
from orfit.memory import frame
from orfit.memory.basis import LARGEST_ENERGY, BasisDecomposition, Bounded, energy
from orfit.state import State
from orfit.validation import Array

ROUNDING = 1e-9  # by which sigma may rise where it should fall


class Principal(Bounded):
    """The top m principal directions of all past gradients: alg:orfit_ipca, alg:borfit_ipca.

    Sequential Karhunen–Loève: after each block the m directions along which most was seen stay.
    Of all summaries of that size, exact principal directions make the worst-case forgetting
    smallest (prop:pca_analysis); this recursion comes close to them, since what it drops once
    it cannot weigh again.

    By itself it is an incremental, uncentred PCA of any stream of columns, p×n.

    The state keeps `sigma`, the singular values, falling; U is in principal axes.

    Examples:
        >>> pca = orfit.memory.Principal(2)
        >>> pca.absorb(np.diag([3.0, 1.0, 2.0]))  # columns, again and again
        >>> print(pca.sigma, np.abs(pca.U[:, 0]))
        [3. 2.] [1. 0. 0.]
    """

    shrinks = False  # whether the first square that is dropped is subtracted from the others
    drops_the_least = has_tail = merges = True

    def __init_subclass__(cls) -> None:
        """A subclass with another `trim` cannot be merged."""
        if "trim" in vars(cls):
            cls.merges = False

    def trim(self) -> None:
        """Keep the m directions along which most was seen."""
        s = self._edited()
        sigma, m = s.sigma, self._limit(s)
        if len(sigma) <= m:
            return
        s.sigma = sigma[:m]
        s.dropped_energy += energy(sigma[m:])
        if self.shrinks:
            s.sigma = np.sqrt(np.maximum((sigma[:m] - sigma[m]) * (sigma[:m] + sigma[m]), 0.0))
            s.dropped_energy += m * energy(sigma[m])
        frame.drop(s, s.W[:m])

    def _clear_spectrum(self, s: State) -> None:
        s.sigma = np.empty(0)

    def _shrink(self, s: State, share: Callable[[Array], Array]) -> None:
        with np.errstate(over="ignore"):  # of an energy that overflows, nothing remains
            s.sigma = s.sigma * np.sqrt(share(s.sigma * s.sigma))

    def _fade(self, s: State, forgetting: float) -> None:
        s.sigma = s.sigma * math.sqrt(forgetting)

    def _damp(self, s: State, noises: Array, floors: Array, C: Array) -> Array:
        return self._shares(s, noises, floors) * C

    def _undamp(self, s: State, noises: Array, floors: Array, Z: Array) -> Array:
        return self._shares(s, noises, floors) * Z

    @staticmethod
    def _shares(s: State, noises: Array, floors: Array) -> Array:
        """E, which is diagonal, of each candidate: e×k×1. sigma² may overflow."""
        return np.asarray(
            np.sqrt(noises)[:, None, None]
            / np.hypot(s.sigma[:, None], np.sqrt(floors)[:, None, None])
        )

    def _axes(self, s: State) -> tuple[Array, Array]:
        return s.sigma, np.eye(len(s.sigma))

    def _set_axes(self, s: State, sigma: Array) -> None:
        s.sigma = sigma

    def _grow_spectrum(self, s: State, d: BasisDecomposition) -> None:
        """Rotate U to the axes of [[diag(sigma), C], [0, T]] (eq:svd_update), and trim.

        A new direction starts with the energy of the tail.
        """
        C, T = d.projection.C, d.projection.T
        k, r = len(s.sigma), len(T)
        known = k + r if d.start > 0 else k
        bordered = np.zeros((k + r, known + C.shape[1]))
        bordered[range(k), range(k)] = s.sigma
        bordered[range(k, known), range(k, known)] = math.sqrt(d.start)
        bordered[:k, known:], bordered[k:, known:] = C, T
        sigma, turn = small_linalg.principal(bordered.T)
        frame.rotate(s, turn)
        s.sigma = sigma
        s.dropped_energy -= d.start * r  # this energy counts as kept again
        self._edit(s)
        if d.joined is not None:
            s.tail_level, s.tail_dropped, s.tail_rows, s.tail_dropping = d.joined
        if self.has_tail and len(s.sigma) < len(sigma) and d.settings.tailed.any():
            self._extend_tail(s, sigma, d)

    def _extend_tail(self, s: State, sigma: Array, d: BasisDecomposition) -> None:
        """Update the tail after directions were dropped.

        The tail keeps the mean variance R / (κ + e) of the directions that are not kept, not their
        mean energy: it is the uncertainty of a prediction. It is the mean over as many directions
        as could hold the dropped energy at the least energy that is kept; over more if κ is small
        beside that, because then directions of which little was seen contribute most.
        """
        noises, kept = d.settings.noises, len(s.sigma)
        energies = np.minimum(sigma, math.sqrt(LARGEST_ENERGY)) ** 2
        dropped, least = energies[kept:, None], energies[kept - 1] if kept else 0.0
        if not (noises[0] > 0 and least > 0):
            return
        s.tail_dropping += d.arrived
        count, before = len(dropped), s.tail_level
        total = s.tail_dropped + np.maximum(dropped - before, 0.0).sum(axis=0)
        s.tail_dropped = np.minimum(total, LARGEST_ENERGY)
        relative = s.tail_dropped / s.tail_dropping / least
        with np.errstate(over="ignore"):
            spread = 2 * s.tail_rows * relative * (1 + np.log1p(least / d.floor))
        free = (self.size or 0) - self._limit(s)
        weight = 1 / np.maximum(max(1.0, float(count)), np.minimum(float(free), spread))
        variance = (1 - weight * count) / (d.floor + before)
        variance = variance + weight * (1 / (d.floor + dropped)).sum(axis=0)
        # Nothing that was dropped had more energy than the least that is kept, but for rounding.
        s.tail_level = np.minimum(np.maximum(1 / variance - d.floor, 0.0), least)

    def _check_spectrum(self, s: State) -> None:
        if (s.sigma[1:] > (1 + ROUNDING) * s.sigma[:-1]).any():
            raise ValueError("sigma must be falling")

    @property
    def root(self) -> Any:
        s = self._current
        return np.diag(s.sigma) if s is not None else np.empty((0, 0))

    def delete(self, j: int) -> None:
        s = self._edited()
        s.dropped_energy += energy(s.sigma[j])
        frame.drop(s, np.delete(s.W, j, axis=0))
        s.sigma = np.delete(s.sigma, j)
