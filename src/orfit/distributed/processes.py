"""The processes that have the other parts of p, and the messages between them.

A message is a few numbers of every process, which all get the sum of, or all of. Before them stand
two more, for what must be known everywhere at once: whether a process has refused its part (NaN),
and whether all have come to the same small state (a digest d of it: the sum of d² is that of d,
squared, over the number of processes, only where all d are the same).
"""

import contextlib
import datetime
import functools
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from orfit import door
from orfit.door import Array

HEAD = 2
TIMEOUT = 300.0  # seconds without an answer, after which another process counts as lost


class RefusalError(ValueError):
    """An error of another kind than the others', who hear of a ValueError: all go on alike."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error

    @classmethod
    def of(cls, error: Exception) -> Exception:
        return error if isinstance(error, ValueError) else cls(error)


class RefusedElsewhereError(ValueError):
    """Another process has refused its part of a row, so no process has learned it.

    That one says why. Nothing has changed, and the next row may come.

    Examples:
        >>> import orfit.distributed
        >>> issubclass(orfit.distributed.RefusedElsewhereError, ValueError)
        True
    """


class ProcessLostError(RuntimeError):
    """Another process has ended, or did not answer in time: this learner cannot go on.

    What it had learned before is untouched, but no process alone can save it: all must start anew
    from the last checkpoint.

    Examples:
        >>> import orfit.distributed
        >>> issubclass(orfit.distributed.ProcessLostError, RuntimeError)
        True
    """


class DivergedError(RuntimeError):
    """The processes have come to different small numbers, from the same sums.

    They were told different labels or settings, or their processors round in different ways.

    Examples:
        >>> import orfit.distributed
        >>> issubclass(orfit.distributed.DivergedError, RuntimeError)
        True
    """


DIVERGED = (
    "the processes no longer agree on what was learned: they were given different y, weights or "
    "settings, or their processors round differently. Then let all use the same routines, "
    "OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1, and start anew from the last checkpoint"
)


def start(timeout: float = TIMEOUT) -> None:
    """Let the processes that `torchrun` has started find each other; a model does so by itself.

    timeout: seconds without an answer, after which another process counts as lost. Whoever wants
    another backend than gloo calls `torch.distributed.init_process_group` instead. Started without
    torchrun, a process is alone, and nothing happens.

    Examples:
        >>> import orfit.distributed
        >>> orfit.distributed.start(timeout=60)
    """
    seconds = door.positive("timeout", timeout)
    if "WORLD_SIZE" not in os.environ or "RANK" not in os.environ:
        return
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))


def current() -> "Processes":
    """Those of torch's default group; alone where there is none."""
    start()
    try:
        import torch.distributed as dist
    except ImportError:
        return _of(None)
    return _of(dist if dist.is_available() and dist.is_initialized() else None)


@functools.cache
def _of(dist: Any) -> "Processes":
    """One for all learners of this process: messages have one order."""
    return Processes(dist)


class Processes:
    """`tall_shards.Processes`, by torch.distributed; a process by itself needs no torch."""

    def __init__(self, dist: Any) -> None:
        self._dist = dist
        self.count = 1 if dist is None else dist.get_world_size()
        self.rank = 0 if dist is None else dist.get_rank()
        self.exchanges = 0  # messages so far
        self.numbers = 0  # numbers in them, of this process
        self.gathers = 0  # how often parameters were put together, besides
        self._refusal: Exception | None = None  # of the next message
        self._refuses: Exception | None = None  # of all messages
        self._lost: Exception | None = None
        # Of so many bits, d² and the squares of sums are whole numbers of a float.
        self._bits = max(1, 26 - math.ceil(math.log2(self.count)))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Processes":
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a learner that is spread over processes is saved, not pickled")

    def refuse(self, error: Exception) -> None:
        """Let the next message say that this process refuses; then `error` is raised here."""
        self._refusal = RefusalError.of(error)

    @contextlib.contextmanager
    def refusing(self, error: Exception) -> Iterator[None]:
        """Let all messages say so: whoever tries the same rows in another way hears it again."""
        self._refuses = RefusalError.of(error)
        try:
            yield
        finally:
            self._refuses = None

    def sum(self, numbers: Array, digest: int = 0) -> Array:
        message = self._message(numbers, digest)
        if self.count > 1:
            self._exchange(lambda dist, sent: dist.all_reduce(sent), message)
        self._check(message[:HEAD])
        return message[HEAD:]

    def gather(self, numbers: Array, digest: int = 0) -> Array:
        rows = self._gathered(self._message(numbers, digest))
        self._check(rows[:, :HEAD].sum(axis=0))
        return rows[:, HEAD:]

    def join(self, part: Array, bounds: Sequence[int]) -> Array:
        """The parts of all processes, one behind the other, as long as `bounds` says.

        In bytes, so that numbers travel as they are, and each part as long as the longest.
        """
        self.gathers += 1
        sizes, each, start = np.diff(bounds), part[:1].nbytes, 8 * HEAD
        message = np.zeros(start + int(sizes.max()) * each, np.uint8)
        message[:start] = np.array(self._head(0)).view(np.uint8)
        message[start : start + part.nbytes] = np.frombuffer(part.tobytes(), np.uint8)
        every = self._gathered(message)
        self._check(every[:, :start].copy().view(np.float64).sum(axis=0))
        parts = [line[start:][: size * each] for line, size in zip(every, sizes, strict=True)]
        return np.concatenate(parts).view(part.dtype).reshape(-1, *part.shape[1:])

    def largest(self, number: float) -> float:
        found: Array = self.gather(np.array([number])).max()
        return float(np.inf if np.isnan(found) else found)

    def together(self, error: Exception | None = None) -> None:
        """Wait for all; raises everywhere where one has an error to tell."""
        if error is not None:
            self.refuse(error)
        try:
            self.sum(np.zeros(0))
        except RefusalError as refusal:
            raise refusal.error from None

    def _message(self, numbers: Array, digest: int) -> Array:
        head = self._head(digest)
        self.exchanges += 1
        self.numbers += HEAD + len(numbers)
        return np.concatenate([head, numbers])

    def _head(self, digest: int) -> list[float]:
        if self._lost is not None:
            raise ProcessLostError(f"a process was lost before: {self._lost}")
        refuses = self._refusal or self._refuses
        d = float(digest % (1 << self._bits)) if refuses is None else math.nan
        return [d, d * d]

    def _gathered(self, message: Array) -> Array:
        """The messages of all processes, one row for each."""
        every = np.tile(message, self.count)
        if self.count > 1:
            self._exchange(
                lambda dist, sent, all_: dist.all_gather([*all_.chunk(self.count)], sent),
                message,
                every,
            )
        return every.reshape(self.count, -1)

    def _check(self, head: Array) -> None:
        """Raise where the heads, added up, say that there is nothing to go on with."""
        refusal, self._refusal = self._refusal or self._refuses, None
        if refusal is not None:
            raise refusal
        d, squares = head
        if math.isnan(d):
            raise RefusedElsewhereError(
                "another process has refused its part of these rows, and says why; "
                "no process has learned them"
            )
        if self.count * squares != d * d:
            raise DivergedError(DIVERGED)

    def _exchange(self, send: Any, *messages: Array) -> None:
        import torch

        on_device = self._dist.get_backend() == "nccl"
        sent = [torch.from_numpy(message) for message in messages]
        try:
            if not on_device:
                send(self._dist, *sent)
                return
            there = [part.cuda() for part in sent]
            send(self._dist, *there)
            for part, back in zip(sent, there, strict=True):
                part.copy_(back)
        except RuntimeError as error:
            self._lost = error
            raise ProcessLostError(
                f"process {self.rank} of {self.count}: another process has ended, or did not "
                f"answer in time ({str(error).strip().splitlines()[0]:.200}). What was being "
                "learned was not; start all processes anew from the last checkpoint"
            ) from error
