"""A memory of directions in the form in which the core learns rows."""

import numpy as np

from orfit.core._core import Lock
from orfit.core.layout import BASIS
from orfit.memory.basis import Basis
from orfit.memory.core_rows import CoreRows, Settings, block_of
from orfit.memory.latest import Latest
from orfit.memory.nothing import Nothing
from orfit.memory.principal import Principal
from orfit.memory.random import Random
from orfit.memory.unlimited import Unlimited
from orfit.memory.vectors import root_above
from orfit.state import State
from orfit.store import largest_allowed, numpy_dtype
from orfit.store.host import CACHE_LINE, Store, padded
from orfit.validation import Array

KINDS = (Principal, Latest, Random, Unlimited, Nothing)  # as core.h numbers them
HAVE_ROOTS = (Latest, Random, Unlimited)

NUMBERS = (
    "compactions",
    "parameter_bound",
    "prior_variance",
    "dropped_energy",
    "tail_rows",
    "tail_dropping",
)
TAIL = ("tail_level", "tail_dropped")


class BasisRows(CoreRows):
    """The numbers of a state as a `Basis` of core.h.

    The rows of the store are shared with the state. Small arrays are copied in both directions.
    """

    def __init__(
        self,
        s: State,
        memory: Basis,
        lock: Lock,
        settings: Settings,
        scratch: Array | None = None,
    ) -> None:
        """scratch: of another learner of the same sizes."""
        kind, noisy = type(memory), bool(s.noises[0] > 0)
        struct = self.struct = np.zeros((), BASIS)
        dtype, capacity = numpy_dtype(s.store.rows), s.store.capacity
        self.template, self.ops, self.shapes = s, s.store.ops, (s.input_shape, s.label_shape)
        struct["parameters"], struct["capacity"] = s.store.rows.shape[1], capacity
        struct["kind"], struct["seed"] = KINDS.index(kind), getattr(memory, "seed", 0)
        struct["most"] = capacity if kind is Unlimited else 0 if kind is Nothing else memory.m
        struct["linear"], struct["bias"] = settings.linear, settings.bias
        struct["chosen"], struct["has_tail"], struct["is_noisy"] = (
            s.chosen,
            kind is Principal,
            noisy,
        )
        struct["forgetting"], struct["drift"] = settings.forgetting, settings.drift
        struct["limit"] = largest_allowed(dtype)
        struct["scores"]["candidates"] = len(s.noises)
        struct["scores"]["heads"] = len(s.scale) // len(s.noises)
        # With noise, a remainder that is rounding is short beside the gradient alone.
        struct["has_history"] = s.history is not None and (
            not noisy or kind not in {Principal, Unlimited}
        )
        struct["seen"] = s.seen
        self.open_basis(struct, lock, dtype == np.float32, settings.has_heads)
        self.block = block_of(self.place(0))
        if scratch is None or scratch.ctypes.data % CACHE_LINE:  # or a copy
            scratch = block_of(self.place_scratch(0))
        self.scratch = scratch
        self.place(self.block.ctypes.data)
        self.place_scratch(self.scratch.ctypes.data)
        self._copy_in(s, settings)

    # Copying.

    def _matrix(self, name: str, rows: int, columns: int) -> Array:
        length = int(self.struct["width"])
        return self._array(name, rows * length).reshape(rows, length)[:, :columns]

    def _root(self, i: int, k: int) -> Array:
        """Root i of the triangular spectrum."""
        length, size = int(self.struct["vector"]), int(self.struct["most"]) + 1
        roots = self._array("roots", (i + 1) * size * length).reshape(i + 1, size, length)
        return roots[i, :k, :k]

    def _copy_in(self, s: State, settings: Settings) -> None:
        struct, (k, stored), e = self.struct, s.W.shape, len(s.noises)
        columns, size = s.shift.shape[0], s.store.rows.shape[1]
        self.rows, self.base = s.store.rows, padded(columns, size, s.store.rows.dtype)
        if not self._is_shared(self.rows):
            self.rows = s.store.resized(s.store.capacity).rows
        self.base[:, :size], self.base[:, size:] = s.store.base, 0
        struct["rows"], struct["base"] = self.rows.ctypes.data, self.base.ctypes.data
        struct["stored"], struct["rank"] = stored, k
        struct["draws"] = getattr(s, "draws", 0)
        for name in NUMBERS:
            struct[name] = getattr(s, name)
        self._array("noise", e)[:], self._array("tailed", e)[:] = s.noises, settings.tails
        for name in TAIL:
            self._array(name, e)[:] = getattr(s, name)
        self._matrix("W", k, stored)[:] = s.W
        self._matrix("M", stored, stored)[:] = s.M[:stored, :stored]
        self._matrix("shift", columns, stored)[:] = s.shift
        if struct["has_history"]:
            self._matrix("history", stored, stored)[:] = s.history
        if self._has_roots():
            draft = State(**vars(s))
            for i, floor in enumerate(_floors(s)):
                self._root(i, k)[:] = root_above(draft, floor)
        else:
            self._array("sigma", k)[:] = s.sigma
        self._copy_scores_in(s)

    def _has_roots(self) -> bool:
        return KINDS[int(self.struct["kind"])] in HAVE_ROOTS

    def _is_shared(self, rows: Array) -> bool:
        """Whether the core can use this buffer."""
        length = int(self.struct["stride"]) * rows.itemsize
        return rows.strides == (length, rows.itemsize) and rows.ctypes.data % CACHE_LINE == 0

    def _copy_out(self, s: State) -> None:
        struct = self.struct
        k, stored, e = int(struct["rank"]), int(struct["stored"]), len(s.noises)
        columns, size = s.shift.shape[0], self.rows.shape[1]
        s.store, s._w = Store(self.ops, self.rows, stored, self.base[:, :size]), None
        for name in NUMBERS:
            setattr(s, name, struct[name].item())
        for name in TAIL:
            setattr(s, name, self._array(name, e).copy())
        s.W = self._matrix("W", k, stored).copy()
        s.M = np.empty((len(self.rows), len(self.rows)))
        s.M[:stored, :stored] = self._matrix("M", stored, stored)
        s.shift = self._matrix("shift", columns, stored).copy()
        s.history = None
        if struct["has_history"]:
            s.history = np.array(self._matrix("history", stored, stored), order="F")
        if self._has_roots():
            s.floors = np.array(_floors(s))
            s.roots = np.stack([self._root(i, k) for i in range(len(s.floors))])
        else:
            s.sigma = self._array("sigma", k).copy()
        if hasattr(s, "draws"):
            s.draws = int(struct["draws"])

    def parameters(self) -> Array:
        """w, p×columns, as a new array."""
        made = padded(len(self.base), self.base.shape[1], self.base.dtype)
        self.copy_parameters(made)
        return made[:, : self.rows.shape[1]].T


def _floors(s: State) -> list[float]:
    """The floors of the triangular roots: 0, and with noise that of each candidate."""
    return [0.0, *(s.noises / s.prior_variance if s.noises[0] > 0 else ())]
