"""What happened on a stream of requests beside plain progress: holes, resends, NAKs; each with its cause, aggregated.

Causes of a resend: after_nak (a NAK 60 asked for it), after_rnr, read_rerequest (a READ asked again for the rest), answer_lost (its answer
passed the tap before), timeout, unexplained,
after_fatal (the QP is dead). (IBA vol 1, 9.7.5, 9.7.8; kernel rxe_comp.c, rxe_req.c)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FRAMES = 3
"""Frame numbers kept as examples of each thing."""
NAKS = 32
"""NAKs kept with their victims, for each stream."""
HOLES = 256
REORDER_NS = 1_000_000
"""A hole that is filled sooner than this, without a NAK, is reordering [ns]; a timeout takes longer."""
REACTION_NS = 50_000_000
"""A requester goes back after a NAK within this time [ns], also an emulated one."""
TIMEOUT_NS = 20_000
"""A resend sooner than this after the last one cannot be a timeout [ns]: code 1 is 8 us, and no device waits as short."""


class Nak(NamedTuple):
    """An answer that is no ACK, and the request that it is about (None where the capture does not hold it)."""

    time: int
    frame: int
    syndrome: int
    un: int
    order: int
    victim: dict[str, Any] | None


class Run(NamedTuple):
    """Consecutive packets of a stream whose PSNs were due before."""

    order: int
    time: int
    frame: int
    start: int
    end: int
    packets: int
    payload: int
    sent_before: int
    """When the first PSN was last sent [ns]; -1 when the capture has not seen it."""
    acked: int
    """First PSN that no answer had acknowledged by then."""
    is_read: bool
    goes_on: bool = False
    """It goes on where the last packet of the chunk before ended."""
    changed: tuple[tuple[int, int, int], ...] = ()
    """Packets whose payload is another one than before: PSN, and the frame of the last time and of this."""


@dataclass
class Hole:
    """PSNs that were passed over."""

    start: int
    end: int
    time: int
    frame: int


@dataclass
class Cause:
    """Resends, or holes, of one cause."""

    episodes: int = 0
    packets: int = 0
    payload: int = 0
    frames: list[int] = field(default_factory=list)

    def add(self, packets: int, payload: int, frame: int) -> None:
        """Count one episode."""
        self.episodes += 1
        self.packets += packets
        self.payload += payload
        if len(self.frames) < FRAMES:
            self.frames.append(frame)

    def take_back(self, packets: int, payload: int) -> None:
        """Count one episode less."""
        self.episodes -= 1
        self.packets -= packets
        self.payload -= payload


class Track:
    """The odd events of one stream of requests, in time order."""

    def __init__(self) -> None:
        self.resends: dict[str, Cause] = {}
        self.holes: dict[str, Cause] = {}
        self.open: list[Hole] = []
        self.recent: deque[Nak] = deque(maxlen=16)
        self.naks: list[Nak] = []
        self.nak_counts: dict[int, int] = {}
        self.nak_frames: dict[int, list[int]] = {}
        self.same_start, self.same_sends = -1, 0
        self.most_sends, self.most_start = 1, -1
        self.last_send = 0
        self.timeouts = 0
        self.last_cause = ""
        self.spacings: list[int] = []
        self.rnr_start, self.rnr_count, self.most_rnr = -1, 0, 0
        self.rnr_waits: list[tuple[int, int]] = []
        self.hole_to_nak: list[int] = []
        self.nak_to_resend: list[int] = []
        self.fatal: Nak | None = None
        self.suspect: Nak | None = None
        """A NAK that would end the QP, for a request that was acknowledged before."""
        self.after_fatal = 0
        self.contradicted: list[int] = []
        self.never_sent: list[int] = []
        self.below_window: list[int] = []
        self.changed, self.changed_frames = 0, ""
        """Packets that were sent again with another payload before they were acknowledged, and both frames of the first."""
        self.bad: set[int] = set()
        self.bad_seen: set[int] = set()
        """PSNs of requests whose ICRC is wrong: those that did not come again, and all."""
        self.late: tuple[Run, Nak] | None = None
        """The run that filled a hole last, and the NAK before it, where it is no more than what was missing."""
        self.ahead: deque[tuple[int, int]] = deque(maxlen=16)
        """From when to when a hole was open [ns]: what was sent then is dropped by a receiver that takes no other order."""
        self.located: dict[str, int] = {}

    def hole(self, hole: Hole) -> None:
        """Take a hole."""
        if len(self.open) < HOLES:
            self.open.append(hole)
        else:
            self._hole(Hole(hole.start, hole.end, hole.time, hole.frame), "open")

    def _hole(self, hole: Hole, cause: str) -> None:
        self.holes.setdefault(cause, Cause()).add(hole.end - hole.start, 0, hole.frame)

    def nak(self, nak: Nak) -> None:
        """Take an answer that is no ACK."""
        self.nak_counts[nak.syndrome] = self.nak_counts.get(nak.syndrome, 0) + 1
        frames = self.nak_frames.setdefault(nak.syndrome, [])
        if len(frames) < FRAMES:
            frames.append(nak.frame)
        if len(self.naks) < NAKS:
            self.naks.append(nak)
        self.recent.append(nak)
        if nak.syndrome == 0x60:
            for hole in self.open:
                if hole.start <= nak.un < hole.end and len(self.hole_to_nak) < 10_000:
                    self.hole_to_nak.append(nak.time - hole.time)
                    break
        elif nak.syndrome >> 5 == 1:
            self.rnr_count = self.rnr_count + 1 if nak.un == self.rnr_start else 1
            self.rnr_start = nak.un
            self.most_rnr = max(self.most_rnr, self.rnr_count)

    def broken(self, un: int) -> None:
        """Take a request whose ICRC is wrong."""
        if len(self.bad_seen) < HOLES:
            self.bad.add(un)
            self.bad_seen.add(un)

    def run(self, run: Run) -> str:
        """Take a run of repeated or late PSNs. Returns its cause."""
        cause = self._run(run)
        if self.bad:
            self.bad -= {un for un in self.bad if run.start <= un < run.end}
        other = [
            frames for un, *frames in run.changed if un >= run.acked and cause not in ("answer_lost", "after_fatal")
        ]
        if other:
            self.changed_frames = self.changed_frames or ", ".join(map(str, other[0]))
            self.changed += len(other)
        return cause

    def _run(self, run: Run) -> str:
        if run.goes_on and self.last_cause in self.resends:
            begun = self.resends[self.last_cause]
            begun.packets, begun.payload = begun.packets + run.packets, begun.payload + run.payload
            for hole in [hole for hole in self.open if hole.start < run.end and run.start < hole.end]:
                self._fill(hole, run, "lost_before_tap")
            return self.last_cause
        filled = [hole for hole in self.open if hole.start < run.end and run.start < hole.end]
        nak = next((n for n in reversed(self.recent) if run.start <= n.un < run.end or n.un == run.start), None)
        if nak is not None and (nak.time < run.sent_before or nak.order > run.order):
            nak = None
        # What follows a refused message is out of sequence: nothing was lost.
        if nak is not None and nak.syndrome == 0x60:
            refused = next(
                (n for n in self.recent if n.syndrome >> 5 == 1 and n.un == nak.un and n.order < nak.order), nak
            )
            if refused is not nak:
                self.recent.remove(nak)
                nak = refused
        fills_all = filled and run.start >= filled[0].start and run.end <= filled[-1].end
        if fills_all and nak is None and run.time - filled[0].time < REORDER_NS:
            for hole in filled:
                self._fill(hole, run, "reordered")
            return "reordered"
        if not filled and self._answers_the_nak_of_a_late_packet(run):
            return self.last_cause
        for hole in filled:
            self._fill(hole, run, "lost_before_tap")
            self.ahead.append((hole.time, run.time))
        cause = self._cause(run, nak, bool(filled))
        stale = next((n for n in self.recent if n.un == run.start and n.syndrome == 0x60), None)
        if cause == "answer_lost" and stale is not None and 0 < run.time - stale.time < REACTION_NS:
            cause = "after_nak"  # it goes back a second time, for a NAK that what came since has made void
            self.recent.remove(stale)
        else:
            stale = None
        self.last_cause = cause
        self.late = (run, nak) if fills_all and nak is not None and cause == "after_nak" else None
        self.resends.setdefault(cause, Cause()).add(run.packets, run.payload, run.frame)
        dropped_as_ahead = any(start <= run.sent_before <= end for start, end in self.ahead)
        place = "nowhere" if stale or (dropped_as_ahead and not filled) else self._place(cause, bool(filled), run)
        self.located[place] = self.located.get(place, 0) + 1
        self._series(run)
        if nak is not None and cause in ("after_nak", "after_rnr"):
            wait = run.time - nak.time
            if cause == "after_nak" and len(self.nak_to_resend) < 10_000:
                self.nak_to_resend.append(wait)
            elif cause == "after_rnr" and len(self.rnr_waits) < 10_000:
                self.rnr_waits.append((nak.syndrome & 31, wait))
            self.recent.remove(nak)
        return cause

    def _answers_the_nak_of_a_late_packet(self, run: Run) -> bool:
        # A hole was filled behind its NAK, as by a resend; but that PSN comes again at once: the first of the two was late, not lost.
        if self.late is None or run.start != self.late[0].start or run.time - self.late[1].time > REACTION_NS:
            return False
        first, _ = self.late
        self.late = None
        self.resends["after_nak"].take_back(first.packets, first.payload)
        self.resends["after_nak"].add(run.packets, run.payload, run.frame)
        self.holes["lost_before_tap"].take_back(first.end - first.start, 0)
        self._hole(Hole(first.start, first.end, first.time, first.frame), "reordered")
        self.located["request_before_tap"] -= 1
        self.last_cause = "after_nak"
        return True

    def _cause(self, run: Run, nak: Nak | None, filled: bool) -> str:
        if self.fatal is not None and run.order > self.fatal.order:
            return "after_fatal"
        if nak is not None and nak.syndrome == 0x60:
            return "after_nak"
        if nak is not None and nak.syndrome >> 5 == 1:
            return "after_rnr"
        if run.is_read and run.sent_before < 0 and not filled:
            return "read_rerequest"
        if run.acked >= run.end:
            return "answer_lost"
        waited = run.time - run.sent_before if run.sent_before >= 0 else -1
        if (
            waited >= TIMEOUT_NS
            or (waited < 0 and filled)
            or (run.start == self.same_start and self.last_cause == "timeout")
        ):
            return "timeout"  # the third case: clocks of captures in virtual machines jump
        return "unexplained"

    @staticmethod
    def _place(cause: str, filled: bool, run: Run) -> str:
        # Where, seen from the tap, the packet was lost that made this resend necessary.
        if filled:
            return "request_before_tap"
        if cause == "after_nak":
            return "request_after_tap"
        return "answer_after_tap" if cause == "answer_lost" else "nowhere" if cause == "after_rnr" else "unknown"

    def _fill(self, hole: Hole, run: Run, cause: str) -> None:
        start, end = max(hole.start, run.start), min(hole.end, run.end)
        self._hole(Hole(start, end, hole.time, hole.frame), cause)
        self.open.remove(hole)
        if hole.start < start:
            self.open.append(Hole(hole.start, start, hole.time, hole.frame))
        if end < hole.end:
            self.open.append(Hole(end, hole.end, hole.time, hole.frame))

    def _series(self, run: Run) -> None:
        if run.start == self.same_start:
            self.same_sends += 1
            if len(self.spacings) < 64:
                self.spacings.append(run.time - self.last_send)
            self.timeouts += self.last_cause in ("timeout", "read_rerequest")
        else:
            self.same_start, self.same_sends = run.start, 2
            self.timeouts = int(self.last_cause in ("timeout", "read_rerequest"))
            self.spacings = [run.time - run.sent_before] if run.sent_before >= 0 else []
        self.last_send = run.time
        if self.same_sends > self.most_sends:
            self.most_sends, self.most_start = self.same_sends, run.start

    def finish(self, acked: int) -> None:
        """Judge the holes that are left when the capture ends."""
        for hole in self.open:
            self._hole(hole, "capture_loss" if acked >= hole.end else "open")
        self.open = []
