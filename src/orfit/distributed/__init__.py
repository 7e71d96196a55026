"""p over processes: each has a slice of every direction, and one sum a step goes around.

Of a `Linear` each has a slice of w, too; any other model, such as a network, each has `Whole`.

Under `torchrun`, or in any process group of torch.distributed; started alone, a process has it all.
`docs/scale.md` says when that pays.

Examples:
    >>> import orfit.distributed
    >>> learner = orfit.distributed.ORFit(orfit.distributed.Linear(4), noise=0.1)
    >>> update = learner.learn([1.0, 2.0, 0.0, 0.0][learner.model.here], 5.0)
    >>> learner.seen
    1
"""

from orfit.distributed.files import load
from orfit.distributed.learner import ORFit
from orfit.distributed.linear import Linear
from orfit.distributed.processes import (
    DivergedError,
    ProcessLostError,
    RefusedElsewhereError,
    start,
)
from orfit.distributed.whole import Whole

__all__ = [
    "DivergedError",
    "Linear",
    "ORFit",
    "ProcessLostError",
    "RefusedElsewhereError",
    "Whole",
    "load",
    "start",
]
