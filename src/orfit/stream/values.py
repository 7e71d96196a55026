"""Values of a column: which texts mean that there is none, and which are numbers."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# What stands in a csv, in quotes or not, where a value is missing. A name may well be "NA".
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None")
# What the csv reader takes for a number, but for blanks around it.
NUMBER = (
    r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:inf|infinity|nan(\([0-9a-z_]*\))?))$"
)
TRUTHS = ("false", "true")  # 0 and 1


def parsed(texts: Any) -> tuple[Any, bool]:
    """Texts as float64, each by itself, null where there is no number; whether all are right.

    A text is a number by the rules of the csv reader, 1, -2.5, +3e-4, inf, with blanks around; and
    true is 1, false is 0. It is right, too, where it says that there is none.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    found = pc.if_else(pc.is_in(trimmed, value_set=pa.array(MISSING)), None, trimmed)
    try:
        return without_nan(found.cast(pa.float64())), True
    except pa.ArrowInvalid:  # one of them is no number
        numbers = pc.if_else(pc.match_substring_regex(found, NUMBER), found, None)
        truths = pc.index_in(pc.utf8_lower(found), value_set=pa.array(TRUTHS))
        made = pc.coalesce(numbers.cast(pa.float64()), truths.cast(pa.float64()))
        return without_nan(made), made.null_count == found.null_count


def without_nan(numbers: Any) -> Any:
    """NaN is how numbers say that one is missing: null, as in every other column."""
    nan = pc.is_nan(numbers)
    return pc.if_else(nan, None, numbers) if pc.any(nan).as_py() else numbers


def _is_missing(trimmed: Any) -> Any:
    return pc.is_in(trimmed, value_set=pa.array([*MISSING, None]))
