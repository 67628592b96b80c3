"""What becomes of a packet that was taken out of the switch: it passes, changed or not, later, twice, behind others, or not at all.

Pure state over frames; sockets are rdmadiag.lab.interpose. Standard library only, and little work for a packet that only passes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rdmadiag.lab.changes import Change
from rdmadiag.roce import packet

PASS: list[bytes | None] = [None]
"""The frame itself, as it now is in its buffer, and nothing else."""
REMEMBERED_PSNS = 1 << 16
"""Newest PSNs of a QP whose repeats are counted."""
ANSWERS = frozenset((0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12))
"""RC opcodes whose PSNs are those of the other direction's requests."""
HELD_BYTES = 64 << 20
"""Most bytes of packets kept back; beyond it they pass, and are counted as missed."""


@dataclass
class Counts:
    """Packets that met a change's conditions (`seen`), were chosen by occurrence, probability and budget, and were changed.

    `missed` were chosen, but have no such field or byte, or there was no room to keep them.
    """

    seen: int = 0
    matched: int = 0
    done: int = 0
    missed: int = 0
    bytes: int = 0


@dataclass(eq=False)
class _Held:
    # One packet kept back: for a time, until packets of its flow went by, or until it is released.
    data: bytes
    port: str
    left: int = 0
    gone: bool = False


@dataclass(eq=False)
class Flow:
    """One QP in one direction: hosts, the port it leaves by, and the changes that may meet its packets."""

    source: str
    target: str
    port: str
    qpn: int
    rules: tuple[_Rule, ...] = ()
    first: int = -1
    psns: dict[int, int] = field(default_factory=dict)
    waiting: list[_Held] = field(default_factory=list)

    def repeats(self, psn: int, code: int) -> int:
        """Note a PSN; return how often it was seen before, of requests and of answers apart."""
        if self.first < 0:
            self.first = psn
        key = psn | 1 << 24 if code in ANSWERS else psn
        before = self.psns.get(key, 0)
        self.psns[key] = before + 1
        if len(self.psns) > REMEMBERED_PSNS:
            del self.psns[next(iter(self.psns))]
        return before


@dataclass(eq=False)
class _Rule:
    # A change at work: its counts, chance and what is left of it.
    change: Change
    counts: Counts = field(default_factory=Counts)
    chance: Any = None
    hit: list[bool] = field(default_factory=list)
    """Whether a seed chooses the n-th packet, for a whole period."""
    chosen_of: int = 0
    qps: int = 0
    open: bool = True
    held: list[_Held] = field(default_factory=list)


class Decider:
    """All changes of one program. `hosts` maps a MAC address (6 bytes) to the host's name and the switch port towards it."""

    def __init__(self, changes: Sequence[Change], hosts: dict[bytes, tuple[str, str]]) -> None:
        self.hosts = hosts
        self.rules = [_Rule(change) for change in changes]
        for rule in self.rules:
            chosen = rule.change.match.chosen()
            if chosen:
                rule.hit = [False] * chosen[0]
                for number in chosen[1]:
                    rule.hit[number] = True
            elif rule.change.match.probability is not None:
                import random

                rule.chance = random.random
        self.flows: dict[bytes, Flow] = {}
        self.found: list[tuple[Change, Flow]] = []
        """QPs that were the n-th, as they were found."""
        self.flow = Flow("", "", "", 0)
        """The flow of the packet taken last."""
        self.held_bytes = 0
        self._later: list[tuple[float, int, _Held]] = []
        self._number = 0

    def take(self, frame: memoryview, now: float) -> list[bytes | None]:
        """Return what is sent now for a frame, in order: None is the frame itself, changed in its buffer or not; `flow.port` says where to.

        `now` [s] is of any clock that does not go back.
        """
        size, bth = len(frame), -1
        if size >= 58:  # of the shortest packet, over IPv4
            bth = 42 if frame[12] == 8 and frame[14] == 0x45 else 62 if frame[12] == 0x86 else -1
        if bth < 0 or size < bth + 16:
            at = packet.places(frame)
            if at is None:
                self.flow = self._flow_to(frame)
                return PASS
            bth = at.bth
        key = bytes(frame[:12]) + frame[bth + 5 : bth + 8]
        flow = self.flows.get(key)
        if flow is None:
            flow = self._meet(key)
        self.flow = flow
        if not flow.rules:
            return PASS
        psn = frame[bth + 9] << 16 | frame[bth + 10] << 8 | frame[bth + 11]
        repeats = flow.repeats(psn, frame[bth])
        for rule in flow.rules:
            if rule.open and self._meets(rule, flow, frame, frame[bth], psn, repeats):
                return self._passed(flow, self._act(rule, flow, frame, now))
        return self._passed(flow, PASS) if flow.waiting else PASS

    def _flow_to(self, frame: memoryview) -> Flow:
        _, port = self.hosts.get(bytes(frame[:6]), ("", ""))
        return Flow("", "", port, 0)

    def _meet(self, key: bytes) -> Flow:
        source = self.hosts.get(key[6:12], ("", ""))[0]
        target, port = self.hosts.get(key[:6], ("", ""))
        flow = self.flows[key] = Flow(source, target, port, int.from_bytes(key[12:15], "big"))
        rules = []
        for rule in self.rules:
            match = rule.change.match
            if match.source not in ("", source) or match.target not in ("", target):
                continue
            if match.nth_qp and flow.qpn > 1:  # 0 and 1 are management's
                rule.qps += 1
                if rule.qps == match.nth_qp:
                    self.found.append((rule.change, flow))
            if match.qp not in (None, flow.qpn) or (match.nth_qp and (flow.qpn <= 1 or rule.qps != match.nth_qp)):
                continue
            rules.append(rule)
        flow.rules = tuple(rules)
        return flow

    def _meets(self, rule: _Rule, flow: Flow, frame: memoryview, code: int, psn: int, repeats: int) -> bool:
        m, counts = rule.change.match, rule.counts
        if m.opcodes and code not in m.opcodes:
            return False
        if m.psn and not m.psn[0] <= psn <= m.psn[1]:
            return False
        if m.psn_relative and not m.psn_relative[0] <= (psn - flow.first) & 0xFFFFFF <= m.psn_relative[1]:
            return False
        if m.retransmission and not m.retransmission[0] <= repeats <= m.retransmission[1]:
            return False
        if m.rkey is not None or m.syndrome:
            at = packet.places(frame)
            if at is None or m.rkey not in (None, packet.get(frame, "rkey", at)):
                return False
            if m.syndrome and not m.syndrome[0] <= (packet.get(frame, "syndrome", at) or 0) <= m.syndrome[1]:
                return False
        counts.seen += 1
        if m.occurrence and not m.occurrence[0] <= counts.seen <= m.occurrence[1]:
            return False
        if rule.hit:
            rule.chosen_of += 1
            if not rule.hit[(rule.chosen_of - 1) % len(rule.hit)]:
                return False
        if rule.chance is not None and rule.chance() >= m.probability:
            return False
        return m.budget is None or counts.matched < m.budget

    def _act(self, rule: _Rule, flow: Flow, frame: memoryview, now: float) -> list[bytes | None]:
        action, counts = rule.change.action, rule.counts
        counts.matched += 1
        counts.bytes += len(frame)
        if action.do == "drop":
            counts.done += 1
            return []
        if action.do == "duplicate":
            counts.done += 1
            return [None] * (1 + action.copies)
        if action.do in ("delay", "reorder", "hold"):
            if self.held_bytes + len(frame) > HELD_BYTES:
                counts.missed += 1
                return PASS
            counts.done += 1
            held = _Held(bytes(frame), flow.port, action.by if action.do == "reorder" else 0)
            self.held_bytes += len(frame)
            self._number += 1
            heapq.heappush(self._later, (now + action.seconds, self._number, held))
            if action.do == "reorder":
                flow.waiting.append(held)
            elif action.do == "hold":
                rule.held.append(held)
            return []
        changed = _change(frame, rule.change)
        counts.done += changed
        counts.missed += not changed
        return PASS

    def _passed(self, flow: Flow, out: list[bytes | None]) -> list[bytes | None]:
        # A packet kept back by `reorder` goes behind the n-th packet after it.
        if not flow.waiting or not out:
            return out
        found = list(out)
        for held in list(flow.waiting):
            held.left -= 1
            if held.left <= 0 or held.gone:
                flow.waiting.remove(held)
                found += self._let_go(held)
        return found

    def _let_go(self, held: _Held) -> list[bytes]:
        if held.gone:
            return []
        held.gone = True
        self.held_bytes -= len(held.data)
        return [held.data]

    def due(self, now: float) -> list[tuple[str, bytes]]:
        """Return port and bytes of the packets whose time has come."""
        found = []
        while self._later and (self._later[0][2].gone or self._later[0][0] <= now):
            held = heapq.heappop(self._later)[2]
            found += [(held.port, data) for data in self._let_go(held)]
        return found

    def next_due(self) -> float | None:
        """Return when the next kept packet is due; None when none is kept."""
        while self._later and self._later[0][2].gone:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def release(self, name: str = "") -> list[tuple[str, bytes]]:
        """Return what a `hold` (all of them without a name) kept back, and let its packets pass from now on."""
        found = []
        for rule in self.rules:
            if rule.change.action.do == "hold" and name in ("", rule.change.name):
                rule.open = False
                found += [(held.port, data) for held in rule.held for data in self._let_go(held)]
                rule.held.clear()
        return found


def _change(frame: memoryview, change: Change) -> bool:
    # In the frame's own buffer; False where it has no such field or byte.
    at = packet.places(frame)
    if at is None:
        return False
    action = change.action
    if action.do == "mark_ce":
        packet.mark_ce(frame, at)
        return True
    if action.do == "corrupt":
        if at.data + action.offset >= at.icrc - (frame[at.bth + 1] >> 4 & 3):
            return False
        frame[at.data + action.offset] ^= action.mask
        if action.valid_icrc:
            packet.seal(frame, at)
        return True
    if any(packet.field_at(name, at) is None for name, _ in action.values):
        return False
    for name, value in action.values:
        packet.put(frame, name, value, at)
    packet.seal(frame, at)
    return True
