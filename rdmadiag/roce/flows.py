"""What the engine found, as rows: one a flow (a stream of requests with its answers), its NAKs, its resends, its stall.

Every row names frames and a tshark filter, so that what it says can be looked at.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from rdmadiag.explain import ack_timeout, aeth, rnr_timer
from rdmadiag.roce import congestion, headers, pairing
from rdmadiag.roce.columns import address
from rdmadiag.roce.engine import Engine
from rdmadiag.roce.events import Track
from rdmadiag.roce.headers import NOTICE, REQUEST

SILENCE_NS = 50_000_000
"""A request that is open is stalled when nothing came for this long and for SILENCE_TIMES its own waits [ns]."""
SILENCE_TIMES = 4
ENDLESS = 9
"""So many sends of one request are beyond any retry_cnt (7 retries, 8 sends): rxe resends without end at 7."""
FATAL = {0x61, 0x62, 0x63, 0x64}
_COUNTS = (
    "resends", "resent_packets", "resent_bytes", "resends_after_nak", "resends_after_rnr", "resends_timeout", "resends_read_rerequest",
    "resends_answer_lost", "resends_after_fatal", "resends_unexplained", "holes_reordered", "holes_lost_before_tap", "holes_capture_loss",
    "holes_open", "lost_request_before_tap", "lost_request_after_tap", "lost_answer_after_tap", "icrc_bad_resent", "changed_resends",
)  # fmt: skip
FLOWS = 5_000
"""Most flows that become rows: the ones with trouble first, then the largest."""


Rows = list[dict[str, Any]]


def flows(engine: Engine, until: int | None = None) -> tuple[Rows, Rows, Rows, int]:
    """Return rows of tables flow, flow_nak and flow_resend, and how many flows were left out.

    `until`: when the capture ended, where that is known [ns since 1970].
    """
    t = engine.streams.t[: engine.streams.count]
    requests = np.nonzero(t["space"] == REQUEST)[0]
    if len(requests) > FLOWS:
        trouble = np.isin(requests, list(engine.psn.tracks))
        requests = requests[np.lexsort((-t["packets"][requests], ~trouble))]
    left_out = max(0, len(requests) - FLOWS)
    context = _Context(engine, t, until)
    rows, naks, resends = [], [], []
    for number in sorted(requests[:FLOWS].tolist()):
        row = context.flow(number)
        rows.append(row)
        track = engine.psn.tracks.get(number)
        if track is not None:
            naks += context.naks(row, track)
            resends += context.resends(row, track)
    for key, track in engine.psn.tracks.items():
        if key < 0:
            naks += context.orphans(-1 - key, track)
    return rows, naks, resends, left_out


class _Context:
    def __init__(self, engine: Engine, t: np.ndarray, until: int | None) -> None:
        self.engine, self.t = engine, t
        self.until = max(engine.last_time, until or 0)
        self.latency, self.completion = engine.series.answers.summary(), engine.series.messages.summary()
        self.start, self.end = engine.first_time, engine.last_time
        self.notices = {
            (bytes(t["src"][n].tobytes()), bytes(t["dst"][n].tobytes()), int(t["destqp"][n])): int(n)
            for n in np.nonzero(t["space"] == NOTICE)[0]
        }
        self.sources = {(row["src"].tobytes(), row["dst"].tobytes()) for row in t}
        self.handshakes = {}
        for entry in engine.connections.all:
            if "rep" in entry:
                self.handshakes[entry["src"], entry["dst"], entry["rep"]["qpn"]] = (entry, "req", "rep")
                self.handshakes[entry["dst"], entry["src"], entry["req"]["qpn"]] = (entry, "rep", "req")

    def _ends(self, number: int) -> tuple[str, str]:
        return address(*self.t["src"][number]), address(*self.t["dst"][number])

    def flow(self, number: int) -> dict[str, Any]:
        e, engine = self.t[number], self.engine
        src, dst = self._ends(number)
        partner = int(e["partner"])
        answers = self.t[partner] if partner >= 0 else None
        seen_back = (e["dst"].tobytes(), e["src"].tobytes()) in self.sources
        seconds = max(0, int(e["last_time"] - e["first_time"])) / 1e9
        row: dict[str, Any] = {
            "flow": number, "src": src, "dst": dst, "qpn": int(e["destqp"]),
            "peer_qpn": int(answers["destqp"]) if answers is not None else None,
            "life": int(e["epoch"]), "pairing": pairing.METHODS[int(e["method"])] if partner >= 0 else "not paired",
            "confidence": pairing.confidence(answers) if answers is not None else "none",
            "answers_seen": 1 if answers is not None else 0 if seen_back else None,
            "transport": "UC" if e["unreliable"] else "RC or XRC",
            "packets": int(e["packets"]), "payload_bytes": int(e["payload"]), "fresh_bytes": int(e["fresh_payload"]),
            "messages": int(e["messages"]), "first_frame": int(e["first_frame"]), "last_frame": int(e["last_frame"]),
            "start_seconds": (int(e["first_time"]) - self.start) / 1e9, "seconds": seconds,
        }  # fmt: skip
        for n, name in enumerate(headers.KIND_NAMES):
            if name:
                row[name.lower() + "s"] = int(e["kinds"][n])
        if seconds > 0 and e["packets"] > 1:
            row["goodput_gbps"] = int(e["fresh_payload"]) * 8e-9 / seconds
            row["throughput_gbps"] = int(e["payload"]) * 8e-9 / seconds
            row["messages_per_second"] = int(e["messages"]) / seconds
        if number in self.latency:
            count, median, p99, most = self.latency[number]
            row |= {"latencies": count, "ack_us_p50": median / 1e3, "ack_us_p99": p99 / 1e3, "ack_us_max": most / 1e3}
        if number in self.completion:
            _, median, p99, most = self.completion[number]
            row |= {"message_us_p50": median / 1e3, "message_us_p99": p99 / 1e3, "message_us_max": most / 1e3}
        row["open_psns"] = int(e["expected"] - e["acked"]) if answers is not None else None
        row["pmtu"] = int(e["pmtu"] or (answers["pmtu"] if answers is not None else 0)) or None
        if answers is not None:
            row["acks"], row["in_flight_most"] = int(answers["acks"]), int(e["in_flight"])
            row["ackreq_per_packet"] = int(e["ackreq"]) / int(e["packets"])
            row["response_holes"] = int(answers["response_holes"])
            row["response_hole_frame"] = int(answers["response_hole_frame"]) or None
            row["msn_back"], row["msn_back_frame"] = int(answers["msn_back"]), int(answers["msn_back_frame"]) or None
            row["last_credits"] = _credits(int(answers["last_credit"]))
            row["packets_per_ack"] = row["packets"] / row["acks"] if row["acks"] else None
            beyond = int(e["ahead_un"]) >= int(e["expected"])  # what was sent later was captured late
            row["acks_ahead"] = int(e["ahead"]) if beyond else 0
            if row["acks_ahead"]:
                row["acks_ahead_frame"] = int(e["ahead_frame"])
                row["acks_ahead_seconds"] = (self.until - int(e["ahead_time"])) / 1e9
        row["icrc_bad"] = int(e["icrc_bad"])
        row["icrc_bad_frame"] = int(e["bad_frame"]) or None
        for name in ("illegal", "bad_length"):
            row[name], row[f"{name}_frame"] = int(e[name]), int(e[f"{name}_frame"]) or None
        self._identity(row, e, answers)
        self._congestion(row, number, e, answers)
        track = engine.psn.tracks.get(number)
        row |= dict.fromkeys(_COUNTS, 0)
        row |= dict.fromkeys(("nak_sequence", "nak_fatal", "rnr_naks"), None if answers is None else 0)
        if track is not None:
            self._events(row, track)
        row["state"], row["silent_seconds"], row["sends_of_one"], row["retry_cnt_seen"], row["rnr_retry_seen"] = (
            self._state(e, track, answers, seen_back)
        )
        self._settings(row, track, src, dst)
        qps = [f"infiniband.bth.destqp == {row['qpn']:#x}"]
        back = (
            f" || (ip{'v6' if ':' in src else ''}.dst == {src} && infiniband.bth.destqp == {row['peer_qpn']:#x})"
            if answers is not None
            else ""
        )
        row["filter"] = f"(ip{'v6' if ':' in src else ''}.src == {src} && {qps[0]}){back}"
        row["frames"] = ", ".join(map(str, dict.fromkeys([row["first_frame"], row["last_frame"]])))
        return row

    def _identity(self, row: dict[str, Any], e: Any, answers: Any) -> None:
        # The same source address and DestQP with another MAC, TTL, DSCP: two senders, or one that forges.
        both = [part for part in (e, answers) if part is not None]
        for name in ("other_mac", "other_ttl", "other_dscp"):
            row[name] = sum(int(part[name]) for part in both)
            row[f"{name}_frame"] = next((int(part[f"{name}_frame"]) for part in both if part[name]), None)
        row["other_mig"] = sum(int(part["other_mig"]) for part in both)
        row["other_sports"] = int(e["other_sport"])
        row["ip_id_steps"] = sum(int(part["id_steps"]) for part in both)
        row["odd_ip_ids"] = sum(int(part["id_odd"]) for part in both)
        row["odd_ip_id_frame"] = next((int(part["id_odd_frame"]) for part in both if part["id_odd"]), None)
        row["sport"] = int(e["sport"])
        row["dscp"] = int(e["dscp"])
        row["pkey"], row["mig"] = int(e["pkey"]), int(e["mig"])
        row["answer_dscp"] = int(answers["dscp"]) if answers is not None else None

    def _congestion(self, row: dict[str, Any], number: int, e: Any, answers: Any) -> None:
        row["ce"], row["ect"], row["not_ect"] = int(e["ce"]), int(e["ect"]), int(e["not_ect"])
        row["ce_share"] = row["ce"] / row["packets"]
        row["ce_frame"] = int(e["first_ce_frame"]) or None
        if answers is None:
            return
        row["answer_ce"], row["answer_ce_share"] = int(answers["ce"]), int(answers["ce"]) / int(answers["packets"])
        n = self.notices.get((e["dst"].tobytes(), e["src"].tobytes(), int(answers["destqp"])))
        row["cnps"] = int(self.t["packets"][n]) if n is not None else 0
        if n is None:
            return
        cnp = self.t[n]
        row["cnp_dscp"], row["cnp_frame"] = int(cnp["dscp"]), int(cnp["first_frame"])
        span = int(cnp["last_time"] - cnp["first_time"])
        row["cnps_per_second"] = (row["cnps"] - 1) * 1e9 / span if span > 0 else None
        row["cnp_gap_us_min"] = int(cnp["min_gap"]) / 1e3 if cnp["min_gap"] >= 0 else None
        if row["ce"]:
            row["ce_per_cnp"] = row["ce"] / row["cnps"]
            row["ce_to_cnp_us"] = (int(cnp["first_time"]) - int(e["first_ce_time"])) / 1e3
        row |= congestion.rates(self.engine.series, number, n)

    @staticmethod
    def _events(row: dict[str, Any], track: Track) -> None:
        for name, cause in track.resends.items():
            row[f"resends_{name}"] = cause.episodes
        row["resends"] = sum(c.episodes for c in track.resends.values())
        row["resent_packets"] = sum(c.packets for c in track.resends.values())
        row["resent_bytes"] = sum(c.payload for c in track.resends.values())
        for name, hole in track.holes.items():
            row[f"holes_{name}"] = hole.packets
        for name, count in track.located.items():
            if name not in ("nowhere", "unknown"):
                row[f"lost_{name}"] = count
        row["icrc_bad_resent"] = len(track.bad_seen) - len(track.bad)
        row["changed_resends"], row["changed_frames"] = track.changed, track.changed_frames or None
        if row["answers_seen"] != 1:
            return
        row["nak_sequence"] = track.nak_counts.get(0x60, 0)
        row["nak_fatal"] = sum(count for value, count in track.nak_counts.items() if value in FATAL)
        row["rnr_naks"] = sum(count for value, count in track.nak_counts.items() if value >> 5 == 1)
        if track.hole_to_nak:
            row["hole_to_nak_us"] = statistics.median(track.hole_to_nak) / 1e3
        if track.nak_to_resend:
            row["nak_to_resend_us"] = statistics.median(track.nak_to_resend) / 1e3

    def _state(
        self, e: Any, track: Track | None, answers: Any, seen_back: bool
    ) -> tuple[str, float, int, int | None, int | None]:
        silent = self.end - int(max(e["last_time"], answers["last_time"] if answers is not None else 0))
        sends = track.most_sends if track else 1
        if e["unreliable"]:
            return "unreliable", silent / 1e9, sends, None, None
        if answers is None and not seen_back:
            return "answers not in the capture", silent / 1e9, sends, None, None
        if track is not None and track.fatal is not None and not track.contradicted:
            return "dead after a fatal NAK", silent / 1e9, sends, None, None
        opened = int(e["expected"] - e["acked"]) > 0 if answers is not None else True
        if not opened:
            # Only what takes a receive takes a credit; an adapter that sends 0 for other flows is well.
            starved = silent > SILENCE_NS and e["kinds"][1] and answers["last_credit"] == 0
            return "no credits" if starved else "idle", silent / 1e9, sends, None, None
        waits = [spacing for spacing in (track.spacings if track else []) if spacing > 0]
        long = silent > max(SILENCE_NS, SILENCE_TIMES * max(waits, default=0))
        if track is not None and track.rnr_count > 7 and int(e["acked"]) <= track.rnr_start:
            return "RNR without end", silent / 1e9, sends, None, None
        if (
            track is not None
            and track.recent
            and track.recent[-1].syndrome >> 5 == 1
            and track.recent[-1].un == track.rnr_start
        ):
            wait = rnr_timer.MILLISECONDS[track.recent[-1].syndrome & 31] * 1e6
            if silent > max(SILENCE_NS, SILENCE_TIMES * wait):
                return "RNR retries exhausted", silent / 1e9, sends, None, track.rnr_count - 1
            return "waits for a receive", silent / 1e9, sends, None, None
        if track is not None and track.timeouts >= ENDLESS - 1 and not e["mig"]:
            return "resends without end", silent / 1e9, sends, None, None
        if track is not None and track.timeouts >= 2 and long:
            # An adapter that adapts its timers (ConnectX) may resend more often than retry_cnt says.
            return "retries exhausted", silent / 1e9, sends, None if e["mig"] else track.timeouts, None
        if track is not None and track.timeouts >= 1 and not long:
            return "resending", silent / 1e9, sends, None, None
        if long and headers.IS_READ[e["last_opcode"]]:
            return "READ unanswered", silent / 1e9, sends, None, None
        return ("no answer" if long else "in progress"), silent / 1e9, sends, None, None

    def _settings(self, row: dict[str, Any], track: Track | None, src: str, dst: str) -> None:
        waits = [w for w in (track.spacings if track else []) if w >= 8_000]
        if track is not None and track.timeouts >= 2 and len(waits) >= 2:
            row["timeout_seen_ms"] = statistics.median(waits) / 1e6
            if not row["mig"]:  # adapters may adapt their timers: what is seen is not what was set
                row["timeout_code_seen"] = ack_timeout.code_for(statistics.median(waits) / 1e9)
        if track is not None and track.rnr_waits:
            code, wait = track.rnr_waits[0]
            row["rnr_timer_seen"], row["rnr_wait_ms"] = code, wait / 1e6
            row["rnr_timer_ms"] = rnr_timer.MILLISECONDS[code]
        known = self.handshakes.get((src, dst, row["qpn"]))
        if known is not None:
            entry, mine, theirs = known
            row["cm_frame"] = entry["req_frame"]
            row["cm_starting_psn"] = entry[mine]["starting_psn"]
            row["cm_pmtu"] = entry["req"]["path_mtu"]
            row["cm_timeout"], row["cm_retry_cnt"] = entry["req"]["timeout"], entry["req"]["retry_cnt"]
            row["cm_rnr_retry"] = entry[theirs]["rnr_retry"]
            row["pairing"], row["confidence"] = "CM handshake", "certain"

    def naks(self, row: dict[str, Any], track: Track) -> list[dict[str, Any]]:
        found = []
        for value, count in sorted(track.nak_counts.items()):
            first = next((nak for nak in track.naks if nak.syndrome == value), None)
            entry = self._nak(value, count, track, first)
            entry |= {name: row[name] for name in ("flow", "src", "dst", "qpn", "peer_qpn")}
            if value in FATAL:
                entry["requests_after"] = track.after_fatal
                entry["flows_after"] = self._flows_after(row["flow"], first)
                entry["contradicted"] = int(any(frame in track.contradicted for frame in track.nak_frames[value]))
            entry["never_sent"] = int(any(frame in track.never_sent for frame in track.nak_frames[value]))
            entry["below_window"] = int(any(frame in track.below_window for frame in track.nak_frames[value]))
            found.append(entry)
        return found

    def _flows_after(self, number: int, nak: Any) -> int | None:
        # Other flows between the two hosts that went on after a NAK.
        if nak is None:
            return None
        t, mine = self.t, self.t[number]
        alike = (t["space"] == REQUEST) & (t["src"] == mine["src"]).all(1) & (t["dst"] == mine["dst"]).all(1)
        alike[number] = False
        return int((alike & (t["last_time"] > nak.time)).sum())

    @staticmethod
    def _nak(value: int, count: int, track: Track, first: Any) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "syndrome": value, "name": aeth.syndrome(value)["name"], "count": count, "frames": ", ".join(map(str, track.nak_frames[value])),
            "orphan": 0, "filter": f"infiniband.aeth.syndrome == {value}",
        }  # fmt: skip
        if first is not None:
            entry["psn"] = first.un & 0xFFFFFF
            victim = first.victim or {}
            entry["victim_frame"] = victim.get("frame")
            entry["victim_opcode"] = headers.NAMES[victim["opcode"]] if victim else None
            entry |= {
                "rkey": victim.get("rkey"),
                "va": f"{victim['va']:#x}" if "va" in victim else None,
                "size_bytes": victim.get("size"),
            }
            entry |= {name: victim.get(name) for name in ("rkey_served_elsewhere", "memory_served_before")}
        return entry

    def orphans(self, stream: int, track: Track) -> list[dict[str, Any]]:
        # Answers that are no ACK to no request in the capture.
        src, dst = self._ends(stream)
        back = (self.t["dst"][stream].tobytes(), self.t["src"][stream].tobytes()) in self.sources
        found = []
        for value, count in sorted(track.nak_counts.items()):
            first = next((nak for nak in track.naks if nak.syndrome == value), None)
            entry = self._nak(value, count, track, first)
            entry |= {
                "src": dst,
                "dst": src,
                "peer_qpn": int(self.t["destqp"][stream]),
                "orphan": 1,
                "requests_seen": int(back),
            }
            found.append(entry)
        return found

    @staticmethod
    def resends(row: dict[str, Any], track: Track) -> list[dict[str, Any]]:
        found = []
        for what, causes in (("resend", track.resends), ("hole", track.holes)):
            for name, cause in [(name, cause) for name, cause in causes.items() if cause.episodes]:
                frames = ", ".join(map(str, cause.frames))
                found.append(
                    {
                        "flow": row["flow"],
                        "src": row["src"],
                        "dst": row["dst"],
                        "qpn": row["qpn"],
                        "peer_qpn": row["peer_qpn"],
                        "what": what,
                        "cause": name,
                        "episodes": cause.episodes,
                        "packets": cause.packets,
                        "payload_bytes": cause.payload,
                        "frames": frames,
                        "filter": f"frame.number in {{{frames}}}",
                    }
                )
        return found


def _credits(syndrome: int) -> int | None:
    return aeth.CREDITS[syndrome] if 0 <= syndrome < aeth.UNLIMITED else None
