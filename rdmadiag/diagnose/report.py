"""One run's result as the report object that every output format renders: rdmadiag.report/1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rdmadiag.diagnose import differential, engine
from rdmadiag.diagnose.rulebook import SEVERITIES, Rulebook
from rdmadiag.evidence.store import Evidence

SCHEMA = "rdmadiag.report/1"


def build(
    evidence: Evidence,
    book: Rulebook,
    results: Mapping[str, engine.Result],
    fail_on: str,
    unread: Sequence[str] = (),
    given: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the report. `unread`: texts in which no tool and no pattern was recognised."""
    judged = differential.judge(book, results)
    gaps = _gaps(evidence)
    findings = judged.findings
    _name_adapters(evidence, findings)
    _name_owners(evidence, findings)
    confirmed = [f for f in findings if f["answer"] == "confirmed"]
    worst = max((SEVERITIES.index(f["severity"]) for f in confirmed), default=-1)
    failing = worst >= SEVERITIES.index(fail_on)
    counts = _counts(results)
    blind = any(gap["kind"] not in ("not_given", "assumed", "restricted") for gap in gaps)
    judged_rules = counts["wrong"] + counts["fine"]
    enough = judged_rules > 0 and counts["unknown"] <= 2 * judged_rules
    nothing_known = bool(unread) and judged_rules == 0
    return {
        "schema": SCHEMA,
        "nodes": _rows(evidence, "SELECT * FROM node ORDER BY node"),
        "findings": findings,
        "ruled_out": judged.ruled_out,
        "gaps": gaps,
        "summary": {
            "verdict": "wrong" if failing else "fine" if enough and not blind else "unknown",
            "exit_code": 1 if failing else 3 if blind or nothing_known else 0,
            "given": list(given),
            "confirmed": len(confirmed),
            "worst": SEVERITIES[worst] if worst >= 0 else None,
            "fail_on": fail_on,
            "rules": counts,
            "unrecognised": list(unread),
            "log_lines_left_out": evidence.db.execute("SELECT count(*) FROM log WHERE recent = 0").fetchone()[0],
        },
    }


def _rows(evidence: Evidence, sql: str) -> list[dict[str, Any]]:
    cursor = evidence.db.execute(sql)
    names = [column[0] for column in cursor.description]
    return [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in cursor]


def _name_adapters(evidence: Evidence, findings: Sequence[dict[str, Any]]) -> None:
    # Whoever is to pull a card wants all its names: device, PCI address, netdev, its rail, and the GPU that it serves.
    if not any(evidence.db.execute("SELECT 1 FROM gpu_nic LIMIT 1")):
        return
    known: dict[tuple[str, str, Any], dict[str, Any]] = {}
    sql = "SELECT node, device, bdf, netdev, rail, gpu, gpu_bdf, path FROM gpu_nic ORDER BY nearest IS NOT 1, rail IS NULL, gpu"
    for row in _rows(evidence, sql):
        node = row.pop("node")
        for key in ("device", "bdf", "netdev"):
            if key in row:
                known.setdefault((node, key, row[key]), row)
        if "gpu_bdf" in row:
            known.setdefault((node, "bdf", row["gpu_bdf"]), row)
    for finding in findings:
        subject = finding["subject"]
        for key in ("device", "bdf", "netdev"):
            if found := known.get((subject.get("node"), key, subject.get(key))):
                finding["adapter"] = found
                break


def _name_owners(evidence: Evidence, findings: Sequence[dict[str, Any]]) -> None:
    # A process id says little on the next morning: its container, pod or job is whom to call.
    sql = "SELECT node, pid, comm, uid, container, container_id, pod, job FROM process"
    known = {(row.pop("node"), row["pid"]): row for row in _rows(evidence, sql) if "pid" in row}
    for finding in findings:
        subject = finding["subject"]
        if found := known.get((subject.get("node"), subject.get("pid"))):
            finding["owner"] = {key: value for key, value in found.items() if value != ""}


def _gaps(evidence: Evidence) -> list[dict[str, Any]]:
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for gap in _rows(evidence, "SELECT * FROM gap"):
        table = gap.pop("table")
        key = tuple(sorted(gap.items()))
        merged.setdefault(key, {**gap, "tables": []})["tables"].append(table)
    return list(merged.values())


def _counts(results: Mapping[str, engine.Result]) -> dict[str, int]:
    counts = {"all": len(results), "wrong": 0, "fine": 0, "unknown": 0, "not_applicable": 0}
    for result in results.values():
        answers = {answer.wrong for answer in result.answers}
        name = (
            "wrong" if 1 in answers else "unknown" if None in answers else "fine" if 0 in answers else "not_applicable"
        )
        counts[name] += 1
    return counts
