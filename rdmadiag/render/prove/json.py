"""The report as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FILE = "prove.json"


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the report as it is, in ASCII."""
    return json.dumps(report, indent=1, default=str)
