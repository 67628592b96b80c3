"""Reading the words that a person typed or pasted: numbers of either base, names of several spellings, times."""

from __future__ import annotations

from collections.abc import Iterable

from rdmadiag.errors import BadInput

_DIGITS = frozenset("0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")
_SECONDS = (("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("ns", 1e-9), ("s", 1.0))


def shown(word: str) -> str:
    """Quote a word for an error message, cut to 60 characters."""
    return repr(word if len(word) <= 60 else word[:57] + "...")


def refuse(what: str, word: str, wanted: str, known: Iterable[str] = ()) -> BadInput:
    """Build the error for a word that is not one of `what`: says what is wanted, the nearest names, the known ones."""
    names = list(known)
    text = f"no {what} {shown(word)}; wanted: {wanted}" if word else f"{what} wanted: {wanted}"
    if word and names:
        from difflib import get_close_matches

        close = get_close_matches(word.upper()[:60], [name.upper() for name in names], 3)
        text += f"; did you mean {', '.join(close)}?" if close else ""
    return BadInput(f"{text}; known: {', '.join(names)}" if names else text)


def number(word: str) -> tuple[int, str] | None:
    """Read 0x81, 81 or f9; return the value and how it was read, or None.

    Digits alone are decimal; hex digits that cannot be decimal are hex.
    """
    text = word.strip().strip(",;()[]")
    low = text.lower()
    if not text or len(text) > 40:
        return None
    if low.startswith("0x") and len(low) > 2 and _HEX.issuperset(low[2:]):
        return int(low, 16), "hex"
    if _DIGITS.issuperset(text):
        value = int(text)
        return value, f"decimal ({value:#x}); if the text it comes from prints hex without 0x, write 0x{text}"
    if _HEX.issuperset(text):
        return int(text, 16), "hex (it has hex letters)"
    return None


def name(word: str) -> str:
    """Fold a name to the form that tables use: capitals, words joined by '_'."""
    return "_".join(word.replace("-", " ").replace("_", " ").upper().split())


def value_of(word: str) -> str:
    """Drop a leading `key=` or `key:`; the rest of the word."""
    head, mark, tail = word.partition("=")
    return tail if mark and tail and head.replace("_", "").isalpha() else word


def seconds(word: str) -> float | None:
    """Read a time with its unit (s, ms, us, ns) into seconds; None when it is not one."""
    text = word.strip().lower().replace("μ", "µ")
    for unit, factor in _SECONDS:
        if text.endswith(unit):
            digits = text[: -len(unit)].strip()
            if not digits or len(digits) > 30 or not set(digits) <= set("0123456789.") or digits.count(".") > 1:
                return None
            return float(digits) * factor if digits != "." else None
    return None


def span(value: float) -> str:
    """Write seconds with the unit that reads best (4 significant digits)."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value / 1e-9:.4g} ns"
