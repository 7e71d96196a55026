"""`orfit report`: one page to look at."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    checkpoint: Annotated[Path, typer.Argument(help="What `orfit learn` has saved.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write (beside the checkpoint).")
    ] = None,
) -> None:
    """Write a page of HTML that shows how learning went, and needs no network to be opened."""
    from orfit.stream import page, saved

    target = out or checkpoint.with_suffix(".html")
    target.write_text(page.html(saved.load(checkpoint), checkpoint.name), encoding="utf-8")
    print(f"written: {target}")
