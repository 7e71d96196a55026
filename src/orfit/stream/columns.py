"""What a column holds, and how it becomes numbers: kinds, learned from the first rows, then frozen.

Each kind makes of a column X (n×width), with NaN where a value is missing or is not what it should
be, and tells which. So what was learned in these units stays exact.
"""

import math
import re
import zlib
from datetime import datetime
from typing import Any, ClassVar, Protocol

import numpy as np

from orfit import door, schema
from orfit.door import Array
from orfit.schema import Fields
from orfit.stream.block import StreamError

HUGE = 1e100  # numbers from here on are wrong: squares and products of what is learned overflow
FAR = 20.0  # standard deviations of the first rows: a value beyond has left their scale
IDENTIFYING = 0.5  # of a column's texts differ: they name rows, and tell nothing of others
SEVERAL = 50  # texts, before that can be said
NUMERIC = 0.5  # of a column's texts are numbers: the others are errors
PERIODS = {"day": 86400.0, "week": 7 * 86400.0, "year": 365.2425 * 86400.0}  # in seconds
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DATELIKE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([ T]|$)", re.ASCII)
TRUTHS = {"true": 1.0, "false": 0.0}


class Kind(Protocol):
    """How a column becomes numbers."""

    kind: str
    wanted: str  # what a value must be, for messages

    @property
    def width(self) -> int:
        """How many numbers it becomes."""

    def encode(self, column: Any) -> tuple[Array, Array]:
        """X (n×width), NaN in rows without a value; and which of these have one that is wrong."""

    def settings(self) -> dict[str, Any]:
        """The arguments to make it again."""

    def __str__(self) -> str:
        """What becomes of the column, for people."""


class Number:
    """(x − mean) / scale, of the first rows."""

    kind = "number"
    width = 1
    wanted = "a number"
    fields: ClassVar[Fields] = {"mean": door.scalar, "scale": door.positive}

    def __init__(self, mean: float, scale: float) -> None:
        self.mean, self.scale = mean, scale

    @classmethod
    def learned(cls, values: Array) -> "Number":
        mean, spread = float(values.mean()), float(values.std())
        if spread <= 1e-12 * abs(mean):  # all alike: what it may be later is not known
            spread = abs(mean) or 1.0
        return cls(mean, spread)

    def encode(self, column: Any) -> tuple[Array, Array]:
        values, wrong = numbers(column)
        with np.errstate(over="ignore"):
            scaled = (values - self.mean) / self.scale
        large = np.abs(scaled) >= HUGE  # beside first rows that were tiny
        if large.any():
            scaled, wrong = np.where(large, np.nan, scaled), wrong | large
        return scaled[:, None], wrong

    def settings(self) -> dict[str, Any]:
        return {"mean": self.mean, "scale": self.scale}

    def __str__(self) -> str:
        return f"number, {self.mean:.4g} ± {self.scale:.4g}"


class Date:
    """Sine and cosine of the time of day, of week and of year; with `trend`, time itself, too.

    Time goes on and leaves every scale: a trend that is extrapolated is rarely meant.
    """

    kind = "date"
    wanted = "a date (ISO 8601)"
    fields: ClassVar[Fields] = {
        "trend": schema.optional(schema.record({"mean": door.scalar, "scale": door.positive}))
    }

    def __init__(self, trend: dict[str, float] | None = None) -> None:
        self.trend = trend

    @property
    def width(self) -> int:
        return 2 * len(PERIODS) + (self.trend is not None)

    def encode(self, column: Any) -> tuple[Array, Array]:
        seconds, wrong = dates(column)
        parts = []
        for period in PERIODS.values():
            angle = 2 * math.pi / period * np.mod(seconds, period)
            parts += [np.sin(angle), np.cos(angle)]
        if self.trend is not None:
            parts.append((seconds - self.trend["mean"]) / self.trend["scale"])
        return np.column_stack(parts), wrong

    def settings(self) -> dict[str, Any]:
        return {"trend": self.trend}

    def __str__(self) -> str:
        trend = "" if self.trend is None else ", and time itself"
        return f"date: time of {', '.join(PERIODS)}{trend}"


class Category:
    """One of `width` places is 1, by a hash of the text: new texts find theirs, too."""

    kind = "category"
    wanted = "a text"
    fields: ClassVar[Fields] = {"width": door.count}

    def __init__(self, width: int) -> None:
        self.width = width

    def encode(self, column: Any) -> tuple[Array, Array]:
        coded = texts(column).dictionary_encode()
        values = coded.dictionary.to_pylist()
        places = np.array([zlib.crc32(value.encode()) % self.width for value in values], int)
        missing = np.asarray(coded.indices.is_null())
        codes = np.asarray(coded.indices.fill_null(0), int)
        X = np.zeros((len(column), self.width))
        if len(places):
            X[np.arange(len(column)), places[codes]] = 1.0
        X[missing] = np.nan
        return X, np.zeros(len(column), bool)

    def settings(self) -> dict[str, Any]:
        return {"width": self.width}

    def __str__(self) -> str:
        return f"category, hashed to {self.width} places"


KINDS: dict[str, Any] = {kind.kind: kind for kind in (Number, Date, Category)}


def kind_of(name: str, column: Any, *, width: int, trend: bool, category: bool = False) -> Kind:
    """What a column of the first rows holds.

    width: of a category. trend: whether a date counts as time, too. category: it is one, whatever
    it looks like.
    """
    if column.null_count == len(column):
        raise StreamError(
            f"column {name} has no value in the first {len(column)} rows, so that nothing is known "
            f"of it: leave it out with --ignore {name}, or take more rows with --warmup"
        )
    if category:
        return Category(width)
    is_text = _is_text(column)
    if not is_text and not _is_date(column):
        values, wrong = numbers(column)
        return Number.learned(_told(name, values))
    if is_text:
        values, wrong = numbers(column)
        found = len(column) - column.null_count
        if wrong.sum() <= (1 - NUMERIC) * found and wrong.sum() < found:
            return Number.learned(_told(name, values))
    seconds, wrong = dates(column)
    if not wrong.any():
        time = Number.learned(_told(name, seconds))
        return Date(time.settings() if trend else None)
    different, found = len(column.unique()), len(column) - column.null_count
    texts = column.drop_null()
    leave = f"Leave it out with --ignore {name}, or hash it all the same with --categories {name}"
    if found >= SEVERAL and different > IDENTIFYING * found:
        raise StreamError(
            f"column {name} holds {different} different texts in {found} rows, such as "
            f"{texts[0].as_py()!r:.40}: a name of each row, or a date that is not ISO 8601? {leave}"
        )
    if is_text and all(DATELIKE.match(text.strip()) for text in texts.to_pylist()):
        raise StreamError(  # each day would be a category of its own
            f"column {name} holds texts such as {texts[0].as_py()!r:.40}: dates that are not ISO "
            f"8601 (2024-01-31)? {leave}"
        )
    return Category(width)


def _told(name: str, values: Array) -> Array:
    told = values[np.isfinite(values)]
    if not len(told):
        raise StreamError(f"column {name} has no finite number in the first rows: --ignore {name}")
    return told


def numbers(column: Any) -> tuple[Array, Array]:
    """Values as float64, NaN where there is none; and where there is one that is no number."""
    import pyarrow as pa

    if column.type == pa.float64() and not column.null_count:  # the common case
        values = column.to_numpy()
        if not len(values) or (values.min() > -HUGE and values.max() < HUGE):  # which NaN is not
            return values, np.zeros(len(values), bool)
    missing = np.asarray(column.is_null())
    if _is_text(column):
        values = _parsed(column)
    elif _is_date(column):
        values = np.full(len(column), np.nan)
    else:
        values = np.asarray(column.cast(pa.float64()).fill_null(np.nan), float)
        missing = missing | np.isnan(values)  # as it stands in files that have no null
    values = np.where(np.abs(values) < HUGE, values, np.nan)
    return values, np.isnan(values) & ~missing


def _parsed(column: Any) -> Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    if pc.all(pc.match_substring_regex(trimmed, f"^{NUMBER.pattern}$")).as_py() is not False:
        return np.asarray(trimmed.cast(pa.float64()).fill_null(np.nan), float)
    return np.array([_number(text) for text in trimmed.to_pylist()], float)


def _number(text: str | None) -> float:
    if text is None:
        return math.nan
    if NUMBER.fullmatch(text):
        return float(text)
    return TRUTHS.get(text.lower(), math.nan)


def is_number(value: Any) -> bool:
    """Whether a value of a column is one, however large."""
    if isinstance(value, str):
        return NUMBER.fullmatch(value.strip()) is not None
    return isinstance(value, int | float)


def dates(column: Any) -> tuple[Array, Array]:
    """Seconds since 1970 (UTC, or as the clock showed), NaN where there are none; wrong ones."""
    import pyarrow as pa

    missing = np.asarray(column.is_null())
    if _is_date(column):
        stamps = column.cast(pa.timestamp("us"))
        values = (
            np.asarray(stamps.cast(pa.int64()).cast(pa.float64(), safe=False).fill_null(0)) / 1e6
        )
        values = np.where(missing, np.nan, values)
    elif _is_text(column):
        values = np.array([_seconds(text) for text in column.to_pylist()], float)
    else:
        values = np.full(len(column), np.nan)
    return values, np.isnan(values) & ~missing


def _seconds(text: str | None) -> float:
    try:
        moment = datetime.fromisoformat((text or "").strip())
    except ValueError:
        return math.nan
    if moment.tzinfo is None:
        return (moment - datetime(1970, 1, 1)).total_seconds()
    return moment.timestamp()


def texts(column: Any) -> Any:
    """Values as texts; numbers that are whole without a point."""
    import pyarrow as pa

    if _is_text(column):
        return column
    if pa.types.is_floating(column.type):
        made = [
            None if v is None or math.isnan(v) else repr(v).removesuffix(".0")
            for v in column.to_pylist()
        ]
        return pa.array(made, pa.string())
    return column.cast(pa.string())


def _is_text(column: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _is_date(column: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(column.type) or pa.types.is_date(column.type))
