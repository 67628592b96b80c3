"""Reading NAME=VALUE words: rates, sizes, times and counts with their units."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain._words import seconds, shown

_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([a-zA-Z/]{0,10})")
_RATES = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "k": 2**10,
    "m": 2**20,
}
_SIZES["g"] = 2**30


def rate(text: str) -> float | None:
    """Read 400gbit, 200mbit, 100gb/s or 100g (tc's spelling; g alone is gbit) into bits per second."""
    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        return None
    unit = match[2].lower().removesuffix("/s").removesuffix("ps").removesuffix("it").removesuffix("b")
    factor = _RATES.get(f"{unit}bit")
    return float(match[1]) * factor if factor and match[2] else None


def size(text: str) -> float | None:
    """Read 64KiB, 1MB, 4096 into bytes; K, M and G alone are binary."""
    match = _QUANTITY.fullmatch(text.strip())
    factor = _SIZES.get(match[2].lower()) if match else None
    return float(match[1]) * factor if match and factor else None


def count(text: str) -> int | None:
    """Read a whole number."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 13 else None


def length(text: str) -> float | None:
    """Read 30m, 2km into metres."""
    match = _QUANTITY.fullmatch(text.strip())
    factor = {"m": 1.0, "km": 1e3, "": 1.0}.get(match[2].lower()) if match else None
    return float(match[1]) * factor if match and factor else None


def name(text: str) -> str:
    """Take a name as it is."""
    return text


_READERS = {
    "rate": (rate, "a rate such as 400gbit"),
    "size": (size, "a size such as 64KiB"),
    "count": (count, "a whole number"),
    "length": (length, "a length such as 30m"),
    "time": (seconds, "a time such as 50us"),
    "name": (name, "a name"),
}


def values(topic: str, words: Sequence[str], known: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Read NAME=VALUE words. `known`: name to kind and default (... for one that must be given). Raises BadInput."""
    found: dict[str, Any] = {key: default for key, (_, default) in known.items() if default is not ...}
    for word in words:
        key, mark, text = word.partition("=")
        if not mark or key not in known:
            raise BadInput(f"plan {topic}: {shown(word)} is none of {', '.join(f'{one}=' for one in known)}")
        reader, wanted = _READERS[known[key][0]]
        value = reader(text)
        if value is None or (isinstance(value, float) and not value >= 0):
            raise BadInput(f"plan {topic}: {key}={shown(text)}: wanted {wanted}")
        found[key] = value
    missing = [key for key in known if key not in found]
    if missing:
        example = {"rate": "400gbit", "size": "64KiB", "count": "8", "length": "30m", "time": "50us", "name": "NAME"}
        needs = ", ".join(f"{key}={example[known[key][0]]}" for key in missing)
        raise BadInput(f"plan {topic} needs {needs}")
    return found


def positive(topic: str, found: Mapping[str, Any], *keys: str) -> None:
    """Raise BadInput where a value that something is divided by, or that makes no sense as 0, is 0."""
    for key in keys:
        if found.get(key) is not None and found[key] <= 0:
            raise BadInput(f"plan {topic}: {key}: wanted more than 0")


def bytes_text(value: float) -> str:
    """Write bytes with a binary unit and the plain figure."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{value / factor:.4g} {unit} ({value:.0f} bytes)"
    return f"{value:.0f} bytes"


def rate_text(value: float) -> str:
    """Write bits per second with the unit that reads best."""
    for unit, factor in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value:.4g} bit/s"
