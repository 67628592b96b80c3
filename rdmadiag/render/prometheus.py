"""Metrics for the textfile collector of the Prometheus node exporter (text format 0.0.4).

Names and labels are stable. What is unknown is told by a verdict and by counts of its own, and is never a 0 among the wrong:
while the verdict is unknown, no count of findings that is 0 is printed. When the file was written, the collector tells
itself (node_textfile_mtime_seconds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rdmadiag import __version__
from rdmadiag.diagnose.rulebook import SEVERITIES

_SUBJECT = ("node", "device", "port", "netdev", "bdf", "peer")  # no qpn and no pid: a new series a process
Labels = tuple[tuple[str, str], ...]

_METRICS = (
    ("rdmadiag_info", "The version of rdmadiag that made this file; always 1."),
    ("rdmadiag_verdict", "1 for the verdict of the last check, 0 for the two others: wrong, fine, unknown."),
    ("rdmadiag_exit_code", "Exit code of the last check: 0 nothing proven, 1 something, 3 could not look."),
    (
        "rdmadiag_findings",
        "Findings by node, answer and severity; a 0 is printed only when the verdict is not unknown.",
    ),
    (
        "rdmadiag_finding",
        "One series a finding: what it is about in its labels, how many of these there are as its value.",
    ),
    ("rdmadiag_rules", "Rules by what they answered: wrong, fine, unknown, not_applicable."),
    ("rdmadiag_gaps", "Parts of a node that could not be seen, by kind."),
    ("rdmadiag_log_lines_left_out", "Matching log lines that are older than --since."),
    ("rdmadiag_node_uptime_seconds", "Time since the node booted, where it is known."),
)


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the metrics, each with its HELP and TYPE; all are gauges."""
    samples: dict[str, dict[Labels, float]] = {name: {} for name, _ in _METRICS}
    for name, labels, value in _samples(report):
        samples[name][tuple(labels.items())] = value
    lines: list[str] = []
    for name, meaning in _METRICS:
        if samples[name]:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
            lines += [f"{name}{_labels(labels)} {value}" for labels, value in samples[name].items()]
    return "\n".join(lines)


def _samples(report: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], float]]:
    summary = report["summary"]
    nodes = [str(node["node"]) for node in report["nodes"]]
    yield "rdmadiag_info", {"version": __version__}, 1
    for verdict in ("wrong", "fine", "unknown"):
        yield "rdmadiag_verdict", {"verdict": verdict}, int(summary["verdict"] == verdict)
    yield "rdmadiag_exit_code", {}, summary["exit_code"]
    count = Counter((str(f["subject"].get("node", "")), f["answer"], f["severity"]) for f in report["findings"])
    every = [(node, "confirmed", severity) for node in nodes for severity in SEVERITIES]
    for key in dict.fromkeys([*every, *sorted(count)]):
        if count[key] or summary["verdict"] != "unknown":
            yield "rdmadiag_findings", dict(zip(("node", "answer", "severity"), key, strict=True)), count[key]
    series = Counter(tuple(_about(finding).items()) for finding in report["findings"])
    for labels, number in sorted(series.items()):
        yield "rdmadiag_finding", dict(labels), number
    for answer in ("wrong", "fine", "unknown", "not_applicable"):
        yield "rdmadiag_rules", {"answer": answer}, summary["rules"][answer]
    for (node, kind), number in sorted(Counter((str(g.get("node", "")), g["kind"]) for g in report["gaps"]).items()):
        yield "rdmadiag_gaps", {"node": node, "kind": kind}, number
    yield "rdmadiag_log_lines_left_out", {}, summary["log_lines_left_out"]
    for node in report["nodes"]:
        if "uptime_seconds" in node:
            yield "rdmadiag_node_uptime_seconds", {"node": str(node["node"])}, node["uptime_seconds"]


def _about(finding: Mapping[str, Any]) -> dict[str, str]:
    told = {name: str(finding[name]) for name in ("rule", "kind", "layer", "severity", "answer")}
    told["known"] = str(finding["known"]).lower()
    return {**told, **{key: str(finding["subject"][key]) for key in _SUBJECT if key in finding["subject"]}}


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    from rdmadiag.render.text import printable

    return printable(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
