"""What the worker in the lab does for test_verbs: real verbs between rxe1 and rxe2 of one guest."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rdmadiag.verbs import cm, exchange, library, posting
from rdmadiag.verbs.attributes import RcAttributes
from rdmadiag.verbs.cq import Cq
from rdmadiag.verbs.device import Device, Pd
from rdmadiag.verbs.endpoint import Endpoint, stream
from rdmadiag.verbs.exchange import Memory
from rdmadiag.verbs.mr import Mr
from rdmadiag.verbs.posting import Wr
from rdmadiag.verbs.qp import Peer, Qp

DEVICES = ("rxe1", "rxe2")
NETDEVS = ("v1", "v2")
SIZE = 1 << 16
LENGTH = 1 << 21
HELD: dict[str, Any] = {}


def counters(device: str) -> dict[str, int]:
    """Return the device's hw_counters."""
    folder = Path(f"/sys/class/infiniband/{device}/ports/1/hw_counters")
    return {path.name: int(path.read_text()) for path in folder.iterdir() if path.name != "lifespan"}


class Pair:
    """Two connected ends and what their counters were before."""

    def __init__(self, both: bool = True, **attributes: Any) -> None:
        wanted = RcAttributes(**attributes)
        self.ends = [Endpoint(device, LENGTH, wanted, inline_bytes=64) for device in DEVICES]
        one, two = self.ends
        one.connect(two.offer())
        if both:
            two.connect(one.offer())
        self.one, self.two, self.memory = one, two, two.offer().memory
        self.before = [counters(device) for device in DEVICES]

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self.ends:
            end.close()

    def post(self, opcode: str, count: int, size: int = SIZE, **changes: Any) -> None:
        places = LENGTH // size
        wrs = [self.one.wr(self.memory, n, opcode, size, n % places * size, n % places * size) for n in range(count)]
        self.one.qp.post([wr._replace(**changes) for wr in wrs])

    def result(self, count: int, seconds: float = 30.0) -> dict[str, Any]:
        """Return statuses, both QPs' states and the counters that moved, once so many completions came or time is up."""
        found, end = [], time.monotonic() + seconds
        while len(found) < count and time.monotonic() < end:
            found += self.one.cq.wait(0.2)
        after = [counters(device) for device in DEVICES]
        moved = [
            {name: now[name] - old[name] for name in now if now[name] != old[name]}
            for old, now in zip(self.before, after, strict=True)
        ]
        return {
            "statuses": [one.status for one in found],
            "vendor_err": [one.vendor_err for one in found],
            "wr_ids": [one.wr_id for one in found],
            "states": [end.qp.state for end in self.ends],
            "moved": moved,
        }


def work(
    opcode: str = "RDMA_WRITE",
    count: int = 4,
    size: int = SIZE,
    seconds: float = 30.0,
    both: bool = True,
    rkey_off: int = 0,
    beyond: bool = False,
    **attributes: Any,
) -> dict[str, Any]:
    """Post some requests and tell what became of them."""
    with Pair(both, **attributes) as pair:
        changes: dict[str, Any] = {}
        if rkey_off:
            changes["rkey"] = pair.memory.rkey ^ rkey_off
        if beyond:
            changes["remote_address"] = pair.memory.address + LENGTH - 10
        pair.post(opcode, count, size, **changes)
        return pair.result(count, seconds)


# --- a pair that lives over several requests, for packets forged between them ---


def hold(**attributes: Any) -> dict[str, Any]:
    """Make a pair and keep it; what a forger must know."""
    pair = HELD["pair"] = Pair(**attributes)
    addresses = [Path(f"/sys/class/net/{netdev}/address").read_text().strip() for netdev in NETDEVS]
    return {
        "qpns": [end.qp.qpn for end in pair.ends],
        "psns": [end.psns[0] for end in pair.ends],
        "macs": addresses,
        "memory": list(pair.memory),
    }


def inject(frames: list[str], times: int = 1) -> int:
    """Send ready-made frames out of the first host's netdev."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
        link.bind((NETDEVS[0], 0))
        for _ in range(times):
            for frame in frames:
                link.send(bytes.fromhex(frame))
    return times * len(frames)


def held_work(opcode: str = "RDMA_WRITE", count: int = 1, seconds: float = 5.0, size: int = SIZE) -> dict[str, Any]:
    """Post on the kept pair; its result."""
    pair = HELD["pair"]
    pair.post(opcode, count, size)
    result: dict[str, Any] = pair.result(count, seconds)
    return result


def let_go() -> None:
    """Close the kept pair, when there is one."""
    if "pair" in HELD:
        HELD.pop("pair").__exit__()


def marked(count: int = 256, tos: int = 2) -> dict[str, Any]:
    """WRITE with ECT set, and count the packets that arrive at v2 with CE."""
    seen: Counter[int] = Counter()
    stop = threading.Event()
    link = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    link.bind((NETDEVS[1], 0x0800))
    link.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    link.settimeout(0.2)

    def sniff() -> None:
        while not stop.is_set():
            try:
                packet, where = link.recvfrom(256)
            except TimeoutError:
                continue
            if where[2] != socket.PACKET_OUTGOING and packet[9] == socket.IPPROTO_UDP:
                seen[packet[1] & 3] += 1

    thread = threading.Thread(target=sniff)
    thread.start()
    try:
        with Pair(traffic_class=tos) as pair:
            pair.post("RDMA_WRITE", 16)
            first = pair.result(16)
            pair.post("RDMA_WRITE", 16)
            result = pair.result(16)
            result["statuses"] += first["statuses"]
    finally:
        stop.set()
        thread.join()
        link.close()
    return {**result, "ecn": {str(k): v for k, v in seen.items()}}


# --- each operation ---


def operations(listed: bool = False) -> dict[str, Any]:
    """Run every operation once, and tell what arrived. `listed`: by lists of ibv_send_wr, as for providers without ibv_wr_*."""
    real = posting.create
    if listed:
        posting.create = lambda *args: real(*args, extended=False)
    try:
        with Pair() as pair:
            return _operations(pair)
    finally:
        posting.create = real


def _operations(pair: Pair) -> dict[str, Any]:
    one, two, memory = pair.one, pair.two, pair.memory
    mine, theirs = one.mr.view, two.mr.view
    assert mine is not None and theirs is not None
    told: dict[str, Any] = {"poster": type(one.qp._poster).__name__}
    mine[:8] = b"abcdefgh"

    def do(wr: Wr, receive: int = 0) -> list[Any]:
        one.qp.post([wr])
        found = [one.wait(1)[0].check()]
        return found + (two.wait(receive) if receive else [])

    do(one.wr(memory, 1, "RDMA_WRITE", 8, 0, 100))
    told["RDMA_WRITE"] = bytes(theirs[100:108]).decode()
    theirs[200:208] = b"fromthem"
    read = do(one.wr(memory, 2, "RDMA_READ", 8, 64, 200))[0]
    told["RDMA_READ"] = [bytes(mine[64:72]).decode(), read.byte_len]
    two.qp.post_receives([(70, ())])
    imm = do(one.wr(memory, 3, "RDMA_WRITE_WITH_IMM", 8, 0, 300)._replace(imm=0x01020304), 1)[1]
    told["RDMA_WRITE_WITH_IMM"] = [bytes(theirs[300:308]).decode(), imm.opcode, imm.imm, imm.byte_len, imm.wr_id]
    two.qp.post_receives([(71, [two.sge(400, 64)])])
    sent = do(one.wr(memory, 4, "SEND", 8), 1)[1]
    told["SEND"] = [bytes(theirs[400:408]).decode(), sent.opcode, sent.imm]
    two.qp.post_receives([(72, [two.sge(500, 2), two.sge(600, 64)])])
    gathered = do(Wr(5, "SEND_WITH_IMM", [one.sge(4, 4), one.sge(0, 4)], imm=7), 1)[1]
    told["scatter, gather"] = [
        bytes(theirs[500:502]).decode(),
        bytes(theirs[600:606]).decode(),
        gathered.imm,
        gathered.byte_len,
    ]
    do(Wr(6, "RDMA_WRITE", (), memory.address + 700, memory.rkey, inline=b"inlined"))
    told["inline"] = bytes(theirs[700:707]).decode()
    theirs[800:808] = (41).to_bytes(8, "little")
    do(Wr(7, "ATOMIC_FETCH_AND_ADD", [one.sge(128, 8)], memory.address + 800, memory.rkey, compare_add=1))
    told["ATOMIC_FETCH_AND_ADD"] = [int.from_bytes(mine[128:136], "little"), int.from_bytes(theirs[800:808], "little")]
    do(Wr(8, "ATOMIC_CMP_AND_SWP", [one.sge(128, 8)], memory.address + 800, memory.rkey, compare_add=42, swap=99))
    told["ATOMIC_CMP_AND_SWP"] = [int.from_bytes(mine[128:136], "little"), int.from_bytes(theirs[800:808], "little")]
    one.qp.post_rdma(
        "RDMA_WRITE",
        one.mr.lkey,
        memory.rkey,
        [(n, one.mr.address, memory.address + 900 + 8 * n, 8, posting.SIGNALED if n == 3 else 0) for n in range(4)],
    )
    told["batch"] = [[done.wr_id for done in one.wait(1)], bytes(theirs[900:932]).decode()]
    moved = [
        counters(device)["sent_pkts"] - before["sent_pkts"] for device, before in zip(DEVICES, pair.before, strict=True)
    ]
    told["crossed the wire"] = all(count >= 10 for count in moved)
    return told


# --- states ---


def transitions() -> dict[str, Any]:
    """Try wrong transitions in every state on the way; the error of each, and that the QP stayed where it was."""
    told: dict[str, Any] = {}

    def refused(qp: Qp, new: str, attributes: dict[str, Any] | None = None) -> None:
        old = qp.state
        try:
            qp.modify(new, attributes)
        except Exception as error:  # noqa: BLE001 its class is what the test looks at
            told[f"{old} to {new}"] = [type(error).__name__, str(error), qp.state == old]
        else:
            told[f"{old} to {new}"] = ["accepted", "", qp.state]

    with Endpoint("rxe1") as one, Endpoint("rxe2") as two:
        qp, peer = one.qp, two.offer().peer(0)
        refused(qp, "RTS")
        refused(qp, "INIT", {"PORT": 1})
        qp.to_init()
        refused(qp, "RTS", {"SQ_PSN": 1})
        refused(qp, "RTR", {"DEST_QPN": 1})
        qp.to_rtr(peer, one.attributes, one.gid.gid_index)
        refused(qp, "INIT", {"PKEY_INDEX": 0, "PORT": 1, "ACCESS_FLAGS": 0})
        qp.to_rts(one.psns[0], one.attributes)
        refused(qp, "RTS", {"TIMEOUT": 4})
        refused(qp, "RTR")
        qp.error()
        refused(qp, "RTS")
        qp.reset()
        told["after reset"] = qp.state
        refused(qp, "ERR")
        qp.connect(one.psns[0], peer, one.attributes, one.gid.gid_index)
        told["connected again"] = qp.state
    return told


def refused_by_the_kernel() -> dict[str, Any]:
    """A right mask with a wrong value passes the state machine; the kernel's errno is kept."""
    with Endpoint("rxe1") as one:
        one.qp.to_init()
        try:
            one.qp.to_rtr(Endpoint.offer(one).peer(0), one.attributes, 250)
        except Exception as error:  # noqa: BLE001
            return {"class": type(error).__name__, "errno": getattr(error, "errno", None), "message": str(error)}
    return {}


def drained(count: int = 20) -> dict[str, Any]:
    """Drain a QP whose peer answers nothing: everything posted, and every receive, ends."""
    with Pair(both=False, timeout=18, retry_cnt=7) as pair:
        pair.one.qp.post_receives([(1000 + n, ()) for n in range(5)])
        pair.post("RDMA_WRITE", count, 4096, flags=0)
        found = pair.one.qp.drain()
        return {
            "sends": sorted(one.wr_id for one in found if one.wr_id < 1000),
            "receives": sorted(one.wr_id for one in found if one.wr_id >= 1000),
            "statuses": sorted({one.status for one in found}),
            "again": pair.one.qp.drain(),
            "state": pair.one.qp.state,
        }


def anew() -> dict[str, Any]:
    """After a failed request both ends get new QPs with new PSNs, and go on."""
    with Pair() as pair:
        pair.post("RDMA_WRITE", 2, rkey=pair.memory.rkey ^ 0xFF)
        first = pair.result(2)
        old = [(end.qp.qpn, end.psns[0]) for end in pair.ends]
        for end in pair.ends:
            end.anew()
        pair.one.connect(pair.two.offer())
        pair.two.connect(pair.one.offer())
        new = [(end.qp.qpn, end.psns[0]) for end in pair.ends]
        pair.post("RDMA_WRITE", 2)
        return {
            "before": first["statuses"],
            "changed": all(a != b for a, b in zip(old, new, strict=True)),
            "after": pair.result(2)["statuses"],
        }


def leaks(rounds: int = 20) -> dict[str, Any]:
    """Open and close endpoints, some of them failing half-way: what is left of them."""

    def left() -> list[int]:
        words = subprocess.run(["rdma", "resource", "show"], capture_output=True, text=True, check=True).stdout
        return [
            len(os.listdir("/proc/self/fd")),
            *(int(n) for line in words.splitlines() if "rxe1" in line for n in line.split() if n.isdigit()),
        ]

    Endpoint("rxe1").close()
    before = left()
    for n in range(rounds):
        try:
            with Endpoint("rxe1", gid_index=None if n % 2 else 99) as end:
                end.close()
        except Exception as error:  # noqa: BLE001
            last = str(error)
    return {"before": before, "after": left(), "message": last}


# --- completions and events ---


def by_channel() -> dict[str, Any]:
    """Wait for receives on an event channel: without one it returns empty in time, with one it returns it; twice."""
    with Endpoint("rxe1") as one, Endpoint("rxe2", channel=True) as two:
        one.connect(two.offer())
        two.connect(one.offer())
        empty = two.cq.wait(0.1)
        two.qp.post_receives([(n, ()) for n in range(3)])
        got = []
        for n in range(3):
            timer = threading.Timer(
                0.15, lambda n=n: one.qp.post([one.wr(two.offer().memory, n, "RDMA_WRITE_WITH_IMM", 8)._replace(imm=n)])
            )
            timer.start()
            got += two.cq.wait(20.0)
            timer.join()
        return {"empty": empty, "imms": [done.imm for done in got]}


def asynchronous() -> dict[str, Any]:
    """Provoke events of a GID, a QP, a CQ and a port; what is read."""
    told: dict[str, Any] = {}
    with Device("rxe2") as device:
        told["none"] = device.event(0.05)
        run("ip", "address", "add", "10.0.0.77/24", "dev", "v2")
        try:
            told["gid"] = list(device.event(10.0) or ())
            told["table"] = [one.gid for one in device.gids()]
        finally:
            run("ip", "address", "del", "10.0.0.77/24", "dev", "v2")
        time.sleep(0.3)
        device.events()
        with (
            Pd(device) as pd,
            Cq(device, 4) as cq,
            Mr(pd, 4096) as mr,
            Qp(pd, cq) as qp,
            Endpoint("rxe1", 4096) as other,
        ):
            one = other.attributes
            gid = device.gid()
            qp.to_init()
            qp.to_rtr(other.offer().peer(0), one, gid.gid_index)
            other.qp.connect(other.psns[0], Peer(qp.qpn, 5, gid.gid), one, other.gid.gid_index)
            other.qp.post([other.wr(Memory(mr.address, 4096, mr.rkey), 1, "RDMA_WRITE", 8)])
            other.wait(1)
            qp.to_rts(5, one)
            qp.post([Wr(n, "RDMA_WRITE", (), other.mr.address, other.mr.rkey) for n in range(2)])
            qp.modify("SQD", {"EN_SQD_ASYNC_NOTIFY": 1})
            told["drained"] = [list(device.event(10.0) or ()), qp.qpn]
            qp.modify("RTS")
            cq.take(2, 10.0)  # what was not begun before SQD is not begun in it (seen with Linux 7.3)
            qp.post([Wr(n, "RDMA_WRITE", (), other.mr.address, other.mr.rkey) for n in range(40)])
            told["overrun"] = list(device.event(10.0) or ())
    with Device("rxe2") as device:
        run("ip", "link", "set", "v2", "down")
        try:
            first = device.event(10.0)
            told["port down"] = [list(first or ()), device.port().state]
        finally:
            run("ip", "link", "set", "v2", "up")
        time.sleep(0.5)
        told["port up"] = sorted({one.name for one in device.events()})
        end = time.monotonic() + 20
        while device.port().state != "ACTIVE" and time.monotonic() < end:
            time.sleep(0.1)
        told["state"] = device.port().state
    return told


def run(*argv: str) -> None:
    """Run a command of the guest."""
    subprocess.run(argv, check=True, capture_output=True)


# --- exchange ---


def over_tcp() -> dict[str, Any]:
    """Both ends tell each other over a socket, and a WRITE follows."""
    here, there = socket.socketpair()
    with here, there, Endpoint("rxe1", qps=2) as one, Endpoint("rxe2", qps=2) as two:
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(exchange.swap(there, two.offer())))
        thread.start()
        theirs = exchange.swap(here, one.offer())
        thread.join()
        one.connect(theirs)
        two.connect(got[0])
        statuses = []
        for n, qp in enumerate(one.qps):
            qp.post([one.wr(theirs.memory, n, "RDMA_WRITE", 64)])
            statuses.append(one.wait(1)[0].status)
        return {"statuses": statuses, "device": theirs.device}


LISTENER = """
import sys
from rdmadiag.verbs import cm
from rdmadiag.verbs.endpoint import Endpoint
with Endpoint("rxe2") as end, cm.Listener("10.0.0.2", 7471) as listener:
    print("listening", flush=True)
    with listener.accept(end) as connection:
        print(end.qp.attributes().timeout, end.qp.state, connection.memory.length, flush=True)
        sys.stdin.read()
        print(bytes(end.mr.view[100:105]).decode(), flush=True)
"""


def by_rdma_cm() -> dict[str, Any]:
    """Connect to a listener in another process by rdma_cm, with private data; and to a port where nobody listens."""
    import sys

    told: dict[str, Any] = {}
    listener = subprocess.Popen(
        [sys.executable, "-c", LISTENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert listener.stdout and listener.stdin
    try:
        assert listener.stdout.readline() == "listening\n"
        with (
            Endpoint("rxe1", attributes=RcAttributes(timeout=17)) as one,
            cm.connect(one, "10.0.0.2", 7471, "10.0.0.1") as connection,
        ):
            assert one.mr.view is not None
            one.mr.view[:5] = b"by cm"
            one.qp.post([one.wr(connection.memory, 1, "RDMA_WRITE", 5, 0, 100)])
            told["status"] = one.wait(1)[0].status
            told["timeout"] = one.qp.attributes().timeout
            told["theirs"] = listener.stdout.readline().split()
            told["memory"] = listener.communicate(timeout=60)[0].strip()
        with Endpoint("rxe1") as one:
            try:
                cm.connect(one, "10.0.0.2", 7472, "10.0.0.1")
            except cm.CmFailed as error:
                told["nobody"] = error.got
    finally:
        listener.kill()
        listener.wait()
    return told


def streamed(
    opcode: str, size: int = 1 << 16, count: int = 64, window: int = 8, signal_every: int = 4
) -> dict[str, Any]:
    """Move blocks by the loop of a benchmark; that they all arrived."""
    with Pair() as pair:
        mine, theirs = pair.one.mr.view, pair.two.mr.view
        assert mine is not None and theirs is not None
        (theirs if opcode == "RDMA_READ" else mine)[:] = os.urandom(LENGTH)
        seconds, bad = stream(pair.one, pair.memory, opcode, size, count, window, signal_every)
        return {
            "bad": bad,
            "equal": bytes(mine) == bytes(theirs),
            "seconds": seconds,
            "states": [end.qp.state for end in pair.ends],
        }


def missing_device() -> str:
    """The error of a device that is not there."""
    try:
        Device("mlx5_0")
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""


def found_pyverbs() -> str:
    """Where pyverbs came from."""
    return str(library.module("device").__file__)


def release() -> str:
    """The guest's kernel."""
    return os.uname().release


def misuse(fault: str, values: dict[str, Any]) -> dict[str, Any]:
    """Do once what a verbs fault does; what it counted and logged, and in which states the kernel shows its queue pairs then."""
    from rdmadiag import faults
    from rdmadiag.faults._pair import Pair as Misused

    module = faults.find(fault)
    given = {one.name: one.check(values.get(one.name, one.default)) for one in module.PARAMETERS}
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pair = Misused(DEVICES)
        try:
            pair.again(module.act, given)
            listed = subprocess.run(["rdma", "res", "show", "qp"], capture_output=True, text=True, check=True).stdout
            own = [line.split() for line in listed.splitlines() if f" pid {os.getpid()} " in line]
            log = Path("verbs.log")
            return {
                "counts": dict(pair.counts),
                "states": sorted(words[words.index("state") + 1] for words in own),
                "log": log.read_text() if log.exists() else "",
            }
        finally:
            pair.again(lambda *_: None, {})
            os.chdir(here)


def fail_held() -> str:
    """Take the kept pair's first queue pair to ERR."""
    HELD["pair"].one.qp.error()
    return str(HELD["pair"].one.qp.state)


def compared(
    opcode: str = "RDMA_WRITE", count: int = 4, size: int = SIZE, seconds: float = 30.0, **attributes: Any
) -> dict[str, Any]:
    """Move random bytes between the ends; where what arrived is not what was sent, and whether anything arrived at all."""
    with Pair(**attributes) as pair:
        mine, theirs = pair.one.mr.view, pair.two.mr.view
        assert mine is not None and theirs is not None
        source, target = (theirs, mine) if opcode == "RDMA_READ" else (mine, theirs)
        source[:] = os.urandom(LENGTH // 256).replace(b"\0", b"\1") * 256
        target[:] = bytes(LENGTH)
        pair.post(opcode, count, size)
        told = pair.result(count, seconds)
        sent, got = bytes(source[: count * size]), bytes(target[: count * size])
        wrong = [n for n in range(len(sent)) if sent[n] != got[n]] if sent != got else []
        return {
            **told,
            "wrong": len(wrong),
            "first_wrong": wrong[:3],
            "touched": any(bytes(target)),
            "qpns": [e.qp.qpn for e in pair.ends],
        }


def one_by_one(count: int, size: int = 64) -> dict[str, Any]:
    """WRITE, wait for its completion, and again; how long it took."""
    with Pair() as pair:
        for _ in range(10):
            pair.post("RDMA_WRITE", 1, size)
            pair.one.wait(1)
        start = time.perf_counter()
        for _ in range(count):
            pair.post("RDMA_WRITE", 1, size)
            pair.one.wait(1)
        return {"seconds": time.perf_counter() - start}
