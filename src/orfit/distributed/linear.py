"""A linear model whose parameters are divided among processes."""

from collections.abc import Sequence
from typing import Any

from orfit import models, validation
from orfit.distributed.processes import current
from orfit.store.sharded import ShardedArithmetic
from orfit.validation import Array


class Linear(models.Linear):
    """f(x; w) = xᵀ w, where each process holds some features and their parameters.

    size: the number of features on all processes together.
    heads: q outputs with their own weights on shared features, as for `orfit.Linear`.
    shares: how many features each process holds; the default is about as many on each.

    Attributes: `here`, the slice of all features that this process holds; `held`, how many these
    are; `processes`, with `count`, `rank` and the number of `messages` so far.

    A feature map is applied before: pass its features `here` as x. For a bias, let one feature on
    one process be the constant 1.

    Examples:
        >>> import orfit.distributed
        >>> model = orfit.distributed.Linear(1000, heads=2)  # one process holds all
        >>> model.here, model.held
        (slice(0, 1000, None), 1000)
    """

    own_gradient = True
    grown = None  # type: ignore[assignment]  # the number of parameters is fixed
    # x is not checked here: NaN in one part makes the sums over all parts NaN, so that all
    # processes refuse the row.
    accept: Any = staticmethod(validation.converted)

    def __init__(
        self, size: int, *, heads: int | None = None, shares: Sequence[int] | None = None
    ) -> None:
        super().__init__(size, heads=heads)
        self.processes = current()
        sizes, rank = _sizes(self.size, self.processes.count, shares), self.processes.rank
        self.held, start = sizes[rank], sum(sizes[:rank])
        self.here = slice(start, start + self.held)
        self.input_shape = (self.held,)
        self.ops = ShardedArithmetic(self.processes, sizes)

    def predict(self, w: Array, X: Array) -> Array:
        F = super().predict(w, X)
        if not validation.finite(F):
            raise ValueError(f"X must be finite on all processes, and the prediction in {F.dtype}")
        return F


def _sizes(size: int, count: int, shares: Sequence[int] | None) -> list[int]:
    """How many parameters each process holds."""
    if shares is None:
        if size < count:
            raise ValueError(f"{count} processes cannot share {size} parameters: each needs one")
        return [size * (r + 1) // count - size * r // count for r in range(count)]
    sizes = [validation.count(f"shares[{r}]", share) for r, share in enumerate(shares)]
    if len(sizes) != count or sum(sizes) != size:
        raise ValueError(
            f"shares must be {count} numbers, one for each process, whose sum is {size}; "
            f"they are {sizes}"
        )
    return sizes
