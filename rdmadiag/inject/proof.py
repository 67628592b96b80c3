"""Two independent proofs that a fault fired: what its own means counted, and what else must have moved."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rdmadiag.faults import Moves, Plan
from rdmadiag.inject import _shell
from rdmadiag.inject.node import Node
from rdmadiag.inject.target import Aim

MOVE_IN_HEALTH = ("completer_retry_err", "duplicate_request", "local_ack_timeout_err")
"""RDMA counters that grow without a fault too, when a requester's timer is shorter than its peer takes to answer (12 to 36 resends in
4 s on rxe with timeout 14 in an emulated guest): they prove something only by growing faster than before the fault."""
STATES = ("file", "step")
"""Kinds of second proofs that are states, not counts: they are as before again when the fault is off."""
FEW = 3
"""Packets that must have been sent before it says something that none was received."""


class Proof(NamedTuple):
    """`answer` is yes, no or unknown; `text` says by what."""

    answer: str
    text: str
    values: Mapping[str, int | float] = {}


class Fired(NamedTuple):
    """Both proofs. A fault has fired when both say yes; that none says no is not enough."""

    own: Proof
    other: Proof

    @property
    def answer(self) -> str:
        """Return yes when both say so, no when its own means counted nothing or nothing else moved, else unknown."""
        answers = {self.own.answer, self.other.answer}
        return "yes" if answers == {"yes"} else "no" if "no" in answers else "unknown"


def counts(node: Node, plan: Plan, tag: str, last: bool = False) -> dict[str, int]:
    """Read what the steps of a plan have counted so far; `last`: it is about to be taken off, the watchdog is to wait for that."""
    found: dict[str, int] = {}
    for part in re.split(r"^step (?=\d+$)", node.run(_shell.counted_text(tag, last)).text, flags=re.M)[1:]:
        number, _, text = part.partition("\n")
        for name, value in plan.steps[int(number)].read(text).items():
            found[name] = found.get(name, 0) + value
    return found


LOG_BYTES = 1 << 18
"""Longest log of a fault's own program that is kept, its end [bytes]."""


def logged(node: Node, plan: Plan, tag: str) -> str:
    """Return what the fault's own program logged, as any program does; empty where it logs nothing."""
    if not plan.logs:
        return ""
    return node.run(
        f"cd {_shell.ROOT}/{tag} 2>/dev/null && tail -q -c {LOG_BYTES} {' '.join(plan.logs)} 2>/dev/null"
    ).text


_COUNTERS = r"""
for f in /sys/class/infiniband/*/ports/*/hw_counters/*; do
  read -r n 2>/dev/null < $f || continue
  d=${f#/sys/class/infiniband/}; echo "counter ${d%%/*} ${f##*/} $n"
done
"""


def _in_folder(aim: Aim, moves: Moves, place: str) -> dict[str, float]:
    text = f"cd {_shell.ROOT}/{aim.target.tag} 2>/dev/null || exit 0\n. ./functions\n"
    text += f"if [ -s before ]; then sed 's/^probe/was/' before; fi\n{moves.probe}"
    lines = [line.split() for line in aim.node(place).run(text).text.splitlines()]
    return {
        f"{words[0]} {words[1]}": float(words[2]) for words in lines if len(words) == 3 and words[0] in ("probe", "was")
    }


def observe(aim: Aim, moves: Moves, place_of_steps: str) -> dict[str, float]:
    """Read what the second proof compares: every RDMA counter, as DEVICE NAME, when it was (`seconds`), and what its kind adds."""
    found: dict[str, float] = {}
    for place in aim.places():
        extra = "read -r up rest < /proc/uptime; echo up $up\n"
        if moves.kind == "rate":
            names = " ".join(cable.netdev for cable in aim.target.cables if place in ("", cable.host))
            extra += f"for n in {names}; do read -r b < /sys/class/net/$n/statistics/rx_bytes && echo rx $b; done"
        elif moves.kind == "file":
            extra += moves.probe
        for line in aim.node(place).run(_COUNTERS + extra).text.splitlines():
            words = line.split()
            if words[:1] == ["counter"] and len(words) == 4:
                found[f"{words[1]} {words[2]}"] = float(words[3])
            elif words[:1] == ["rx"]:
                found["rx_bytes"] = found.get("rx_bytes", 0.0) + float(words[1])
            elif words[:1] == ["up"]:
                found["seconds"] = float(words[1])
            elif words[:1] == ["probe"] and len(words) == 3:
                found[f"probe {words[1]}{f' of {place}' if place else ''}"] = float(words[2])
    if moves.kind == "rtt":
        found |= _echo(aim)
    if moves.kind == "step":
        found |= _in_folder(aim, moves, place_of_steps)
    return found


# An ICMP echo by hand: not every node has ping. The answer may come by another netdev (in a lab of one kernel by lo).
_ECHO = r"""
import os, select, socket, struct, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[1].encode())
back = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
me, found = os.getpid() & 0xFFFF, []
for number in range(3):
    body = struct.pack(">HH", me, number) + bytes(8)
    total = 0x0800 + sum(struct.unpack(f">{len(body) // 2}H", body))
    total = (total & 0xFFFF) + (total >> 16)
    began = time.monotonic()
    out.sendto(struct.pack(">BBH", 8, 0, ~total & 0xFFFF) + body, (sys.argv[2], 0))
    while (left := began + 3 - time.monotonic()) > 0 and select.select([back], [], [], left)[0]:
        answer = back.recv(2048)
        if answer[20] == 0 and answer[24:28] == body[:4]:
            found.append(time.monotonic() - began)
            break
if found:
    print("rtt", min(found) * 1000)
"""


def _echo(aim: Aim) -> dict[str, float]:
    here, *others = aim.target.cables
    place = here.host if aim.target.apart else ""
    peer = (
        others[0].address if others else f"$(ip -4 neigh show dev {here.netdev} | grep -m1 REACHABLE | cut -d' ' -f1)"
    )
    text = aim.node(place).run(f"python3 -IS -c {shlex.quote(_ECHO)} {here.netdev} {peer}").text
    words = text.split()
    return {"rtt_ms": float(words[1])} if words[:1] == ["rtt"] else {}


def own_proof(plan: Plan, before: Mapping[str, int], now: Mapping[str, int]) -> Proof:
    """Compare what the fault's own means counted."""
    grown = {name: now[name] - before.get(name, 0) for name in plan.hits if name in now}
    if not grown:
        return Proof("unknown", f"what its own means counted ({', '.join(plan.hits)}) could not be read")
    told = ", ".join(f"{name} {value}" for name, value in grown.items())
    return Proof("yes" if any(value > 0 for value in grown.values()) else "no", f"its own means counted: {told}", grown)


class Seen(NamedTuple):
    """What was observed: some time before the fault, right before, and while it was on (a state: when it differed from before)."""

    earlier: Mapping[str, float] = {}
    before: Mapping[str, float] = {}
    on: Mapping[str, float] = {}


def _grown(names: Sequence[str], seen: Seen, now: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Return by how much counters grew that prove something, and those that did so no more than in health."""
    before, earlier = seen.before, seen.earlier
    keys = [key for key in now if key.rpartition(" ")[2] in names and key in before and now[key] > before[key]]
    grown = {key: now[key] - before[key] for key in keys}
    held, watched = (b.get("seconds", 0.0) - a.get("seconds", 0.0) for a, b in ((before, now), (earlier, before)))
    more = {}
    for key, value in grown.items():
        if key.rpartition(" ")[2] not in MOVE_IN_HEALTH:
            more[key] = value
        elif watched > 0 and key in earlier:
            # What in health may be seen in that time, after so many in the time before (an upper bound of a Poisson rate).
            seen_before = before[key] - earlier[key]
            if value > (seen_before + 3 + 2 * math.sqrt(max(0.0, seen_before))) * max(1.0, held / watched):
                more[key] = value
    return more, {key: value for key, value in grown.items() if key not in more}


def _silence(seen: Seen, now: Mapping[str, float], both_ends: bool) -> str:
    """Return how much was sent without being received since the fault was on; empty when it was not so.

    Where both ends are seen, as much is received as sent in health. One end alone gets an ACK for many packets, so nothing at all may
    have come.
    """
    sent, received = (
        sum(now[key] - seen.on[key] for key in now if key.rpartition(" ")[2] == name and key in seen.on)
        for name in ("sent_pkts", "rcvd_pkts")
    )
    lost = sent >= FEW and (received < sent / 2 if both_ends else not received)
    return f"{sent:g} packets were sent, {received:g} received" if lost else ""


def _counters(moves: Moves, seen: Seen, now: Mapping[str, float], both_ends: bool) -> Proof:
    if not any(key.rpartition(" ")[2] in moves.names and key in seen.before for key in now):
        return Proof("unknown", f"no RDMA counter {' or '.join(moves.names)} could be read")
    more, as_before = _grown(moves.names, seen, now)
    told = [f"{key} {value:g}" for key, value in more.items()]
    silent = _silence(seen, now, both_ends) if moves.silent else ""
    if told or silent:
        text = "; ".join(
            [*([f"RDMA counters moved: {', '.join(told)}"] if told else []), *([silent] if silent else [])]
        )
        return Proof("yes", text, more)
    if as_before:
        told = [f"{key} {value:g}" for key, value in as_before.items()]
        return Proof("unknown", f"RDMA counters moved, no faster than they may in health: {', '.join(told)}", as_before)
    return Proof("no", f"RDMA counters moved: none of {', '.join(moves.names)}")


def _were(now: Mapping[str, float]) -> dict[str, float]:
    return {key: value for key, value in now.items() if key.startswith("was ")}


def changed(moves: Moves, before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Return by how much each probe differs from before, or from what a step has written down before it changed anything."""
    was = {**before, **{key.replace("was ", "probe "): value for key, value in _were(now).items()}}
    return {
        key: value - was[key]
        for key, value in now.items()
        if key.startswith("probe ") and key in was and (value > was[key] if moves.grows else value != was[key])
    }


def other_proof(moves: Moves, seen: Seen, now: Mapping[str, float], both_ends: bool) -> Proof:
    """Compare what else must have moved. `both_ends`: what was observed is all hosts of the fault."""
    before = seen.before
    if moves.kind == "counter":
        return _counters(moves, seen, now, both_ends)
    if moves.kind == "rtt":
        if "rtt_ms" not in now or "rtt_ms" not in before:
            return Proof("unknown", "no ICMP echo over the switch was answered")
        more = now["rtt_ms"] - before["rtt_ms"]
        text = f"an ICMP echo over the switch took {now['rtt_ms']:.1f} ms, {before['rtt_ms']:.1f} before"
        return Proof("yes" if more >= moves.at_least else "no", text, {"rtt_ms": more})
    if moves.kind == "rate":
        seconds = now.get("seconds", 0.0) - before.get("seconds", 0.0)
        if seconds <= 0 or "rx_bytes" not in now or "rx_bytes" not in before:
            return Proof("unknown", "the bytes that the hosts received could not be read")
        rate = (now["rx_bytes"] - before["rx_bytes"]) / seconds
        text = f"hosts received {rate:.0f} bytes/s, at most {moves.at_most:.0f} may pass"
        return Proof("yes" if 0 < rate <= moves.at_most else "no", text, {"bytes_per_second": rate})
    # The watchdog may have taken the fault off before the last look, or those whom it hit have put things right; then an earlier one tells.
    moved = changed(moves, before, now) or changed(moves, before, {**seen.on, **_were(now)})
    moved |= _grown(
        moves.names, seen, {key: value for key, value in now.items() if not key.startswith(("probe ", "was "))}
    )[0]
    told = ", ".join(f"{key.removeprefix('probe ')} {value:+g}" for key, value in moved.items())
    if not any(key.startswith("probe ") for key in now):
        return Proof("unknown", "what else must have changed could not be read")
    return Proof("yes" if moved else "no", f"what else changed: {told or 'nothing'}", moved)
