"""Packets a second of our sender beside Scapy's own `sendp`, each with a PSN and an ICRC of its own, in one run; on a loopback apart and in the lab.

Scapy is given two chances: packets of its layers (it builds each, ICRC included), and ready-made frames as Raw (nothing left to build).
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rdmadiag import lab as labs
from rdmadiag.roce import forge, packet, send
from tests.benchmarks._timing import Ratio

ROUNDS = 7
COUNT = {"ours": 200_000, "raw": 10_000, "layers": 1_000}
PATH = packet.Path("10.0.0.1", "10.0.0.9", "02:00:00:00:00:01", "02:00:00:00:00:09")


def _ours(netdev: str, count: int) -> None:
    frame = forge.ack(PATH, dest_qp=17, psn=0)
    permit = send.Permit(netdev, (PATH.dst,), "the benchmark's own network")
    sent = send.send([send.Template(frame.data, [send.Change("psn")])], permit, count=count, seconds=60)
    assert sent.packets == count


def _scapy(netdev: str, count: int, layers: bool) -> None:
    from scapy.all import IP, UDP, Ether, Raw, conf, sendp

    from rdmadiag.roce.layers import AETH, BTH

    conf.verb = 0
    head = Ether(src=PATH.src_mac, dst=PATH.dst_mac) / IP(src=PATH.src, dst=PATH.dst) / UDP(chksum=0)
    if layers:
        frames = [head / BTH(opcode=0x11, dqpn=17, psn=n) / AETH(syndrome=0x1F) for n in range(count)]
    else:
        template = forge.ack(PATH, dest_qp=17, psn=0).data
        frames = [Raw(template)] * count
    with conf.L2socket(iface=netdev) as opened:
        _note("start")
        sendp(frames, socket=opened, verbose=False)


_START = [0.0]


def _note(_: str) -> None:
    _START[0] = time.perf_counter()


def in_turn(netdev: str, scale: float) -> dict[str, list[float]]:
    """Return packets a second of each way, taken in turn."""
    rates: dict[str, list[float]] = {name: [] for name in COUNT}
    for _ in range(ROUNDS):
        for name in COUNT:
            count = int(COUNT[name] * scale)
            _note("start")
            if name == "ours":
                _ours(netdev, count)
            else:
                _scapy(netdev, count, name == "layers")
            rates[name].append(count / (time.perf_counter() - _START[0]))
    return rates


def _rows(where: str, rates: dict[str, list[float]]) -> list[Ratio]:
    found = []
    for name, what in (("layers", "packets of its layers"), ("raw", "ready-made frames")):
        ours, theirs = statistics.median(rates["ours"]), statistics.median(rates[name])
        ratio = statistics.median(b / a for a, b in zip(rates["ours"], rates[name], strict=True))
        note = f"{ours:.0f} against {theirs:.0f} packets/s: {1 / ratio:.0f} times"
        found.append(
            Ratio(
                f"1,000 packets {where}, beside sendp of {what}",
                1000 / ours,
                1000 / theirs,
                ratio,
                "at most 1/20",
                note,
            )
        )
    return found


def measure() -> list[Ratio]:
    """Send on the loopback of a network namespace of its own, and out of a switch port of a lab."""
    found: list[Ratio] = []
    me = [sys.executable, "-m", "tests.benchmarks.bench_send"]
    if shutil.which("unshare"):
        apart = ["unshare", "-rn", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", *me, "lo", "1"]
        ran = subprocess.run(apart, capture_output=True, text=True, check=True)
        found += _rows("on a loopback", json.loads(ran.stdout))
    lab = labs.up(labs.Options(folder=os.getcwd()), "bench-send")
    try:
        done = lab.run([*me, "p2", "0.1"], host="switch", folder=str(Path.cwd()), timeout_seconds=600)
        assert done.code == 0, done
        found += _rows("out of a switch port of the lab", json.loads(done.out))
    finally:
        lab.down()
    return found


if __name__ == "__main__":
    print(json.dumps(in_turn(sys.argv[1], float(sys.argv[2]))))
