"""One look at packet captures: read them, evaluate the rules about the wire, report, with the flows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.diagnose import engine, report, rulebook
from rdmadiag.errors import BadFile, BadInput
from rdmadiag.evidence import collect, given
from rdmadiag.evidence.row import Gap, Row
from rdmadiag.evidence.store import Evidence

Progress = Callable[[str, int, int, int], None]
"""Called with a file's name, bytes read, bytes in all (0: not known), and packets read."""
_NAMED = {"flow_nak": "naks", "flow_resend": "resends_by_cause"}


class Looked(NamedTuple):
    """A finished look. `report` is rdmadiag.report/1 with `flows`; `found` the analysis of each file, in order."""

    report: dict[str, Any]
    evidence: Evidence
    found: list[Any]


def look(
    specs: Sequence[str],
    taps: Sequence[str] = (),
    fail_on: str = "warning",
    site: str | None = None,
    progress: Progress | None = None,
    each: Callable[[Any], None] | None = None,
    pairs: Sequence[str] = (),
    expect: str | None = None,
    live: Callable[[Callable[[float], None]], None] | None = None,
) -> Looked:
    """Read captures ([NODE=]PATH or -), and compare two `taps` of one path. `pairs`: ADDRESS:QPN=ADDRESS:QPN.

    `expect` is an expectation file: dscp, cnp_dscp and ecn of it are judged. `live` is given, for a pipe, the function that ends its
    reading with what comes within some seconds. Raises BadFile, BadInput.
    """
    from rdmadiag.roce import pairing

    known = [pairing.read(text) for text in pairs]
    _both(taps)
    whole = rulebook.load()
    book = rulebook.Rulebook(rule for rule in whole if rule.layer == "wire")
    overrides: Mapping[str, Mapping[str, Any]] = rulebook.site_parameters(site, whole) if site else {}
    evidence = Evidence(rulebook.extra_log_columns(book))
    found = [_read(evidence, spec, progress, each, known, live) for spec in specs]
    if taps:
        found += compared(evidence, taps, progress, known)
    expected = rulebook.expectations(expect) if expect else {}
    for (node,) in evidence.db.execute("SELECT DISTINCT node FROM capture").fetchall():
        for name, value in expected.items():
            evidence.add(node, {"name": name, "value": value}, "expect", expect or "")
    evidence.finish()
    results = engine.evaluate(evidence, book, overrides)
    result = report.build(evidence, book, results, fail_on, (), [*specs, *taps])
    result["flows"] = flows(evidence)
    return Looked(result, evidence, found)


def _read(
    evidence: Evidence,
    spec: str,
    progress: Progress | None,
    each: Callable[[Any], None] | None,
    pairs: Sequence[Any],
    live: Callable[[Callable[[float], None]], None] | None = None,
) -> Any:
    from rdmadiag.roce import analysis
    from rdmadiag.sources import captures

    parts = list(given.expand(spec, math.inf))
    part = parts[0]
    if len(parts) != 1 or not isinstance(part, given.GivenCapture):
        reason = part.reason if isinstance(part, given.Refused) else "not a capture"
        raise BadFile(
            given.shown(given.split(spec)[1]),
            "",
            f"{reason}; wanted one pcap or pcapng file, packed with gzip or zstd or not",
        )
    node = part.node or collect.capture_name(part.path)
    size = getattr(part.stream, "length", lambda: 0)()
    if live is not None and not size and hasattr(part.stream, "end"):
        live(part.stream.end)
    tell = None if progress is None else (lambda at, packets: progress(part.path, at, size, packets))
    try:
        found = analysis.analyse(part.stream, part.path, tell, each, pairs)
    finally:
        part.stream.close()
    gaps = False
    for item in captures.rows(found, part.path):
        evidence.add_item(node, "captures", item)
        gaps = gaps or isinstance(item, Gap)
    evidence.add(node, {"source": "captures", "complete": None if gaps else 1}, "reading", part.path)
    return found


UNNAMED = "taps"
"""What two captures of one path are about, where no node is named: what one shows may explain what the other does."""
_TAPS = ("tap_loss", "tap_path", "tap_packet")


def _both(taps: Sequence[str]) -> None:
    if len(taps) not in (0, 2):
        raise BadInput(f"--tap is wanted twice, the capture before and the one behind; got it {len(taps)} times")


def compared(
    evidence: Evidence, taps: Sequence[str], progress: Progress | None = None, pairs: Sequence[Any] = ()
) -> list[Any]:
    """Read two captures of one path, and fill the tables of captures and tap_loss. Returns the analyses. Raises BadFile, BadInput."""
    from rdmadiag.roce.taps import Tap, compare

    _both(taps)
    both = [Tap(), Tap()]
    taps = [spec if given.split(spec)[0] else f"{UNNAMED}={spec}" for spec in taps]
    found = [_read(evidence, spec, progress, tap, pairs) for spec, tap in zip(taps, both, strict=True)]
    for tap, analysed in zip(both, found, strict=True):
        tap.until = analysed.until
        (row,) = analysed.tables["capture"]
        tap.file = row["file"]
    outcome = compare(*both)
    place = " and ".join(given.shown(given.split(spec)[1]) for spec in taps)
    nodes = {given.split(spec)[0] for spec in taps}
    node = (nodes.pop() if len(nodes) == 1 else "") or UNNAMED
    for table, rows in zip(_TAPS, outcome, strict=True):
        for row in rows:
            evidence.add_item(node, "captures", Row(table, row, place))
    if not outcome.paths:
        reason = "which tap is nearer to a sender cannot be told: packets of one direction only are in both"
        tables = _TAPS[1:] if outcome.flows else _TAPS
        reason = (
            reason if outcome.flows else "no packet is in both captures: they are not of one path, or not of one time"
        )
        evidence.gap(node, "captures", Gap(tables, reason, "unreadable", "capture both at the same time", place))
    if any(tap.left_out for tap in both):
        evidence.gap(
            node,
            "captures",
            Gap(_TAPS, "only the first packets of each tap are compared", "truncated", "", place),
        )
    return found


def flows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the rows of table flow with their NAKs and resends."""
    rows = _rows(evidence, "SELECT * FROM flow ORDER BY node, origin, flow")
    by_flow = {(row["node"], row["origin"], row["flow"]): row for row in rows}
    for table, name in _NAMED.items():
        for entry in _rows(evidence, f"SELECT * FROM {table}"):
            owner = by_flow.get((entry.pop("node"), entry.pop("origin"), entry.pop("flow", None)))
            if owner is not None:
                owner.setdefault(name, []).append(entry)
    return rows


def _rows(evidence: Evidence, sql: str) -> list[dict[str, Any]]:
    cursor = evidence.db.execute(sql)
    names = [column[0] for column in cursor.description]
    return [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in cursor]
