"""Docstrings for the site: an argument, `name: description`, becomes an item of a list."""

import re
from typing import Any

import griffe

TERM = re.compile(r"^([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*): (?=\S)")


def make_lists(text: str) -> str:
    """Return the text in Markdown, with arguments as items that include their indented lines."""
    lines: list[str] = []
    inside = False  # whether the line is part of an item
    for line in text.split("\n"):
        begins = inside or not lines or not lines[-1]  # other lines continue a paragraph
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
            obj.docstring.value = make_lists(obj.docstring.value)
