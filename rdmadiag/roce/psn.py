"""Requests and their answers: the PSN engine proper, over all streams of a chunk at once.

Python runs only for what is odd (holes, repeats, NAKs). A request takes one PSN, a READ one for each packet of its answer (IBA vol 1,
9.7.2, 9.7.3); PSNs are unwrapped to 64 bits (`un`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rdmadiag.roce import headers, icrc, legality, pairing, progress
from rdmadiag.roce.columns import Columns
from rdmadiag.roce.events import Hole, Nak, Run, Track
from rdmadiag.roce.headers import REQUEST, RESPONSE
from rdmadiag.roce.series import Series
from rdmadiag.roce.streams import Segments, Streams

CARRY = 1 << 15
"""Requests of the last chunk that answers of the next are looked for in."""
ODD = 1 << 18
"""Most odd events of one chunk that are followed one by one; more are counted."""
STEPS = 4
"""How many requests are looked at, back from a PSN, for the one that it answers."""
WATCHED = 1000
"""Most dead QPs whose further packets are looked at in one chunk."""
TRACKS = 1 << 15
"""Most streams whose odd events are followed."""
PMTUS = (256, 512, 1024, 2048, 4096)


class Psn:
    """Follows the PSNs of the streams; `tracks` has the odd events of each stream (below 0: answers without requests)."""

    def __init__(self, streams: Streams, series: Series) -> None:
        self.streams, self.series = streams, series
        self.tracks: dict[int, Track] = {}
        self.pairs = pairing.Pairs(streams)
        self.pmtus: dict[int, int] = {}
        self.order = 0
        self.odd_left_out = 0
        self.carry: dict[str, np.ndarray] | None = None
        self._oldest = 0
        self._acks = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
        self._acked_first: dict[int, int] = {}

    def take(self, c: Columns, s: Segments, state: np.ndarray) -> None:
        """Take the packets of one chunk, sorted by stream; `state` says of each whether its ICRC is right."""
        t = self.streams.t
        space = t["space"][s.stream]
        request = np.nonzero(space == REQUEST)[0]
        answer = np.nonzero(space == RESPONSE)[0]
        un = self._unwrapped(c, s)
        self._path_mtu(c, s, un)
        sent = self._requests(c, s, un, request, state) if len(request) else None
        table = self._joined(sent)
        self.pairs.vote(c, s, answer, table, self.order)
        self._acks, self._acked_first = (np.empty(0, np.int64),) * 3, {}
        answered = self._answers(c, s, answer, table) if len(answer) else []
        if sent is not None:
            progress.in_flight(t, sent, *self._acks, self._acked_first)
        self._odd(c, table, sent, answered)
        self._carry_on(table)
        self.order += len(c)

    def _unwrapped(self, c: Columns, s: Segments) -> np.ndarray:
        t = self.streams.t
        psn = c.psn[s.order]
        before = np.empty_like(psn)
        before[1:] = psn[:-1]
        before[s.start] = t["last_psn"][s.ids]
        total = np.cumsum(headers.deltas(psn, before))
        lengths = np.diff(np.append(s.start, len(psn)))
        step = np.where(s.start > 0, total[s.start - 1], 0)
        un = total - np.repeat(step, lengths) + np.repeat(t["last_un"][s.ids], lengths)
        ends = np.append(s.start[1:], len(psn)) - 1
        t["last_psn"][s.ids], t["last_un"][s.ids] = psn[ends], un[ends]
        return np.asarray(un)

    def _hosts(self, c: Columns, rows: np.ndarray) -> np.ndarray:
        # The same for both directions.
        a = self.streams.mixed(c.src[rows, 0], c.src[rows, 1])
        b = self.streams.mixed(c.dst[rows, 0], c.dst[rows, 1])
        both: np.ndarray = a + b
        return both

    def _path_mtu(self, c: Columns, s: Segments, un: np.ndarray) -> None:
        # A first or middle packet is as long as the path MTU.
        t, o = self.streams.t, s.order
        rows = np.nonzero((headers.FIRST[c.opcode[o]] | headers.MIDDLE[c.opcode[o]]) & np.isin(c.payload[o], PMTUS))[0]
        if not len(rows):
            return
        t["pmtu"][s.stream[rows]] = c.payload[o[rows]]
        hosts = self._hosts(c, o[rows])
        for one, at in zip(*np.unique(hosts, return_index=True), strict=True):
            if len(self.pmtus) < 1 << 16:
                self.pmtus.setdefault(int(one), int(c.payload[o[rows[at]]]))

    def _widths(self, c: Columns, s: Segments, rows: np.ndarray) -> np.ndarray:
        # PSNs that each request takes; 0 for a READ whose path MTU is not known.
        t, o = self.streams.t, s.order[rows]
        width = np.ones(len(rows), np.int64)
        reads = np.nonzero(headers.IS_READ[c.opcode[o]])[0]
        if len(reads):
            size = c.dense("RETH", 12, 4)[o[reads]]
            hosts = self._hosts(c, o[reads])
            known = t["partner"][s.stream[rows[reads]]]
            mtu = np.where(known >= 0, t["pmtu"][known], 0)
            path = np.fromiter((self.pmtus.get(h, 0) for h in hosts.tolist()), np.int64, len(reads))
            mtu = np.where(mtu > 0, mtu, path)
            width[reads] = np.where(
                size <= 256, 1, np.where((mtu > 0) & (size >= 0), -(-np.maximum(size, 1) // np.maximum(mtu, 1)), 0)
            )
        return width

    def _requests(
        self, c: Columns, s: Segments, all_un: np.ndarray, rows: np.ndarray, state: np.ndarray
    ) -> dict[str, np.ndarray]:
        t = self.streams.t
        o, stream, un = s.order[rows], s.stream[rows], all_un[rows]
        width = self._widths(c, s, rows)
        first = np.diff(stream, prepend=-1) != 0
        starts = np.nonzero(first)[0]
        ids = stream[starts]
        unknown = width == 0
        if (
            unknown.any()
        ):  # then the next request tells, when it comes in order; else nothing is said about a hole behind it
            following = np.append(np.where(np.diff(stream) == 0, np.diff(un), 1), 1)
            width[unknown] = np.clip(following[unknown], 1, 1 << 22)
        end = un + width
        base = np.repeat(t["last_un"][ids] - (1 << 31), np.diff(np.append(starts, len(rows))))
        segment = (np.cumsum(first) - 1) << 33
        fresh = t["packets"][ids] == np.diff(np.append(starts, len(rows)))  # all its packets are in this chunk
        t["expected"][ids] = np.where(fresh, un[starts], t["expected"][ids])
        t["acked"][ids] = np.where(fresh, un[starts], t["acked"][ids])
        reach = end - base + segment
        reach[starts] = np.maximum(reach[starts], t["expected"][ids] - base[starts] + segment[starts])
        reach = np.maximum.accumulate(reach)
        due = np.empty_like(reach)
        due[1:] = reach[:-1]
        due[starts] = t["expected"][ids] - base[starts] + segment[starts]
        due = due - segment + base
        ends = np.append(starts[1:], len(rows)) - 1
        t["expected"][ids] = (reach - segment + base)[ends]
        new = un >= due
        payload = c.payload[o]
        t["fresh_payload"][ids] += np.add.reduceat(np.where(new, payload, 0), starts)
        opcode = c.opcode[o]
        t["messages"][ids] += np.add.reduceat((headers.ENDS_MESSAGE[opcode] & new).astype(np.int64), starts)
        kind = headers.KIND[opcode]
        done = new & headers.STARTS_MESSAGE[opcode]
        for n in range(1, 7):
            counts = np.add.reduceat((done & (kind == n)).astype(np.int64), starts)
            t["kinds"][ids, n] += counts
        reth_rows, reth = c.extension("RETH")
        va = np.zeros(len(c), np.uint64)
        rkey, size = np.full(len(c), -1, np.int64), np.full(len(c), -1, np.int64)
        va[reth_rows] = reth[:, 0:8].view(">u8")[:, 0]
        rkey[reth_rows] = reth[:, 8:12].view(">u4")[:, 0]
        size[reth_rows] = reth[:, 12:16].view(">u4")[:, 0]
        content, checked = c.contents(o, state)
        sent = {
            "content": content, "checked": checked, "bad": state[o] == icrc.BAD,
            "stream": stream, "un": un, "end": end, "psn": c.psn[o], "time": c.time[o], "frame": c.frame[o], "opcode": opcode,
            "payload": payload, "order": self.order + o, "due": due, "first": first, "new": new, "va": va[o], "rkey": rkey[o],
            "began": progress.began(t, c.time[o], stream, opcode, starts, new),
            "size": size[o], "ackreq": c.ackreq[o], "row": o, "gap": (un > due) & ~unknown,
        }  # fmt: skip
        legality.judge(c, sent, starts, t)
        return sent

    def _joined(self, sent: dict[str, np.ndarray] | None) -> dict[str, np.ndarray] | None:
        # The requests of this chunk and the last ones of the chunk before, with a key to find the last send of a PSN by.
        names = (
            "stream",
            "un",
            "end",
            "psn",
            "time",
            "frame",
            "opcode",
            "payload",
            "order",
            "va",
            "rkey",
            "size",
            "began",
            "content",
            "checked",
        )
        parts = [part for part in (self.carry, sent) if part is not None]
        if not parts:
            return None
        table = {name: np.concatenate([part[name] for part in parts]) for name in names}
        self._oldest = int(table["order"].min())
        key = self._key(table["stream"], table["psn"], table["order"])
        turn = np.argsort(key, kind="stable")
        table["sorted"], table["key"] = turn, key[turn]
        return table

    def _key(self, stream: np.ndarray, psn: np.ndarray, order: np.ndarray) -> np.ndarray:
        turn = np.minimum(order - self._oldest, (1 << 22) - 1)
        return np.asarray((stream.astype(np.int64) << 46) | (psn.astype(np.int64) << 22) | turn)

    def last_sends(
        self, table: dict[str, np.ndarray], stream: np.ndarray, psn: np.ndarray, order: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return for (stream, PSN, order) the row of `table` that last sent it before, or -1; and whether it was sent only once."""
        at = np.searchsorted(table["key"], self._key(stream, psn, order), side="left") - 1
        found = np.zeros(len(at), bool)
        for _ in range(STEPS):  # a READ may start below the PSN, and one that was sent later be between
            row = table["sorted"][np.maximum(at, 0)]
            ahead = headers.deltas(psn, table["psn"][row])
            found = (at >= 0) & (table["stream"][row] == stream) & (table["order"][row] < order)
            found &= (ahead >= 0) & (ahead < table["end"][row] - table["un"][row])
            if found.all():
                break
            at = np.where(found, at, at - 1)
        row = table["sorted"][np.maximum(at, 0)]
        prior = table["sorted"][np.maximum(at - 1, 0)]
        again = (at >= 1) & (table["stream"][prior] == stream) & (table["psn"][prior] == table["psn"][row])
        return np.where(found, row, -1), found & ~again

    def _answers(
        self, c: Columns, s: Segments, answer: np.ndarray, table: dict[str, np.ndarray] | None
    ) -> list[tuple[int, Nak]]:
        t = self.streams.t
        o, stream = s.order[answer], s.stream[answer]
        syndrome = c.dense("AETH", 0, 1)[o]
        psn, order = c.psn[o], self.order + o
        positive = (syndrome < 0) | (syndrome >> 5 == 0)
        acks = (c.opcode[o] == headers.ACKNOWLEDGE) & positive
        ids, counts = np.unique(stream[acks], return_counts=True)
        t["acks"][ids] += counts
        legality.answers(c, o, stream, syndrome, t)
        asked = t["partner"][stream].astype(np.int64)
        paired = asked >= 0
        reference = np.where(paired, t["expected"][asked], 0)
        un = reference + headers.deltas(psn, reference & 0xFFFFFF)
        legality.ahead(asked, un, c.frame[o], c.time[o], acks, t)
        self._acknowledge(asked, un, positive, syndrome, order, paired)
        if table is not None and paired.any():
            rows = np.nonzero(paired & positive)[0]
            found, once = self.last_sends(table, asked[rows], psn[rows], order[rows])
            # The packet that ends the request's answer: an ACK, or the last one of a READ.
            ends = ~headers.FIRST[c.opcode[o[rows]]] & ~headers.MIDDLE[c.opcode[o[rows]]]
            good = (found >= 0) & once & ends
            request, when = found[good], c.time[o[rows]][good]
            self.series.answers.add(asked[rows][good], when - table["time"][request])
            whole = headers.ENDS_MESSAGE[table["opcode"][request]] & (table["began"][request] >= 0)
            self.series.messages.add(asked[rows][good][whole], (when - table["began"][request])[whole])
        found_naks: list[tuple[int, Nak]] = []
        odd = np.nonzero(~positive)[0]
        if len(odd) > ODD:
            self.odd_left_out += len(odd) - ODD
            odd = odd[:ODD]
        for n in odd[np.argsort(order[odd])].tolist():
            partner = int(asked[n])
            victim = (
                self._victim(table, partner, int(un[n]), int(psn[n]), int(order[n])) if partner >= 0 and table else None
            )
            nak = Nak(int(c.time[o[n]]), int(c.frame[o[n]]), int(syndrome[n]), int(un[n]), int(order[n]), victim)
            found_naks.append((partner if partner >= 0 else -1 - int(stream[n]), nak))
        return found_naks

    def _acknowledge(
        self,
        asked: np.ndarray,
        un: np.ndarray,
        positive: np.ndarray,
        syndrome: np.ndarray,
        order: np.ndarray,
        paired: np.ndarray,
    ) -> None:
        t = self.streams.t
        rows = np.nonzero(paired & (un <= t["expected"][np.maximum(asked, 0)]))[0]
        if not len(rows):
            return
        reach = un[rows] + positive[rows]
        turn = np.lexsort((order[rows], asked[rows]))
        stream, reach, when = asked[rows][turn], reach[turn], order[rows][turn]
        first = np.diff(stream, prepend=-1) != 0
        starts = np.nonzero(first)[0]
        ids = stream[starts]
        self._acked_first = dict(zip(ids.tolist(), t["acked"][ids].tolist(), strict=True))
        base = np.repeat(t["acked"][ids] - (1 << 31), np.diff(np.append(starts, len(rows))))
        segment = (np.cumsum(first) - 1) << 33
        value = np.maximum(reach, np.repeat(t["acked"][ids], np.diff(np.append(starts, len(rows))))) - base + segment
        value = np.maximum.accumulate(value) - segment + base
        t["acked"][ids] = np.minimum(value[np.append(starts[1:], len(rows)) - 1], t["expected"][ids])
        self._acks = (stream, when, value)

    def _acked_before(self, stream: int, order: int) -> int:
        # The first PSN of a stream that no answer had acknowledged when a packet came.
        streams, when, value = self._acks
        low, high = np.searchsorted(streams, stream), np.searchsorted(streams, stream, side="right")
        at = low + int(np.searchsorted(when[low:high], order)) - 1
        return int(value[at]) if at >= low else self._acked_first.get(stream, int(self.streams.t["acked"][stream]))

    def _victim(
        self, table: dict[str, np.ndarray], stream: int, un: int, psn: int, order: int
    ) -> dict[str, Any] | None:
        # The request that an answer is about, with the memory that its message names.
        one = np.array([stream]), np.array([psn]), np.array([order])
        row = int(self.last_sends(table, *one)[0][0])
        if row < 0:
            return None
        victim: dict[str, Any] = {"frame": int(table["frame"][row]), "opcode": int(table["opcode"][row]), "psn": psn}
        named = np.nonzero(
            (table["stream"] == stream) & (table["rkey"] >= 0) & (table["un"] <= un) & (table["order"] < order)
        )[0]
        if len(named):
            at = int(named[np.argmax(table["un"][named])])
            if headers.STARTS_MESSAGE[victim["opcode"]] and table["frame"][at] != victim["frame"]:
                return victim
            victim |= {"va": int(table["va"][at]), "rkey": int(table["rkey"][at]), "size": int(table["size"][at])}
            same = (table["rkey"] == table["rkey"][at]) & (table["un"] != table["un"][at])
            t = self.streams.t
            served = same & (table["end"] <= t["acked"][table["stream"]]) & (table["order"] < order)
            served &= t["destqp"][table["stream"]] == t["destqp"][stream]
            victim["rkey_served_elsewhere"] = int(served.sum())
            ends = table["va"] + np.maximum(table["size"], 0).astype(np.uint64)
            alike = (table["va"] <= table["va"][at]) & (ends >= ends[at])
            alike &= headers.KIND[table["opcode"]] == headers.KIND[table["opcode"][at]]
            victim["memory_served_before"] = int((served & alike).sum())
        return victim

    def _odd(
        self,
        c: Columns,
        table: dict[str, np.ndarray] | None,
        sent: dict[str, np.ndarray] | None,
        answered: list[tuple[int, Nak]],
    ) -> None:
        # Holes, runs of repeats, and NAKs, in the order in which they came.
        events: list[tuple[int, int, Any]] = [(nak.order, stream, nak) for stream, nak in answered]
        if sent is not None and table is not None:
            for at in np.nonzero(sent["gap"])[0][:ODD].tolist():
                hole = Hole(int(sent["due"][at]), int(sent["un"][at]), int(sent["time"][at]), int(sent["frame"][at]))
                events.append((int(sent["order"][at]), int(sent["stream"][at]), hole))
            events += [(run.order, stream, run) for stream, run in self._runs(sent, table)]
            for at in np.nonzero(sent["bad"])[0][:ODD].tolist():
                events.append((int(sent["order"][at]), int(sent["stream"][at]), int(sent["un"][at])))
            self.odd_left_out += max(0, int(sent["gap"].sum()) - ODD)
            ends = np.append(np.nonzero(sent["first"])[0][1:], len(sent["un"])) - 1
            self.streams.t["run_end"][sent["stream"][ends]] = np.where(sent["new"][ends], -1, sent["end"][ends])
        events += self._late_pairs(events)
        events.sort(key=lambda event: event[0])
        for order, stream, event in events:
            track = self.tracks.get(stream)
            if track is None:
                if len(self.tracks) >= TRACKS:
                    self.odd_left_out += 1
                    continue
                track = self.tracks[stream] = Track()
            if isinstance(event, Hole):
                track.hole(event)
            elif isinstance(event, int):
                track.broken(event)
            elif isinstance(event, Run):
                before = event.start < self._first_un(stream)  # sent before the capture began, or lost before the tap
                track.run(event._replace(acked=-1 if before else self._acked_before(stream, order)))
            else:
                self._judge_nak(track, stream, event)
        active = set(np.unique(self._acks[0]).tolist())
        active |= set(np.unique(sent["stream"]).tolist()) if sent is not None else set()
        for stream in sorted(active & self.tracks.keys())[:WATCHED]:
            track = self.tracks[stream]
            if (track.fatal or track.suspect) is not None:
                self._after_fatal(stream, track, table)

    def _late_pairs(self, events: list[tuple[int, int, Any]]) -> list[tuple[int, int, Any]]:
        # NAKs that came in a chunk before the one in which their requests became known.
        found = []
        for key in [key for key in self.tracks if key < 0 and self.streams.t["partner"][-1 - key] >= 0]:
            partner = int(self.streams.t["partner"][-1 - key])
            expected = int(self.streams.t["expected"][partner])
            for nak in self.tracks.pop(key).naks:
                un = expected + int(headers.deltas(np.int64(nak.un & 0xFFFFFF), np.int64(expected & 0xFFFFFF)))
                found.append((nak.order, partner, nak._replace(un=un)))
        return found

    def _judge_nak(self, track: Track, stream: int, nak: Nak) -> None:
        if stream >= 0 and nak.syndrome == 0x60 and (first := self._first_un(stream)) > nak.un > first - 256:
            track.hole(
                Hole(
                    nak.un, first, int(self.streams.t["first_time"][stream]), int(self.streams.t["first_frame"][stream])
                )
            )
            track.nak(nak)
            return
        track.nak(nak)
        if stream < 0:
            return
        t = self.streams.t
        fatal = nak.syndrome in (0x61, 0x62, 0x63, 0x64)
        if fatal and nak.un < self._acked_before(stream, nak.order):
            track.suspect = nak
        if nak.un >= int(t["expected"][stream]):
            if nak.syndrome != 0x60 or nak.un > int(t["expected"][stream]):
                track.never_sent.append(nak.frame)
        elif nak.un < self._acked_before(stream, nak.order) or nak.un < self._first_un(stream):
            track.below_window.append(nak.frame)
        elif fatal and track.fatal is None:
            track.fatal = nak

    def _first_un(self, stream: int) -> int:
        entry = self.streams.t[stream]
        return int(entry["last_un"]) + int(headers.deltas(entry["first_psn"], entry["last_psn"]))

    def _after_fatal(self, stream: int, track: Track, table: dict[str, np.ndarray] | None) -> None:
        nak = track.fatal or track.suspect
        if nak is None:
            return
        if table is not None:
            track.after_fatal += int(
                ((table["stream"] == stream) & (table["order"] > nak.order) & (table["order"] >= self.order)).sum()
            )
        streams, when, value = self._acks
        before = self._acked_before(stream, nak.order)
        later = (streams == stream) & (when > nak.order) & (value > max(nak.un, before))
        if later.any() and not track.contradicted:
            track.contradicted.append(nak.frame)

    def _runs(self, sent: dict[str, np.ndarray], table: dict[str, np.ndarray]) -> list[tuple[int, Run]]:
        again = np.nonzero(~sent["new"])[0]
        if not len(again):
            return []
        joined = np.zeros(len(again), bool)
        joined[1:] = (
            (np.diff(again) == 1)
            & (sent["un"][again[1:]] == sent["end"][again[1:] - 1])
            & (sent["stream"][again[1:]] == sent["stream"][again[1:] - 1])
        )
        heads = np.nonzero(~joined)[0]
        if len(heads) > ODD:
            self.odd_left_out += len(heads) - ODD
            cut = heads[ODD]
            heads, again = heads[:ODD], again[:cut]
        tails = np.append(heads[1:], len(again)) - 1
        first, last = again[heads], again[tails]
        payload = np.add.reduceat(sent["payload"][again], heads)
        rows, _ = self.last_sends(table, sent["stream"][again], sent["psn"][again], sent["order"][again])
        exact = (rows >= 0) & (table["psn"][rows] == sent["psn"][again])
        before = np.where(exact, table["time"][rows], -1)[heads]
        changed = legality.changed(table, rows, sent, again, exact)
        runs = []
        for n in range(len(heads)):
            a, b = int(first[n]), int(last[n])
            head = int(heads[n])
            other = tuple(changed[at] for at in range(head, int(tails[n]) + 1) if at in changed) if changed else ()
            goes_on = bool(sent["first"][again[head]]) and int(sent["un"][a]) == int(
                self.streams.t["run_end"][sent["stream"][a]]
            )
            run = Run(
                int(sent["order"][a]), int(sent["time"][a]), int(sent["frame"][a]), int(sent["un"][a]), int(sent["end"][b]), b - a + 1,
                int(payload[n]), int(before[n]), -1, bool(headers.IS_READ[sent["opcode"][a]]), goes_on, other,
            )  # fmt: skip
            runs.append((int(sent["stream"][a]), run))
        return runs

    def _carry_on(self, table: dict[str, np.ndarray] | None) -> None:
        if table is None:
            return
        keep = np.argsort(table["order"], kind="stable")[-CARRY:]
        self.carry = {name: table[name][keep] for name in table if name not in ("sorted", "key")}

    def finish(self) -> None:
        """End the capture: judge what is still open."""
        for stream, track in self.tracks.items():
            track.finish(int(self.streams.t["acked"][stream]) if stream >= 0 else 0)
