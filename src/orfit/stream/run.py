"""The run of `orfit learn`: read, predict, learn, save; and stop at any time with nothing lost."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from orfit.stream import saved
from orfit.stream.block import Block, Position, StreamError
from orfit.stream.bookmarks import Bookmarks
from orfit.stream.encoding import Choice
from orfit.stream.session import Session, pieces
from orfit.stream.setup import Setup
from orfit.stream.source import Source


class View(Protocol):
    """Who is told what happens."""

    def waiting(self, rows: int, wanted: int) -> None:
        """So many of the first rows are there."""

    def begun(self, session: Session, again: bool) -> None:
        """Learning begins, or goes on again."""

    def learned(self, session: Session, share: float | None) -> None:
        """Some rows were learned; share: of the input that has been read, where that is known."""

    def notice(self, text: str) -> None:
        """Something that a user would want to know."""

    def saved(self, session: Session, path: Path) -> None: ...


@dataclass(frozen=True)
class Saving:
    """Where and when to save: after so many rows, or seconds; None: not because of that."""

    path: Path | None = None
    rows: int | None = None
    seconds: float | None = 30.0


class Stopped(BaseException):  # noqa: N818, no reader is to take it for an error
    """A signal came while nothing was there to be learned."""


class Signals:
    """SIGINT and SIGTERM as a wish: what is learned is learned to its end, what waits is ended."""

    def __init__(self) -> None:
        self.came: int | None = None
        self._waiting = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.came = number
        if self._waiting:
            raise Stopped

    @contextmanager
    def heard(self) -> Iterator["Signals"]:
        """While this lasts."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._handle) for number in numbers]
        try:
            yield self
        finally:
            for number, old in zip(numbers, before, strict=True):
                signal.signal(number, old)

    def next(self, blocks: Iterator[Any]) -> Any:
        """The next one of them, or None, where there is none or a signal came."""
        self._waiting = True
        try:
            return None if self.came is not None else next(blocks, None)
        except Stopped:
            return None
        finally:
            self._waiting = False


@dataclass
class File:
    """An input: where it is, what is read of it."""

    path: str
    source: Source

    @property
    def live(self) -> bool:
        return self.source.live


class Run:
    """Rows of some inputs on their way into a session."""

    def __init__(
        self,
        paths: Sequence[str],
        view: View,
        saving: Saving = Saving(),
        format: str | None = None,
        delimiter: str | None = None,
    ) -> None:
        self.files = [File(path, Source.of([path], format, delimiter)) for path in paths]
        self.view, self.saving, self.signals = view, saving, Signals()
        self.session: Session | None = None
        self._sizes = [None if f.live else os.path.getsize(f.path) for f in self.files]

    def learn(self, session: Session | None, choice: Choice, options: Setup) -> Session:
        """Learn all rows that are new; a session that is given goes on.

        With a signal it ends earlier (`signals.came`); with an error, after what came before it was
        saved.
        """
        for file in self.files:
            choice.inputs(file.source.names, file.path)
        self.session = session
        self._saved_at, self._rows_saved = time.monotonic(), session.rows if session else 0
        with self.signals.heard():
            try:
                self._learn(choice, options)
            finally:
                self._save()
        if self.session is None:
            raise StreamError(f"{', '.join(file.path for file in self.files)}: there are no rows")
        return self.session

    def _learn(self, choice: Choice, options: Setup) -> None:
        bookmarks = self.session.bookmarks if self.session else Bookmarks()
        if self.session:
            self.view.begun(self.session, again=True)
        first: list[tuple[int, int, Block]] = []
        for index, file in enumerate(self.files):
            mark = -1 if file.live else bookmarks.of(file.path)
            at = Position() if mark < 0 else bookmarks.files[mark].position
            blocks = file.source.blocks(at, **self._reading())
            while (block := self.signals.next(blocks)) is not None:
                if self.session is None:
                    first.append((index, mark, block))
                    count = sum(len(block) for _, _, block in first)
                    self.view.waiting(count, options.warmup)
                    if count < options.warmup:
                        continue
                    self._begin(first, choice, options, bookmarks)
                    if not file.live:  # now it is known what is numbers, which is read faster
                        blocks = file.source.blocks(block.end, **self._reading())
                else:
                    self._learn_block(index, mark, block)
                if self.signals.came is not None:
                    return
        if self.session is None and any(len(block) for _, _, block in first):
            self._begin(first, choice, options, bookmarks)

    def _reading(self) -> dict[str, Any]:
        if self.session is None:
            return {}
        encoding = self.session.encoding
        return {"numeric": encoding.numeric, "columns": encoding.reads}

    def _begin(
        self,
        first: list[tuple[int, int, Block]],
        choice: Choice,
        options: Setup,
        bookmarks: Bookmarks,
    ) -> None:
        """Choose scales and features by the first rows, and learn them."""
        if choice.missing != "error":
            whole = [block for _, _, block in first if len(block)]
        else:
            whole = [block for _, _, block in first]
        session = Session.begun(choice, options, whole)
        session.bookmarks = bookmarks
        self.session = session
        self.view.begun(session, again=False)
        for index, mark, block in first:
            self._learn_block(index, mark, block)
        first.clear()

    def _learn_block(self, index: int, mark: int, block: Block) -> None:
        assert self.session is not None
        for part in pieces(block):
            for text in self.session.learn(part):
                self.view.notice(text)
            if mark >= 0:
                self.session.bookmarks.put(mark, part.end)
            self.view.learned(self.session, self._share(index, part.end))
            if self._due():
                self._save()
            if self.signals.came is not None:
                return

    def _share(self, index: int, position: Position) -> float | None:
        here = self.files[index].source.progress(position)
        if None in self._sizes or here is None:
            return None
        sizes = [size or 0 for size in self._sizes]
        return (sum(sizes[:index]) + here * sizes[index]) / max(1, sum(sizes))

    def _due(self) -> bool:
        assert self.session is not None
        rows, seconds = self.saving.rows, self.saving.seconds
        if rows is not None and self.session.rows // rows > self._rows_saved // rows:
            return True
        return seconds is not None and time.monotonic() - self._saved_at >= seconds

    def _save(self) -> None:
        """Save what has been learned, unless nothing has, or an error has left it half learned."""
        path, session = self.saving.path, self.session
        if path is None or session is None or not session.whole:
            return
        saved.save(session, path)
        self._saved_at, self._rows_saved = time.monotonic(), session.rows
        self.view.saved(session, path)
