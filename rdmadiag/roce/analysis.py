"""One capture read to its end: rows of the evidence tables about the wire, and what they leave out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rdmadiag.roce import capture, cm, columns, flows
from rdmadiag.roce.columns import Columns
from rdmadiag.roce.engine import Engine
from rdmadiag.roce.pairing import Connection

TABLES = ("capture", "flow", "flow_nak", "flow_resend", "cm_handshake", "flow_control")
FRAMES = 3
"""Frame numbers kept as examples of each thing."""
APART = (columns.ROCE1, columns.NATIVE, columns.FRAGMENT, columns.CUT, columns.LENGTH, columns.TAGS)
"""What packets are that are named and counted, and not analysed as RoCEv2."""
Progress = Callable[[int, int], None]
"""Called with bytes of the file and packets read so far."""


@dataclass
class Analysis:
    """What a capture holds. `tables`: rows by table; `partial`: what was left out, one sentence each."""

    engine: Engine
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    partial: list[str] = field(default_factory=list)
    until: int | None = None
    """Until when the capture ran [ns since 1970]; None where the file does not say."""


def analyse(
    stream: capture.Stream,
    path: str,
    progress: Progress | None = None,
    each: Callable[[Columns], None] | None = None,
    pairs: Sequence[Connection] = (),
) -> Analysis:
    """Read a capture to its end. `each` sees the columns of every chunk; `pairs` are connections that the user knows.

    Raises BadFile when it is no capture.
    """
    reader = capture.Capture(stream, path)
    engine = Engine(pairs)
    reasons = np.zeros(len(columns.REASONS), np.int64)
    totals = {"packets": 0, "cut": 0, "bytes": 0}
    pauses: dict[tuple[int, int], dict[str, Any]] = {}
    apart: list[int] = []
    for chunk in reader.chunks():
        c = columns.decode(chunk)
        reasons += np.bincount(c.why, minlength=len(reasons))
        totals["packets"] += len(chunk.start)
        totals["cut"] += int((chunk.captured < chunk.length).sum())
        totals["bytes"] += int(chunk.length.sum())
        _paused(c, pauses)
        if len(apart) < FRAMES:
            apart += (np.nonzero(np.isin(c.why, APART))[0][:FRAMES] + chunk.frame).tolist()
        engine.take(c)
        if each is not None:
            each(c)
        if progress is not None:
            progress(chunk.position, totals["packets"])
    engine.finish()
    found, naks, resends, left_out = flows.flows(engine, reader.until)
    result = Analysis(engine)
    result.until = reader.until
    result.partial = _partial(reader, engine, left_out)
    capture_row = _capture(reader, engine, reasons, totals, result.partial)
    capture_row["apart_frames"] = ", ".join(map(str, apart[:FRAMES])) or None
    capture_row["cannot_show"] = cannot_show(capture_row, found)
    result.tables = {
        "capture": [capture_row],
        "flow": found,
        "flow_nak": naks,
        "flow_resend": resends,
        "cm_handshake": cm.rows(engine.connections, engine.last_time),
        "flow_control": list(pauses.values()),
    }
    return result


def columns_of(stream: capture.Stream, path: str, each: Callable[[Columns], None]) -> None:
    """Give the columns of every chunk of a capture to `each`. Raises BadFile when it is no capture."""
    for chunk in capture.Capture(stream, path).chunks():
        each(columns.decode(chunk))


def _partial(reader: capture.Capture, engine: Engine, left_out: int) -> list[str]:
    found = []
    if reader.problem:
        found.append(f"not read to its end: {reader.problem}")
    if engine.streams.left_out:
        found.append(
            f"{engine.streams.left_out} packets of streams beyond the first {engine.streams.limit} are not analysed"
        )
    if left_out:
        found.append(f"{left_out} flows (those without trouble first) are left out of the rows")
    if engine.psn.odd_left_out:
        found.append(f"{engine.psn.odd_left_out} holes, repeats or NAKs beyond the limits are only counted")
    if engine.series.notices_left_out:
        found.append(f"{engine.series.notices_left_out} CNPs have no times")
    for one, two in engine.pairs:
        if (one, two) not in engine.psn.pairs.found:
            found.append(
                f"no flow of the pair {one.address}:{one.qpn:#x}={two.address}:{two.qpn:#x}, as --pair gives it"
            )
    if engine.connections.left_out:
        found.append(f"{engine.connections.left_out} CM handshakes are left out")
    return found


def _capture(
    reader: capture.Capture, engine: Engine, reasons: np.ndarray, totals: dict[str, int], partial: list[str]
) -> dict[str, Any]:
    roce = int(reasons[columns.ROCE2] + reasons[columns.ROCE1])
    other = [
        f"{columns.REASONS[n]}: {count}" for n, count in enumerate(reasons.tolist()) if count and n > columns.ROCE1
    ]
    spaces = np.bincount(engine.streams.t["space"][: engine.streams.count], minlength=5)
    t = engine.streams.t[: engine.streams.count]
    return {
        "file": reader.path,
        "kind": reader.kind,
        "links": ", ".join(sorted({capture.LINK_NAMES.get(link, f"link type {link}") for link in reader.links})),
        "snaplen": reader.snaplen,
        "packets": totals["packets"],
        "roce2": int(reasons[columns.ROCE2]),
        "roce1": int(reasons[columns.ROCE1]),
        "native_ib": int(reasons[columns.NATIVE]),
        "fragments": int(reasons[columns.FRAGMENT]),
        "undecoded": int(reasons[[columns.CUT, columns.LENGTH, columns.TAGS]].sum()),
        "other": "; ".join(other),
        "cut": totals["cut"],
        "seconds": (engine.last_time - engine.first_time) / 1e9 if roce else 0.0,
        "start": engine.first_time / 1e9 if roce else None,
        "dropped": reader.dropped,
        "duplicates": engine.duplicates,
        "duplicate_frames": ", ".join(map(str, engine.duplicate_frames)) or None,
        "possible_duplicates": engine.possible_duplicates,
        "icrc_good": engine.good_icrc,
        "icrc_bad": engine.bad_icrc,
        "icrc_never_good": engine.never_good(),
        "icrc_unchecked": engine.unchecked_icrc,
        "icrc_bad_frames": ", ".join(map(str, engine.bad_frames[:3])) or None,
        "malformed": engine.malformed,
        "malformed_frames": ", ".join(map(str, engine.malformed_frames)) or None,
        "unknown_opcodes": ", ".join(f"{value:#04x}" for value in sorted(engine.unknown_opcodes)) or None,
        "unknown_opcode_frames": ", ".join(str(f) for frames in engine.unknown_opcodes.values() for f in frames[:1])
        or None,
        "bad_tver_frames": ", ".join(map(str, engine.bad_tver[:3])) or None,
        "request_streams": int(spaces[0]),
        "answer_streams": int(spaces[1]),
        "unpaired_answers": int(((t["space"] == 1) & (t["partner"] < 0)).sum()),
        "cnps": int(t["packets"][t["space"] == 2].sum()),
        "datagrams": int(t["packets"][t["space"] == 3].sum()),
        "request_sports": len(np.unique(t["sport"][t["space"] == 0])),
        "partial": "; ".join(partial) or None,
    }


def cannot_show(row: dict[str, Any], found: list[dict[str, Any]]) -> str:
    """Return what a capture cannot tell, from its row of table capture and its rows of table flow."""
    said = ["whether what passed it arrived, where no answer tells"]
    alone = sum(flow["answers_seen"] is None for flow in found)
    lost = sum(flow["holes_capture_loss"] for flow in found)
    if alone:
        said.append(f"answers, latencies and NAKs of {alone} of {len(found)} flows (that direction is not in it)")
    if row["cut"]:
        said.append(f"content and ICRC of {row['cut']} packets (cut)")
    if row["dropped"] or lost:
        said.append(f"at least {max(row['dropped'] or 0, lost)} packets that it lost")
    elif row["dropped"] is None:
        said.append("whether it lost packets (the file does not say)")
    if any("cm_frame" not in flow for flow in found):
        said.append("timeouts and retry counts as they were set (no handshake is in it)")
    if row["partial"]:
        said.append("what it leaves out (PARTIAL)")
    return "; ".join(said)


def _paused(c: Columns, pauses: dict[tuple[int, int], dict[str, Any]]) -> None:
    for frame, time, mac, pfc, quanta in c.pauses:
        key = (mac, pfc)
        if key not in pauses and len(pauses) >= 4096:
            continue
        entry = pauses.setdefault(
            key,
            {
                "mac": ":".join(f"{mac:012x}"[n : n + 2] for n in range(0, 12, 2)), "kind": "PFC" if pfc else "global pause", "frames": 0,
                "pauses": 0, "resumes": 0, "priorities": "", "first": time / 1e9, "last": time / 1e9,
                "first_frames": "",
            },
        )  # fmt: skip
        entry["frames"] += 1
        if entry["frames"] <= FRAMES:
            entry["first_frames"] = ", ".join(filter(None, [entry["first_frames"], str(frame)]))
        entry["pauses"] += any(q > 0 for q in quanta)
        entry["resumes"] += any(q == 0 for q in quanta) and not any(q > 0 for q in quanta)
        entry["last"] = time / 1e9
        if pfc:
            known = set(entry["priorities"].split())
            entry["priorities"] = " ".join(sorted(known | {str(n) for n, q in enumerate(quanta) if q >= 0}))
