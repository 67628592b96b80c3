"""Vendor error codes of a completion (`wc.vendor_err`), by driver.

mlx5: NVIDIA publishes no table. A code marked `measured` was seen under a known injected fault on ConnectX-6
(public data of unionxic/rdma-fault-characterization), `reported` in public issues with that status, `source` is named
in a driver or library, `unverified` was seen without a proof of its meaning.
EFA: rdma-core providers/efa/efa_io_defs.h, verbs.c. bnxt_re: providers/bnxt_re/bnxt_re-abi.h. irdma:
providers/irdma/user.h (vendor_err is major << 16 | minor).
"""

from __future__ import annotations

from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain import wc_status
from rdmadiag.explain._words import name as folded
from rdmadiag.explain._words import number, refuse, shown, value_of

HELP = "vendor error code of a completion: CODE [mlx5|mlx4|efa|bnxt_re|irdma] [wc status]"
EXAMPLES = (
    ("0x81",),
    ("129",),
    ("0x52", "mlx5"),
    ("7", "efa"),
    ("0x88", "REM_ACCESS_ERR"),
    ("10", "bnxt_re", "12"),
    ("0x10008", "irdma"),
)
DRIVERS = ("mlx5", "mlx4", "efa", "bnxt_re", "irdma")

_UX = "measured on ConnectX-6 against ConnectX-5: github.com/unionxic/rdma-fault-characterization"
_P2P = "GPU buffer: the PCIe peer-to-peer path (nvidia-peermem or dma-buf, BAR, ACS, IOMMU) refused the access"

# code, wc status, evidence, meaning, causes, sources
_Row = tuple[int, "int | None", str, str, tuple[str, ...], tuple[str, ...]]
_MLX5: tuple[_Row, ...] = (
    (
        0x05,
        5,
        "source",
        "flush made by the driver in software, not by the device",
        (),
        ("kernel drivers/infiniband/hw/mlx5/cq.c",),
    ),
    (
        0x32,
        4,
        "reported",
        "protection error while a message was scattered into a receive buffer",
        ("receive buffer's lkey, range or LOCAL_WRITE",),
        ("public dump, gist dch/1bfa5563",),
    ),
    (
        0x33,
        4,
        "measured",
        "the MR does not permit the access (READ or receive into an MR without LOCAL_WRITE)",
        ("MR registered without IBV_ACCESS_LOCAL_WRITE",),
        (_UX,),
    ),
    (
        0x51,
        4,
        "reported",
        "protection error while the device gathered the data to send",
        (_P2P, "lkey or range of the send buffer"),
        ("github.com/linux-rdma/perftest#173", "github.com/NVIDIA/nccl#214", "github.com/openucx/ucx#7774"),
    ),
    (
        0x52,
        4,
        "measured",
        "the lkey of the work request is not valid",
        ("wrong lkey", "MR deregistered while the work request was posted", _P2P),
        (_UX, "github.com/openucx/ucx#2888"),
    ),
    (
        0x53,
        4,
        "measured",
        "the SGE reaches past the end of its MR",
        ("address + length outside the MR",),
        (_UX, "github.com/Juniper/warp17#81"),
    ),
    (
        0x68,
        2,
        "reported",
        "bad or unsupported send work request",
        ("opcode, inline size or SGE count that the QP does not support", "library and firmware do not match"),
        ("github.com/openucx/ucx#1151", "github.com/openucx/ucx#3618"),
    ),
    (
        0x81,
        12,
        "measured",
        "no acknowledgement: ACK timeout, retries used up",
        ("peer or its QP gone", "link, route, GID, VLAN or MTU wrong", "loss or pause storm on the path"),
        (_UX, "github.com/NVIDIA/nccl#1405", "github.com/openucx/ucx#6669"),
    ),
    (0x87, 13, "measured", "receiver not ready: RNR retries used up", ("no receive posted at the peer",), (_UX,)),
    (
        0x88,
        10,
        "measured",
        "remote access NAK: the peer refused rkey, address or permission",
        ("stale or wrong rkey", "address out of the peer's MR"),
        (_UX, "github.com/openucx/ucx#1569"),
    ),
    (
        0x89,
        11,
        "reported",
        "remote operation NAK: the peer failed to carry the request out",
        ("fault at the peer's DMA or receive work request",),
        ("github.com/openucx/ucx#5472",),
    ),
    (
        0x8A,
        9,
        "measured",
        "remote invalid request NAK: the peer's QP or MR does not allow the operation",
        ("peer MR without REMOTE_WRITE", "operation not in the peer's qp_access_flags", "message too long"),
        (_UX, "github.com/UIUC-PPL/charm#2532"),
    ),
    (
        0x93,
        16,
        "source",
        "ODP page fault on an SRQ work request: handled by the library, harmless",
        (),
        ("rdma-core providers/mlx5/mlx5dv.h, cq.c",),
    ),
    (
        0x99,
        16,
        "source",
        "UCX names it PSN: an aborted SRQ segment, released as good",
        (),
        ("openucx/ucx src/uct/ib/mlx5/ib_mlx5.h",),
    ),
    (
        0xD6,
        2,
        "reported",
        "malformed receive work request",
        ("receive work request malformed",),
        ("github.com/openucx/ucx#11444",),
    ),
    (0xF5, 5, "measured", "flush after the QP was moved to ERR with work requests pending", (), (_UX,)),
    (
        0xF9,
        5,
        "reported",
        "flush: the QP was in error already",
        (),
        ("github.com/NVIDIA/nccl#1353", "github.com/linux-nvme/nvme-cli#3268"),
    ),
    *(
        (code, None, "unverified", "seen in the field without a proof of what it means; trust the wc status", (), ())
        for code in (0x54, 0x69, 0x6F, 0x82, 0x8F, 0x90, 0x92, 0x94, 0xF4)
    ),
)
_MLX4: tuple[_Row, ...] = (
    (
        0x70,
        2,
        "reported",
        "QP operation error on ConnectX-3 (mlx4)",
        ("bad or unsupported send work request",),
        ("github.com/openucx/ucx#5318",),
    ),
    (
        0x88,
        10,
        "reported",
        "remote access NAK (ConnectX-2)",
        ("stale or wrong rkey", "address out of the peer's MR"),
        ("forums.developer.nvidia.com topic 207715",),
    ),
)
_EFA_AT = ("rdma-core providers/efa/efa_io_defs.h, verbs.c (to_ibv_status)",)
_EFA: tuple[_Row, ...] = tuple(
    (code, status, "source", meaning, causes, _EFA_AT)
    for code, status, meaning, causes in (
        (0, 0, "success", ()),
        (1, 5, "flushed while the QP was destroyed", ()),
        (2, 2, "internal QP error", ()),
        (3, 2, "operation not supported by this device", ("RDMA write or read on a device without it",)),
        (4, 2, "bad address handle", ("address handle destroyed or of another PD",)),
        (5, 4, "lkey not registered, or it does not match the address", ("wrong lkey", "MR deregistered")),
        (6, 1, "message too long", ("longer than the device's maximum",)),
        (7, 10, "rkey not registered at the peer, or it does not match the address", ("stale rkey", "peer restarted")),
        (8, 16, "the peer reset the connection", ("peer process gone",)),
        (9, 15, "the destination QP does not exist or is in error", ("peer restarted with a new QPN",)),
        (10, 13, "the peer has no receive posted", ("receive queue too short",)),
        (11, 9, "the peer's receive buffer is too short", ("message longer than the receive",)),
        (12, 7, "the responder returned an unexpected status", ()),
        (13, 20, "the peer answered before and does not answer now", ("peer node or instance gone", "path lost")),
        (
            14,
            11,
            "the peer has no address handle for us, which RDMA operations need",
            ("peer did not add our address",),
        ),
        (15, 20, "the peer never answered", ("security group does not allow the traffic", "wrong address or subnet")),
        (18, 9, "the peer's device lacks a feature that the request needs", ("different device generations",)),
    )
)
_BNXT_AT = ("rdma-core providers/bnxt_re/bnxt_re-abi.h", "kernel drivers/infiniband/hw/bnxt_re/roce_hsi.h")
_BNXT: tuple[_Row, ...] = tuple(
    (code, status, "source", meaning, (), _BNXT_AT)
    for code, status, meaning in (
        (0, 0, "success"),
        (0x1, 7, "requester: bad response"),
        (0x2, 1, "requester: local length"),
        (0x3, 2, "requester: local QP operation"),
        (0x4, 4, "requester: local protection"),
        (0x5, 6, "requester: memory management operation"),
        (0x6, 9, "requester: remote invalid request"),
        (0x7, 10, "requester: remote access"),
        (0x8, 11, "requester: remote operation"),
        (0x9, 13, "requester: RNR retries exceeded"),
        (0xA, 12, "requester: transport retries exceeded"),
        (0xB, 5, "requester: flushed"),
        (0x1, 8, "responder: local access"),
        (0x2, 1, "responder: local length"),
        (0x3, 4, "responder: local protection"),
        (0x4, 2, "responder: local QP operation"),
        (0x5, 6, "responder: memory management operation"),
        (0x6, 9, "responder: remote invalid request"),
        (0x7, 5, "responder: flushed"),
        (0x8, 5, "responder: flushed by hardware"),
    )
)
_IRDMA_AT = ("rdma-core providers/irdma/user.h (irdma_flush_opcode), uverbs.c",)
_IRDMA: tuple[_Row, ...] = tuple(
    (code, status, "source", meaning, (), _IRDMA_AT)
    for code, status, meaning in (
        (1, 5, "flushed (general)"),
        (2, 4, "local protection"),
        (3, 10, "remote access"),
        (4, 2, "local QP operation"),
        (5, 11, "remote operation"),
        (6, 1, "local length"),
        (7, 19, "fatal"),
        (8, 12, "transport retries exceeded"),
        (9, 6, "memory window bind"),
        (10, 9, "remote invalid request"),
        (11, 13, "RNR retries exceeded"),
    )
)
_TABLES = {"mlx5": _MLX5, "mlx4": _MLX4, "efa": _EFA, "bnxt_re": _BNXT, "irdma": _IRDMA}
_IRDMA_FLUSH_MAJOR = 1


def _driver(word: str | None) -> str | None:
    # Kernel module and device spellings: mlx5_0, mlx5_core, bnxt_re0, irdma1, rdmap0s31 (EFA).
    low = (word or "").lower()
    if low.startswith("rdmap"):
        return "efa"
    low = "bnxt_re" if low == "bnxt" else low
    return next((driver for driver in DRIVERS if low.startswith(driver)), None)


def _answer(driver: str, row: _Row, vendor_err: int, asked: int | None) -> dict[str, Any]:
    _, status, evidence, meaning, causes, sources = row
    known = None if status is None else wc_status.lookup(status)
    told = known or (None if asked is None else wc_status.lookup(asked))
    pair = "unknown" if status is None or asked is None else "agrees" if status == asked else "differs"
    answer: dict[str, Any] = {
        "name": f"{driver} {vendor_err:#04x}",
        "number": vendor_err,
        "meaning": meaning,
        "side": told["side"] if told else "unknown",
        "causes": list(causes) or (told["causes"] if told else []),
        "next": list(told["next"]) if told else ["decode the wc status that came with it"],
        "driver": driver,
        "wc_status": status,
        "wc_status_name": known["name"] if known else None,
        "evidence": evidence,
        "pair": pair,
        "sources": list(sources),
    }
    if pair == "differs" and known:
        answer["note"] = f"known with status {status} ({known['name']}), not {asked}: trust the wc status"
    return answer


def lookup(vendor_err: int, wc_status: int | None = None, driver: str | None = None) -> dict[str, Any] | None:
    """Return what a vendor code means, or None when nothing is known of it.

    With no driver only mlx5 is tried, and codes below 0x20, which several vendors use, give None. `evidence` is
    measured, reported, source or unverified; `pair` says whether wc_status agrees with the one the code is known with.
    """
    chosen = _driver(driver)
    if driver and chosen is None:
        return None
    if chosen is None and vendor_err < 0x20:
        return None
    chosen = chosen or "mlx5"
    code = vendor_err
    if chosen == "irdma" and vendor_err >> 16 == _IRDMA_FLUSH_MAJOR:
        code = vendor_err & 0xFFFF
    rows = [row for row in _TABLES[chosen] if row[0] == code]
    if not rows:
        return None
    best = next((row for row in rows if wc_status is not None and row[1] == wc_status), rows[0])
    answer = _answer(chosen, best, vendor_err, wc_status)
    if len(rows) > 1 and best[1] != wc_status:
        answer["meaning"] = "; or ".join(row[3] for row in rows)
        answer["also"] = [{"wc_status": row[1], "meaning": row[3]} for row in rows if row is not best]
    return answer


def decode(*words: str) -> dict[str, Any]:
    """Decode a vendor code. Raises BadInput for a word that is no number, driver or wc status."""
    code: tuple[int, str] | None = None
    driver: str | None = None
    status: int | None = None
    for word in (value_of(part) for part in words):
        if code is None and (read := number(word)):
            code = read
        elif found := _driver(word):
            driver = found
        elif (found_status := wc_status.number(word)) is not None:
            status = found_status
        else:
            wanted = "CODE [driver] [wc status], such as 0x81 mlx5 12"
            raise refuse("vendor code, driver or wc status", word, wanted, (*DRIVERS, *wc_status.NAMES))
    if code is None:
        raise BadInput(f"vendor-err wants a code such as 0x81 or 129, got {shown(' '.join(words))}")
    value, how = code
    if value > 0xFFFFFFFF:
        raise BadInput(f"vendor code {shown(hex(value))} is more than 32 bits")
    answer = lookup(value, status, driver)
    if answer is None:
        answer = _unknown(value, status, driver)
    answer["read_as"] = how
    return answer


def _unknown(value: int, status: int | None, driver: str | None) -> dict[str, Any]:
    told = None if status is None else wc_status.lookup(status)
    others = {
        name: row[3] for name, table in _TABLES.items() if driver is None for row in reversed(table) if row[0] == value
    }
    meaning = "depends on the driver: name it" if others else "not a code that is known; the wc status decides"
    known = sorted({row[0] for row in _TABLES[driver or "mlx5"]})
    return {
        "name": f"{driver or 'vendor'} {value:#04x}",
        "number": value,
        "meaning": meaning,
        "side": told["side"] if told else "unknown",
        "causes": told["causes"] if told else [],
        "next": told["next"] if told else ["give the driver and the wc status", "read dmesg for the error CQE"],
        "driver": driver,
        "wc_status": status,
        "evidence": "unknown",
        "by_driver": others,
        "known_codes": [f"{folded(driver or 'mlx5').lower()} " + ", ".join(f"{code:#04x}" for code in known)],
        "sources": [],
    }
