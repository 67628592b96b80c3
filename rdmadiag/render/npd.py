"""One line for a custom plugin of node-problem-detector, which keeps 80 bytes of it and reads the exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rdmadiag.render import _line

CHARACTERS = 80
"""What node-problem-detector keeps of a plugin's output (max_output_length) [bytes]."""
_CODES = {"fine": 0, "wrong": 1, "unknown": 2}


def render(report: Mapping[str, Any], terminal: bool = False, width: int = CHARACTERS) -> str:
    """Return the line."""
    return _line.line(report, CHARACTERS)


def exit_code(report: Mapping[str, Any]) -> int:
    """Return OK 0, NonOK 1 or Unknown 2."""
    return _CODES[report["summary"]["verdict"]]


def refused(message: str) -> tuple[str, int]:
    """Return the line and code of a run that could not be made."""
    return _line.cut(_line.plain(f"unknown: {message}"), CHARACTERS), 2
