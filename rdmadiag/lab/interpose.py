"""The program in a lab's switch that changes packets on their way: `python -S -m rdmadiag.lab.interpose [PLAN]`.

nftables rules (rdmadiag.lab.switch_rules) forward the packets of a change to a dummy netdev; they are read there, judged and
changed (rdmadiag.lab.decide), and sent out of the port that the bridge would have chosen, in batches, in their order.
Started by rdmadiag.lab.inflight, the first line of input is the plan, the others are commands; each is answered by one line, and the end of
the input, or a signal, ends it. As a step of an injection it has the plan (JSON) as its argument, no input, and prints what it did
each TELL_SECONDS. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rdmadiag.errors import HostRefused, RdmadiagError
from rdmadiag.lab import changes, switch_rules
from rdmadiag.lab.decide import PASS, Decider
from rdmadiag.lab.nft import Nft
from rdmadiag.roce.send import Header, Iovec, libc, open_socket

SLOTS = 64
SLOT_BYTES = 10240
BUFFER_BYTES = 64 << 20
REFRESH_SECONDS = 2.5
TELL_SECONDS = 0.3
RATE = "120mbit"
"""What visits the program at most: 4 KiB packets at about half of what it can do in an emulated guest that is not busy."""
PREFIX = "rdf"
"""Dummy netdevs are called rdf and the process number."""
_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_MSG_DONTWAIT = 0x40
_WORDS = ctypes.sizeof(Header) // 4
_LENGTH_WORD = Header.length.offset // 4


class _Batch:
    # Arrays for recvmmsg and sendmmsg over one buffer; a vector is two 64-bit words, base and length.
    def __init__(self, count: int) -> None:
        self.headers = (Header * count)()
        self._vectors = (Iovec * count)()
        for n in range(count):
            self.headers[n].message.iov = ctypes.pointer(self._vectors[n])
            self.headers[n].message.iov_length = 1
        self.vectors = memoryview(self._vectors).cast("B").cast("Q")
        self.lengths = memoryview(self.headers).cast("B").cast("I")[_LENGTH_WORD::_WORDS]


def _room(opened: socket.socket, force: int, ask: int) -> None:
    # In a namespace of an ordinary user the kernel gives no more than its limit (net.core.rmem_max).
    try:
        opened.setsockopt(socket.SOL_SOCKET, force, BUFFER_BYTES)
    except PermissionError:
        opened.setsockopt(socket.SOL_SOCKET, ask, BUFFER_BYTES)


class Wire:
    """Sockets: what arrives at the dummy netdev, and each port's way out."""

    def __init__(self, netdev: str) -> None:
        self.listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        _room(self.listener, _SO_RCVBUFFORCE, socket.SO_RCVBUF)
        self.listener.bind((netdev, _ETH_P_ALL))
        self._ways: dict[str, socket.socket] = {}
        self._libc = libc()
        self._memory = bytearray(SLOTS * SLOT_BYTES)
        self._hold = (ctypes.c_char * len(self._memory)).from_buffer(self._memory)
        self._base = ctypes.addressof(self._hold)
        self._in, self._out = _Batch(SLOTS), _Batch(SLOTS)
        for n in range(SLOTS):
            self._in.vectors[2 * n], self._in.vectors[2 * n + 1] = self._base + n * SLOT_BYTES, SLOT_BYTES
        whole = memoryview(self._memory)
        self._slots = [whole[n * SLOT_BYTES : (n + 1) * SLOT_BYTES] for n in range(SLOTS)]
        self.received = self.sent = self.queue_full = self.lost = self.no_port = 0

    def read(self) -> list[memoryview]:
        """Return the frames that are there, at most SLOTS; they are valid, and may be changed, until the next call."""
        count = self._libc.recvmmsg(self.listener.fileno(), ctypes.byref(self._in.headers), SLOTS, _MSG_DONTWAIT, None)
        if count <= 0:
            return []
        self.received += count
        lengths = self._in.lengths[:count].tolist()
        return [slot[:size] for slot, size in zip(self._slots, lengths, strict=False)]

    def write(self, port: str, frames: Sequence[memoryview | bytes]) -> None:
        """Send frames by a port in their order; what its queue does not take is lost there, as it would be behind the bridge."""
        if not port:
            self.no_port += len(frames)
            return
        way = self._ways.get(port)
        if way is None:
            way = self._ways[port] = open_socket(port)
            _room(way, _SO_SNDBUFFORCE, socket.SO_SNDBUF)
        vectors = self._out.vectors
        for first in range(0, len(frames), SLOTS):
            part = frames[first : first + SLOTS]
            keep = []
            for n, frame in enumerate(part):
                data = frame
                if isinstance(data, bytes):
                    data = memoryview(bytearray(data))
                keep.append((ctypes.c_char * len(data)).from_buffer(data))
                vectors[2 * n], vectors[2 * n + 1] = ctypes.addressof(keep[-1]), len(data)
            self._send(way, port, len(part))

    def _send(self, way: socket.socket, port: str, count: int) -> None:
        done = 0
        size = ctypes.sizeof(Header)
        while done < count:
            taken = self._libc.sendmmsg(way.fileno(), ctypes.byref(self._out.headers, done * size), count - done, 0)
            if taken > 0:
                done += taken
                self.sent += taken
                continue
            number = ctypes.get_errno()
            if number == errno.EINTR:
                continue
            if number not in (errno.ENOBUFS, errno.EAGAIN):
                raise HostRefused(f"send by {port}", os.strerror(number))
            self.queue_full += 1
            done += 1

    def losses(self) -> int:
        """Return how many packets the kernel dropped because this program was too slow."""
        _, dropped = struct.unpack("II", self.listener.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self.lost += dropped
        return self.lost


class Program:
    """A plan at work."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.changes = changes.read(plan["changes"], plan.get("accept", ()))
        cables = plan["links"]
        hosts = {bytes.fromhex(c["mac"].replace(":", "")): (c["host"], c["port"]) for c in cables}
        macs: dict[str, list[str]] = {}
        for cable in cables:
            macs.setdefault(cable["host"], []).append(cable["mac"])
        self.decider = Decider([change for change in self.changes if not change.in_kernel], hosts)
        self.name = f"rdmadiag_inflight_{os.getpid()}"
        self.netdev = str(plan.get("netdev") or f"{PREFIX}{os.getpid()}")
        self.nft = Nft()
        _remove_left_over()
        _ip("link", "add", self.netdev, "mtu", str(SLOT_BYTES - 64), "type", "dummy")
        with contextlib.suppress(OSError):  # a kernel without IPv6; the netdev shall say nothing by itself
            Path(f"/proc/sys/net/ipv6/conf/{self.netdev}/disable_ipv6").write_text("1")
        _ip("link", "set", self.netdev, "up")
        # rxe has at most 64 packets of a QP in queues, but without end of those that were copied out to a program: they wait here.
        _run(
            "tc", "qdisc", "add", "dev", self.netdev, "root", "tbf", "rate", RATE, "burst", "65536", "limit", "4194304"
        )
        self.wire = Wire(self.netdev)
        ports = {c["port"]: c["host"] for c in cables}
        self.nft.run(switch_rules.table(self.name, self.changes, ports, macs, self.netdev))
        self._refreshed = time.monotonic()
        self._kernel: dict[str, tuple[int, int]] = {}

    def run(self, commands: bool = True) -> None:
        """Change packets until the input ends; without `commands` until a signal ends it, and tell what was done."""
        poll = select.poll()
        poll.register(self.wire.listener, select.POLLIN)
        if commands:
            poll.register(0, select.POLLIN | select.POLLHUP)
        rest, tell = b"", float("inf") if commands else 0.0
        while True:
            now = time.monotonic()
            if now >= tell:
                say(sums(self.counts()))
                tell = now + TELL_SECONDS
            if now - self._refreshed > REFRESH_SECONDS:
                self.nft.run(switch_rules.refresh(self.name))
                self._refreshed = now
            due = self.decider.next_due()
            wait = min(self._refreshed + REFRESH_SECONDS, tell, due if due is not None else float("inf")) - now
            ready = dict(poll.poll(max(wait, 0) * 1000))
            if 0 in ready:
                data = os.read(0, 65536)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._command(line)
            self._pass_on()

    def _pass_on(self) -> None:
        decider, wire = self.decider, self.wire
        while True:
            now = time.monotonic()
            frames = wire.read()
            self._send(decider.due(now))
            port = ""
            batch: list[memoryview | bytes] = []
            for frame in frames:
                out = decider.take(frame, now)
                if decider.flow.port != port:
                    if batch:
                        wire.write(port, batch)
                    port, batch = decider.flow.port, []
                if out is PASS:
                    batch.append(frame)
                else:
                    batch += [frame if data is None else data for data in out]
            if batch:
                wire.write(port, batch)
            if len(frames) < SLOTS:
                break
            if time.monotonic() - self._refreshed > REFRESH_SECONDS:
                return
        while decider.found:  # all that came before is sent, so little can overtake
            change, flow = decider.found.pop()
            self.nft.run(switch_rules.found(self.name, self.changes.index(change), flow.qpn))

    def _send(self, packets: list[tuple[str, bytes]]) -> None:
        for port, data in packets:
            self.wire.write(port, [data])

    def _command(self, line: bytes) -> None:
        try:
            command = json.loads(line)
            do = command["do"]
            if do == "release":
                self._pass_on()
                self._send(self.decider.release(command.get("name", "")))
            elif do != "counts":
                raise ValueError(f"no command {do!r}; known: counts, release")
            say(self.counts())
        except (ValueError, KeyError, TypeError) as error:
            say({"error": f"{type(error).__name__}: {error}"})

    def counts(self) -> dict[str, Any]:
        """Return what every change did, and what passed through the program."""
        listed = switch_rules.counters(self.nft.run(f"list counters table netdev {self.name}"))
        at_work = {rule.change.name: rule for rule in self.decider.rules}
        found = []
        for n, change in enumerate(self.changes):
            entry: dict[str, Any] = {"name": change.name, "action": change.action.do, "seed": change.match.seed}
            if change.in_kernel:
                done, size = listed[f"c{n}"]
                entry |= {
                    "where": "kernel",
                    "seen": listed[f"s{n}"][0],
                    "matched": done,
                    "done": done,
                    "missed": 0,
                    "bytes": size,
                }
            else:
                rule = at_work[change.name]
                entry |= {
                    "where": "program",
                    **vars(rule.counts),
                    "kept": sum(not h.gone for h in rule.held),
                }
            found.append(entry)
        wire = self.wire
        passed = {"visited": wire.received, "sent": wire.sent, "queue_full": wire.queue_full, "lost": wire.losses()}
        return {"schema": "rdmadiag.inflight/1", "changes": found, **passed, "without_port": wire.no_port}

    def close(self) -> dict[str, Any]:
        """Let traffic pass by itself again, send what was kept, and return the last counts."""
        self.nft.run(f"flush table netdev {self.name}")
        self._pass_on()
        time.sleep(0.02)  # what another processor was just forwarding to us
        self._pass_on()
        self._send(self.decider.due(float("inf")))
        last = self.counts()
        self.nft.run(f"delete table netdev {self.name}")
        _ip("link", "del", self.netdev)
        return last


def sums(counts: dict[str, Any]) -> dict[str, int]:
    """Return what all changes did together, and what passed through the program, as plain numbers."""
    passed = {name: counts[name] for name in ("visited", "queue_full", "lost")}
    return {n: sum(entry[n] for entry in counts["changes"]) for n in ("seen", "matched", "done", "missed")} | passed


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise HostRefused(" ".join(words), ran.stderr.strip() or f"exit code {ran.returncode}")


def _remove_left_over() -> None:
    # A program that was killed leaves its dummy, to which nothing is forwarded any more.
    for entry in Path("/sys/class/net").iterdir() if Path("/sys/class/net").is_dir() else ():
        number = entry.name.removeprefix(PREFIX)
        if entry.name.startswith(PREFIX) and number.isdigit() and not Path(f"/proc/{number}").exists():
            _ip("link", "del", entry.name)


def say(answer: dict[str, Any]) -> None:
    """Write one line of JSON."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _first_line() -> bytes:
    # Not by sys.stdin: what it reads ahead would not be seen by poll. No command comes before our first answer.
    line = b""
    while not line.endswith(b"\n") and (part := os.read(0, 65536)):
        line += part
    return line


class _Ended(Exception):
    pass


def _end(*_: object) -> None:
    raise _Ended


def main() -> int:
    """Run the plan that is the argument, or the first line of the input."""
    given = sys.argv[1:]
    try:
        program = Program(json.loads(given[0] if given else _first_line()))
    except (RdmadiagError, OSError, KeyError, TypeError, ValueError) as error:
        if given:
            sys.stderr.write(f"rdmadiag: {type(error).__name__}: {error}\n")
        else:
            say({"error": f"{type(error).__name__}: {error}"})
        return 2
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        if not given:
            say({"ready": program.name, "pid": os.getpid()})
        program.run(commands=not given)
    except (_Ended, BrokenPipeError):
        pass
    last = program.close()
    try:
        say(sums(last) if given else last)
    except BrokenPipeError:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
