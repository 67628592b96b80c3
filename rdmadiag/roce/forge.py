"""Frames that faults send, by name and parameters: CNP, ACK and NAK, requests with a chosen rkey, replays, malformed headers, PSN jumps.

Each public function that returns a Frame is a builder; its keyword arguments are its parameters (numbers, or "0x..." in JSON). Nothing
here sends: rdmadiag.roce.send does. What a receiver makes of each frame on SoftRoCE is said where it is known (seen on Linux 6.1, read in
6.12: drivers/infiniband/sw/rxe).
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rdmadiag.errors import BadInput
from rdmadiag.explain import opcode as opcodes
from rdmadiag.roce import packet
from rdmadiag.roce.packet import Path

PSN_MASK = 0xFFFFFF
NAKS = {
    "psn-sequence-error": 0x60,
    "invalid-request": 0x61,
    "remote-access": 0x62,
    "remote-operational": 0x63,
    "invalid-rd-request": 0x64,
}
"""Syndromes of the NAK that are defined (IBA vol 1, 9.7.5.2)."""
DANGERS = {
    "reserved-aeth": (
        "an AETH whose syndrome is of a reserved type (0x40, or bit 7 set) makes a SoftRoCE requester print a kernel WARNING "
        "(rxe_comp.c): a host with panic_on_warn goes down, and its QP ends in ERR with a work completion that says success"
    )
}
"""What harms the host that receives it, and how: sent only when asked by this name."""


class Frame(NamedTuple):
    """A frame as it will lie on the wire, and what in it is known to harm a host (names of DANGERS)."""

    data: bytes
    dangers: frozenset[str] = frozenset()


def bth(
    opcode: int,
    dest_qp: int,
    psn: int,
    *,
    ackreq: bool = False,
    pkey: int = 0xFFFF,
    pad: int = 0,
    becn: bool = False,
    tver: int = 0,
) -> bytes:
    """Return a base transport header (IBA vol 1, 9.2)."""
    return struct.pack(
        ">BBHII",
        opcode,
        (pad & 3) << 4 | tver & 15,
        pkey & 0xFFFF,
        becn << 30 | dest_qp & PSN_MASK,
        ackreq << 31 | psn & PSN_MASK,
    )


def _frame(path: Path, body: bytes, lie: int = 0) -> Frame:
    data = packet.build(path, body, lie)
    return Frame(data, dangers(data))


def dangers(frame: bytes | bytearray | memoryview) -> frozenset[str]:
    """Return the names of what is known to harm the host that receives this frame."""
    at = packet.places(frame)
    syndrome = packet.get(frame, "syndrome", at) if at else None
    return frozenset() if syndrome is None or is_safe(syndrome) else frozenset(("reserved-aeth",))


def is_safe(syndrome: int) -> bool:
    """Say whether an AETH syndrome is ACK, RNR NAK or NAK: rxe takes what is none of them as an error of its own."""
    return syndrome & 0xE0 in (0x00, 0x20, 0x60)


def cnp(path: Path, *, dest_qp: int) -> Frame:
    """Congestion notification packet to the sender of a flow; `dest_qp` is the QP that is to slow down.

    Adapters answer with a lower rate; rxe drops opcode 0x81 uncounted. DSCP 48, ECT(0) and source port 0, as ConnectX sends it.
    """
    marked = path._replace(tos=0xC2, sport=0)
    return _frame(marked, bth(opcodes.CNP, dest_qp, 0, becn=True) + bytes(opcodes.CNP_PAYLOAD_BYTES))


def ack(path: Path, *, dest_qp: int, psn: int, msn: int = 0, syndrome: int = 0x1F) -> Frame:
    """ACKNOWLEDGE with any syndrome; 0x1f is an ACK with unlimited credits, as rxe sends it."""
    aeth = struct.pack(">I", (syndrome & 0xFF) << 24 | msn & PSN_MASK)
    return _frame(path, bth(0x11, dest_qp, psn) + aeth)


def nak(path: Path, *, dest_qp: int, psn: int, error: str = "remote-access", msn: int = 0) -> Frame:
    """NAK of a named error (see NAKS).

    It bites while requests are in flight: oldest PSN not acknowledged <= psn <= last PSN of the oldest message. With a PSN
    beyond all that was sent rxe completes pending requests as success.
    """
    if error not in NAKS:
        raise BadInput(f"no NAK {error!r}; known: {', '.join(NAKS)}")
    return ack(path, dest_qp=dest_qp, psn=psn, msn=msn, syndrome=NAKS[error])


def rnr_nak(path: Path, *, dest_qp: int, psn: int, timer: int = 14, msn: int = 0) -> Frame:
    """RNR NAK: the receiver is not ready; `timer` is the code (0 to 31) of the time to wait (IBA vol 1, table 45)."""
    if not 0 <= timer <= 31:
        raise BadInput(f"an RNR timer is a code of 5 bits, got {timer}")
    return ack(path, dest_qp=dest_qp, psn=psn, msn=msn, syndrome=0x20 | timer)


def reserved_aeth(path: Path, *, dest_qp: int, psn: int, msn: int = 0) -> Frame:
    """ACKNOWLEDGE of the reserved type 0x40. Dangerous to the host that receives it: see DANGERS."""
    return ack(path, dest_qp=dest_qp, psn=psn, msn=msn, syndrome=0x40)


def write(
    path: Path,
    *,
    dest_qp: int,
    psn: int,
    rkey: int,
    va: int,
    payload: bytes = b"\0" * 8,
    length: int | None = None,
    ackreq: bool = True,
    pkey: int = 0xFFFF,
) -> Frame:
    """RDMA WRITE of one packet, as if from the peer. `length` is what the RETH claims; None: what the payload has.

    A wrong rkey or a range outside the MR is answered with NAK 0x62, and the responder's QP is in ERR; a length that is not the payload's
    with NAK 0x61. The peer's own next request then has a PSN that the responder has already seen or will not answer.
    """
    reth = struct.pack(">QII", va, rkey, len(payload) if length is None else length)
    pad = -len(payload) % 4
    return _frame(path, bth(0x0A, dest_qp, psn, ackreq=ackreq, pad=pad, pkey=pkey) + reth + payload + bytes(pad))


def read(path: Path, *, dest_qp: int, psn: int, rkey: int, va: int, length: int) -> Frame:
    """RDMA READ request, as if from the peer: the data goes to the peer's QP, which did not ask."""
    return _frame(path, bth(0x0C, dest_qp, psn, ackreq=True) + struct.pack(">QII", va, rkey, length))


def send_only(path: Path, *, dest_qp: int, psn: int, payload: bytes = b"\0" * 8, ackreq: bool = True) -> Frame:
    """SEND of one packet: takes a receive that the peer's next message would have had."""
    pad = -len(payload) % 4
    return _frame(path, bth(0x04, dest_qp, psn, ackreq=ackreq, pad=pad) + payload + bytes(pad))


def psn_jump(path: Path, *, dest_qp: int, psn: int, by: int = 1000) -> Frame:
    """SEND whose PSN is `by` ahead of (or, negative, behind) the one that is due.

    Ahead: one NAK 0x60 with the PSN that is due, then the QP hears nothing but that PSN. Behind: taken as a duplicate and acknowledged.
    """
    return send_only(path, dest_qp=dest_qp, psn=psn + by)


def replay(path: Path | None = None, *, frame: bytes, changes: dict[str, int] | None = None) -> Frame:
    """A captured frame again, with fields changed (see packet.FIELDS) and its ICRC made valid then; without changes bit by bit.

    `path`, when given, takes the place of the frame's own MAC and IP addresses.
    """
    at = packet.places(frame)
    if at is None:
        raise BadInput(f"the frame to replay ({len(frame)} bytes) is not a whole RoCEv2 packet")
    data = bytearray(frame)
    if path is not None:
        model = packet.build(path, bytes(packet.BTH_BYTES))
        size = 8 if frame[at.l3] >> 4 == 4 else 32
        if model[at.l3 - 2 : at.l3 - 1] != frame[at.l3 - 2 : at.l3 - 1]:
            raise BadInput("the frame to replay and its new path have other IP versions or VLAN tags")
        first = at.l3 + (12 if size == 8 else 8)
        data[:12], data[first : first + size] = model[:12], model[first : first + size]
    for name, value in (changes or {}).items():
        if not packet.put(data, name, value, at):
            raise BadInput(f"the frame to replay ({opcodes.lookup(at.opcode)['name']}) has no field {name!r}")
    if path is not None or changes:
        packet.seal(data, at)
    return Frame(bytes(data), dangers(data))


def _bad_icrc(path: Path, dest_qp: int, psn: int) -> bytes:
    data = bytearray(send_only(path, dest_qp=dest_qp, psn=psn).data)
    data[-1] ^= 0xFF
    return bytes(data)


MALFORMED: dict[str, tuple[str, Callable[[Path, int, int], bytes]]] = {
    "icrc": ("wrong ICRC: rxe drops it and counts nothing", _bad_icrc),
    "tver": (
        "transport version 1: dropped",
        lambda path, qp, psn: packet.build(path, bth(0x04, qp, psn, ackreq=True, tver=1) + bytes(8)),
    ),
    "reserved-opcode": (
        "opcode 0x15, which no packet may carry: dropped",
        lambda path, qp, psn: packet.build(path, bth(0x15, qp, psn, ackreq=True) + bytes(8)),
    ),
    "other-transport": (
        "UC opcode to an RC QP: dropped",
        lambda path, qp, psn: packet.build(path, bth(0x24, qp, psn, ackreq=True) + bytes(8)),
    ),
    "short-bth": (
        "a UDP payload of 10 bytes, shorter than a BTH: dropped",
        lambda path, qp, psn: _cut(packet.build(path, bth(0x04, qp, psn)), 10),
    ),
    "short-reth": (
        "RDMA WRITE whose RETH is cut after 8 bytes: dropped",
        lambda path, qp, psn: packet.build(path, bth(0x0A, qp, psn, ackreq=True) + bytes(8)),
    ),
    "udp-length": (
        "IP and UDP claim 64 bytes more than are there: the IP layer drops it",
        lambda path, qp, psn: packet.build(path, bth(0x04, qp, psn, ackreq=True) + bytes(8), lie=64),
    ),
    "pad-count": (
        "pad count 3 with a payload of no bytes",
        lambda path, qp, psn: packet.build(path, bth(0x04, qp, psn, ackreq=True, pad=3)),
    ),
    "reth-length": (
        "RETH claims 4096 bytes, the packet has 8: NAK 0x61, the QP is in ERR",
        lambda path, qp, psn: write(path, dest_qp=qp, psn=psn, rkey=0, va=0, length=4096).data,
    ),
    "middle-first": (
        "RDMA WRITE MIDDLE without its FIRST: NAK 0x61, the QP is in ERR",
        lambda path, qp, psn: packet.build(path, bth(0x07, qp, psn, ackreq=True) + bytes(256)),
    ),
    "misaligned-atomic": (
        "FETCH_ADD at an address that is no multiple of 8: NAK 0x61 or 0x62, the QP is in ERR",
        lambda path, qp, psn: packet.build(path, bth(0x14, qp, psn, ackreq=True) + struct.pack(">QIQQ", 1, 0, 1, 0)),
    ),
    "pkey": (
        "P_Key 0x1234: dropped, bad_pkey_cntr moves",
        lambda path, qp, psn: packet.build(path, bth(0x04, qp, psn, ackreq=True, pkey=0x1234) + bytes(8)),
    ),
}
"""Kinds of malformed packets: what is wrong and what rxe makes of it, and how it is made of path, DestQP and PSN."""


def _cut(frame: bytes, keep: int) -> bytes:
    # The UDP payload cut to `keep` bytes, lengths and checksum honest.
    at = packet.places(frame)
    assert at is not None
    data = bytearray(frame[: at.bth + keep])
    data[at.udp + 4 : at.udp + 6] = (8 + keep).to_bytes(2, "big")
    if data[at.l3] >> 4 == 4:
        data[at.l3 + 2 : at.l3 + 4] = (28 + keep).to_bytes(2, "big")
        data[at.l3 + 10 : at.l3 + 12] = b"\0\0"
        data[at.l3 + 10 : at.l3 + 12] = packet.checksum(data[at.l3 : at.udp]).to_bytes(2, "big")
    else:
        data[at.l3 + 4 : at.l3 + 6] = (8 + keep).to_bytes(2, "big")
    return bytes(data)


def malformed(path: Path, *, kind: str, dest_qp: int, psn: int) -> Frame:
    """A packet with something wrong in its headers; the kinds are in MALFORMED."""
    if kind not in MALFORMED:
        raise BadInput(f"no malformed packet {kind!r}; known: {', '.join(MALFORMED)}")
    data = MALFORMED[kind][1](path, dest_qp, psn)
    return Frame(data, dangers(data))


BUILDERS: dict[str, Callable[..., Frame]] = {
    "cnp": cnp,
    "ack": ack,
    "nak": nak,
    "rnr-nak": rnr_nak,
    "reserved-aeth": reserved_aeth,
    "write": write,
    "read": read,
    "send": send_only,
    "psn-jump": psn_jump,
    "replay": replay,
    "malformed": malformed,
}


def build(name: str, parameters: dict[str, Any], accept: Sequence[str] = ()) -> Frame:
    """Return the frame of a builder, from JSON values: numbers or "0x...", bytes as hex digits, `path` as an object.

    `accept` names the DANGERS that may be in it. Raises BadInput: no such builder or parameter, a value that is none, a danger
    not accepted.
    """
    if name not in BUILDERS:
        raise BadInput(f"no frame {name!r}; known: {', '.join(BUILDERS)}")
    wanted = inspect.signature(BUILDERS[name]).parameters
    values: dict[str, Any] = {}
    for key, value in parameters.items():
        if key not in wanted:
            raise BadInput(f"frame {name!r} has no parameter {key!r}; it has {', '.join(wanted)}")
        values[key] = _value(name, key, str(wanted[key].annotation), value)
    missing = [k for k, p in wanted.items() if p.default is p.empty and k not in values]
    if missing:
        raise BadInput(f"frame {name!r} also wants {', '.join(missing)}")
    try:
        frame = BUILDERS[name](**values)
    except struct.error as error:
        raise BadInput(f"frame {name!r}: a number does not fit its field: {error}") from error
    refuse(frame.dangers, accept)
    return frame


def refuse(found: frozenset[str], accept: Sequence[str]) -> None:
    """Raise BadInput, with the warning, for dangers that were not accepted by name."""
    for danger in sorted(found - set(accept)):
        raise BadInput(f"not sent: {DANGERS[danger]}. To send it all the same, accept {danger!r} by name")


def _value(name: str, key: str, kind: str, value: Any) -> Any:
    try:
        if kind.startswith("Path"):
            return Path(**value) if isinstance(value, dict) else Path(*value)
        if kind.startswith("bytes"):
            return value if isinstance(value, bytes) else bytes.fromhex(value)
        if kind.startswith("dict"):
            return {k: _number(v) for k, v in value.items()} if value is not None else None
        if kind.startswith("int"):
            return None if value is None and "None" in kind else _number(value)
        if (kind == "bool" and isinstance(value, bool)) or (kind == "str" and isinstance(value, str)):
            return value
    except (TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"frame {name!r}, parameter {key!r}: {error}") from error
    raise BadInput(f"frame {name!r}, parameter {key!r}: wanted {kind}, got {value!r}")


def _number(value: Any) -> int:
    number = int(value, 0) if isinstance(value, str) else value
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"wanted a number or '0x...', got {value!r}")
    return number
