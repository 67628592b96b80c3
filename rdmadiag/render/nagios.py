"""Output of a Nagios, Icinga or Naemon plugin: one line with performance data, then a line a finding; codes 0 to 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rdmadiag.render import _line

WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
LINE_CHARACTERS = 200
LINES = 10
_UNKNOWN = 3


def render(report: Mapping[str, Any], terminal: bool = False, width: int = LINE_CHARACTERS) -> str:
    """Return the status line with counts as performance data (no unit), and below it the confirmed findings."""
    summary = report["summary"]
    confirmed = [f for f in report["findings"] if f["answer"] == "confirmed"]
    values = {
        "confirmed": summary["confirmed"],
        "known": summary["known"],
        "rules_unknown": summary["rules"]["unknown"],
        "gaps": len(report["gaps"]),
    }
    data = " ".join(f"{name}={value};;;0" for name, value in values.items())
    lines = [f"{_head(exit_code(report), _line.line(report, LINE_CHARACTERS))} | {data}"]
    for finding in confirmed[:LINES]:
        known = " (known)" if finding["known"] else ""
        lines.append(_text(f"{finding['severity']}{known}: {finding['rule']}: {finding['message']}"))
        lines += [_text(f"  fix: {step}") for step in finding["fix"][:1]]
    if len(confirmed) > LINES:
        lines.append(f"and {len(confirmed) - LINES} more")
    return "\n".join(lines)


def exit_code(report: Mapping[str, Any]) -> int:
    """Return OK 0, WARNING 1, CRITICAL 2 (an error or critical finding) or UNKNOWN 3."""
    if report["summary"]["verdict"] == "wrong":
        return 2 if _line.worst(report) in ("error", "critical") else 1
    return _UNKNOWN if report["summary"]["verdict"] == "unknown" else 0


def refused(message: str) -> tuple[str, int]:
    """Return the line and code of a run that could not be made."""
    return _head(_UNKNOWN, message), _UNKNOWN


def _head(code: int, text: str) -> str:
    return f"RDMADIAG {WORDS[code]} - {_text(text)}"


def _text(text: str) -> str:
    # What follows a bar is performance data to these programs.
    return _line.cut(_line.plain(text.replace("|", "/")), LINE_CHARACTERS)
