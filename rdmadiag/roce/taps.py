"""Two captures of one path: what went in at one end and did not come out at the other, came out twice, late, or was never sent.

Which tap is nearer to a sender is told without comparing clocks: the time between the taps is the way plus the clocks' difference
in one direction, and the way minus it in the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rdmadiag.explain import opcode as opcodes
from rdmadiag.roce import headers
from rdmadiag.roce.columns import Columns, address

LIMIT = 300_000
"""Most packets kept of each tap, the first: about 70 bytes each, and as much again while they are compared."""
MARGIN_NS = 1_000_000
"""Packets this near to the start or end of what both captured are not judged [ns]."""
TAIL_NS = 300_000_000
"""What came so shortly before the end of a capture may still be in its buffers then, and not in its file [ns]."""
WAIT_NS = 2_000_000_000
"""Longest time that a packet is taken to be still under way at the end of a capture [ns]."""
LEAST_NS = 2_000
"""Two directions differ by less than this: which tap is nearer to whom cannot be told [ns]."""
TRAIN_NS = 2_000_000
APART_NS = 20_000_000
"""Packets that were sent this shortly after another are a train: how they come out tells of the path, not of the sender [ns]."""
LARGE_BYTES = 1000
LEAST_PACKETS = 20
"""Fewer packets tell nothing of times."""
LEAST_LOSSES = 3
"""Fewer losses tell nothing of what the packets before them met."""
FRAMES = 3
_COLUMNS = (
    "flow", "pair", "begin", "reth", "icrc", "whole", "header", "time", "frame", "opcode", "syndrome", "psn", "rkey", "length", "ce",
)  # fmt: skip


class Tap:
    """The packets of one capture: what tells them apart, their flow, time and frame. Call it with each chunk's columns."""

    def __init__(self) -> None:
        self._parts: list[dict[str, np.ndarray]] = []
        self.count = 0
        self.names: dict[int, tuple[str, str, int]] = {}
        self.left_out = 0
        self.file = ""
        """Its path."""
        self.until: int | None = None
        """Until when it ran [ns since 1970], where its file says so; else until its last packet."""

    def __call__(self, c: Columns) -> None:
        """Take a chunk."""
        room = LIMIT - self.count
        self.left_out += max(0, len(c) - room)
        if not room:
            return
        keep = slice(0, room)
        first = np.lib.stride_tricks.sliding_window_view(c.data, 16)[c.bth].view("<u8")
        pair = _mixed(c.src[:, 0], c.src[:, 1], c.dst[:, 0], c.dst[:, 1])
        flow = _mixed(pair, c.destqp)
        begin = first[:, 0] & np.uint64(0xFFFFFF00FFFFFFFF)
        icrc = np.lib.stride_tricks.sliding_window_view(c.data, 4)[np.maximum(c.end - 4, 0)].view("<u4")[:, 0]
        size = headers.HEADER_BYTES[c.opcode] + c.payload + (c.flags >> 4 & 3) + headers.ICRC_BYTES
        length = np.where(c.payload >= 0, size, c.end - c.bth)  # on the wire, whatever was kept
        header = _mixed(flow, c.ip_id, length, c.psn)
        rows, named = c.extension("RETH")
        reth = np.zeros(len(c), np.uint64)
        reth[rows] = _mixed(*named.view("<u8").T) | np.uint64(1)
        part = {
            "flow": flow,
            "pair": pair,
            "begin": _mixed(header, begin, first[:, 1]),
            "reth": reth,
            "icrc": icrc,
            "whole": c.whole,
            "header": header,
            "time": c.time,
            "frame": c.frame.astype(np.uint32),
            "opcode": c.opcode,
            "syndrome": c.dense("AETH", 0, 1).astype(np.int16),
            "psn": c.psn.astype(np.int32),
            "rkey": c.dense("RETH", 8, 4),
            "length": length.astype(np.int32),
            "ce": (c.tos & 3) == 3,
        }
        self._parts.append({name: values[keep].copy() for name, values in part.items()})
        self.count += len(self._parts[-1]["time"])
        for key, row in zip(*np.unique(flow[keep], return_index=True), strict=True):
            if int(key) not in self.names:
                self.names[int(key)] = (address(*c.src[row]), address(*c.dst[row]), int(c.destqp[row]))

    def columns(self) -> dict[str, np.ndarray]:
        """Return all that was taken."""
        if not self._parts:
            return {name: np.empty(0, bool if name == "whole" else np.int64) for name in _COLUMNS}
        self._parts = [{name: np.concatenate([part.pop(name) for part in self._parts]) for name in _COLUMNS}]
        return dict(self._parts[0])


def _turns(values: np.ndarray) -> np.ndarray:
    order = np.argsort(values, kind="stable")
    sorted_ = values[order]
    starts = np.nonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]]))[0] if len(values) else order
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return turn


def _mixed(*parts: np.ndarray) -> np.ndarray:
    value = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        value = (value ^ part.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
    return value


class Compared(NamedTuple):
    """Rows of tables tap_loss, tap_path and tap_packet."""

    flows: list[dict[str, Any]]
    paths: list[dict[str, Any]]
    packets: list[dict[str, Any]]


class _Side(NamedTuple):
    """One tap of one direction: its columns, the rows that both taps have (in the same order), and those that only it has."""

    columns: dict[str, np.ndarray]
    both: np.ndarray
    only: np.ndarray


def compare(a: Tap, b: Tap) -> Compared:
    """Compare two taps. Packets outside of the time that both captured are not judged."""
    one, two = a.columns(), b.columns()
    at, there = _met(one, two)
    if not len(at):
        return Compared([], [], [])
    offset = int(np.median(two["time"][there] - one["time"][at]))
    start = max(int(one["time"].min()), int(two["time"].min()) - offset) + MARGIN_NS
    end = min(_end(a, one), _end(b, two) - offset) - MARGIN_NS
    end -= min(int(np.abs(two["time"][there] - one["time"][at] - offset).max()), WAIT_NS)  # what may still be under way
    if start >= end:  # short captures: from the first packet that both have to the last
        start, end = int(one["time"][at].min()), int(one["time"][at].max())
    only_a = np.setdiff1d(np.arange(len(one["time"])), at)
    only_b = np.setdiff1d(np.arange(len(two["time"])), there)
    only_a = only_a[(one["time"][only_a] >= start) & (one["time"][only_a] <= end)]
    only_b = only_b[(two["time"][only_b] - offset >= start) & (two["time"][only_b] - offset <= end)]
    sides = _Side(one, at, only_a), _Side(two, there, only_b)
    order = _order(*sides)
    rows = []
    for key in np.unique(one["flow"][at]).tolist():  # a flow of which one tap sees nothing takes another path
        src, dst, qpn = a.names.get(key) or b.names[key]
        known = order.get(int(one["pair"][at[one["flow"][at] == np.uint64(key)]][0]))
        rows.append(
            {"src": src, "dst": dst, "qpn": qpn, "file_a": a.file, "file_b": b.file}
            | _flow(_of(sides[0], "flow", key), _of(sides[1], "flow", key), known)
        )
    paths, packets = [], []
    names = {**b.names, **a.names}
    for key, a_first in order.items():
        row = one["flow"][at[one["pair"][at] == np.uint64(key)]][0]
        files = (a.file, b.file) if a_first else (b.file, a.file)
        direction = dict(zip(("src", "dst", "sender_file", "receiver_file"), names[int(row)][:2] + files, strict=True))
        found = [_of(side, "pair", key) for side in sides]
        sender, receiver = found if a_first else found[::-1]
        became = _became(sender, receiver)
        kinds = _kinds(became)
        path = _path(sender, receiver, became["lost"][1])
        path |= {name: len(became[name][1]) for name in _COUNTED}
        path |= {f"frames_{name}": _frames(*became[name]) for name in _SHOWN}
        lag = _lag(receiver)
        if lag is not None:
            path["again_lag_us"] = lag
        paths.append(direction | path)
        packets += [direction | kind for kind in kinds]
    trip = sum(path.get("way_us", 0.0) for path in paths)
    for path in paths:
        if path.pop("way_us", None) is not None and len(paths) == 2:
            path["round_trip_us"] = round(trip, 1)
    return Compared(rows, paths, packets)


def _met(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    # Rows of the packets that both have. Notes what tells a packet apart: with its RETH, where no capture cuts that off, and with its ICRC,
    # where none cuts packets so long; and its turn among equal ones.
    has_reth = headers.OFFSET["RETH"] > 0
    read = all(columns["reth"][has_reth[columns["opcode"]]].all() for columns in (one, two))
    cut = min(int(columns["length"][~columns["whole"]].min(initial=(1 << 31) - 1)) for columns in (one, two))
    for columns in (one, two):
        sealed = np.where(columns["length"] < cut, columns["icrc"], 0)
        columns["packet"] = _mixed(columns["begin"], sealed, columns["reth"] if read else np.zeros_like(sealed))
        columns["turn"] = _turns(columns["packet"])
    ours, theirs = (_mixed(columns["packet"], columns["turn"]) for columns in (one, two))
    _, at, there = np.intersect1d(ours, theirs, return_indices=True)
    return at, there


def _end(tap: Tap, columns: dict[str, np.ndarray]) -> int:
    until = 0 if tap.left_out else (tap.until or 0) - TAIL_NS
    return max(int(columns["time"].max()), until)


def _of(side: _Side, name: str, key: int) -> _Side:
    wanted = side.columns[name] == np.uint64(key)
    return _Side(side.columns, side.both[wanted[side.both]], side.only[wanted[side.only]])


def _order(one: _Side, two: _Side) -> dict[int, bool]:
    """Return, by pair of addresses in one direction, whether its packets pass the first tap before the second."""
    pairs, way = one.columns["pair"][one.both], two.columns["time"][two.both] - one.columns["time"][one.both]
    late = {int(key): float(np.median(way[pairs == key])) for key in np.unique(pairs)}
    if len(late) != 2:
        return {}
    (first, a_to_b), (second, b_to_a) = late.items()
    if abs(a_to_b - b_to_a) < LEAST_NS:
        return {}
    return {first: a_to_b > b_to_a, second: b_to_a > a_to_b}


def _flow(one: _Side, two: _Side, known: bool | None) -> dict[str, Any]:
    gone, new = _changed(one, two)
    only_a, only_b = np.delete(one.only, gone), np.delete(two.only, new)
    first = (None if len(only_a) and len(only_b) else 0 if len(only_b) else 1) if known is None else int(known)
    return {
        "both": len(one.both),
        "only_a": len(only_a),
        "only_b": len(only_b),
        "changed": len(gone),
        "a_first": first,
        "told_by": None if first is None else "losses" if known is None else "delay",
        "delay_us": float(np.median(two.columns["time"][two.both] - one.columns["time"][one.both])) / 1e3,
        "frames_a": _frames(one.columns, only_a) or _frames(one.columns, one.only[gone]),
        "frames_b": _frames(two.columns, only_b) or _frames(two.columns, two.only[new]),
    }


def _changed(one: _Side, two: _Side) -> tuple[np.ndarray, np.ndarray]:
    # Of what only one tap has and what only the other has, pairs of equal headers are one packet that was changed on its way.
    ours, theirs = one.columns["header"][one.only], two.columns["header"][two.only]
    _, gone, new = np.intersect1d(ours, theirs, return_indices=True)
    return gone, new


def _frames(columns: dict[str, np.ndarray], rows: np.ndarray) -> str | None:
    return ", ".join(map(str, columns["frame"][np.sort(rows)[:FRAMES]].tolist())) or None


_COUNTED = ("both", "lost", "again", "strange", "changed", "changed_opcode", "changed_rkey", "overtaken", "marked")
_SHOWN = ("lost", "again", "changed_payload", "changed_opcode", "changed_rkey", "overtaken")
_Which = dict[str, tuple[dict[str, np.ndarray], np.ndarray]]
"""By what became of packets: the columns of the capture that has them, and their rows in it."""


def _path(sender: _Side, receiver: _Side, lost: np.ndarray) -> dict[str, Any]:
    """Return what became of all packets of a direction: losses by their order and length, and times of the second half."""
    sent, came = sender.columns, receiver.columns
    found: dict[str, Any] = {}
    if len(lost):
        least, first = sent["length"][lost].min(), sent["time"][lost].min()
        after = sender.both[sent["time"][sender.both] > first]
        last = sent["time"][sender.both].max() if len(sender.both) else 0
        at_end = lost[sent["time"][lost] > last]
        found |= {
            "lost_least_bytes": int(least),
            "passed_after_long": int((sent["length"][after] >= least).sum()),
            "passed_after_short": int((sent["length"][after] < least).sum()),
            "lost_at_end": len(at_end),
            "frames_lost_at_end": _frames(sent, at_end),
            "longest_run": max(runs := _runs(lost, sender.both)),
            "runs": len(runs),
        }
    order = sender.both[np.argsort(sent["time"][sender.both], kind="stable")]
    if len(order) < LEAST_PACKETS:
        return found
    arrived = receiver.both[np.argsort(sent["time"][sender.both], kind="stable")]
    left, came_at = sent["time"][order], came["time"][arrived]
    way = came_at - left
    if len(lost):
        before = np.unique(np.searchsorted(left, sent["time"][lost]) - 1)
        waited = way[before[before >= 0]] - way.min()
        if len(waited) >= LEAST_LOSSES:
            found["wait_at_loss_us"] = round(float(np.percentile(waited, 25)) / 1e3, 1)
    half = left >= (left[0] + left[-1]) // 2
    found["way_us"] = float(np.median(way[half])) / 1e3
    waits = (way[half] - way.min()) / 1e3
    found |= {f"wait_us_p{p}": round(float(np.percentile(waits, p)), 1) for p in (5, 50, 95)}
    found["frames_slow"] = _frames(came, _most(arrived[half], waits))
    heads = np.concatenate(([True], np.diff(left[half]) >= APART_NS))
    if heads.sum() >= LEAST_PACKETS:
        found["wait_step_us"] = round(float(np.median(np.abs(np.diff(waits[heads])))), 1)
    close = half[1:] & (np.diff(left) < TRAIN_NS)
    gaps, lengths = np.diff(came_at)[close], sent["length"][order[1:]][close]
    if len(gaps) >= LEAST_PACKETS:
        whole = (gaps > 0) & (lengths >= LARGE_BYTES)
        found |= {f"train_gap_us_p{p}": round(float(np.percentile(gaps, p)) / 1e3, 1) for p in (50, 90)}
        found["frames_stop"] = _frames(came, _most(arrived[1:][close], gaps))
        if whole.any():
            found["train_gbps"] = round(float(np.median(lengths[whole] * 8 / gaps[whole])), 6)
    return found


def _most(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    largest: np.ndarray = rows[np.argsort(-values, kind="stable")[:FRAMES]]
    return largest


def _lag(receiver: _Side) -> float | None:
    """Return how long after the one before it a packet comes that comes once more than it was sent, median [us]."""
    came = receiver.columns
    order = np.lexsort((came["turn"], came["packet"]))
    same = came["packet"][order[1:]] == came["packet"][order[:-1]]
    after = np.full(len(order), -1, np.int64)
    after[order[1:][same]] = np.diff(came["time"][order])[same]
    lags = after[receiver.only][after[receiver.only] >= 0]
    return round(float(np.median(lags)) / 1e3, 1) if len(lags) else None


def _became(sender: _Side, receiver: _Side) -> _Which:
    """Return what became of the packets of a direction, each kind in the capture that has it."""
    sent, came = sender.columns, receiver.columns
    again = receiver.only[np.isin(came["packet"][receiver.only], sent["packet"])]
    strange = np.setdiff1d(receiver.only, again)
    gone, new = _changed(sender, receiver._replace(only=strange))
    was, changed = sender.only[gone], strange[new]
    opcode, key = (sent[name][was] != came[name][changed] for name in ("opcode", "rkey"))
    missing, strange = np.delete(sender.only, gone), np.delete(strange, new)
    order = np.argsort(sent["time"][sender.both], kind="stable")
    arrived = receiver.both[order]
    at = came["time"][arrived]
    marked = came["ce"][receiver.both] & ~sent["ce"][sender.both]
    return {
        "lost": (sent, missing),
        "again": (came, again),
        "strange": (came, strange),
        "changed": (came, changed),
        "changed_payload": (came, changed[~opcode & ~key]),
        "changed_opcode": (came, changed[opcode]),
        "changed_rkey": (came, changed[key & ~opcode]),
        "overtaken": (came, arrived[at > np.minimum.accumulate(at[::-1])[::-1]] if len(at) else arrived),
        "marked": (came, receiver.both[marked]),
        "both": (came, receiver.both),
    }


def _kinds(became: _Which) -> list[dict[str, Any]]:
    """Return, by opcode and syndrome, what became of the packets of a direction."""
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for name in _COUNTED:
        columns, which = became[name]
        kinds = np.stack([columns["opcode"][which], columns["syndrome"][which]], axis=1)
        for opcode, syndrome in np.unique(kinds, axis=0).tolist():
            kind = which[(kinds[:, 0] == opcode) & (kinds[:, 1] == syndrome)]
            entry = rows.setdefault((opcode, syndrome), _named(opcode, syndrome))
            entry[name] = len(kind)
            if name == "strange":
                entry["psn_ahead"] = _ahead(columns, kind, became["both"][1])
            if name in ("lost", "strange"):
                entry[f"frames_{name}"] = _frames(columns, kind)
    return list(rows.values())


def _ahead(columns: dict[str, np.ndarray], strange: np.ndarray, known: np.ndarray) -> int | None:
    """Return how far, in PSNs, packets are from the last known one of their flow before them: median, and modulo 2^24."""
    far: list[int] = []
    known = known[np.argsort(columns["time"][known], kind="stable")]
    for flow in np.unique(columns["flow"][strange]):
        own = known[columns["flow"][known] == flow]
        at = np.searchsorted(columns["time"][own], columns["time"][mine := strange[columns["flow"][strange] == flow]])
        before = own[np.maximum(at - 1, 0)] if len(own) else own
        if len(before):
            difference = (columns["psn"][mine] - columns["psn"][before]) & 0xFFFFFF
            far += np.where(difference >= 1 << 23, difference - (1 << 24), difference).tolist()
    return int(np.median(far)) if far else None


def _named(opcode: int, syndrome: int) -> dict[str, Any]:
    name = opcodes.lookup(opcode)["name"]
    return {"opcode": opcode, "name": name, "syndrome": None if syndrome < 0 else syndrome} | dict.fromkeys(_COUNTED, 0)


def _runs(lost: np.ndarray, passed: np.ndarray) -> list[int]:
    """Return how many packets in a row were lost each time; packets are numbered as they were captured."""
    _, counts = np.unique(np.searchsorted(np.sort(passed), np.sort(lost)), return_counts=True)
    return [int(count) for count in counts]
