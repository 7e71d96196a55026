"""The run of `orfit learn`: read, predict, learn, save; and stop at any time with nothing lost."""

import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from orfit.checkpoint import target_of
from orfit.stream import saved
from orfit.stream.block import Block, Position, StreamError
from orfit.stream.bookmarks import Bookmarks
from orfit.stream.encoding import Choice
from orfit.stream.session import Session
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


class Stopped(BaseException):
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
        return self.source.size is None  # a pipe, and stdin where it is a file


@dataclass(frozen=True)
class Part:
    """Rows that are learned together: of which file, and where reading goes on after them.

    mark: its bookmark, where it has one.
    """

    file: int
    mark: int | None
    blocks: list[Block]

    @property
    def end(self) -> Position:
        return self.blocks[-1].end


class Reading:
    """Rows of one file that were read, and wait to be learned.

    Of a file they are learned `Session.piece` at a time, however they come: one that is taken up
    again learns the same rows together, and so rounds alike. Of a pipe they are learned as they
    come.
    """

    def __init__(self, file: int, mark: int | None, live: bool) -> None:
        self.file, self.mark, self.live = file, mark, live
        self.blocks: deque[Block] = deque()
        self.ended = False  # nothing more will come

    @property
    def rows(self) -> int:
        return sum(len(block) for block in self.blocks)

    def parts(self, session: Session) -> Iterator[Part]:
        """Those that can be learned now."""
        while self.blocks and (self.ended or self.live or self.rows > session.piece):
            part, rows, piece = list[Block](), 0, session.piece
            while self.blocks and rows < piece:
                block = self.blocks.popleft()
                if rows + len(block) > piece:
                    block, rest = block.split(piece - rows)
                    self.blocks.appendleft(rest)
                part.append(block)
                rows += len(block)
            yield Part(self.file, self.mark, part)


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
        self.saved: int | None = None  # after how many rows it was saved last, by this run
        self._sizes = [None if f.live else os.path.getsize(f.path) for f in self.files]

    def learn(self, session: Session | None, choice: Choice, options: Setup) -> Session:
        """Learn all rows that are new; a session that is given goes on.

        With a signal it ends earlier (`signals.came`); with an error, after what came before it was
        saved.
        """
        if self.saving.path is not None:  # before a row is read, which a pipe would not give again
            target_of(self.saving.path)
        for file in self.files:
            choice.inputs(file.source.names, file.path)
        self.session, self._changed = session, session is None
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
        bookmarks.expect([file.path for file in self.files if not file.live])
        first: list[Reading] = []  # what is read before it is known how to learn it
        for index, file in enumerate(self.files):
            mark = None if file.live else self._found(file.path, bookmarks)
            at = Position() if mark is None else bookmarks.files[mark].position
            reading = Reading(index, mark, file.live)
            blocks = file.source.blocks(at, **self._hints())
            while (block := self.signals.next(blocks)) is not None:
                reading.blocks.append(block)
                if self.session is None:
                    count = sum(each.rows for each in (*first, reading))
                    self.view.waiting(count, options.warmup)
                    if count < options.warmup:
                        continue
                    self._begin([*first, reading], choice, options, bookmarks)
                    if not file.live:  # now it is known what is numbers, which is read faster
                        blocks = file.source.blocks(block.end, **self._hints())
                self._learn_parts([*first, reading])
                first.clear()
                if self.signals.came is not None:
                    return
            reading.ended = True
            if self.session is None:
                first.append(reading)
            elif self.signals.came is None:
                self._learn_parts([reading])
            if self.signals.came is not None:
                break
        if self.session is None and any(reading.rows for reading in first):
            self._begin(first, choice, options, bookmarks)
            self._learn_parts(first)

    def _found(self, path: str, bookmarks: Bookmarks) -> int:
        known = len(bookmarks.files), bookmarks.named(path)
        mark = bookmarks.of(path)
        if mark == known[0] and known[1]:
            self.view.notice(f"{path} is not what was read under this name: all its rows are new")
        return mark

    def _hints(self) -> dict[str, Any]:
        """What helps to read: which columns are wanted, which are numbers."""
        if self.session is None:
            return {}
        encoding = self.session.encoding
        return {"numeric": encoding.numeric, "columns": encoding.reads}

    def _begin(
        self, first: list[Reading], choice: Choice, options: Setup, bookmarks: Bookmarks
    ) -> None:
        """Choose scales and features by the first rows."""
        blocks = [block for reading in first for block in reading.blocks]
        few = _first(blocks, options.warmup)
        self.session = Session.begun(choice, options, few)
        self.session.bookmarks = bookmarks
        self.view.begun(self.session, again=False)

    def _learn_parts(self, readings: Sequence[Reading]) -> None:
        """Learn what can be learned now; after a signal, only to the end of what is under way.

        But what was read from a pipe cannot be read again: that is learned, and what came before.
        """
        assert self.session is not None
        session, gone = self.session, any(reading.live for reading in readings)
        for part in (part for reading in readings for part in reading.parts(session)):
            for text in session.learn(part.blocks):
                self.view.notice(text)
            self._changed = True
            if part.mark is not None:
                path = self.files[part.file].path
                session.bookmarks.put(part.mark, path, part.end)
            self.view.learned(session, self._share(part.file, part.end))
            if self._due():
                self._save()
            if self.signals.came is not None and not gone:
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
        if path is None or session is None or not (session.whole and self._changed):
            return
        saved.save(session, path)
        self._saved_at, self._rows_saved = time.monotonic(), session.rows
        self.saved = session.rows
        self.view.saved(session, path)


def _first(blocks: Sequence[Block], rows: int) -> list[Block]:
    """As many rows of these blocks, if there are."""
    few: list[Block] = []
    for block in blocks:
        left = rows - sum(len(each) for each in few)
        if left > 0:
            few.append(block.split(left)[0] if len(block) > left else block)
    return few
