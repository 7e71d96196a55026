"""Who watches `orfit learn`: a terminal, a machine that reads JSON, or nobody until the end."""

import json
import time
from pathlib import Path
from typing import Any

from orfit.stream import tables
from orfit.stream.block import one_line
from orfit.stream.session import Session

REFRESH = 0.25  # seconds


class Quiet:
    """How it begins, and notices as they come, on stderr."""

    def __init__(self, console: Any, terse: bool = False) -> None:
        """console: rich's, of stderr. terse: notices alone."""
        self.console, self.terse = console, terse

    def waiting(self, rows: int, wanted: int) -> None:
        """Nothing is said."""

    def begun(self, session: Session, again: bool) -> None:
        if self.terse:
            return
        if again:
            self.console.print(f"goes on after {session.rows:,} rows", highlight=False)
        else:
            self.console.print(f"features: {session.why}", highlight=False, soft_wrap=True)

    def learned(self, session: Session, share: float | None) -> None:
        """Nothing is said."""

    def notice(self, text: str) -> None:
        said = one_line(f"orfit: {text}")
        self.console.print(said, style="yellow", highlight=False, soft_wrap=True)

    def saved(self, session: Session, path: Path) -> None:
        """Nothing is said."""

    def close(self) -> None:
        """Nothing is left."""


class Machine(Quiet):
    """One line of JSON on stdout for every so many rows."""

    def __init__(self, console: Any, every: int, terse: bool = False) -> None:
        super().__init__(console, terse)
        self.every, self._said = every, 0

    def learned(self, session: Session, share: float | None) -> None:
        if session.rows // self.every > self._said // self.every:
            self.report(session)

    def report(self, session: Session) -> None:
        """Say what is known now."""
        self._said = session.rows
        print(json.dumps(session.line()), flush=True)


class Screen(Quiet):
    """A bar, the scores and what was chosen, drawn anew some times a second."""

    def __init__(self, console: Any) -> None:
        from rich.live import Live

        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn, self._since, self._from = 0.0, time.monotonic(), 0
        self._began_share = 0.0

    def waiting(self, rows: int, wanted: int) -> None:
        if time.monotonic() - self._drawn > REFRESH:
            self._draw(f"waits for the first rows: {rows:,} of {wanted:,}")

    def begun(self, session: Session, again: bool) -> None:
        super().begun(session, again)
        self._since, self._from = time.monotonic(), session.rows

    def learned(self, session: Session, share: float | None) -> None:
        if time.monotonic() - self._drawn > REFRESH:
            from rich.console import Group

            shown = tables.scores(session), tables.facts_table(tables.facts(session))
            self._draw(Group(self._bar(session, share), *shown))

    def _bar(self, session: Session, share: float | None) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        seconds = max(1e-9, time.monotonic() - self._since)
        speed = f"{(session.rows - self._from) / seconds:,.0f} rows/s"
        grid = Table.grid(padding=(0, 2))
        if share is None:
            grid.add_row(f"{session.rows:,} rows", speed)
            return grid
        if self._from == 0:
            left = seconds * (1 - share) / max(share, 1e-9)
        else:
            self._began_share = self._began_share or share
            done = max(share - self._began_share, 1e-9)
            left = seconds * (1 - share) / done
        bar = ProgressBar(total=1.0, completed=share, width=30)
        ahead = f"{left:.0f} s left" if left < 3600 else f"{left / 3600:.1f} h left"
        grid.add_row(bar, f"{share:.0%}", f"{session.rows:,} rows", speed, ahead)
        return grid

    def _draw(self, what: Any) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(what, refresh=True)
        self._drawn = time.monotonic()

    def close(self) -> None:
        self._live.stop()
