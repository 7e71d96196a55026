"""Values of a column: which texts mean that there is none, and which are numbers."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# What stands in a csv, in quotes or not, where a value is missing. A name may well be "NA".
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None")


def as_numbers(texts: Any) -> Any | None:
    """Texts as float64, null where one is missing; None if one of them is no number.

    A text is a number by the rules of the csv reader: 1, -2.5, +3e-4, inf, with blanks around.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    missing = pc.is_in(trimmed, value_set=pa.array(MISSING))
    try:
        return without_nan(pc.if_else(missing, None, trimmed).cast(pa.float64()))
    except pa.ArrowInvalid:
        return None


def without_nan(numbers: Any) -> Any:
    """NaN is how numbers say that one is missing: null, as in every other column."""
    nan = pc.is_nan(numbers)
    return pc.if_else(nan, None, numbers) if pc.any(nan).as_py() else numbers
