"""Conditions of a scenario, with three answers: what was not measured neither holds nor fails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NUMBERS = (int, float)
NEVER = "never"
"""What a time is that did not come while the run went on (inf)."""


def holds(wanted: Any, value: Any) -> bool | None:
    """Tell whether a value is what was wanted: equal to it, or within min, max, and not `not`. None: it was not measured."""
    if value is None:
        return None
    if wanted == NEVER:
        return bool(value == math.inf)
    if not isinstance(wanted, Mapping):
        return _same(wanted, value)
    checks = {"min": lambda limit: value >= limit, "max": lambda limit: value <= limit}
    for word, limit in wanted.items():
        if word == "not":
            if _same(limit, value):
                return False
        elif not _is_number(value):
            return None  # a text has no order
        elif not checks[word](limit):
            return False
    return True


def _same(wanted: Any, value: Any) -> bool:
    if _is_number(wanted) and _is_number(value):
        return bool(wanted == value)
    return type(wanted) is type(value) and bool(wanted == value)


def _is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS) and not isinstance(value, bool)


def words(wanted: Any) -> str:
    """Return a condition as words: `at least 1`, `0`, `at least 0.9 and at most 1.1`."""
    if not isinstance(wanted, Mapping):
        return str(wanted)
    said = {"min": "at least", "max": "at most", "not": "not"}
    return " and ".join(f"{said[word]} {limit}" for word, limit in wanted.items())
