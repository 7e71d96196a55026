"""`orfit inspect`: what a checkpoint holds."""

from pathlib import Path
from typing import Annotated

import typer


def inspect(
    checkpoint: Annotated[Path, typer.Argument(help="What `orfit learn` has saved.")],
) -> None:
    """Show what a checkpoint holds: columns, scores, what was chosen, how far it has read."""
    from orfit.stream import saved, tables

    session, console = saved.load(checkpoint), tables.console()
    console.print(tables.columns(session))
    console.print(tables.scores(session))
    console.print(tables.facts_table([*tables.facts(session), ("why", session.why)]))
    if session.held.count:
        console.print(tables.held(session))
    console.print(session.learner.health().advice, highlight=False)
    console.print(tables.files(session))
    size = checkpoint.stat().st_size / 1e6
    console.print(
        f"{checkpoint}: {size:.3g} MB, written by orfit {session.version}", highlight=False
    )
