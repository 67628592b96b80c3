"""BTH opcodes: transport, operation and the headers that follow the base transport header.

IBA vol 1, 9.2.1; kernel include/rdma/ib_pack.h, ib_hdrs.h, drivers/infiniband/sw/rxe/rxe_opcode.c. The class of
XRC (0xa0) and its header are the specification's; the kernel has no constant for them.
"""

from __future__ import annotations

from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain._words import name as folded
from rdmadiag.explain._words import number, refuse, value_of

HELP = "BTH opcode by number or name: transport, operation, headers that follow"
EXAMPLES = (("0x81",), ("0x0a",), ("CNP",), ("RC_ACKNOWLEDGE",), ("UD_SEND_ONLY_WITH_IMMEDIATE",), ("100",))

TRANSPORTS = {0x00: "RC", 0x20: "UC", 0x40: "RD", 0x60: "UD", 0x80: "CNP", 0xA0: "XRC", 0xE0: "vendor"}
"""Transport by the opcode's top three bits."""
HEADER_BYTES = {
    "RETH": 16,
    "AETH": 4,
    "AtomicETH": 28,
    "AtomicAckETH": 8,
    "ImmDt": 4,
    "IETH": 4,
    "DETH": 8,
    "RDETH": 4,
    "XRCETH": 4,
    "FETH": 4,
}
CNP = 0x81
CNP_PAYLOAD_BYTES = 16

# low five bits, operation, headers on RC, who sends it, payload allowed, meaning
OPERATIONS: tuple[tuple[int, str, tuple[str, ...], str, bool, str], ...] = (
    (0x00, "SEND_FIRST", (), "requester", True, "first packet of a SEND"),
    (0x01, "SEND_MIDDLE", (), "requester", True, "middle packet of a SEND"),
    (0x02, "SEND_LAST", (), "requester", True, "last packet of a SEND"),
    (0x03, "SEND_LAST_WITH_IMMEDIATE", ("ImmDt",), "requester", True, "last packet of a SEND with immediate data"),
    (0x04, "SEND_ONLY", (), "requester", True, "SEND of one packet"),
    (0x05, "SEND_ONLY_WITH_IMMEDIATE", ("ImmDt",), "requester", True, "SEND of one packet with immediate data"),
    (0x06, "RDMA_WRITE_FIRST", ("RETH",), "requester", True, "first packet of an RDMA WRITE"),
    (0x07, "RDMA_WRITE_MIDDLE", (), "requester", True, "middle packet of an RDMA WRITE"),
    (0x08, "RDMA_WRITE_LAST", (), "requester", True, "last packet of an RDMA WRITE"),
    (
        0x09,
        "RDMA_WRITE_LAST_WITH_IMMEDIATE",
        ("ImmDt",),
        "requester",
        True,
        "last packet of an RDMA WRITE with immediate data; takes a receive at the peer",
    ),
    (0x0A, "RDMA_WRITE_ONLY", ("RETH",), "requester", True, "RDMA WRITE of one packet"),
    (
        0x0B,
        "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
        ("RETH", "ImmDt"),
        "requester",
        True,
        "RDMA WRITE of one packet with immediate data; takes a receive at the peer",
    ),
    (
        0x0C,
        "RDMA_READ_REQUEST",
        ("RETH",),
        "requester",
        False,
        "RDMA READ request; takes one PSN for each response packet",
    ),
    (0x0D, "RDMA_READ_RESPONSE_FIRST", ("AETH",), "responder", True, "first packet of the data that a READ asked for"),
    (0x0E, "RDMA_READ_RESPONSE_MIDDLE", (), "responder", True, "middle packet of a READ's data"),
    (0x0F, "RDMA_READ_RESPONSE_LAST", ("AETH",), "responder", True, "last packet of a READ's data"),
    (0x10, "RDMA_READ_RESPONSE_ONLY", ("AETH",), "responder", True, "a READ's data in one packet"),
    (0x11, "ACKNOWLEDGE", ("AETH",), "responder", False, "ACK, RNR NAK or NAK: the AETH syndrome says which"),
    (0x12, "ATOMIC_ACKNOWLEDGE", ("AETH", "AtomicAckETH"), "responder", False, "answer to an atomic: the old value"),
    (0x13, "COMPARE_SWAP", ("AtomicETH",), "requester", False, "atomic compare and swap of 8 bytes"),
    (0x14, "FETCH_ADD", ("AtomicETH",), "requester", False, "atomic fetch and add of 8 bytes"),
    (0x16, "SEND_LAST_WITH_INVALIDATE", ("IETH",), "requester", True, "last packet of a SEND; invalidates an rkey"),
    (0x17, "SEND_ONLY_WITH_INVALIDATE", ("IETH",), "requester", True, "SEND of one packet; invalidates an rkey"),
    (0x1C, "FLUSH", ("FETH", "RETH"), "requester", False, "make earlier writes visible or persistent"),
    (0x1D, "ATOMIC_WRITE", ("RETH",), "requester", True, "write 8 bytes at once; answered by RDMA_READ_RESPONSE_ONLY"),
)
_BY_LOW = {row[0]: row for row in OPERATIONS}
_SHORT = {
    "ACK": "ACKNOWLEDGE",
    "NAK": "ACKNOWLEDGE",
    "READ_REQUEST": "RDMA_READ_REQUEST",
    "CSWAP": "COMPARE_SWAP",
    "FADD": "FETCH_ADD",
    "CMP_SWAP": "COMPARE_SWAP",
    "ATOMIC_ACK": "ATOMIC_ACKNOWLEDGE",
}
_SOURCES = (
    "IBA vol 1, 9.2.1 (OpCode)",
    "kernel include/rdma/ib_pack.h, include/rdma/ib_hdrs.h (IB_BTH_OPCODE_CNP), drivers/infiniband/sw/rxe/rxe_opcode.c",
)
# Operations that each transport carries; a transport that is not here carries none.
_LAST = {"RC": 0x1D, "UC": 0x0B, "RD": 0x1C, "UD": 0x05, "XRC": 0x17}


def _defined(transport: str, low: int) -> bool:
    if transport not in _LAST or low not in _BY_LOW or low > _LAST[transport]:
        return False
    return low in (0x04, 0x05) if transport == "UD" else not (transport == "RD" and low in (0x16, 0x17))


def headers(opcode: int) -> tuple[str, ...]:
    """Return the extension headers, in order, that follow the BTH of an opcode; empty for one that is reserved."""
    transport, low = TRANSPORTS.get(opcode & 0xE0, ""), opcode & 0x1F
    if not _defined(transport, low):
        return ()
    own, request = _BY_LOW[low][2], _BY_LOW[low][3] == "requester"
    front = {"UD": ("DETH",), "RD": ("RDETH", "DETH") if request else ("RDETH",), "XRC": ("XRCETH",) if request else ()}
    return front.get(transport, ()) + own


def lookup(opcode: int) -> dict[str, Any]:
    """Return transport, operation and headers of an opcode byte (0 to 255); never raises."""
    transport, low = TRANSPORTS.get(opcode & 0xE0, "reserved"), opcode & 0x1F
    if opcode == CNP:
        return {
            "name": "CNP",
            "number": opcode,
            "meaning": "congestion notification packet: asks the sender of DestQP's flow to slow down",
            "side": "sent by the receiver of marked packets (NP), acted on by the sender (RP)",
            "transport": "CNP",
            "operation": "CNP",
            "headers": [],
            "payload": f"{CNP_PAYLOAD_BYTES} reserved bytes, all zero",
            "next": [
                "CNPs are congestion control at work; many of them mean congestion, not a fault",
                "match ecn_marked at the receiver: CNPs without marks come from retransmission handling",
            ],
        }
    if not _defined(transport, low):
        meaning = "reserved: no packet may carry it"
        if transport == "CNP":
            meaning = "base of the CNP class, not a packet; the CNP is 0x81 (Wireshark's table has 0x80)"
        if transport == "vendor":
            meaning = "vendor's own opcode: no public layout"
        return {
            "name": "RESERVED" if transport != "vendor" else "VENDOR",
            "number": opcode,
            "meaning": meaning,
            "side": "unknown",
            "transport": transport,
            "operation": None,
            "headers": [],
            "payload": None,
            "next": ["check that these bytes are a BTH (UDP port 4791, or Ethernet type 0x8915)"],
        }
    _, operation, _, side, payload, meaning = _BY_LOW[low]
    follow = headers(opcode)
    return {
        "name": f"{transport}_{operation}",
        "number": opcode,
        "meaning": meaning,
        "side": side,
        "transport": transport,
        "operation": operation,
        "headers": [{"name": header, "bytes": HEADER_BYTES[header]} for header in follow],
        "header_bytes": 12 + sum(HEADER_BYTES[header] for header in follow),
        "payload": "yes" if payload else "none",
        "next": ["decode the AETH: rdmadiag explain aeth"] if "AETH" in follow else [],
    }


def decode(*words: str) -> dict[str, Any]:
    """Decode an opcode by number or name. Raises BadInput, with the known operations, for anything else."""
    text = value_of(" ".join(words).strip())
    wanted = folded(text).removeprefix("IB_OPCODE_")
    names = {
        f"{transport}_{row[1]}": base | row[0]
        for base, transport in TRANSPORTS.items()
        for row in OPERATIONS
        if _defined(transport, row[0])
    }
    transport, _, operation = wanted.partition("_")
    spelled = f"{transport}_{_SHORT.get(operation, operation)}"
    wanted = spelled if transport in _LAST else _SHORT.get(wanted, wanted)
    note = None
    value: int | None = CNP if wanted == "CNP" else names.get(wanted)
    if value is None and f"RC_{wanted}" in names:
        value, note = names[f"RC_{wanted}"], "no transport named: RC"
    if value is None:
        read = number(text)
        if read is None:
            raise refuse(
                "BTH opcode",
                text,
                "0 to 0xff, or a name such as RC_SEND_ONLY",
                ["CNP", *(row[1] for row in OPERATIONS)],
            )
        value, note = read
    if value > 0xFF:
        raise BadInput(f"a BTH opcode is one byte, got {value:#x}")
    answer = lookup(value)
    if note:
        answer["read_as"] = note
    answer["sources"] = list(_SOURCES)
    return answer
