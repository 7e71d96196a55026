"""How parameters move by themselves between two measurements: w ← A w + B u, or any function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from orfit import validation
from orfit.store import arithmetic
from orfit.validation import Array

Motion = Callable[[Any, Any], tuple[Any, Any]]


class Dynamics:
    """w ← A w + B u, and the A by which P moves.

    dynamics: A (a number γ for γ I, p×p, or a sparse matrix of SciPy's), or a function of w and u
        that returns the next w and its Jacobian A there; None: w stands still.
    control: B (p×k); None: u has no influence but on the function.
    """

    def __init__(self, dynamics: Any, control: object, size: int) -> None:
        self.function: Motion | None = dynamics if callable(dynamics) else None
        still = dynamics is None or self.function is not None
        self.A = 1.0 if still else _square("dynamics", dynamics, size)
        self.B: Array | None = None
        if control is not None:
            if self.function:
                raise ValueError("control must be left out: dynamics is a function, of w and u")
            B = validation.numbers("control", control)
            if B.ndim != 2 or len(B) != size:
                raise ValueError(f"control must have shape ({size}, k); it has {B.shape}")
            self.B = B.copy()
        self.turns = self.function is not None or np.ndim(self.A) == 2  # A is more than a number
        self.moves = self.turns or self.B is not None or self.A != 1

    def moved(self, w: Any, u: object) -> tuple[Any, Any]:
        """The next w, and A, which may be a number. u: None stands for no input."""
        if self.function is not None:
            return self._by_function(w, u)
        ops = arithmetic(w)
        ahead = ops.convert(w, self.A * w if np.ndim(self.A) == 0 else self.A @ ops.to_numpy(w))
        if u is not None:
            ahead = ahead + ops.convert(w, self.influence(u, w))
        return ahead, self.A

    def influence(self, u: object, w: Any) -> Array:
        """B u, shaped like w."""
        if self.B is None:
            raise ValueError("u has no influence: control=B says which")
        given, k = validation.numbers("u", u), self.B.shape[1]
        if given.shape not in ((k,), (k, *w.shape[1:])) and not (given.ndim == 0 and k == 1):
            raise ValueError(
                f"u must have shape ({k},), as control has columns; it has {given.shape}"
            )
        influence = self.B @ (given if given.ndim else given[None])
        return influence if influence.ndim == w.ndim else influence[:, None]

    def _by_function(self, w: Any, u: object) -> tuple[Any, Any]:
        assert self.function is not None
        try:
            made = self.function(arithmetic(w).copy(w), u)
        except TypeError as error:
            raise ValueError(f"dynamics must take w and u: {error}") from error
        if not isinstance(made, tuple) or len(made) != 2:
            raise ValueError("dynamics must return two things: the next w, and its Jacobian A")
        next_w, jacobian = made
        shape, size = tuple(w.shape), len(w)
        ahead = validation.numbers("what dynamics returned for w", next_w)
        if ahead.shape != shape:
            raise ValueError(f"dynamics must return w of shape {shape}; it returned {ahead.shape}")
        return arithmetic(w).convert(w, ahead), _square(
            "the A that dynamics return", jacobian, size
        )

    def settings(self) -> dict[str, Any]:
        """As arguments; a function is code, which no file holds, and a sparse matrix is as good."""
        plain: dict[str, Any] = {}
        if self.function is not None or hasattr(self.A, "toarray"):
            plain["dynamics"] = "code"
        elif np.ndim(self.A) or self.A != 1:
            plain["dynamics"] = np.asarray(self.A).tolist()
        if self.B is not None:
            plain["control"] = self.B.tolist()
        return plain


def _square(name: str, dynamics: Any, size: int) -> Any:
    """A, checked, as a copy."""
    if hasattr(dynamics, "toarray"):  # sparse
        A = scipy.sparse.csr_array(dynamics, dtype=float, copy=True)
        A.sum_duplicates()
        validation.numbers(name, A.data)
    else:
        A = validation.numbers(name, dynamics).copy()
        A = float(A) if A.ndim == 0 else A
    if np.shape(A) not in ((), (size, size)):
        raise ValueError(
            f"{name} must be {size}×{size}, a number, or a function; it has shape {np.shape(A)}"
        )
    return A
