"""What the formats of one line share: the finding to name first, and text that every caller takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rdmadiag.diagnose.rulebook import SEVERITIES

CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def plain(text: str) -> str:
    """Return a text as one line of printable ASCII."""
    return CONTROL.sub(" ", str(text)).encode("ascii", "replace").decode().strip()


def cut(text: str, width: int) -> str:
    """Return a text of at most `width` characters; one that is cut ends in two dots."""
    return text if len(text) <= width else text[: width - 2].rstrip() + ".."


def failing(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the findings that make a check fail, best first."""
    lowest = SEVERITIES.index(report["summary"]["fail_on"])
    return [
        f
        for f in report["findings"]
        if f["answer"] == "confirmed" and not f["known"] and SEVERITIES.index(f["severity"]) >= lowest
    ]


def first(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return those of them to name first, one a rule: causes that nothing explains, where there is one, else all."""
    sure = failing(report)
    roots = [f for f in sure if f["kind"] == "cause" and not f["explained_by"]] or sure
    return list({f["rule"]: f for f in reversed(roots)}.values())[::-1]


def place(subject: Mapping[str, Any]) -> str:
    """Return the device and port, or whatever else a finding is about, in few characters; empty for a whole node."""
    if "device" in subject:
        return f"{subject['device']}/{subject['port']}" if "port" in subject else str(subject["device"])
    return next((str(subject[key]) for key in ("netdev", "bdf", "pid", "peer") if key in subject), "")


def worst(report: Mapping[str, Any]) -> str:
    """Return the highest severity among the failing findings; empty when there is none."""
    found = failing(report)
    return SEVERITIES[max(SEVERITIES.index(f["severity"]) for f in found)] if found else ""


def line(report: Mapping[str, Any], width: int) -> str:
    """Return the verdict in at most `width` characters of ASCII: what is wrong and where, or that nothing is, or why it is unknown."""
    summary = report["summary"]
    counts = summary["rules"]
    if summary["verdict"] == "wrong":
        found = first(report)
        more = f" +{len(found) - 1} more" if len(found) > 1 else ""
        where = place(found[0]["subject"])
        head = f"{found[0]['rule']}{f' {where}' if where else ''}: {found[0]['title']}"
        return cut(plain(head), width - len(more)) + more
    if summary["verdict"] == "unknown":
        return cut(
            plain(f"unknown: nothing proven, {counts['unknown']} of {counts['all']} rules could not judge"), width
        )
    known = f", {summary['known']} known" if summary["known"] else ""
    return cut(
        plain(f"nothing wrong seen at {summary['fail_on']} or above{known}; {counts['unknown']} rules unknown"), width
    )
