"""Tables for a terminal, in one style."""

from typing import Any


def table(title: str = "", **settings: Any) -> Any:
    """A rich table without rows and columns yet."""
    from rich import box
    from rich.table import Table

    return Table(
        title=title or None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        min_width=len(title) or None,  # a title goes on one line
        padding=(0, 1, 0, 0),
        **settings,
    )
