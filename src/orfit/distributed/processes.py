"""The processes that share p, and the messages between them."""

import atexit
import datetime
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from orfit import validation
from orfit.validation import Array

TIMEOUT = 300.0  # seconds


class ProcessLostError(RuntimeError):
    """Another process has ended or did not answer in time.

    The learner cannot continue. Start all processes again from the last checkpoint.

    Examples:
        >>> import orfit.distributed
        >>> issubclass(orfit.distributed.ProcessLostError, RuntimeError)
        True
    """


def start(timeout: float = TIMEOUT) -> None:
    """Connect the processes that `torchrun` has started; the first `Linear` does so, too.

    To use another process group, initialise torch's default group before. It has to send tensors
    of the CPU, as gloo does. Without `torchrun` the process works alone, and nothing happens.

    timeout: seconds without an answer after which another process counts as lost.

    Examples:
        >>> import orfit.distributed
        >>> orfit.distributed.start(timeout=60)
    """
    seconds = validation.positive("timeout", timeout)
    if "WORLD_SIZE" not in os.environ or "RANK" not in os.environ:
        return
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
        atexit.register(_end)  # gloo's threads must end before the interpreter does


def _end() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def current() -> "Processes":
    """The processes of torch's default group, or this one alone."""
    start()
    dist = sys.modules.get("torch.distributed")  # a group exists only if this was imported
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return Processes(1, 0)
    return Processes(dist.get_world_size(), dist.get_rank())


class Processes:
    """Messages to all processes, by torch.distributed. One process alone does not need torch."""

    def __init__(self, count: int, rank: int) -> None:
        self.count, self.rank = count, rank
        self.messages = 0  # so far

    def sum(self, numbers: Array) -> Array:
        """The sum of vectors over all processes, the same on each of them."""
        total = np.array(numbers, np.float64)
        if len(total):
            self._send(lambda dist, total: dist.all_reduce(total), total)
        return total

    def gather(self, numbers: Array) -> Array:
        """The vectors of all processes, one row for each process."""
        rows = np.tile(np.asarray(numbers, np.float64), (self.count, 1))
        self._send(lambda dist, rows, sent: dist.all_gather([*rows], sent), rows, rows[0].copy())
        return rows

    def collect(self, part: Array) -> list[Array]:
        """The arrays of all processes on process 0, and nothing on the others."""
        parts = [part] * self.count if self.rank == 0 else None
        self._send(lambda dist: dist.gather_object(part, parts))
        return parts or []

    def check(self, error: Exception | None) -> None:
        """Raise on all processes if one of them has an error."""
        failed = np.flatnonzero(self.gather(np.array([error is not None])))
        if error is not None:
            raise error
        if len(failed):
            raise RuntimeError(f"process {failed[0]} failed; it raises the reason")

    def _send(self, call: Callable[..., Any], *arrays: Array) -> None:
        self.messages += 1
        if self.count == 1:
            return
        import torch
        import torch.distributed as dist

        try:
            call(dist, *map(torch.from_numpy, arrays))
        except RuntimeError as error:
            raise ProcessLostError(
                f"process {self.rank} of {self.count}: another process has ended or did not "
                f"answer in time ({str(error).strip().splitlines()[0]:.200}). The current rows "
                "were not learned; start all processes again from the last checkpoint"
            ) from error
