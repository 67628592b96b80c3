"""The report of a run itself, as JSON (rdmadiag.run-report/1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FILE = "report.json"


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the report as indented JSON, in ASCII."""
    return json.dumps(report, indent=1, default=str)
