"""What a stream was like, as it went on: about a hundred lines, however long it gets."""

from typing import Any

from orfit import schema, validation
from orfit.schema import Check

FIRST = 256  # rows between lines, at the beginning
MOST = 128  # lines; then every second one goes, and they come half as often


class History:
    """Lines of numbers by name, each of what was known after so many rows, a multiple of `every`.

    So they do not depend on how many rows come together.
    """

    def __init__(self) -> None:
        self.every, self.lines = FIRST, list[dict[str, Any]]()

    def left(self, rows: int) -> int:
        """How many more rows, after so many, there are until the next line."""
        return self.every - rows % self.every

    def add(self, line: dict[str, Any]) -> None:
        """None stands for what is not known."""
        self.lines.append(line)
        if len(self.lines) >= MOST:  # an even number: the last one stays
            self.lines, self.every = self.lines[1::2], 2 * self.every

    def column(self, name: str) -> list[Any]:
        return [line.get(name) for line in self.lines]

    def state(self) -> dict[str, Any]:
        return {"every": self.every, "lines": self.lines}

    def restore(self, state: dict[str, Any]) -> None:
        self.every, self.lines = state["every"], state["lines"]


def _number(name: str, value: Any) -> Any:
    validation.scalar(name, value)
    return value  # as it is: a whole number stays one


def line(name: str, value: Any) -> dict[str, Any]:
    """A line of a file: numbers, or lists of them, by name."""
    number = schema.optional(_number)
    made = {}
    for key, found in schema.mapping(name, value).items():
        check: Check = schema.listed(number) if isinstance(found, list) else number
        made[key] = check(f"{name}.{key:.100}", found)
    return made


FIELDS = {"every": validation.count, "lines": schema.listed(line, most=MOST)}
