"""Captures of a lab in which a rule about the wire fires: what is done there, and what was recorded.

`python -m tests.softroce.wire_lab [CASE...]`, with a lab named in RDMADIAG_LAB, records them anew into tests/data/captures; test_wire.py
does the same and keeps nothing. Everything in a capture is made by rdma_rxe, or says in `how` what we added.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rdmadiag import lab as labs
from rdmadiag.diagnose import wire
from rdmadiag.lab import inflight, packets
from tests.softroce.conftest import ROOT, Worker, command, environment

FOLDER = ROOT / "tests/data/captures"
RECORD = [sys.executable, "-m", "rdmadiag", "pcap", "record"]
Step = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One capture. `taps` are switch ports; `one` and `two` the RC attributes of the ends on h1 and h2."""

    how: str
    rules: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    one: dict[str, Any] = field(default_factory=dict)
    two: dict[str, Any] = field(default_factory=dict)
    changes: tuple[dict[str, Any], ...] = ()
    forged: tuple[dict[str, Any], ...] = ()
    """Frames sent behind the steps, each `to` a host; `psn_after` counts from the first PSN of h1's QP, DestQP is filled in."""
    frames: tuple[str, ...] = ()
    """Frames sent as they are out of h1's netdev, in hex digits."""
    cm: tuple[int, float] | None = None
    switch: tuple[str, str] | None = None
    """Shell text that is run in the switch before, and after."""
    taps: tuple[str, ...] = ("p2",)
    snaplen: int = 128
    expect: dict[str, Any] | None = None
    linger: float = 0.3


def _change(action: dict[str, Any], source: str = "h1", **match: Any) -> dict[str, Any]:
    to = "h2" if source == "h1" else "h1"
    return {"match": {"from": source, "to": to, **match}, "action": action}


def _pause(operation: str) -> str:
    return f"0180c2000001 020000000001 8808 {operation}".replace(" ", "").ljust(120, "0")


_ROCE1 = "7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3d856bb"
_FRAGMENT = (
    "020000000002 020000000001 0800 4500003c 00012000 40114f6b 0a000001 0a000002 c00012b7 01000000"
    " 0a00ffff 00000011 00000005 0000000000001000 00000007 000000d0 000000000000"
).replace(" ", "")
_REMARK = """nft add table netdev remark
nft add chain netdev remark in '{ type filter hook ingress device p1 priority 10; }'
nft add rule netdev remark in udp dport 4791 numgen inc mod 4 == 1 ip dscp set cs0
nft add rule netdev remark in udp dport 4791 numgen inc mod 4 == 1 ip ecn set not-ect"""
_MIRROR = """ip link add m0 mtu 9000 type dummy
ip link set m0 up
tc qdisc add dev m0 root tbf rate {rate} burst 20000 limit {limit}
nft add table netdev mirror
nft add chain netdev mirror a '{{ type filter hook ingress device p1 priority 10; }}'
nft add chain netdev mirror b '{{ type filter hook ingress device p2 priority 10; }}'
nft add rule netdev mirror a udp dport 4791 dup to m0
nft add rule netdev mirror b udp dport 4791 dup to m0"""
_BOTH_PORTS = """
nft add chain netdev mirror c '{ type filter hook egress device p2 priority 10; }'
nft add rule netdev mirror c udp dport 4791 dup to m0"""
_ONE = {"by": 0, "one_by_one": True}
CASES = {
    "nothing-wrong": Case(
        "WRITEs, READs and SENDs of several packets in both directions, every packet whole",
        (),
        (
            {**_ONE, "count": 6, "size": 9000},
            {**_ONE, "by": 1, "opcode": "RDMA_READ", "count": 4, "size": 12288},
            {**_ONE, "opcode": "SEND", "count": 6, "size": 5000, "receives": 6},
            {**_ONE, "by": 1, "opcode": "SEND", "count": 3, "receives": 3},
        ),
        one={"timeout": 21},
        two={"timeout": 21},
        snaplen=65535,
    ),
    "answers-late": Case(
        "110 WRITEs, one after the other; four of their ACKs are held back 1.5 s in the switch",
        ("wire-acknowledged-late",),
        ({**_ONE, "count": 110},),
        one={"timeout": 21},
        changes=(_change({"do": "delay", "seconds": 1.5}, "h2", opcode=0x11, probability=0.04, seed=2),),
        taps=("p1",),
    ),
    "mirror-port-too-slow": Case(
        "a mirror port of 6 Mbit/s that gets both directions of a stream of WRITEs, and loses some of its copies",
        ("wire-capture-incomplete",),
        ({"count": 40, "size": 4096},),
        switch=(_MIRROR.format(rate="6mbit", limit=30000), "nft delete table netdev mirror; ip link del m0"),
        taps=("m0",),
    ),
    "mirrored-twice": Case(
        "a mirror port that gets what enters by p1 and p2 and what leaves by p2, so one direction twice",
        ("wire-mirrored-twice",),
        ({**_ONE, "count": 30},),
        switch=(
            _MIRROR.format(rate="1gbit", limit=1000000) + _BOTH_PORTS,
            "nft delete table netdev mirror; ip link del m0",
        ),
        taps=("m0",),
    ),
    "cm-nobody-listens": Case(
        "rdma_connect to a port where nobody listens", ("wire-cm-rejected",), cm=(7999, 20.0), snaplen=400
    ),
    "cm-answers-lost": Case(
        "rdma_connect while the switch drops what the listener's host answers",
        ("wire-cm-unanswered",),
        cm=(7999, 14.0),
        changes=(_change({"do": "drop"}, "h2"),),
        taps=("p1",),
        snaplen=400,
    ),
    "tos-zero-and-cnps-in-it": Case(
        "SENDs with traffic class 0, and CNPs of ours to their sender, also with TOS 0; the policy wants DSCP 26, ECN, and CNPs with DSCP 48",
        (
            "wire-dscp-not-as-policy",
            "wire-cnp-dscp-not-as-policy",
            "wire-not-ecn-by-policy",
            "wire-cnp-in-data-class",
            "wire-congestion",
        ),
        ({**_ONE, "opcode": "SEND", "count": 10, "receives": 10},),
        taps=("p1",),
        forged=({"name": "cnp", "to": "h1", "count": 5, "rate": 1000, "changes": [{"field": "tos", "values": [0]}]},),
        expect={"dscp": 26, "cnp_dscp": 48, "ecn": 1},
    ),
    "tos-rewritten": Case(
        "WRITEs with DSCP 26 and ECT; a rule in the switch sets the TOS of each fourth packet to 0",
        ("wire-dscp-changes", "wire-flow-not-ecn-capable"),
        ({**_ONE, "count": 20},),
        one={"traffic_class": 106},
        two={"traffic_class": 106},
        switch=(_REMARK, "nft delete table netdev remark"),
    ),
    "pause-frames": Case(
        "WRITEs, and PFC and pause frames of ours out of h1's netdev",
        ("wire-pfc-pauses", "wire-global-pause"),
        ({**_ONE, "count": 4},),
        frames=(
            *[_pause("0101 0008 0000 0000 0000 ffff")] * 3,
            _pause("0101 0008"),
            _pause("0001 ffff"),
        ),
        taps=("p1",),
    ),
    "roce-version-1": Case(
        "WRITEs, and out of h1's netdev a RoCEv1 packet of an adapter (from Scapy's unit tests) and the first fragment of a RoCEv2 packet of ours",
        ("wire-not-only-rocev2",),
        ({**_ONE, "count": 4},),
        frames=(_ROCE1, _FRAGMENT),
        taps=("p1",),
        snaplen=400,
    ),
    "packets-that-contradict-themselves": Case(
        "packets of ours to a live QP: a RETH that is cut, a pad count without a payload, a reserved opcode, another BTH version, a wrong ICRC",
        ("wire-malformed", "wire-reserved-opcode", "wire-transport-version", "wire-icrc-bad"),
        ({**_ONE, "count": 4},),
        forged=tuple(
            {"name": "malformed", "to": "h2", "psn_after": 4 + n, "parameters": {"kind": kind}}
            for n, kind in enumerate(("short-reth", "pad-count", "reserved-opcode", "tver", "icrc"))
        ),
        snaplen=400,
    ),
    "marked-and-no-cnp": Case(
        "40 WRITEs with ECT, all marked CE in the switch; rxe never sends a CNP",
        ("wire-marked-without-cnp",),
        ({**_ONE, "count": 40},),
        one={"traffic_class": 2},
        two={"traffic_class": 2},
        changes=(_change({"do": "mark_ce"}),),
    ),
    "opcode-changed": Case(
        "the second MIDDLE of a WRITE becomes a SEND MIDDLE in the switch, its ICRC made valid",
        ("wire-opcode-order", "wire-nak-invalid-request"),
        ({"count": 1, "size": 24576, "wait": 4.0},),
        changes=(_change({"do": "rewrite", "set": {"opcode": 0x01}}, opcode=0x07, occurrence=2),),
    ),
    "length-changed": Case(
        "the RETH of a WRITE says 32 bytes more in the switch",
        ("wire-length-mismatch", "wire-nak-invalid-request"),
        ({**_ONE, "count": 3}, {"count": 1, "size": 96, "wait": 4.0}),
        changes=(_change({"do": "rewrite", "set": {"length": 128}}, opcode=0x0A, occurrence=4),),
    ),
    "path-mtu-512-and-1024": Case(
        "one end has path MTU 512, the other 1024; the WRITE of the second is kept back in the switch",
        ("wire-path-mtu-differs", "wire-path-mtu-small"),
        (
            {**_ONE, "count": 3},
            {**_ONE, "by": 1, "count": 3},
            {"by": 1, "size": 4096, "wait": 0.5},
            {"size": 2048, "wait": 2.0},
        ),
        one={"path_mtu": 512},
        two={"path_mtu": 1024},
        changes=(_change({"do": "hold", "seconds": 60}, "h2", opcode=[0x06, 0x07, 0x08]),),
    ),
    "read-data-lost": Case(
        "the third MIDDLE of a READ's data is dropped in the switch",
        ("wire-read-answers-lost",),
        ({"opcode": "RDMA_READ", "count": 2, "size": 32768},),
        changes=(_change({"do": "drop"}, "h2", opcode=0x0E, occurrence=3),),
        taps=("p1",),
    ),
    "packets-overtake": Case(
        "the third of 12 WRITEs is put behind the next one in the switch",
        ("wire-reordered",),
        ({"count": 12},),
        changes=(_change({"do": "reorder", "by": 1}, opcode=0x0A, occurrence=3),),
    ),
    "rnr-timer-zero": Case(
        "SENDs to a receiver that posts its first receive late and has min_rnr_timer 0",
        ("wire-rnr-timer-longest", "wire-receiver-not-ready"),
        ({"opcode": "SEND", "count": 2, "pause": 0.2, "late_receives": 4},),
        two={"min_rnr_timer": 0},
    ),
    "rnr-without-end": Case(
        "a SEND with rnr_retry 7 to a receiver that never posts a receive",
        ("wire-rnr-without-end", "wire-receiver-not-ready"),
        ({"opcode": "SEND", "count": 1, "wait": 1.0},),
        one={"rnr_retry": 7},
    ),
    "rnr-timers-differ": Case(
        "SENDs in both directions, refused until receives are posted; the ends have min_rnr_timer 14 and 20",
        ("wire-settings-differ",),
        (
            {"opcode": "SEND", "count": 1, "pause": 0.05, "late_receives": 2},
            {"by": 1, "opcode": "SEND", "count": 1, "pause": 0.05, "late_receives": 2},
        ),
        one={"min_rnr_timer": 14},
        two={"min_rnr_timer": 20},
    ),
    "lost-in-the-switch": Case(
        "WRITEs of 8 packets, recorded where they enter the switch and where they leave it; it drops two of them",
        ("wire-tap-loss",),
        ({"count": 4, "size": 32768},),
        changes=(_change({"do": "drop"}, opcode=0x07, occurrence=[5, 6]),),
        taps=("p1", "p2"),
    ),
    "answers-forged": Case(
        "ten WRITEs, then ACKs of ours for the last of them, from another MAC address and with another TTL",
        ("wire-two-senders",),
        ({**_ONE, "count": 10},),
        forged=(
            {
                "name": "ack",
                "to": "h1",
                "psn_after": 9,
                "count": 2,
                "path": {"src_mac": "02:00:00:00:66:66", "ttl": 61},
            },
        ),
        taps=("p1",),
    ),
}


def confirmed(paths: list[Path], expect: dict[str, Any] | None = None) -> list[str]:
    """Return the rules that are confirmed on one capture, or on two taps of a path."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as policy:
        json.dump({"schema": "rdmadiag.expect/1"} | (expect or {}), policy)
        policy.flush()
        names = [str(path) for path in paths]
        given = {"specs": names} if len(names) == 1 else {"specs": [], "taps": names}
        report = wire.look(**given, expect=policy.name if expect else None).report  # type: ignore[arg-type]
    return sorted({finding["rule"] for finding in report["findings"] if finding["answer"] == "confirmed"})


@contextlib.contextmanager
def recorded(lab: labs.Lab, tap: str, snaplen: int, into: Path) -> Iterator[None]:
    """Record a port of the switch while the block runs; the capture is `into` afterwards."""
    there = f"/tmp/wire-{os.getpid()}-{tap}"
    words = [*RECORD, tap, "-o", there, "--snaplen", str(snaplen), "--format", "json"]
    process = subprocess.Popen(
        command("exec", lab.name, "--host", "switch", "--", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert f"recording {tap}" in said, said + process.stderr.read()
        yield
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    told = json.loads(out)
    assert told["dropped"] == 0 and len(told["files"]) == 1, (told, err)
    into.write_bytes(lab.run(["cat", told["files"][0]]).out)
    lab.run(["rm", told["files"][0]])


def capture(lab: labs.Lab, verbs: Worker, case: Case, folder: Path) -> list[Path]:
    """Do what a case says and return its captures, in a folder."""
    paths = [
        folder / (f"tap-{n + 1}.pcapng" if len(case.taps) > 1 else "capture.pcapng") for n in range(len(case.taps))
    ]
    with contextlib.ExitStack() as stack:
        if case.switch:
            verbs("in_switch", script=case.switch[0])
            stack.callback(verbs, "in_switch", script=case.switch[1])
        for tap, path in zip(case.taps, paths, strict=True):
            stack.enter_context(recorded(lab, tap, case.snaplen, path))
        if case.changes:
            stack.enter_context(inflight.changes(lab, list(case.changes)))
        if case.cm:
            verbs("cm_connect", port=case.cm[0], seconds=case.cm[1])
        if case.steps:
            _traffic(lab, verbs, case)
        if case.frames:
            verbs("inject", frames=list(case.frames))
        time.sleep(case.linger)
    return paths


def _traffic(lab: labs.Lab, verbs: Worker, case: Case) -> None:
    made = verbs("open_pair", one=case.one, two=case.two)
    try:
        verbs("talk", steps=list(case.steps))
        for frame in case.forged:
            to, name = frame["to"], frame["name"]
            source, end = ("h2", 0) if to == "h1" else ("h1", 1)
            path = packets.path(lab, source, to)._replace(**frame.get("path", {}))
            parameters = {"path": path, "dest_qp": made["qpns"][end], **frame.get("parameters", {})}
            if name != "cnp":
                parameters["psn"] = (made["psns"][0] + frame["psn_after"]) & 0xFFFFFF
            sent = {"name": name, "parameters": parameters, "changes": frame.get("changes", [])}
            packets.send(lab, to, [sent], count=frame.get("count", 1), seconds=30, rate=frame.get("rate"))
        if case.forged and case.linger:
            time.sleep(case.linger)
    finally:
        verbs("close_pair")


def write(lab: labs.Lab, verbs: Worker, name: str, case: Case) -> list[str]:
    """Record a case into tests/data/captures, packed, with what is confirmed on it. Returns that."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as temporary:
        paths = []
        for path in capture(lab, verbs, case, Path(temporary)):
            paths.append(folder / f"{path.name}.gz")
            paths[-1].write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    found = confirmed(paths, case.expect)
    kernel = lab.run(["uname", "-r"]).text.strip()
    told = {"origin": f"lab, rdma_rxe of Linux {kernel}: {case.how}", "confirmed": found}
    (folder / "expected.json").write_text(json.dumps(told, indent=1) + "\n")
    if case.expect:
        (folder / "expect.json").write_text(json.dumps({"schema": "rdmadiag.expect/1", **case.expect}, indent=1) + "\n")
    return found


def main() -> None:
    """Record the cases named, or all."""
    lab = labs.find(os.environ["RDMADIAG_LAB"])
    verbs = Worker(lab.name)
    for name in sys.argv[1:] or CASES:
        case = CASES[name]
        found = write(lab, verbs, name, case)
        missing = sorted(set(case.rules) - set(found))
        print(f"{name}: {', '.join(found)}{f'; NOT {missing}' if missing else ''}", flush=True)
    verbs.close()


if __name__ == "__main__":
    main()
