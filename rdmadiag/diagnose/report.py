"""One run's result as the report object that every output format renders: rdmadiag.report/1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rdmadiag.diagnose import differential, engine
from rdmadiag.diagnose.rulebook import SEVERITIES, Rulebook, read_json
from rdmadiag.errors import BadFile
from rdmadiag.evidence.store import Evidence

SCHEMA = "rdmadiag.report/1"


Known = tuple[str, tuple[tuple[str, Any], ...]]
REPORT_BYTES = 64 << 20
"""Longest report that is read as a baseline or as an earlier one [bytes]."""


def read(path: str) -> dict[str, Any]:
    """Read a report that `check --format json` wrote. Raises BadFile with the place of what is not as it must be."""
    data = read_json(path, REPORT_BYTES)
    wanted = "wanted a report, as `rdmadiag check --format json` prints"
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise BadFile(path, "/schema", f"{wanted} ({SCHEMA})")
    for name in ("nodes", "findings"):
        entries = data.get(name)
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise BadFile(path, f"/{name}", f"not a list of objects; {wanted}")
    for number, finding in enumerate(data["findings"]):
        if not isinstance(finding.get("rule"), str) or not isinstance(finding.get("subject"), dict):
            raise BadFile(path, f"/findings/{number}", f"has no rule and subject; {wanted}")
    return data


def baseline(path: str) -> frozenset[Known]:
    """Return the confirmed findings of an earlier report, by which new ones are known. Raises BadFile."""
    return frozenset(
        baseline_key(finding) for finding in read(path)["findings"] if finding.get("answer") == "confirmed"
    )


def baseline_key(finding: Mapping[str, Any]) -> Known:
    """Return what makes two findings one and the same: the rule and its subject, but no QP and process, which come and go."""
    subject = {key: str(value) for key, value in finding["subject"].items() if key not in ("qpn", "pid")}
    return finding["rule"], tuple(sorted(subject.items()))


def counters_of(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the last values of all counters, one entry a port: what a later `--previous` counts from."""
    ports: dict[tuple[Any, ...], dict[str, int]] = {}
    names = ("node", "device", "port", "netdev", "kind")
    for *port, counter, value in evidence.db.execute(
        f"SELECT {', '.join(names)}, counter, value FROM counter WHERE value IS NOT NULL"
    ):
        ports.setdefault(tuple(port), {})[counter] = value
    return [
        {**{name: part for name, part in zip(names, port, strict=True) if part is not None}, "values": values}
        for port, values in ports.items()
    ]


OF_JOBS = frozenset(
    [
        "app_event",
        "benchmark",
        "command",
        "completion",
        "env",
        *(
            "kv_cache",
            "kv_event",
            "kv_goodput",
            "kv_job",
            "kv_operation",
            "kv_path",
            "kv_request",
            "kv_route",
            "kv_transfer",
        ),
    ]
)
"""Tables of what a job leaves (its log, its environment, its results), which nobody has who looks at a node."""


def build(
    evidence: Evidence,
    book: Rulebook,
    results: Mapping[str, engine.Result],
    fail_on: str,
    unread: Sequence[str] = (),
    given: Sequence[str] = (),
    known: frozenset[Known] = frozenset(),
    chosen: bool = False,
) -> dict[str, Any]:
    """Return the report. `unread`: texts in which no tool and no pattern was recognised.

    `known`: findings of a baseline, which do not fail a check. `chosen`: only some rules were asked for (--only, --skip,
    --layer), so a part that none of them reads is nobody's gap.
    """
    judged = differential.judge(book, results)
    gaps = _gaps(evidence, results)
    if chosen:
        reads = frozenset({"reading"}).union(*(result.reads for result in results.values()))
        gaps = [gap for gap in gaps if reads & set(gap["tables"])]
    findings = judged.findings
    _name_adapters(evidence, findings)
    _name_owners(evidence, findings)
    for finding in findings:
        finding["known"] = finding["answer"] == "confirmed" and baseline_key(finding) in known
    _cable(evidence, findings)
    _name_limits(evidence, findings)
    confirmed = [f for f in findings if f["answer"] == "confirmed"]
    worst = max((SEVERITIES.index(f["severity"]) for f in confirmed), default=-1)
    failing = any(SEVERITIES.index(f["severity"]) >= SEVERITIES.index(fail_on) for f in confirmed if not f["known"])
    counts = _counts(results)
    blind = any(gap["kind"] not in ("not_given", "assumed", "restricted") for gap in gaps)
    judged_rules = counts["wrong"] + counts["fine"]
    enough = judged_rules > 0 and counts["unknown"] - _of_jobs(gaps, results) <= 2 * judged_rules
    nothing_known = bool(unread) and judged_rules == 0
    return {
        "schema": SCHEMA,
        "nodes": _rows(evidence, "SELECT * FROM node ORDER BY node"),
        "findings": findings,
        "ruled_out": judged.ruled_out,
        "gaps": gaps,
        "counters": counters_of(evidence),
        "summary": {
            "verdict": "wrong" if failing else "fine" if enough and not blind else "unknown",
            "exit_code": 1 if failing else 3 if blind or nothing_known else 0,
            "given": list(given),
            "confirmed": len(confirmed),
            "known": sum(1 for f in confirmed if f["known"]),
            "worst": SEVERITIES[worst] if worst >= 0 else None,
            "fail_on": fail_on,
            "rules": counts,
            "unrecognised": list(unread),
            "log_lines_left_out": evidence.left_out,
        },
    }


def _cable(evidence: Evidence, findings: Sequence[dict[str, Any]]) -> None:
    # Whoever goes to the rack needs the other end: switch and port, where LLDP told them.
    known: dict[tuple[str, str], str] = {}
    for node, netdev, device, switch, port, description in evidence.db.execute(
        "SELECT l.node, l.netdev, p.device, coalesce(l.switch, l.chassis), l.switch_port, l.port_description FROM lldp l"
        " LEFT JOIN port p ON p.node = l.node AND p.netdev = l.netdev ORDER BY l.rowid"
    ):
        words = [switch, port, f"({description})" if description and description != port else None]
        text = " ".join(word for word in words if word)
        for name in (netdev, device):
            if name and text:
                known.setdefault((node, name), text)
    for finding in findings if known else ():
        subject = finding["subject"]
        for key in ("netdev", "device"):
            if cabled := known.get((subject.get("node", ""), subject.get(key, ""))):
                finding["cabled_to"] = cabled
                break


def _name_limits(evidence: Evidence, findings: Sequence[dict[str, Any]]) -> None:
    # What is read from a capture is as good as the capture: each finding says what that one cannot show. Two taps have two.
    known = dict(evidence.db.execute("SELECT origin, cannot_show FROM capture WHERE cannot_show IS NOT NULL"))
    for one, two in evidence.db.execute("SELECT DISTINCT file_a, file_b FROM tap_loss") if known else ():
        known[f"{one} and {two}"] = " / ".join(dict.fromkeys(known[file] for file in (one, two) if file in known))
    for finding in findings if known else ():
        if finding["layer"] != "wire":
            continue
        origins = sorted({str(row.get("origin")) for row in finding["evidence"]})
        texts = [known[origin] for origin in origins if origin in known]
        if texts:
            finding["cannot_show"] = " / ".join(dict.fromkeys(texts))


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


def _gaps(evidence: Evidence, results: Mapping[str, engine.Result]) -> list[dict[str, Any]]:
    # The tables of a gap are in the order of how many rules could not judge and read them.
    lacked = Counter(
        table for r in results.values() if any(answer.wrong is None for answer in r.answers) for table in r.reads
    )
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for gap in _rows(evidence, "SELECT * FROM gap"):
        table = gap.pop("table")
        key = tuple(sorted(gap.items()))
        merged.setdefault(key, {**gap, "tables": []})["tables"].append(table)
    for gap in merged.values():
        gap["tables"].sort(key=lambda table: -lacked[table])
    return list(merged.values())


def _of_jobs(gaps: Sequence[Mapping[str, Any]], results: Mapping[str, engine.Result]) -> int:
    # How many rules could not judge only for want of what a job leaves: that says nothing of the node.
    lacking = frozenset(table for gap in gaps if gap["kind"] == "not_given" for table in gap["tables"])
    unknown = [result.reads & lacking for result in results.values() if {a.wrong for a in result.answers} == {None}]
    return sum(bool(tables) and tables <= OF_JOBS for tables in unknown)


def _counts(results: Mapping[str, engine.Result]) -> dict[str, int]:
    counts = {"all": len(results), "wrong": 0, "fine": 0, "unknown": 0, "not_applicable": 0}
    for result in results.values():
        answers = {answer.wrong for answer in result.answers}
        name = (
            "wrong" if 1 in answers else "unknown" if None in answers else "fine" if 0 in answers else "not_applicable"
        )
        counts[name] += 1
    return counts
