"""Streams: packets of one direction, DestQP and PSN space, as columns, with what must be remembered between chunks.

The BTH names no source QP, so one direction is (source, destination, DestQP); requests, answers, CNPs and UD datagrams in it have PSNs of
their own. A QP number that is used again (PSN starts anew with another UDP source port, or far away) is another stream.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rdmadiag.roce import headers
from rdmadiag.roce.columns import Columns

LIMIT = 1 << 16
"""Most streams kept; packets of more are counted, not analysed."""
RESTART = 1 << 17
"""A PSN this far from the last one is another life of the QP number: no window is as long."""
PORT_RESTART = 1 << 16
"""The same, where the UDP source port changed with it."""
NONE = -1

FIELDS: list[Any] = [
    ("src", "u8", 2), ("dst", "u8", 2), ("destqp", "i4"), ("space", "u1"), ("version", "u1"), ("base", "i4"), ("epoch", "i4"),
    ("sport", "i4"), ("mac", "i8"), ("ttl", "u1"), ("dscp", "u1"), ("mig", "u1"), ("pkey", "i4"), ("ended", "?"), ("unreliable", "?"),
    ("first_psn", "i4"), ("last_psn", "i4"), ("last_un", "i8"), ("expected", "i8"), ("acked", "i8"),
    ("packets", "i8"), ("payload", "i8"), ("fresh_payload", "i8"), ("messages", "i8"), ("first_time", "i8"), ("last_time", "i8"),
    ("first_frame", "i8"), ("last_frame", "i8"), ("partner", "i4"), ("votes", "i4"), ("voters", "i4"), ("method", "u1"),
    ("pmtu", "i4"), ("ce", "i8"), ("ect", "i8"), ("not_ect", "i8"), ("first_ce_time", "i8"), ("first_ce_frame", "i8"),
    ("icrc_good", "i8"), ("icrc_bad", "i8"), ("bad_frame", "i8"), ("ackreq", "i8"), ("acks", "i8"), ("last_credit", "i4"), ("msn", "i4"),
    ("other_mac", "i8"), ("other_mac_frame", "i8"), ("other_ttl", "i8"), ("other_ttl_frame", "i8"), ("other_dscp", "i8"),
    ("other_dscp_frame", "i8"), ("other_sport", "i8"), ("other_mig", "i8"), ("illegal", "i8"), ("illegal_frame", "i8"),
    ("bad_length", "i8"), ("bad_length_frame", "i8"), ("msn_back", "i8"), ("msn_back_frame", "i8"), ("kinds", "i8", 7),
    ("first_cnp_time", "i8"), ("min_gap", "i8"), ("response_holes", "i8"), ("response_hole_frame", "i8"), ("last_opcode", "u1"),
    ("last_new", "?"), ("run_end", "i8"), ("in_flight", "i8"), ("began", "i8"), ("msn_psn", "i4"), ("ahead", "i8"), ("ahead_un", "i8"),
    ("ahead_frame", "i8"), ("ahead_time", "i8"), ("last_ip_id", "i4"), ("id_steps", "i8"), ("id_odd", "i8"), ("id_odd_frame", "i8"),
]  # fmt: skip


class Segments(NamedTuple):
    """A chunk's packets sorted by stream, in their order within each."""

    order: np.ndarray
    """Rows of the columns, sorted."""
    stream: np.ndarray
    """Stream of each sorted row."""
    start: np.ndarray
    """Where each segment (one stream's rows) starts."""
    ids: np.ndarray
    """Stream of each segment."""
    known: np.ndarray
    """The stream had packets before this chunk."""


class Streams:
    """The table of streams. `t` is the structured array; rows from 0 to `count`."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.t = np.zeros(1024, np.dtype(FIELDS))
        self.count = 0
        self.limit = limit
        self.left_out = 0
        """Packets of streams beyond the limit."""
        self._bases: dict[int, int] = {}
        self._current: list[int] = []
        self._salt = np.uint64(0x9E3779B97F4A7C15)

    def _new(self, base: int, row: int, c: Columns, space: int, epoch: int) -> int:
        if self.count == len(self.t):
            self.t = np.concatenate([self.t, np.zeros(len(self.t), self.t.dtype)])
        number = self.count
        self.count += 1
        entry = self.t[number]
        entry["src"], entry["dst"], entry["destqp"], entry["space"] = c.src[row], c.dst[row], c.destqp[row], space
        entry["version"], entry["base"], entry["epoch"] = c.version[row], base, epoch
        entry["sport"], entry["mac"], entry["ttl"], entry["dscp"] = (
            c.sport[row],
            c.smac[row],
            c.ttl[row],
            c.tos[row] >> 2,
        )
        entry["mig"], entry["pkey"], entry["first_psn"] = c.flags[row] >> 6 & 1, c.pkey[row], c.psn[row]
        entry["last_psn"] = c.psn[row]
        entry["last_un"] = entry["expected"] = int(c.psn[row]) + (1 << 40)
        entry["acked"] = entry["last_un"]
        entry["first_time"], entry["first_frame"] = c.time[row], c.frame[row]
        entry["partner"], entry["last_credit"], entry["msn"], entry["min_gap"] = NONE, NONE, NONE, -1
        entry["began"] = NONE
        entry["last_ip_id"] = c.ip_id[row]
        entry["last_new"], entry["unreliable"], entry["run_end"] = False, headers.UNRELIABLE[c.opcode[row]], -1
        return number

    def mixed(self, *parts: np.ndarray) -> np.ndarray:
        """Return 64-bit hashes of columns."""
        value = np.zeros(len(parts[0]), np.uint64)
        for part in parts:
            value = (value ^ part.astype(np.uint64)) * self._salt
            value ^= value >> np.uint64(29)
        return value

    def place(self, c: Columns, rows: np.ndarray, space: np.ndarray) -> Segments:
        """Give each of some rows its stream; rows beyond the limit are counted in `left_out` and not in the result."""
        key = self.mixed(
            c.src[rows, 0],
            c.src[rows, 1],
            c.dst[rows, 0],
            c.dst[rows, 1],
            c.destqp[rows].astype(np.uint64) << np.uint64(3) | space,
        )
        unique, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        bases = np.full(len(unique), NONE, np.int64)
        known = np.zeros(len(unique), bool)
        get = self._bases.get
        for n in np.argsort(first).tolist():
            hashed = int(unique[n])
            base = get(hashed)
            if base is None:
                if self.count >= self.limit:
                    continue
                base = len(self._current)
                self._bases[hashed] = base
                row = int(rows[first[n]])
                self._current.append(self._new(base, row, c, int(space[first[n]]), 0))
            else:
                known[n] = True
            bases[n] = base
        small = inverse.astype(np.uint16) if len(unique) < 1 << 16 else inverse
        order = np.argsort(small, kind="stable")
        kept = bases[inverse[order]] >= 0
        if not kept.all():
            self.left_out += int((~kept).sum())
            order = order[kept]
        group = inverse[order]
        starts = np.nonzero(np.diff(group, prepend=-1))[0]
        ids = np.array([self._current[b] for b in bases[group[starts]].tolist()], np.int64)
        return self._lives(c, Segments(rows[order], np.empty(0, np.int64), starts, ids, known[group[starts]]))

    def _lives(self, c: Columns, s: Segments) -> Segments:
        # Splits segments where a QP number starts another life.
        order, n = s.order, len(s.order)
        if not n:
            return s._replace(stream=np.empty(0, np.int64))
        psn, sport = c.psn[order], c.sport[order]
        lengths = np.diff(np.append(s.start, n))
        stream = np.repeat(s.ids, lengths)
        before = np.empty(n, np.int64)
        before[1:] = psn[:-1]
        port = np.empty(n, np.int64)
        port[1:] = sport[:-1]
        before[s.start] = np.where(s.known, self.t["last_psn"][s.ids], psn[s.start])
        port[s.start] = np.where(s.known, self.t["sport"][s.ids], sport[s.start])
        space = headers.SPACE[c.opcode[order]]
        jump = np.abs(headers.deltas(psn, before))
        counted = (space == headers.REQUEST) | (space == headers.RESPONSE)
        maybe = np.nonzero(counted & ((jump > RESTART) | (sport != port)))[0]
        if not len(maybe) or len(maybe) > 20_000:
            maybe = np.nonzero(counted & (jump > RESTART))[0]
        starts, ids, known = list(s.start.tolist()), list(s.ids.tolist()), list(s.known.tolist())
        added: list[tuple[int, int]] = []
        live: dict[int, int] = {}
        for at in maybe.tolist():
            base = int(self.t["base"][stream[at]])
            now = live.get(base, int(stream[at]))
            far = int(jump[at])
            again = sport[at] != self.t["sport"][now] and (psn[at] == self.t["first_psn"][now] or far > PORT_RESTART)
            if (again or far > RESTART) and self.count < self.limit:
                fresh = self._new(base, int(order[at]), c, int(space[at]), int(self.t["epoch"][now]) + 1)
                self.t["ended"][now] = True
                live[base] = fresh
                self._current[base] = fresh
                added.append((at, fresh))
        if added:
            for at, fresh in added:
                if at in starts:
                    place = starts.index(at)
                    ids[place], known[place] = fresh, False
                else:
                    starts.append(at)
                    ids.append(fresh)
                    known.append(False)
            turn = np.argsort(starts)
            starts_, ids_, known_ = np.array(starts)[turn], np.array(ids)[turn], np.array(known)[turn]
            stream = np.repeat(ids_, np.diff(np.append(starts_, n)))
            return Segments(order, stream, starts_, ids_, known_)
        return s._replace(stream=stream)
