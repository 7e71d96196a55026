"""What a column holds, and how it becomes numbers: kinds, learned from the first rows, then frozen.

Each kind makes of a column X (n×width), with NaN where a value is missing or is not what it should
be; what is learned is (X − mean) / scale, and as these are frozen, what was learned stays exact.
"""

import math
import re
import zlib
from datetime import datetime
from typing import Any, ClassVar, Protocol

import numpy as np

from orfit import schema, validation
from orfit.schema import Fields
from orfit.stream.block import StreamError
from orfit.validation import Array

HUGE = 1e100  # numbers from here on are wrong: squares and products of what is learned overflow
FAR = 20.0  # standard deviations of the first rows: a value beyond has left their scale
IDENTIFYING = 0.5  # of a column's texts differ: they name rows, and tell nothing of others
SEVERAL = 50  # texts, before that can be said
NUMERIC = 0.5  # of a column's texts are numbers: the others are errors
PERIODS = {"day": 86400.0, "week": 7 * 86400.0, "year": 365.2425 * 86400.0}  # in seconds
DECIMAL_COMMA = re.compile(r"[+-]?\d*(\.\d{3})*,\d+([eE][+-]?\d+)?", re.ASCII)
DATELIKE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([ T]|$)", re.ASCII)


class Kind(Protocol):
    """How a column becomes numbers."""

    kind: str
    wanted: str  # what a value must be, for messages
    mean: float
    scale: float
    unknown: float  # standard deviation of each of its numbers, scaled, where there is no value

    @property
    def width(self) -> int:
        """How many numbers it becomes."""

    def encode(self, column: Any) -> Array:
        """X (n×width), NaN or infinite in rows without a value, or with one that is wrong."""

    def settings(self) -> dict[str, Any]:
        """The arguments to make it again."""

    def __str__(self) -> str:
        """What becomes of the column, for people."""


class Number:
    """A number, in the scale of the first rows."""

    kind = "number"
    width = 1
    unknown = 1.0
    wanted = "a number"
    fields: ClassVar[Fields] = {"mean": validation.scalar, "scale": validation.positive}

    def __init__(self, mean: float, scale: float) -> None:
        self.mean, self.scale = mean, scale

    @classmethod
    def learned(cls, values: Array) -> "Number":
        mean, spread = float(values.mean()), float(values.std())
        if spread <= 1e-12 * abs(mean):  # all alike: what it may be later is not known
            spread = abs(mean) or 1.0
        return cls(mean, spread)

    def encode(self, column: Any) -> Array:
        return numbers(column)[:, None]

    def settings(self) -> dict[str, Any]:
        return {"mean": self.mean, "scale": self.scale}

    def __str__(self) -> str:
        return f"number, {self.mean:.4g} ± {self.scale:.4g}"


class Date:
    """Sine and cosine of the time of day, of week and of year; with `trend`, time itself, too.

    Time goes on and leaves every scale: a trend that is extrapolated is rarely meant.
    """

    kind = "date"
    mean, scale = 0.0, 1.0
    unknown = math.sqrt(0.5)  # of a sine
    wanted = "a date (ISO 8601)"
    fields: ClassVar[Fields] = {
        "trend": schema.optional(
            schema.record({"mean": validation.scalar, "scale": validation.positive})
        )
    }

    def __init__(self, trend: dict[str, float] | None = None) -> None:
        self.trend = trend

    @property
    def width(self) -> int:
        return 2 * len(PERIODS) + (self.trend is not None)

    def encode(self, column: Any) -> Array:
        seconds, parts = dates(column), []
        for period in PERIODS.values():
            angle = 2 * math.pi / period * np.mod(seconds, period)
            parts += [np.sin(angle), np.cos(angle)]
        if self.trend is not None:
            parts.append((seconds - self.trend["mean"]) / self.trend["scale"])
        return np.column_stack(parts)

    def settings(self) -> dict[str, Any]:
        return {"trend": self.trend}

    def __str__(self) -> str:
        trend = "" if self.trend is None else ", and time itself"
        return f"date: time of {', '.join(PERIODS)}{trend}"


class Category:
    """One of `width` places is 1, by a hash of the text: new texts find theirs, too."""

    kind = "category"
    mean, scale = 0.0, 1.0
    wanted = "a text"
    fields: ClassVar[Fields] = {"width": validation.count}

    def __init__(self, width: int) -> None:
        self.width = width
        self.unknown = math.sqrt(1 / width)  # each place is as likely

    def encode(self, column: Any) -> Array:
        coded = texts(column).dictionary_encode()
        values = coded.dictionary.to_pylist()
        places = np.array([zlib.crc32(value.encode()) % self.width for value in values], int)
        missing = np.asarray(coded.indices.is_null())
        codes = np.asarray(coded.indices.fill_null(0), int)
        X = np.zeros((len(column), self.width))
        if len(places):
            X[np.arange(len(column)), places[codes]] = 1.0
        X[missing] = np.nan
        return X

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
    is_text, found = _is_text(column), len(column) - column.null_count
    if not is_text and not _is_date(column):
        return Number.learned(_told(name, numbers(column)))
    if is_text:
        values = numbers(column)
        right = np.count_nonzero(np.abs(values) < HUGE)
        if right and right >= NUMERIC * found:
            return Number.learned(_told(name, values))
    seconds = dates(column)
    if np.count_nonzero(np.isfinite(seconds)) == found:
        time = Number.learned(_told(name, seconds))
        return Date(time.settings() if trend else None)
    different, texts = len(column.unique()), column.drop_null()
    if is_text:
        commas = [bool(DECIMAL_COMMA.fullmatch(text.strip())) for text in texts.to_pylist()]
        if any(commas) and right + sum(commas) >= NUMERIC * found:  # 15 is one of 15,13 and 15
            raise StreamError(
                f"column {name} holds texts such as {texts[commas.index(True)].as_py()!r:.40}: "
                f"numbers with a decimal comma? Write them with a point, as 15.13, or hash them as "
                f"texts with --categories {name}"
            )
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
    told = values[np.abs(values) < HUGE]
    if not len(told):
        raise StreamError(f"column {name} has no finite number in the first rows: --ignore {name}")
    return told


def numbers(column: Any) -> Array:
    """Values as float64, NaN where there is none, or one that is no number."""
    import pyarrow as pa

    if _is_text(column):
        from orfit.stream.values import parsed  # which needs pyarrow, too

        column, _ = parsed(column)
    if _is_date(column):
        return np.full(len(column), np.nan)
    made = column if column.type == pa.float64() else column.cast(pa.float64())
    return np.asarray(made.to_numpy(zero_copy_only=False))


def is_number(value: Any) -> bool:
    """Whether a value of a column is one, however large."""
    import pyarrow as pa

    if isinstance(value, str):
        return not np.isnan(numbers(pa.array([value])))[0]
    return isinstance(value, int | float)


def there(column: Any) -> Array:
    """Where there is a value, right or wrong."""
    import pyarrow as pa

    absent = np.asarray(column.is_null())
    if pa.types.is_floating(column.type):  # as it stands in files that have no null
        absent |= np.isnan(numbers(column))
    return ~absent


def dates(column: Any) -> Array:
    """Seconds since 1970 (UTC, or as the clock showed), NaN where there are none."""
    import pyarrow as pa

    if _is_date(column):
        stamps = column.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.float64(), safe=False)
        return np.asarray(stamps.to_numpy(zero_copy_only=False) / 1e6)
    if _is_text(column):
        return np.array([_seconds(text) for text in column.to_pylist()], float)
    return np.full(len(column), np.nan)


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
