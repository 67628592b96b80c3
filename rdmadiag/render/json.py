"""The report object itself, as JSON (rdmadiag.report/1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the report as indented JSON, in ASCII: no control character of a log reaches a terminal."""
    return json.dumps(report, indent=1, default=str)
