"""BTH opcodes as arrays indexed by the opcode byte: where each extension header lies, who sends it, what it starts or ends.

Made from rdmadiag.explain.opcode (IBA vol 1, 9.2.1; kernel include/rdma/ib_pack.h, drivers/infiniband/sw/rxe/rxe_opcode.c).
"""

from __future__ import annotations

import numpy as np

from rdmadiag.explain import opcode

BTH_BYTES = 12
ICRC_BYTES = 4
UDP_PORT = 4791
ROCE1_ETHERTYPE = 0x8915
CNP = opcode.CNP
READ_REQUEST = 0x0C
ACKNOWLEDGE = 0x11
ATOMIC_ACKNOWLEDGE = 0x12
REQUEST, RESPONSE, NOTICE, DATAGRAM, OTHER = range(5)
"""Spaces of PSNs: requests, their answers, CNPs, UD datagrams, and what is none of them."""

_ALL = [opcode.lookup(value) for value in range(256)]
_HEADERS = [opcode.headers(value) for value in range(256)]


def _offset(name: str) -> np.ndarray:
    found = np.full(256, -1, np.int16)
    for value, names in enumerate(_HEADERS):
        at = BTH_BYTES
        for header in names:
            if header == name:
                found[value] = at
            at += opcode.HEADER_BYTES[header]
    return found


OFFSET = {name: _offset(name) for name in opcode.HEADER_BYTES}
"""Offset of each extension header from the start of the BTH [bytes], -1 where the opcode has none."""
KNOWN = np.array([entry["operation"] is not None for entry in _ALL])
"""Opcodes that are defined, CNP among them."""
LAID_OUT = KNOWN & (np.arange(256) & 0xE0 != 0x40)
"""Those whose headers are known to be as here: the RD opcodes are DC's on today's wires."""
RESERVED = ~KNOWN & (np.arange(256) < 0xC0)
"""Opcodes that no packet may carry; manufacturers' own (0xc0 and above) are none of them."""
HEADER_BYTES = np.array([BTH_BYTES + sum(opcode.HEADER_BYTES[name] for name in names) for names in _HEADERS], np.int16)
"""BTH and extension headers [bytes]."""
NAMES = tuple(str(entry["name"]) for entry in _ALL)


def _space(value: int) -> int:
    entry = _ALL[value]
    if value == CNP:
        return NOTICE
    if (
        entry["operation"] is None or entry["transport"] == "RD"
    ):  # 0x40 is Mellanox DC on today's wires, with headers of its own
        return OTHER
    if entry["transport"] == "UD":
        return DATAGRAM
    return REQUEST if entry["side"] == "requester" else RESPONSE


SPACE = np.array([_space(value) for value in range(256)], np.uint8)
UNRELIABLE = np.array([entry["transport"] == "UC" for entry in _ALL])


def _ends(*ends: str) -> np.ndarray:
    return np.array([any(end in (entry["operation"] or "") for end in ends) for entry in _ALL])


FIRST = _ends("_FIRST")
MIDDLE = _ends("_MIDDLE")
LAST = _ends("_LAST")
READ_RESPONSE = _ends("RDMA_READ_RESPONSE")
IS_READ = _ends("RDMA_READ_REQUEST")
ENDS_MESSAGE = KNOWN & (SPACE == REQUEST) & ~FIRST & ~MIDDLE
STARTS_MESSAGE = KNOWN & (SPACE == REQUEST) & ~MIDDLE & ~LAST
CARRIES_DATA = np.array([entry.get("payload") == "yes" for entry in _ALL])
OPERATION = np.array([value & 0x1F for value in range(256)], np.uint8)
"""Operation regardless of the transport."""
KIND = np.select(
    [
        _ends("SEND_"),
        _ends("RDMA_WRITE_"),
        IS_READ,
        _ends("COMPARE_SWAP", "FETCH_ADD"),
        _ends("FLUSH"),
        _ends("ATOMIC_WRITE"),
    ],
    [1, 2, 3, 4, 5, 6],
    0,
).astype(np.uint8)
"""Kind of a request: 1 SEND, 2 WRITE, 3 READ, 4 atomic, 5 FLUSH, 6 ATOMIC WRITE; 0 is none."""
KIND_NAMES = ("", "SEND", "WRITE", "READ", "ATOMIC", "FLUSH", "ATOMIC_WRITE")


def deltas(psn: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return how far PSNs are ahead of others, -2^23 to 2^23 - 1 (24-bit sequence arithmetic, rxe_verbs.h psn_compare)."""
    ahead: np.ndarray = ((psn.astype(np.int64) - before + 0x800000) & 0xFFFFFF) - 0x800000
    return ahead
