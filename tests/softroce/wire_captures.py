"""What is done in the lab so that each rule about the wire has a capture in which it fires: the cases, as data (wire_lab.py does them)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Step = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One capture. `taps` are switch ports; two of them are two captures of one path; `one` and `two` the RC attributes of the ends on h1 and h2."""

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
    fault: tuple[str, dict[str, Any]] | None = None
    """A fault that is injected while the steps run, and its parameters."""
    cm: tuple[int, float] | None = None
    switch: tuple[str, str] | None = None
    """Shell text that is run in the switch before, and after."""
    taps: tuple[str, ...] = ("p2",)
    snaplen: int = 128
    expect: dict[str, Any] | None = None
    ports: bool = False
    """Keep what the kernel says of the ports, too."""
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
_BOTH = ("p1", "p2")
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
        "a mirror port of 6 Mbit/s that gets both directions of a stream of WRITEs, and loses some of its copies; then some slow ones",
        ("wire-capture-incomplete",),
        ({"count": 40, "size": 4096}, {**_ONE, "count": 5}),
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
        linger=1.5,
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
    "ack-ahead": Case(
        "twenty WRITEs, then an ACK of ours for a PSN 1000 ahead that counts no message",
        ("wire-msn-back",),
        ({**_ONE, "count": 20},),
        forged=({"name": "ack", "to": "h1", "psn_after": 1000},),
        taps=("p1",),
    ),
    "buffer-overwritten": Case(
        "the sixth WRITE is lost behind the tap, and its buffer is written again before it is sent again; every packet whole",
        ("wire-resent-with-other-data",),
        ({**_ONE, "count": 5}, {"count": 1, "overwrite": 0.05}, {**_ONE, "count": 5}),
        one={"timeout": 16},
        changes=(_change({"do": "drop"}, opcode=0x0A, occurrence=6),),
        taps=("p1",),
        snaplen=65535,
    ),
    "answers-dropped": Case(
        "60 WRITEs, one after the other; a quarter of their ACKs is dropped in the switch, and nothing else",
        ("wire-only-answers-lost",),
        ({**_ONE, "count": 60},),
        one={"timeout": 14},
        changes=(_change({"do": "drop"}, "h2", opcode=0x11, probability=0.25, seed=3),),
        taps=_BOTH,
    ),
    "last-packets-dropped": Case(
        "WRITEs of three packets; of a third of them the last packet is dropped in the switch, and nothing else",
        ("wire-only-last-packets-lost",),
        ({**_ONE, "count": 30, "size": 12288},),
        one={"timeout": 14},
        changes=(_change({"do": "drop"}, opcode=0x08, probability=0.3, seed=3),),
        taps=_BOTH,
    ),
    "read-answers-dropped": Case(
        "READs of four packets; nearly a third of their data is dropped in the switch, and nothing else",
        ("wire-only-read-answers-lost",),
        ({**_ONE, "opcode": "RDMA_READ", "count": 30, "size": 16384},),
        one={"timeout": 14},
        changes=(_change({"do": "drop"}, "h2", opcode=[0x0D, 0x0E, 0x0F, 0x10], probability=0.3, seed=3),),
        taps=_BOTH,
    ),
    "key-changed": Case(
        "the R_Key of the tenth WRITE is another one behind the switch",
        ("wire-key-rewritten",),
        ({**_ONE, "count": 30, "wait": 4.0},),
        changes=(_change({"do": "rewrite", "set": {"rkey": 0xBAD}}, opcode=0x0A, occurrence=25),),
        taps=_BOTH,
        linger=1.0,
    ),
    "write-torn": Case(
        "the last packet of a WRITE is a SEND LAST behind the switch",
        ("wire-opcode-rewritten",),
        ({**_ONE, "count": 12, "size": 12288, "wait": 4.0},),
        changes=(_change({"do": "rewrite", "set": {"opcode": 0x02}}, opcode=0x08, occurrence=10),),
        taps=_BOTH,
        linger=1.0,
    ),
    "payload-changed": Case(
        "a byte of the payload of two WRITEs is another one behind the switch, their ICRC made valid; every packet whole",
        ("wire-payload-changed",),
        ({**_ONE, "count": 30, "size": 128},),
        changes=(_change({"do": "corrupt", "offset": 40, "icrc": "valid"}, opcode=0x0A, occurrence=[8, 9]),),
        taps=_BOTH,
        snaplen=65535,
    ),
    "way-of-10-ms": Case(
        "40 WRITEs, one after the other; each packet is held 5 ms in the switch, there and back",
        ("wire-path-slow",),
        ({**_ONE, "count": 40},),
        one={"timeout": 21},
        changes=(_change({"do": "delay", "seconds": 0.005}), _change({"do": "delay", "seconds": 0.005}, "h2")),
        taps=_BOTH,
    ),
    "path-cut": Case(
        "30 WRITEs, then all that h1 sends is dropped in the switch",
        ("wire-path-cut",),
        ({**_ONE, "count": 30}, {"count": 1, "wait": 3.0}),
        one={"timeout": 14},
        changes=(_change({"do": "drop"}, psn={"relative": [30, 1000]}),),
        taps=_BOTH,
        linger=1.5,
    ),
    "port-mtu-1500": Case(
        "WRITEs of 64 bytes in both directions pass a switch port whose MTU is 1500, one of 4096 bytes does not",
        ("wire-large-packets-lost",),
        (
            {**_ONE, "count": 30},
            {"count": 1, "size": 4096, "wait": 0.2},
            {**_ONE, "by": 1, "count": 10},
            {**_ONE, "by": 1, "count": 10, "size": 128},
        ),
        one={"timeout": 14},
        fault=("mtu-mismatch", {"host": "h2"}),
        taps=_BOTH,
        linger=1.5,
    ),
    "burst-loss": Case(
        "WRITEs of 8 packets through fault burst-loss",
        ("wire-lost-in-bursts",),
        ({**_ONE, "count": 60, "size": 32768},),
        one={"timeout": 14},
        fault=("burst-loss", {"enter": 3.0, "leave": 20.0, "destination": "h2"}),
        taps=_BOTH,
    ),
    "reordered": Case(
        "WRITEs, many at once, through fault reorder",
        ("wire-packets-overtaken",),
        ({"count": 60}, {"count": 60}, {"count": 60}),
        one={"timeout": 14},
        fault=("reorder", {"percent": 10.0}),
        taps=_BOTH,
    ),
    "doubled": Case(
        "WRITEs through fault duplicate",
        ("wire-packets-twice",),
        ({**_ONE, "count": 80},),
        one={"timeout": 14},
        fault=("duplicate", {"percent": 10.0}),
        taps=_BOTH,
    ),
    "replayed": Case(
        "WRITEs, each sent again to h2 by fault replay",
        ("wire-packets-replayed",),
        ({**_ONE, "count": 40},),
        fault=("replay", {"victim": "h2"}),
        taps=_BOTH,
    ),
    "port-pauses": Case(
        "WRITEs, 16 at once, through fault pause: the port to h2 stops for 100 ms again and again",
        ("wire-path-stops",),
        tuple({"count": 16, "size": 4096} for _ in range(8)),
        fault=("pause", {"ms": 100.0, "bytes": 10000, "destination": "h2"}),
        taps=_BOTH,
    ),
    "rate-limit": Case(
        "WRITEs of 8 packets, six at once, through fault rate-limit: 2 Mbit/s to h2",
        ("wire-path-narrow",),
        tuple({"count": 6, "size": 32768} for _ in range(3)),
        one={"timeout": 21},
        fault=("rate-limit", {"mbit": 2.0, "destination": "h2"}),
        taps=_BOTH,
        ports=True,
    ),
    "cnps-forged": Case(
        "WRITEs, and CNPs to h1 by fault cnp-storm",
        ("wire-cnp-never-sent",),
        ({**_ONE, "count": 40},),
        fault=("cnp-storm", {"victim": "h1"}),
        taps=_BOTH,
    ),
    "nak-forged": Case(
        "WRITEs, many at once, and NAKs to h1 by fault forged-nak",
        ("wire-nak-never-sent",),
        ({"count": 30}, {"count": 30, "wait": 3.0}),
        fault=("forged-nak", {"victim": "h1"}),
        taps=_BOTH,
        linger=1.0,
    ),
    "rnr-forged": Case(
        "WRITEs, many at once, and RNR NAKs to h1 by fault forged-rnr",
        ("wire-rnr-never-sent",),
        ({"count": 30}, {"count": 30, "wait": 3.0}),
        fault=("forged-rnr", {"victim": "h1"}),
        taps=_BOTH,
        linger=1.0,
    ),
    "write-forged": Case(
        "WRITEs, and a WRITE with a bad rkey to h2 by fault forged-write",
        ("wire-request-never-sent",),
        ({**_ONE, "count": 30, "wait": 4.0},),
        one={"timeout": 14},
        fault=("forged-write", {"victim": "h2", "rate": 2.0}),
        taps=_BOTH,
        linger=1.0,
    ),
    "middle-forged": Case(
        "WRITEs, and a WRITE MIDDLE that nobody began to h2 by fault malformed",
        ("wire-broken-request-never-sent",),
        ({**_ONE, "count": 30, "wait": 4.0},),
        one={"timeout": 14},
        fault=("malformed", {"victim": "h2", "rate": 2.0}),
        taps=_BOTH,
        linger=1.0,
    ),
    "psn-ahead": Case(
        "WRITEs, and SENDs whose PSN is 1000 ahead to h2 by fault psn-jump",
        ("wire-psn-never-sent",),
        ({**_ONE, "count": 40},),
        one={"timeout": 14},
        fault=("psn-jump", {"victim": "h2"}),
        taps=_BOTH,
    ),
}
