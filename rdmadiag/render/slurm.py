"""One line for `scontrol update node=N state=drain reason="..."`: only characters that neither scontrol nor a shell takes for its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rdmadiag.render import _line

CHARACTERS = 120
"""Longest reason; sinfo and squeue cut it to their columns anyway [characters]."""
_OTHERS = re.compile(r"[^A-Za-z0-9 ._:/+-]+")


def render(report: Mapping[str, Any], terminal: bool = False, width: int = CHARACTERS) -> str:
    """Return the reason. Quotes, bars, commas, equals signs and what a shell expands are left out of it."""
    return _line.cut("rdmadiag: " + " ".join(_OTHERS.sub(" ", _line.line(report, CHARACTERS)).split()), CHARACTERS)
