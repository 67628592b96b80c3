"""What the formats of a run share: the faults, the questions and the findings as words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

PARTS = {
    "revert": "Taken back",
    "requires": "Required",
    "steady": "Steady before",
    "fired": "Fault acted",
    "expect": "Expected",
    "findings": "Findings",
}
"""Parts of a verdict, in the order in which they are judged."""

MARKS = {"yes": "ok", "no": "NO", "unknown": "unknown"}


def faults(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, what was done) of each fault."""
    for fault in report["faults"]:
        told = " ".join(f"{name}={value}" for name, value in (fault["values"] or fault["parameters"] or {}).items())
        begin, end = fault["begin_seconds"], fault["end_seconds"]
        if begin is None:
            yield fault["name"], f"{fault['fault']} {told}: not begun ({fault['waited_for']})"
        else:
            until = "?" if end is None else f"{end:.2f}"
            yield fault["name"], f"{fault['fault']} {told}: from {begin:.2f} to {until} s"


def proofs(fault: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, answer, text) of what proves that a fault acted and was taken back."""
    for kind, title in (("own", "by its own means"), ("other", "by other means")):
        told = fault.get(kind)
        if isinstance(told, Mapping):
            yield title, str(told.get("answer")), str(told.get("text"))
    yield "taken back", str(fault["reverted"]), str(fault["proof"])


def findings(report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (phase, finding) of what was confirmed, each rule and subject once, at its first phase."""
    seen = set()
    for phase, entries in report["findings"].items():
        for finding in entries:
            key = (finding["rule"], str(sorted((finding["subject"] or {}).items())))
            if finding["answer"] == "confirmed" and key not in seen:
                seen.add(key)
                yield phase, finding
