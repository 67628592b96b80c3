"""The engine: takes header columns chunk by chunk, and keeps what is known of the capture and every stream in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rdmadiag.roce import cm, headers, icrc, pairing
from rdmadiag.roce.columns import Columns
from rdmadiag.roce.headers import REQUEST
from rdmadiag.roce.psn import Psn
from rdmadiag.roce.series import Series
from rdmadiag.roce.streams import Segments, Streams

DUPLICATE_NS = 200_000
"""The same packet seen again within this time was mirrored twice [ns]."""
MIRRORED, MIRRORED_NS = 0.45, 10_000_000
"""Where so large a share of a sender's packets comes twice within this time [ns], they are mirrored, whatever its IP ID says."""
IP_ID_STEP = 4096
"""A sender that counts its IP IDs up, for all its flows, is at most so much further between two packets of one."""
SENDERS = 1 << 12
"""Most senders of packets with a wrong ICRC that are told apart."""


class Engine:
    """Feeds on Columns; `streams`, `psn`, `series` and the counts are read when all is in."""

    def __init__(self, pairs: Sequence[pairing.Connection] = ()) -> None:
        self.pairs = pairs
        self.streams = Streams()
        self.series = Series()
        self.psn = Psn(self.streams, self.series)
        self.duplicates = 0
        self.duplicate_frames: list[int] = []
        self.possible_duplicates = 0
        self.roce1 = 0
        self.bad_icrc = 0
        self.good_icrc = 0
        self.unchecked_icrc = 0
        self.bad_frames: list[int] = []
        self._bad_from: dict[tuple[int, int], int] = {}
        self.malformed = 0
        self.malformed_frames: list[int] = []
        self.unknown_opcodes: dict[int, list[int]] = {}
        self.bad_tver: list[int] = []
        self.connections = cm.Connections()
        self._paired_at = (0, 0)
        self.first_time = self.last_time = 0
        self._hashes = np.empty(0, np.uint64)
        self._hash_times = np.empty(0, np.int64)
        self._hash_ids = np.empty(0, np.int64)

    def take(self, c: Columns) -> None:
        """Take the packets of one chunk."""
        if not len(c):
            return
        if not self.last_time:
            self.first_time = self.last_time = int(c.time[0])
        self.first_time = min(self.first_time, int(c.time.min()))
        self.last_time = max(self.last_time, int(c.time.max()))
        state = c.icrc()
        usable = ~c.roce1
        self.roce1 += int(c.roce1.sum())
        self._count_icrc(c, state)
        usable &= self._fresh(c)
        self._odd_headers(c, usable)
        bad_length = c.payload < 0
        usable &= ~bad_length
        space = headers.SPACE[c.opcode]
        usable &= space != headers.OTHER
        # A broken answer never reached its requester; a broken request was sent, and counts as such.
        rows = np.nonzero(usable & ~((state == icrc.BAD) & (space != REQUEST)))[0]
        if not len(rows):
            return
        s = self.streams.place(c, rows, space[rows])
        if not len(s.order):
            return
        cm.take(c, np.sort(s.order[space[s.order] == headers.DATAGRAM]), self.connections)
        self._totals(c, s, state)
        self._told(s)
        self.psn.take(c, s, state)

    def _told(self, s: Segments) -> None:
        # Only where there are new streams or handshakes since.
        agreed = [entry for entry in self.connections.all if "rep" in entry]
        state = (self.streams.count, len(agreed))
        if state == self._paired_at or not (self.pairs or agreed):
            return
        self._paired_at = state
        self.psn.pairs.told(self.pairs, pairing.BY_USER)
        ends = [
            (
                pairing.End(e["src"], e["req"]["qpn"], e["req"]["starting_psn"]),
                pairing.End(e["dst"], e["rep"]["qpn"], e["rep"]["starting_psn"]),
            )
            for e in agreed[-1024:]
        ]
        self.psn.pairs.told(ends, pairing.BY_CM)

    def _count_icrc(self, c: Columns, state: np.ndarray) -> None:
        counts = np.bincount(state, minlength=3)
        self.unchecked_icrc += int(counts[0])
        self.good_icrc += int(counts[1])
        self.bad_icrc += int(counts[2])
        if not counts[2]:
            return
        bad = state == icrc.BAD
        if len(self.bad_frames) < 8:
            self.bad_frames += c.frame[bad][: 8 - len(self.bad_frames)].tolist()
        senders, times = np.unique(c.src[bad], axis=0, return_counts=True)
        for sender, count in zip(map(tuple, senders.tolist()), times.tolist(), strict=True):
            if sender in self._bad_from or len(self._bad_from) < SENDERS:
                self._bad_from[sender] = self._bad_from.get(sender, 0) + count

    def never_good(self) -> int:
        """Return how many of the packets with a wrong ICRC are of senders of which none has a right one."""
        t = self.streams.t[: self.streams.count]
        good = {tuple(src) for src in np.unique(t["src"][t["icrc_good"] > 0], axis=0).tolist()}
        return sum(count for sender, count in self._bad_from.items() if sender not in good)

    def _odd_headers(self, c: Columns, usable: np.ndarray) -> None:
        pad = c.flags >> 4 & 3
        inner = (
            headers.FIRST[c.opcode] | headers.MIDDLE[c.opcode]
        )  # those have no pad, and all together are a multiple of 4 bytes
        wrong = usable & ((c.payload < 0) | (c.payload + pad & 3 != 0) | inner & (pad > 0)) & headers.LAID_OUT[c.opcode]
        if wrong.any():
            self.malformed += int(wrong.sum())
            self.malformed_frames = (self.malformed_frames + c.frame[wrong][:3].tolist())[:3]
        unknown = np.nonzero(usable & headers.RESERVED[c.opcode])[0]
        for row in unknown[:1000].tolist():
            frames = self.unknown_opcodes.setdefault(int(c.opcode[row]), [])
            if len(frames) < 3:
                frames.append(int(c.frame[row]))
        version = np.nonzero(usable & (c.flags & 15 != 0))[0]
        if len(version) and len(self.bad_tver) < 3:
            self.bad_tver += c.frame[version[:3]].tolist()

    def _fresh(self, c: Columns) -> np.ndarray:
        # False for packets that a mirror delivered twice: the same IP ID and bytes within DUPLICATE_NS. TTL, TOS and checksums may
        # differ between two taps. A sender that leaves the IP ID constant, as all do with IPv6, repeats itself with the same
        # bytes, and CNPs have no other: those only count as possible, unless nearly each of its packets comes twice.
        window = np.lib.stride_tricks.sliding_window_view(c.data, 32)[c.bth].view("<u8")
        mixed = self.streams.mixed(
            c.src[:, 1],
            c.dst[:, 1],
            c.ip_id,
            c.sport,
            (c.end - c.bth).astype(np.uint64),
            window[:, 0] & np.uint64(0xFFFFFF00FFFFFFFF),
            window[:, 1],
        )
        short = c.end - c.bth < 32
        mixed = np.where(short, mixed, self.streams.mixed(mixed, window[:, 2], window[:, 3]))
        hashes = np.concatenate([self._hashes, mixed])
        times = np.concatenate([self._hash_times, c.time])
        ids = np.concatenate([self._hash_ids, c.ip_id])
        order = np.argsort(hashes, kind="stable")
        alike = hashes[order][1:] == hashes[order][:-1]
        apart = np.abs(np.diff(times[order]))
        old = len(self._hashes)
        tail = slice(max(0, len(hashes) - 4096), None)
        self._hashes, self._hash_times, self._hash_ids = hashes[tail], times[tail], ids[tail]

        def again(within: int) -> np.ndarray:
            found = np.zeros(len(order), bool)
            found[order[1:]] = alike & (apart < within)
            return found[old:]

        twice, mirrored = again(DUPLICATE_NS), again(MIRRORED_NS)
        if not mirrored.any():
            return ~twice
        sender = self.streams.mixed(c.src[:, 0], c.src[:, 1])
        for one in np.unique(sender[mirrored]).tolist():
            mine = sender == np.uint64(one)
            seen = np.unique(c.ip_id[mine])
            if mine.sum() >= 8 and (mirrored & mine).sum() >= MIRRORED * mine.sum():
                twice |= mirrored & mine
                continue
            if len(seen) >= 2 and len(seen) >= 0.3 * (mine & ~twice).sum():
                mine &= c.opcode == headers.CNP
            self.possible_duplicates += int((twice & mine).sum())
            twice &= ~mine
        self.duplicates += int(twice.sum())
        self.duplicate_frames = (self.duplicate_frames + c.frame[twice][:3].tolist())[:3]
        return ~twice

    def _totals(self, c: Columns, s: Segments, state: np.ndarray) -> None:
        t, ids, o, at = self.streams.t, s.ids, s.order, s.start
        ends = np.append(at[1:], len(o)) - 1
        add = np.add.reduceat
        t["packets"][ids] += ends - at + 1
        t["payload"][ids] += add(np.maximum(c.payload[o], 0), at)
        t["last_time"][ids] = np.maximum(t["last_time"][ids], np.maximum.reduceat(c.time[o], at))
        t["last_frame"][ids] = c.frame[o][ends]
        t["ackreq"][ids] += add(c.ackreq[o].astype(np.int64), at)
        ecn = c.tos[o] & 3
        marked = ecn == 3
        t["ect"][ids] += add(((ecn == 1) | (ecn == 2)).astype(np.int64), at)
        t["not_ect"][ids] += add((ecn == 0).astype(np.int64), at)
        self._first(t, "ce", s, marked, c, "first_ce_frame", "first_ce_time")
        good = state[o]
        t["icrc_good"][ids] += add((good == icrc.GOOD).astype(np.int64), at)
        self._first(t, "icrc_bad", s, good == icrc.BAD, c, "bad_frame")
        for name, mine, theirs in (
            ("other_mac", c.smac[o], t["mac"]), ("other_ttl", c.ttl[o], t["ttl"]), ("other_dscp", c.tos[o] >> 2, t["dscp"]),
        ):  # fmt: skip
            self._first(t, name, s, mine != theirs[s.stream], c, name + "_frame")
        t["other_sport"][ids] += add((c.sport[o] != t["sport"][s.stream]).astype(np.int64), at)
        t["other_mig"][ids] += add(((c.flags[o] >> 6 & 1) != t["mig"][s.stream]).astype(np.int64), at)
        self._ip_ids(t, s, c)
        self.series.take(t, s, c.time[o], c.payload[o])
        notices = np.nonzero(headers.SPACE[c.opcode[o]] == headers.NOTICE)[0]
        if len(notices):
            gaps = np.diff(c.time[o][notices], prepend=0)
            first = np.diff(s.stream[notices], prepend=-1) != 0
            rest = notices[~first]
            for stream, gap in zip(s.stream[rest].tolist(), gaps[~first].tolist(), strict=True):
                if t["min_gap"][stream] < 0 or gap < t["min_gap"][stream]:
                    t["min_gap"][stream] = gap
        if len(notices):
            self.series.notices(s.stream[notices], c.time[o][notices], c.frame[o][notices])

    def _ip_ids(self, t: np.ndarray, s: Segments, c: Columns) -> None:
        # A sender that counts its IP IDs up: packets whose ID does not go on in its row are of another sender, or a row of another.
        step = np.diff(c.ip_id[s.order], prepend=0)
        step[s.start] = c.ip_id[s.order[s.start]] - t["last_ip_id"][s.ids]
        step &= 0xFFFF
        odd = step > IP_ID_STEP
        t["id_steps"][s.ids] += np.add.reduceat(((step > 0) & ~odd).astype(np.int64), s.start)
        t["last_ip_id"][s.ids] = c.ip_id[s.order[np.append(s.start[1:], len(s.order)) - 1]]
        self._first(t, "id_odd", s, odd, c, "id_odd_frame")

    @staticmethod
    def _first(t: np.ndarray, name: str, s: Segments, here: np.ndarray, c: Columns, frame: str, time: str = "") -> None:
        # Counts rows by stream, and remembers the first one's frame (and time).
        rows = np.nonzero(here)[0]
        if not len(rows):
            return
        streams, first, counts = np.unique(s.stream[rows], return_index=True, return_counts=True)
        fresh = t[name][streams] == 0
        t[frame][streams[fresh]] = c.frame[s.order[rows[first[fresh]]]]
        if time:
            t[time][streams[fresh]] = c.time[s.order[rows[first[fresh]]]]
        t[name][streams] += counts

    def finish(self) -> None:
        """End the capture: judge what is still open."""
        self.psn.finish()
