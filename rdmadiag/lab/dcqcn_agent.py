"""DCQCN for a host whose device has none, emulated: `python -S -m rdmadiag.lab.dcqcn_agent PLAN` (JSON), one process a netdev.

As notification point it hears packets that arrive marked CE, and sends their sender a CNP; as reaction point it hears CNPs, and gives the
queue pair that they name an HTB class of its own, whose rate it sets by rdmadiag.lab.dcqcn. The root qdisc (HANDLE) must be there already.
Every half second it prints one JSON object: packets counted, and the rate of each queue pair that was cut [bit/s]. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from rdmadiag.errors import BadInput, HostRefused, RdmadiagError
from rdmadiag.lab.dcqcn import SETS, NotificationPoint, Parameters, ReactionPoint
from rdmadiag.netlink.nldev import rdma
from rdmadiag.netlink.wire import attributes, exchange, messages, span
from rdmadiag.roce import forge, forger

HANDLE = "6d1d:"
"""The root qdisc on the host's netdev."""
ACKS = 1
"""Class of the answers, which no queue pair's rate limits; from the next number on one class a queue pair."""
TELL_SECONDS = 0.5
ASK_SECONDS = 0.1
"""Least time between two questions to the kernel for queue pairs."""
MOST_FLOWS = 4000
_CNP = 0x81
_ETH_P_IP = 0x0800
_SO_ATTACH_FILTER = 26
_GET_TCLASS = 42  # RTM_GETTCLASS
_TCA_STATS2, _TCA_STATS_BASIC = 7, 1
_QUANTUM = 9000


def marked_or_cnp() -> bytes:
    """Return the socket filter that lets IPv4 packets to UDP 4791 pass that are CNPs or marked CE."""
    program = [
        (0x30, 0, 0, 23),
        (0x15, 0, 8, 17),
        (0x28, 0, 0, 36),
        (0x15, 0, 6, 4791),
        (0x30, 0, 0, 42),  # BTH opcode
        (0x15, 3, 0, _CNP),
        (0x30, 0, 0, 15),  # TOS
        (0x54, 0, 0, 3),
        (0x15, 0, 1, 3),
        (0x06, 0, 0, 0xFFFF),
        (0x06, 0, 0, 0),
    ]
    return b"".join(struct.pack("HBBI", *one) for one in program)


def root_lines(netdev: str, rate: int) -> list[str]:
    """Return the `tc` lines that make the root qdisc, and the class for answers (ACKs, CNPs)."""
    answers = f"filter add dev {netdev} parent {HANDLE} protocol ip prio 1 u32 match ip protocol 17 0xff match u16 4791 0xffff at 22"
    return [
        f"qdisc add dev {netdev} root handle {HANDLE} htb direct_qlen 20000",
        f"class add dev {netdev} parent {HANDLE} classid {HANDLE}{ACKS} {_htb(max(rate * 10, 10**9))}",
        f"{answers} match u8 0x11 0xff at 28 flowid {HANDLE}{ACKS}",
        f"{answers} match u8 {_CNP:#x} 0xff at 28 flowid {HANDLE}{ACKS}",
    ]


def _htb(rate: float) -> str:
    burst = max(int(rate / 8 * 0.004), 2 * _QUANTUM)  # an emulated host's timers come late
    return f"htb rate {int(rate)}bit burst {burst} cburst {burst} quantum {_QUANTUM}"


class Flow:
    """One queue pair of this host whose rate is cut: its class and where its packets go."""

    def __init__(self, minor: int, parameters: Parameters, now: float) -> None:
        self.minor, self.point = minor, ReactionPoint(parameters, now)
        self.set_rate = 0.0
        self.bytes = 0


def peers(device: str) -> dict[int, int]:
    """Return the number of the other end of each RC queue pair of a device by its own. Raises OSError."""
    return {
        qp["lqpn"]: qp["rqpn"]
        for qp in rdma("res show qp")
        if qp.get("ifname") == device and qp.get("type") == "RC" and qp.get("rqpn")
    }


def class_bytes(netdev: str) -> dict[int, int]:
    """Return the bytes that each class of the root qdisc has sent, by its number (uapi/linux/rtnetlink.h, gen_stats.h). Raises OSError."""
    index = socket.if_nametoindex(netdev)
    data = exchange(socket.NETLINK_ROUTE, _GET_TCLASS, struct.pack("=BxxxiIII", 0, index, 0, 0, 0))
    found = {}
    for kind, _, start, stop in messages(data):
        if kind < 16 or stop - start < 20:
            continue
        (handle,) = struct.unpack_from("=I", data, start + 8)
        outer: dict[str, Any] = attributes(data, start + 20, stop, {_TCA_STATS2: ("stats", span)}, {})
        if "stats" in outer:
            first, last = outer["stats"]
            inner: dict[str, Any] = attributes(data, first, last, {_TCA_STATS_BASIC: ("basic", span)}, {})
            if "basic" in inner:
                (found[handle & 0xFFFF],) = struct.unpack_from("=Q", data, inner["basic"][0])
    return found


class Agent:
    """Both points of one netdev. `tc` takes lines of `tc -batch`; `send` sends a frame."""

    def __init__(self, plan: dict[str, Any], tc: Callable[[str], object], send: Callable[[bytes], object]) -> None:
        """Raise BadInput for a plan that is none."""
        try:
            self.netdev, self.device = str(plan["netdev"]), str(plan["device"])
            self.parameters = SETS[plan["like"]].scaled(float(plan["line"]), float(plan["slower"]))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"a plan of the DCQCN agent: {type(error).__name__}: {error}") from error
        self._tc, self._send = tc, send
        self.notify = NotificationPoint(self.parameters)
        self.flows: dict[int, Flow] = {}
        self._peers: dict[int, int] = {}
        self._asked = float("-inf")
        self.counts = {"ce_seen": 0, "cnps_sent": 0, "cnps_heard": 0, "rate_cuts": 0, "unknown_qps": 0}

    def take(self, frame: bytes, now: float) -> None:
        """Take a packet that arrived: a CNP, or one that is marked."""
        heard = forger.hear(frame)
        if heard is None:
            return
        if heard.opcode == _CNP:
            self.counts["cnps_heard"] += 1
            self._cut(heard.dest_qp, heard.path.src, now)
        elif frame[15] & 3 == 3 and heard.opcode < 0x20:
            self.counts["ce_seen"] += 1
            if self.notify.marked(heard.dest_qp, now) and (peer := self._peer(heard.dest_qp, now)):
                self._send(forge.cnp(heard.path.back(), dest_qp=peer).data)
                self.counts["cnps_sent"] += 1

    def _peer(self, qpn: int, now: float) -> int | None:
        if qpn not in self._peers and now - self._asked > ASK_SECONDS:
            self._peers, self._asked = peers(self.device), now
        if qpn not in self._peers:
            self.counts["unknown_qps"] += 1
        return self._peers.get(qpn)

    def _cut(self, qpn: int, address: str, now: float) -> None:
        flow = self.flows.get(qpn)
        if flow is None:
            peer = self._peer(qpn, now)
            if peer is None or len(self.flows) >= MOST_FLOWS:
                return
            flow = self.flows[qpn] = Flow(ACKS + 1 + len(self.flows), self.parameters, now)
            self._tc(
                f"class add dev {self.netdev} parent {HANDLE} classid {HANDLE}{flow.minor:x} {_htb(self.parameters.line)}\n"
                f"filter add dev {self.netdev} parent {HANDLE} protocol ip prio 2 u32 match ip dst {address} match ip protocol 17 0xff "
                f"match u16 4791 0xffff at 22 match u32 {peer:#x} 0x00ffffff at 32 flowid {HANDLE}{flow.minor:x}\n"
            )
        flow.point.cnp(now)
        self.counts["rate_cuts"] += 1
        self._set(flow)

    def _set(self, flow: Flow) -> None:
        rate = flow.point.rate
        if abs(rate - flow.set_rate) > 0.005 * flow.set_rate or (rate == self.parameters.line != flow.set_rate):
            self._tc(f"class change dev {self.netdev} parent {HANDLE} classid {HANDLE}{flow.minor:x} {_htb(rate)}\n")
            flow.set_rate = rate

    def due(self) -> float | None:
        """Return when a timer expires next."""
        return min((at for flow in self.flows.values() if (at := flow.point.due()) is not None), default=None)

    def go_on(self, now: float, sent: dict[int, int]) -> None:
        """Let time pass; `sent` is what each class has sent so far."""
        for flow in self.flows.values():
            before, flow.bytes = flow.bytes, sent.get(flow.minor, flow.bytes)
            flow.point.go_on(now, max(flow.bytes - before, 0))
            self._set(flow)

    def told(self, seconds: float) -> str:
        """Return a line: what was counted, the rates [bit/s], and that all of this is emulated."""
        rates = {str(qpn): round(flow.point.rate) for qpn, flow in self.flows.items()}
        return json.dumps({**self.counts, "seconds": round(seconds, 3), "rates": rates, "emulated": True})


def listen(netdev: str) -> socket.socket:
    """Return a socket that hears what arrives marked or is a CNP, and sends by the netdev. Raises HostRefused."""
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        code = ctypes.create_string_buffer(marked_or_cnp())
        opened.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(code))
        )
        opened.bind((netdev, _ETH_P_IP))  # of this protocol alone: what leaves is not heard
    except OSError as error:
        raise HostRefused(f"listen at {netdev}", os.strerror(error.errno or 0), "run as root (CAP_NET_RAW)") from error
    opened.setblocking(False)
    return opened


def run(agent: Agent, link: socket.socket, tc: subprocess.Popen[str]) -> None:
    """Act until the process is ended, or `tc` ends."""
    began, told = time.monotonic(), 0.0
    while tc.poll() is None:
        due, now = agent.due(), time.monotonic()
        wait = TELL_SECONDS if due is None else min(max(due - now, 0.0), TELL_SECONDS)
        for _ in range(64 if select.select([link], [], [], wait)[0] else 0):
            try:
                frame = link.recv(65536)
            except BlockingIOError:
                break
            agent.take(frame, time.monotonic())
        now = time.monotonic()
        if (due := agent.due()) is not None and due <= now:
            agent.go_on(now, class_bytes(agent.netdev))
        if now - told >= TELL_SECONDS:
            told = now
            sys.stdout.write(agent.told(now - began) + "\n")
            sys.stdout.flush()
    raise HostRefused("tc -batch", f"it ended with exit code {tc.returncode}")


def main() -> int:
    """Run a plan given as the first argument."""
    try:
        plan = json.loads(sys.argv[1])
        with subprocess.Popen(["tc", "-force", "-batch", "-"], stdin=subprocess.PIPE, text=True, bufsize=1) as tc:
            link = listen(str(plan["netdev"]))
            assert tc.stdin
            agent = Agent(plan, tc.stdin.write, link.send)
            peers(agent.device)  # what cannot be asked is said before anything begins
            run(agent, link, tc)
    except (RdmadiagError, OSError, ValueError, IndexError, KeyError, TypeError) as error:
        sys.stderr.write(f"rdmadiag: {type(error).__name__}: {error}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
