"""A dense P in the form in which the core learns rows."""

from typing import Any

import numpy as np

from orfit.core._core import Lock
from orfit.core.layout import DENSE
from orfit.memory.core_rows import CoreRows, Settings, block_of
from orfit.memory.dense import Dense
from orfit.memory.drift import drift_root, drifts
from orfit.state import State
from orfit.store import cutoff, largest_allowed, numpy_dtype
from orfit.store.host import padded
from orfit.validation import Array

ROOT, PLAIN = 0, 1  # how P is kept
NO_DRIFT, NUMBER, DIAGONAL, MATRIX = range(4)  # kinds of drift
NUMBERS = ("wound_up", "parameter_bound", "amplification", "width", "time_updated")


def as_rows(A: Array) -> Array:
    """A square matrix with padded rows, and as many rows of zeros as the core needs."""
    size = len(A)
    made = padded(-(-size // 8) * 8, size, np.float64)
    made[:] = 0
    made[:size, :size] = A
    return made


class DenseRows(CoreRows):
    """The numbers of a state as a `Dense` of core.h. P is shared with the state."""

    def __init__(self, s: State, memory: Dense, lock: Lock, settings: Settings) -> None:
        struct = self.struct = np.zeros((), DENSE)
        size, columns = s.w.shape
        dtype = self.dtype = numpy_dtype(s.w)
        self.template, self.shapes = s, (s.input_shape, s.label_shape)
        struct["parameters"] = struct["rank"] = size
        struct["bias"], struct["linear"] = settings.bias, settings.linear
        struct["noise"], struct["forgetting"] = s.noises[0], settings.forgetting
        struct["limit"], struct["cutoff"] = largest_allowed(dtype), cutoff(dtype)
        struct["prior_width"] = memory._prior_width
        struct["scores"]["heads"], struct["scores"]["candidates"] = columns, 1
        struct["seen"], struct["moves"] = s.seen, settings.A is not None or drifts(settings.drift)
        struct["makes_steps"] = settings.makes_steps
        self.set_A(1.0 if settings.A is None else settings.A)
        self._set_drift(settings.drift, size)
        self.open_dense(struct, lock, dtype == np.float32, settings.has_heads)
        self.block = block_of(self.place(0))
        self.place(self.block.ctypes.data)
        self._copy_in(s)

    def set_A(self, A: Any) -> None:
        """The matrix of the next step in time, or a number."""
        if np.ndim(A) == 2:
            A = A.toarray() if hasattr(A, "toarray") else A  # a sparse matrix
        self.A = as_rows(A.T) if np.ndim(A) == 2 else None
        self.struct["number_A"] = A if self.A is None else 0.0
        self.struct["columns_of_A"] = 0 if self.A is None else self.A.ctypes.data

    def _set_drift(self, drift: Any, size: int) -> None:
        struct = self.struct
        if not drifts(drift):
            struct["drift_kind"] = NO_DRIFT
            return
        struct["drift_kind"] = (NUMBER, DIAGONAL, MATRIX)[np.ndim(drift)]
        if np.ndim(drift) == 2:
            root = drift_root(drift, size).T
            self.drift, self.drift_root = as_rows(drift), padded(len(root), size, np.float64)
            self.drift_root[:, :size], self.drift_root[:, size:] = root, 0
            struct["drift_root"], struct["drift_rank"] = self.drift_root.ctypes.data, len(root)
        else:
            self.drift = padded(1, max(size, 8), np.float64)[0]
            self.drift[:] = 0
            self.drift[: np.size(drift)] = drift
        struct["drift"] = self.drift.ctypes.data

    def _copy_in(self, s: State) -> None:
        struct, size = self.struct, len(s.P)
        self.P = as_rows(s.P)
        struct["P"], struct["form"] = self.P.ctypes.data, ROOT if s.is_root else PLAIN
        self._array("D", size)[:] = s.D
        self._w = self._view_of_w()
        self._w[:] = s.w.T
        for name in NUMBERS:
            struct[name] = getattr(s, name)
        self._copy_scores_in(s)

    def _view_of_w(self) -> Array:
        """w, heads×p."""
        stride, start = int(self.struct["stride"]), int(self.struct["w"]) - self.block.ctypes.data
        columns = int(self.struct["scores"]["heads"])
        view = self.block.view(np.uint8)[start : start + columns * stride * self.dtype.itemsize]
        return view.view(self.dtype).reshape(columns, stride)[:, : len(self.template.w)]

    def _copy_out(self, s: State) -> None:
        struct, size = self.struct, len(s.P)
        s.P, s.is_root = self.P[:size, :size], int(struct["form"]) == ROOT
        s.D, s.w = self._array("D", size).copy(), self.parameters()
        for name in NUMBERS:
            value = struct[name].item()
            setattr(s, name, bool(value) if name in {"wound_up", "time_updated"} else value)

    def parameters(self) -> Array:
        """w, p×heads, as a new array."""
        return self._w.T.copy(order="F")

    def as_padded(self, w: Array, dtype: Any = None) -> Array:
        """p×heads numbers as the core takes them."""
        made = padded(w.shape[1], len(w), dtype or self.dtype)
        made[:, : len(w)], made[:, len(w) :] = w.T, 0
        return made
