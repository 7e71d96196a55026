"""What options say, from text to values; each complaint names the option."""

import re
from typing import Any

from orfit import validation
from orfit.stream.block import StreamError

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def names(text: str | None) -> tuple[str, ...] | None:
    """Names of columns, with commas between; one in a name follows a backslash."""
    if text is None:
        return None
    parts = [part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", text)]
    return tuple(part for part in parts if part)


def number_or(option: str, text: str | None, *words: str) -> Any:
    """A number, or one of these words."""
    if text is None or text in words:
        return text
    try:
        return float(text)
    except ValueError:
        raise StreamError(
            f"{option} must be a number or {' or '.join(words)}; it is {text}"
        ) from None


def word(option: str, text: str | None, *known: str) -> str | None:
    """One of these words."""
    if text is not None and text not in known:
        raise StreamError(f"{option} must be {', '.join(known[:-1])} or {known[-1]}; it is {text}")
    return text


def directions(text: str | None) -> Any:
    """m, "exact" or "auto"."""
    if text is None or text in {"auto", "exact"}:
        return text
    if not text.isdecimal() or not int(text):
        raise StreamError(f"--memory must be a whole number from 1 on, exact or auto; it is {text}")
    return validation.count("--memory", int(text))


def switch(text: str | None) -> Any:
    """on, off or auto."""
    if text is None:
        return None
    known = {"on": True, "off": False, "auto": "auto"}
    if text not in known:
        raise StreamError(f"--tail must be on, off or auto; it is {text}")
    return known[text]


def size(text: str | None) -> int | None:
    """Bytes: 500MB, 2GB, 1000000."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?B?)", text.strip().upper())
    if not found or found[2] not in UNITS:
        raise StreamError(f"--budget must be a size such as 500MB; it is {text}")
    return max(1, int(float(found[1]) * UNITS[found[2]]))


def every(text: str) -> dict[str, Any]:
    """When to save: rows, as 10000, or seconds, as 30s."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s?)", text.strip())
    if not found or float(found[1]) == 0 or (not found[2] and "." in found[1]):
        raise StreamError(f"--every must be rows, such as 10000, or seconds, as 30s; it is {text}")
    if found[2]:
        return {"seconds": float(found[1])}
    return {"rows": int(found[1]), "seconds": None}
