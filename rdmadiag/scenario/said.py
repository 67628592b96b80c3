"""What the rules say of a run's evidence: `check` on what was collected during and after it, counted from before."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rdmadiag.errors import RdmadiagError
from rdmadiag.scenario.judge import Measure
from rdmadiag.scenario.record import AFTER, BEFORE, DURING, Folder

_KV_SUMS = {
    "kv_transfer": (
        "requests", "failed", "published", "duplicates", "late_dones", "retries", "reconnects", "resent_bytes",
        "useful_bytes", "canaries_damaged", "late_written", "leases_expired", "unfenced_reuses",
    ),
    "kv_request": ("early_pieces", "damaged_on_arrival"),
    "kv_request WHERE state = 'published'": ("corrupt", "stale", "missing", "torn", "misplaced"),  # what failed is not audited
}  # fmt: skip


def checked(folder: Folder, problems: list[str]) -> tuple[dict[str, Mapping[str, Any]], dict[str, Measure], set[str]]:
    """Run `check` on what was collected during and after, counted from before.

    Returns the reports by phase, the quantities of the tables afterwards, and the rules that could not judge in any phase. What was
    captured on both hosts is compared, with what was collected during the fault.
    """
    from rdmadiag.diagnose import check

    quantities: dict[str, Measure] = {}
    reports: dict[str, Mapping[str, Any]] = {}
    blind: list[set[str]] = []
    before = folder.bundles(BEFORE)
    if not before:
        problems.append("no evidence from before the workload")
    phases = {DURING: folder.bundles(DURING), AFTER: folder.bundles(AFTER)}
    if not phases[AFTER]:
        problems.append("no evidence from after the workload")
    for phase, bundles in phases.items():
        if not bundles or not before:
            continue
        texts = folder.texts() if phase == AFTER else []
        taps = _taps(folder, bundles) if phase == DURING else ()
        request = check.Request(given=(*bundles, *texts), taps=taps, budget=60.0, previous=_previous(before))
        try:
            done = check.check(request)
        except RdmadiagError as error:
            problems.append(f"the evidence from {phase} cannot be checked: {error}")
            continue
        reports[phase] = done.report
        answers = {name: {answer.wrong for answer in result.answers} for name, result in done.results.items()}
        blind.append({name for name, found in answers.items() if None in found and 1 not in found})
        if phase == AFTER:
            quantities = _of_tables(done.evidence.db)
    return reports, quantities, set.intersection(*blind) if blind else set()


def _taps(folder: Folder, bundles: Sequence[str]) -> tuple[str, ...]:
    captures = folder.captures()
    if len(captures) != 2:
        return ()
    one_kernel = f"{os.path.basename(bundles[0]).removesuffix('.tar.gz')}=" if len(bundles) == 1 else ""
    return tuple(one_kernel + path for path in captures)


def _previous(bundles: Sequence[str]) -> str:
    return bundles[0] if len(bundles) == 1 else os.path.dirname(bundles[0])


def _of_tables(db: Any) -> dict[str, Measure]:
    found: dict[str, Measure] = {}
    for name, delta, unknown in db.execute(
        "SELECT name, sum(delta), sum(delta IS NULL) FROM signal WHERE device IS NOT NULL GROUP BY name"
    ):
        found[f"signal.{name}"] = Measure(None if unknown else delta, "rdmadiag check --previous before: table signal")
    for table, names in _KV_SUMS.items():
        for name in names:
            ((total, rows, unknown),) = db.execute(f"SELECT sum({name}), count(*), sum({name} IS NULL) FROM {table}")
            if rows:
                found[name] = Measure(None if unknown else total, f"workload: table {table.split()[0]}")
    for status, count in db.execute("SELECT status, sum(operations) FROM kv_operation GROUP BY status"):
        found[f"status.{status}"] = Measure(count, "workload: table kv_operation")
    for event, count in db.execute("SELECT event, count(*) FROM kv_event GROUP BY event"):
        found[f"event.{event}"] = Measure(count, "workload: table kv_event")
    return found


def confirmed(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rules that a report confirms."""
    for finding in report.get("findings", []):
        if finding["answer"] == "confirmed":
            yield finding["rule"]
