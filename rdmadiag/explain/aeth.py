"""ACK extended transport header: what a responder said with an ACK packet.

IBA vol 1, 9.3.5 and 9.7.5.2; kernel drivers/infiniband/sw/rxe/rxe_hdr.h, sw/rdmavt/rc.c (`credit_table`),
include/rdma/ib_hdrs.h. Four bytes: syndrome (bits 31 to 24), message sequence number (bits 23 to 0).
"""

from __future__ import annotations

from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain import rnr_timer, wc_status
from rdmadiag.explain._words import name as folded
from rdmadiag.explain._words import number, refuse, shown, span, value_of

HELP = "AETH syndrome (one byte) or the whole header (32 bits: syndrome and MSN)"
EXAMPLES = (("0x62",), ("0x1f000001",), ("0x2e",), ("0x60", "17"), ("NAK_REMOTE_ACCESS",))

CREDITS = (
    0,
    1,
    2,
    3,
    4,
    6,
    8,
    12,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
    3072,
    4096,
    6144,
    8192,
    12288,
    16384,
    24576,
    32768,
)
"""End-to-end credits by code 0 to 30; code 31 means that the field is not valid: send without limit."""
UNLIMITED = 0x1F

# value, name, meaning, wc status at the requester (None: retried), causes, next
_NAKS: tuple[tuple[int, str, str, int | None, str, tuple[str, ...]], ...] = (
    (
        0x60,
        "NAK_PSN_SEQUENCE_ERROR",
        "a packet is missing: the responder expected the PSN that this NAK carries; everything before it arrived",
        None,
        "path",
        ("packets were lost or overtook each other on the way to the responder",),
    ),
    (
        0x61,
        "NAK_INVALID_REQUEST",
        "the responder does not allow this request",
        9,
        "requester or responder",
        (
            "operation not in the responder's qp_access_flags",
            "message longer than the receive buffer",
            "opcode out of order, or length not the one in the RETH",
        ),
    ),
    (
        0x62,
        "NAK_REMOTE_ACCESS",
        "the responder's memory check refused rkey, address or permission",
        10,
        "requester or responder",
        ("stale rkey", "address outside the MR", "MR without the permission"),
    ),
    (
        0x63,
        "NAK_REMOTE_OPERATIONAL",
        "the responder could not carry the request out",
        11,
        "responder",
        ("fault at the responder's DMA, memory or receive work request",),
    ),
    (0x64, "NAK_INVALID_RD_REQUEST", "invalid RD request (reliable datagram only)", 15, "responder", ()),
)
_SOURCES = (
    "IBA vol 1, 9.3.5 and 9.7.5.2 (AETH syndrome)",
    "kernel drivers/infiniband/sw/rxe/rxe_hdr.h, sw/rdmavt/rc.c, include/rdma/ib_hdrs.h",
)


def syndrome(value: int) -> dict[str, Any]:
    """Return class, credits, RNR timer or NAK code of a syndrome byte (0 to 255); never raises."""
    kind, low = value >> 5, value & 0x1F
    if kind == 0:
        free = "no limit (credits not valid)" if low == UNLIMITED else str(CREDITS[low])
        return _result(
            "ACK",
            value,
            f"acknowledged; credits: {free}",
            "none",
            [],
            ["nothing to do"],
            credits=None if low == UNLIMITED else CREDITS[low],
            retried=False,
        )
    if kind == 1:
        wait = rnr_timer.MILLISECONDS[low] * 1e-3
        return _result(
            "RNR_NAK",
            value,
            f"receiver not ready: no receive posted; send again after at least {span(wait)}",
            "responder",
            ["the responder posts too few receives, or too late"],
            ["post receives earlier; raise the receive queue depth"],
            rnr_timer=low,
            wait_seconds=wait,
            retried=True,
        )
    for code, name, meaning, status, side, causes in _NAKS:
        if code == value:
            known = None if status is None else wc_status.lookup(status)
            steps = known["next"] if known else ["look for loss and reordering between requester and responder"]
            return _result(
                name,
                value,
                meaning,
                side,
                list(causes),
                steps,
                nak_code=low,
                wc_status=known["name"] if known else None,
                retried=status is None,
            )
    why = "bit 7 must be 0" if value & 0x80 else "class 2 is reserved" if kind == 2 else "NAK code not defined"
    return _result(
        "RESERVED",
        value,
        f"reserved value: {why}",
        "responder",
        ["responder firmware fault, or bytes that are no AETH"],
        ["check that the packet carries an AETH"],
        retried=False,
    )


def _result(
    name: str, value: int, meaning: str, side: str, causes: list[str], steps: list[str], **more: Any
) -> dict[str, Any]:
    return {"name": name, "number": value, "meaning": meaning, "side": side, "causes": causes, "next": steps, **more}


def decode(*words: str) -> dict[str, Any]:
    """Decode a syndrome byte, a 32-bit header, or a syndrome and an MSN. Raises BadInput for anything else."""
    plain = [value_of(word) for word in words]
    if not 1 <= len(plain) <= 2:
        raise BadInput(
            f"aeth wants a syndrome such as 0x62, or 32 bits such as 0x1f000001, got {shown(' '.join(words))}"
        )
    by_name = {name: code for code, name, *_ in _NAKS} | {"ACK": UNLIMITED, "RNR_NAK": 0x20}
    if len(plain) == 1 and folded(plain[0]) in by_name:
        return {**syndrome(by_name[folded(plain[0])]), "sources": list(_SOURCES)}
    reads = [number(word) for word in plain]
    first = reads[0]
    if first is None or reads[-1] is None:
        raise refuse("AETH", plain[0] if first is None else plain[1], "0 to 0xff, or a 32-bit value", by_name)
    value, how = first
    msn: int | None = None
    if len(plain) == 2:
        msn = reads[-1][0]
    elif value > 0xFF or len(plain[0].lower().removeprefix("0x")) == 8:
        value, msn = value >> 24, value & 0xFFFFFF
    if value > 0xFF or (msn or 0) > 0xFFFFFF:
        raise BadInput(f"an AETH has an 8-bit syndrome and a 24-bit MSN, got {shown(' '.join(words))}")
    answer = syndrome(value)
    if msn is not None:
        answer["msn"] = msn
        answer["msn_meaning"] = "messages that the responder has completed, modulo 2^24"
    answer["read_as"] = how
    answer["sources"] = list(_SOURCES)
    return answer
