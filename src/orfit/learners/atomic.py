"""All or nothing, and one at a time: what an exception, or another thread, finds of a learner.

An exception may come at any moment, from a signal or for want of memory, and another one while that
is dealt with. So whatever puts things right can itself be cut short and done again:

- A change replaces attributes. To go back is to put the old ones in their places.
- It becomes true in one moment. What then is to be changed in place is (`settle`), and can go on.
- Compiled code changes in place before that, but nothing interrupts it, and it leaves word of what
  it did. Where nobody has taken note of that, it can be done later (`redo`).
- So rows may go on being learned one by one without anybody taking note of them (`GoingOn`).

What an exception prevents, or nobody has needed yet, whoever uses the learner next does first.
"""

import copy
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class Change:
    """What is needed to go back to before it, or on to its end."""

    __slots__ = ("attributes", "before", "redo")
    walk: Any = None  # which can go on, where this is no more than rows that it has learned
    idle = False  # whether it can be ended from inside whatever is done now

    @property
    def in_compiled_code(self) -> bool:
        """Whether there may be rows that compiled code has learned, and nobody noted."""
        return self.redo is not None or self.walk is not None

    def __init__(self, parts: Iterable[Any], redo: Callable[[], object] | None = None) -> None:
        self.attributes: list[dict[str, Any]] = [part.__dict__ for part in parts]
        self.before = [*map(dict.copy, self.attributes)]
        self.redo = redo  # once compiled code may have run

    def undo(self) -> None:
        """Go back; where it is cut short, it can be done again."""
        for attributes, old in zip(self.attributes, self.before, strict=True):
            attributes.update(old)


class GoingOn(Change):
    """Rows that compiled code learns one by one, while the learner changes no attribute."""

    __slots__ = ("idle", "link", "walk")

    def __init__(self, walk: Any) -> None:
        super().__init__(())
        self.walk, self.link, self.idle = walk, weakref.ref(walk), True


HAPPENED = Change(())  # one that is over, but for what is to be changed in place


class Now:
    """A change that has begun and not ended: by itself, so that to write to it takes no time."""

    __slots__ = ("change",)

    def __init__(self) -> None:
        self.change: Change | None = None


class Atomic:
    """Changes as wholes, by one thread at a time."""

    # Not among the attributes, which a change puts back, and which a copy has too.
    __slots__ = ("__weakref__", "_lock", "_now")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._now = Now()
        everyone.add(self)

    def _parts(self) -> Iterable[Any]:
        """The objects whose attributes a change may replace."""
        raise NotImplementedError

    def _noted(self, walk: Any) -> None:
        """Take note of rows that were going on."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Change in place what has been left to be changed."""
        raise NotImplementedError

    def _reading(self, use: Callable[..., T], *args: Any, finished: bool = True) -> T:
        """What `use` finds, when no change is under way; asked from within one, of before it.

        Not finished: `use` can do with rows that are going on.
        """
        within = self._lock._is_owned()  # type: ignore[attr-defined]
        with self._lock:
            change = self._now.change
            if change is None or (change.walk is not None and not finished):
                return use(*args)
            if not within or change.idle:
                self._finish()
                return use(*args)
            if change is HAPPENED or change.in_compiled_code:
                raise RuntimeError(
                    "the learner is in the middle of a step, and cannot be asked from inside it: "
                    "let a signal handler raise an exception, or set a flag"
                )
            now = Change(self._parts())
            try:
                change.undo()
                return use(*args)
            finally:
                now.undo()

    def _changing(self, use: Callable[..., T], *args: Any) -> T:
        """What `use` returns, which changes this, when no other change is under way."""
        return self._alone(True, use, *args)

    def _alone(self, finished: bool, use: Callable[..., T], *args: Any) -> T:
        """The same; not finished: `use` can do with rows that are going on."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise RuntimeError(
                "the learner cannot be changed from inside its own step, or while it is read"
            )
        with self._lock:
            try:
                change = self._now.change
                if change is not None and (finished or change.walk is None):
                    self._finish()
                return use(*args)
            except (MemoryError, TypeError) as error:
                # Before NumPy 2 LAPACK's want of memory is a TypeError: of the error's own making.
                if isinstance(error, TypeError) and "_ArrayMemoryError" not in str(error):
                    raise
                raise MemoryError(
                    f"there is no memory for the next step ({error or 'none is left'}); what was "
                    "learned before it stays, and `seen` says how many rows that are"
                ) from error

    def undivided(self, change: Callable[..., T], *args: Any) -> T:
        """Let a change happen as a whole, or not at all; within `_changing`."""
        now = self._now
        if now.change is not None:  # there was no memory to finish the one before
            self._finish()
        now.change = Change(self._parts())
        try:
            told = change(*args)
            now.change = HAPPENED  # this is the moment
        except BaseException:
            self._finish()
            raise
        try:  # noqa: SIM105  (which takes longer than a small step should)
            self._finish()
        except MemoryError:
            pass  # it has happened all the same; whoever comes next goes on
        return told

    def _finish(self) -> None:
        """Go on to the end of a change that has happened, and back from one that has not."""
        now = self._now
        change = now.change
        if change is None:
            return
        if change.walk is not None:  # to take note of its rows is a change like others
            change = now.change = Change(self._parts(), functools.partial(self._noted, change.walk))
        if change is not HAPPENED:
            change.undo()
            if change.redo is not None:
                try:
                    change.redo()
                except BaseException:
                    change.undo()
                    raise
            now.change = HAPPENED
        self._settle()
        now.change = None

    def _copied(self, memo: dict[int, Any]) -> dict[str, Any]:
        """All attributes, as they are between changes."""
        return self._reading(copy.deepcopy, vars(self), memo)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__setstate__(self._copied(memo))
        return made

    def __copy__(self) -> Any:
        return copy.deepcopy(self)  # two learners cannot share what a step changes

    def __getstate__(self) -> dict[str, Any]:
        return self._copied({})

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        Atomic.__init__(self)
        vars(self).update(attributes)


everyone: weakref.WeakSet[Atomic] = weakref.WeakSet()


def _after_fork() -> None:
    """Of all threads only one is in the child: nobody holds a lock, or finishes a change."""
    for one in everyone:
        one._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # where there is fork
    os.register_at_fork(after_in_child=_after_fork)
