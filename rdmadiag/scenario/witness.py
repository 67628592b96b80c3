"""What sees a host while a scenario runs on it: `python -m rdmadiag.scenario.witness SECONDS FIFO`, in the lab.

It prints a sample of counters, QP and port states every SECONDS, and for each line `collect NAME` in FIFO (made by it) the bundle that
`rdmadiag collect` would write (in parts, base64), and warnings of the kernel as they come: lines of JSON, {"hello"}, {"sample"},
{"bundle"}, {"kernel"}. `record NETDEV` begins a capture of RoCE packets, `recorded NETDEV` ends it and hands it over as a bundle of
that name. `warm` lets it look once by itself, so that what a look loads and compiles is there for all that come. It ends with its input; of
the node it changes nothing.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

CLASS = "/sys/class/infiniband"
BUDGET_SECONDS = 30.0
PATIENCE = 8.0
"""An emulated host is slow: a source that was cut off would be a gap that no real node has."""
WARNING = re.compile(
    r"\bWARNING: CPU|\bBUG: |\bOops\b|[Ss]oft lockup|[Hh]ard LOCKUP|general protection fault|blocked for more than|rcu.*\bstalls?\b"
)
"""What the kernel prints when something of its own went wrong (kernel/panic.c, kernel/watchdog.c, kernel/hung_task.c, RCU)."""
PIECE = 32 << 10
"""Longest part of a bundle in one line [characters]."""
SNAPLEN = 9000
"""Whole packets are kept: only of those the ICRC can be checked [bytes]."""
CAPTURE_BYTES = 256 << 20
"""Most of a capture that is kept [bytes]."""
PACKED = "packed"


def sample() -> dict[str, Any]:
    """Return counters by device, RC queue pairs by state, and port states, as they are now; what cannot be read is left out."""
    counters: dict[str, dict[str, int]] = {}
    ports: dict[str, str] = {}
    for device in _names(CLASS):
        for port in _names(f"{CLASS}/{device}/ports"):
            place = f"{CLASS}/{device}/ports/{port}"
            ports[f"{device}/{port}"] = _text(f"{place}/state").partition(": ")[2] or "unknown"
            values = {name: _text(f"{place}/hw_counters/{name}") for name in _names(f"{place}/hw_counters")}
            counters[f"{device}/{port}"] = {n: int(v) for n, v in values.items() if v.isdecimal() and n != "lifespan"}
    return {"uptime": time.monotonic(), "counters": counters, "ports": ports, "qps": _qps()}


def _qps() -> dict[str, int] | None:
    from rdmadiag.netlink import NetlinkError, rdma

    try:
        found = rdma("res show qp")
    except (NetlinkError, OSError):
        return None
    return dict(Counter(str(qp.get("state")) for qp in found if qp.get("type") == "RC"))


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _collect(folder: str) -> None:
    from rdmadiag.diagnose import capture
    from rdmadiag.host.live import LiveHost

    capture.write(f"{folder}/node.tar.gz", capture.capture(LiveHost(), 0.0, BUDGET_SECONDS, patience=PATIENCE))
    os.rename(f"{folder}/node.tar.gz", f"{folder}/{PACKED}")


def _warm() -> None:
    from rdmadiag import sources
    from rdmadiag.evidence.children import run_source
    from rdmadiag.host.live import LiveHost

    host = LiveHost()
    for name, module in sources.load().items():
        for _ in run_source(name, module, host) if hasattr(module, "read") else ():
            pass


def main(every: float, fifo: str) -> None:
    """Watch until standard input ends."""
    from rdmadiag.diagnose import capture  # noqa: F401  what a collection needs is loaded before it is wanted
    from rdmadiag.roce import record  # noqa: F401

    os.mkfifo(fifo, 0o600)
    orders = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)  # with a writer of its own it never ends
    log = _kernel_log()
    _say({"hello": {"kernel": os.uname().release, "node": os.uname().nodename, "pid": os.getpid()}})
    due, waiting = time.monotonic(), b""
    collecting, recording = dict[int, tuple[str, str]](), dict[str, int]()
    watched = True
    while watched or collecting:
        if (now := time.monotonic()) >= due:
            _say({"sample": sample()})
            due = max(due + every, now)
        ready = select.select(
            [orders, *[0] * watched], [], [], min(max(0.0, due - time.monotonic()), 0.2 if collecting else every)
        )[0]
        if 0 in ready:
            watched = bool(os.read(0, 4096))
            for pid in () if watched else recording.values():
                os.kill(pid, signal.SIGTERM)
        if orders in ready:
            *lines, waiting = (waiting + os.read(orders, 4096)).split(b"\n")
            for line in lines:
                word, _, name = line.decode(errors="replace").partition(" ")
                if word == "warm":
                    _warm()
                elif word == "collect":
                    collecting |= _start(name, _collect)
                elif word == "record":
                    child = _start(name, functools.partial(_record, name))
                    collecting |= child
                    recording[name] = next(iter(child))
                elif word == "recorded" and name in recording:
                    os.kill(recording.pop(name), signal.SIGTERM)
        for text in _warnings(log):
            _say({"kernel": text})
        for pid in [pid for pid in collecting if os.waitpid(pid, os.WNOHANG)[0]]:
            _hand_over(*collecting.pop(pid))
    os.unlink(fifo)


def _kernel_log() -> int | None:
    # Its end: what was printed before is nobody's here.
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(log, 0, os.SEEK_END)
    except OSError:
        return None
    return log


def _warnings(log: int | None) -> Iterator[str]:
    while log is not None:
        try:
            entry = os.read(log, 8192)
        except BlockingIOError:
            return
        except OSError:
            continue  # EPIPE: lines were overwritten before they were read (Documentation/ABI/testing/dev-kmsg)
        text = entry.decode(errors="replace").partition(";")[2].partition("\n")[0]
        if WARNING.search(text):
            yield text


def _record(netdev: str, folder: str) -> None:
    """Capture a netdev until SIGTERM, and pack the file."""
    from rdmadiag.roce import record

    over: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: over.append(number))
    done = record.record(
        netdev, f"{folder}/wire", snaplen=SNAPLEN, file_bytes=CAPTURE_BYTES, files=1, stopped=lambda: bool(over)
    )
    with gzip.open(f"{folder}/{PACKED}", "wb", compresslevel=1) as packed:
        for path in done.files:
            with open(path, "rb") as file:
                shutil.copyfileobj(file, packed)


def _start(name: str, what: Callable[[str], None]) -> dict[int, tuple[str, str]]:
    # In a child: samples go on meanwhile.
    folder = tempfile.mkdtemp(prefix="rdmadiag-witness-")
    pid = os.fork()
    if pid:
        return {pid: (name, folder)}
    try:
        what(folder)
        os._exit(0)
    finally:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _hand_over(name: str, folder: str) -> None:
    try:
        with open(f"{folder}/{PACKED}", "rb") as file:
            data = base64.b64encode(file.read()).decode()
    except OSError as error:
        _say({"bundle": name, "problem": f"not collected: {error.strerror}"})
    else:
        node = os.uname().nodename
        for at in range(0, len(data), PIECE):
            _say({"bundle": name, "node": node, "data": data[at : at + PIECE], "more": at + PIECE < len(data)})
    shutil.rmtree(folder, ignore_errors=True)


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
