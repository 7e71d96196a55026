"""How parameters move by themselves between two measurements: w ← A w + B u, or any function."""

from collections.abc import Callable
from typing import Any

from orfit import door, tall
from orfit.door import Array

Motion = Callable[[Any, Any], tuple[Any, Any]]


class Dynamics:
    """w ← A w + B u, and the A by which P moves.

    dynamics: A (p×p), or a function of w and u that returns the next w and its Jacobian A there;
        None: w stands still. control: B (p×k); None: u has no influence but on the function.
    """

    def __init__(self, dynamics: Any, control: object, size: int) -> None:
        self.function: Motion | None = dynamics if callable(dynamics) else None
        self.A = None if dynamics is None or self.function else _square(dynamics, size)
        self.B: Array | None = None
        if control is not None:
            if self.function:
                raise ValueError("control must be left out: dynamics is a function, of w and u")
            B = door.numbers("control", control)
            if B.ndim != 2 or len(B) != size:
                raise ValueError(f"control must have shape ({size}, k); it has {B.shape}")
            self.B = B.copy()

    @property
    def moves(self) -> bool:
        return self.function is not None or self.A is not None or self.B is not None

    def moved(self, w: Any, u: object) -> tuple[Any, Array | None]:
        """The next w, and A; None: the identity. u: None stands for no input."""
        if self.function is not None:
            return self._by_function(w, u)
        ahead = w if self.A is None else _like(w, self.A @ tall.to_numpy(w))
        if u is not None:
            ahead = ahead + _like(w, self._influence(u, w))
        return ahead, self.A

    def _influence(self, u: object, w: Any) -> Array:
        """B u, shaped like w."""
        if self.B is None:
            raise ValueError("u has no influence: control=B says which")
        given, k = door.numbers("u", u), self.B.shape[1]
        if given.shape not in ((k,), (k, *w.shape[1:])) and not (given.ndim == 0 and k == 1):
            raise ValueError(
                f"u must have shape ({k},), as control has columns; it has {given.shape}"
            )
        influence = self.B @ (given if given.ndim else given[None])
        return influence if influence.ndim == w.ndim else influence[:, None]

    def _by_function(self, w: Any, u: object) -> tuple[Any, Array]:
        assert self.function is not None
        try:
            made = self.function(tall.copy(w), u)
        except TypeError as error:
            raise ValueError(f"dynamics must take w and u: {error}") from error
        if not isinstance(made, tuple) or len(made) != 2:
            raise ValueError("dynamics must return two things: the next w, and its Jacobian A")
        next_w, jacobian = made
        shape, size = tuple(w.shape), len(w)
        ahead = door.numbers("what dynamics returned for w", next_w)
        A = door.numbers("what dynamics returned for A", jacobian)
        if ahead.shape != shape or A.shape != (size, size):
            raise ValueError(
                f"dynamics must return w of shape {shape} and A of shape {(size, size)}; "
                f"it returned {ahead.shape} and {A.shape}"
            )
        return _like(w, ahead), A

    def settings(self) -> dict[str, Any]:
        """As arguments; a function is code, which no file holds."""
        plain: dict[str, Any] = {}
        if self.function is not None or self.A is not None:
            plain["dynamics"] = "code" if self.A is None else self.A.tolist()
        if self.B is not None:
            plain["control"] = self.B.tolist()
        return plain


def _square(dynamics: object, size: int) -> Array:
    A = door.numbers("dynamics", dynamics)
    if A.shape != (size, size):
        raise ValueError(
            f"dynamics must be a function or have shape ({size}, {size}); it has {A.shape}"
        )
    return A.copy()


def _like(w: Any, values: Array) -> Any:
    return tall.convert(w, values)
