"""p over processes: each process holds some parameters and their part of every direction.

It runs under `torchrun`, or in any process group of torch.distributed; without one, a single
process holds everything. `docs/scale.md` shows the costs and limits.

Examples:
    >>> import orfit.distributed
    >>> learner = orfit.distributed.ORFit(orfit.distributed.Linear(4), noise=0.1)
    >>> update = learner.learn([1.0, 2.0, 0.0, 0.0][learner.model.here], 5.0)
    >>> learner.seen
    1
"""

from orfit.distributed.learner import ORFit, load
from orfit.distributed.linear import Linear
from orfit.distributed.processes import ProcessLostError, start

__all__ = ["Linear", "ORFit", "ProcessLostError", "load", "start"]
