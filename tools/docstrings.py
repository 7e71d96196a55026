"""Docstrings for the site: an argument in prose, `name: what it is`, becomes an item of a list."""

import re
from typing import Any

import griffe

TERM = re.compile(r"^([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*): (?=\S)")


def listed(text: str) -> str:
    """The same text in Markdown: terms as items, what hangs below one as part of it."""
    lines: list[str] = []
    inside = False  # an item
    for line in text.split("\n"):
        begins = inside or not lines or not lines[-1]  # elsewhere a line only goes on
        if begins and (found := TERM.match(line)):
            lines.append(f"- `{found[1]}`: {line[found.end() :]}")
            inside = True
            continue
        if inside and line and not line.startswith(" "):
            lines.append("")
            inside = False
        lines.append(line)
    return "\n".join(lines)


class Terms(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = listed(obj.docstring.value)
