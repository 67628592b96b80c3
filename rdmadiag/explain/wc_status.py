"""Work completion status (`ibv_wc_status`): what it means, whose fault it is, what to do.

Numbers and texts: rdma-core libibverbs/verbs.h, enum_strs.c; kernel drivers/infiniband/core/verbs.c (`wc_statuses`).
Semantics: IBA vol 1, 11.6.2. mlx5 syndromes: rdma-core providers/mlx5/mlx5dv.h and cq.c. This module is imported by
every check, so it holds plain tuples only.
"""

from __future__ import annotations

from typing import Any

from rdmadiag.errors import BadInput

HELP = "completion status (ibv_wc_status) by number, name or text"
EXAMPLES = (("12",), ("RETRY_EXC_ERR",), ("IBV_WC_REM_ACCESS_ERR",), ("transport", "retry", "counter", "exceeded"))

_SOURCES = (
    "IBA vol 1, 11.6.2 (completion return status)",
    "rdma-core libibverbs/verbs.h, libibverbs/enum_strs.c",
    "kernel drivers/infiniband/core/verbs.c (wc_statuses)",
)

# number, name, libibverbs text, kernel text, mlx5 CQE syndrome, side, meaning, causes, next
_ROWS: tuple[tuple[int, str, str, str, int | None, str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        0,
        "SUCCESS",
        "success",
        "success",
        None,
        "none",
        "the work request completed",
        (),
        ("nothing to do: the fault, if there is one, is elsewhere",),
    ),
    (
        1,
        "LOC_LEN_ERR",
        "local length error",
        "local length error",
        0x01,
        "local",
        "a message does not fit the local buffer or the port's maximum message",
        (
            "receive buffer shorter than the message that arrived",
            "message longer than max_msg_sz",
            "atomic operand not 8 bytes",
        ),
        ("compare the posted receive length with the peer's message length", "ibv_devinfo -v: max_msg_sz"),
    ),
    (
        2,
        "LOC_QP_OP_ERR",
        "local QP operation error",
        "local QP operation error",
        0x02,
        "local",
        "the device could not process the posted work request as written",
        (
            "work request malformed or not supported by this QP",
            "more SGEs than the QP was made for",
            "address handle of another PD or port",
            "library, driver and firmware do not match",
        ),
        (
            "compare opcode, SGE count and inline size with what ibv_create_qp granted",
            "compare rdma-core, driver and firmware versions with a node that works",
        ),
    ),
    (
        3,
        "LOC_EEC_OP_ERR",
        "local EE context operation error",
        "local EE context operation error",
        None,
        "local",
        "reliable datagram only; no current device makes it",
        (),
        ("read the driver's mapping: the provider chose it",),
    ),
    (
        4,
        "LOC_PROT_ERR",
        "local protection error",
        "local protection error",
        0x04,
        "local",
        "the device may not read or write the local buffer that the work request names",
        (
            "lkey wrong, or its MR was deregistered",
            "range outside the MR, or MR of another PD",
            "receive or READ into an MR without LOCAL_WRITE",
            "GPU memory: page not mapped, or PCIe peer-to-peer blocked by ACS, IOMMU or the MMIO window",
        ),
        (
            "check lkey, address and length against the live MR (`rdma res show mr`)",
            "on GPU buffers: repeat with host memory; if that works look at peer memory, ACS and IOMMU",
            "mlx5: `rdmadiag explain vendor-err` tells lkey, range and permission apart",
        ),
    ),
    (
        5,
        "WR_FLUSH_ERR",
        "Work Request Flushed Error",
        "WR flushed",
        0x05,
        "secondary",
        "the QP was in error already, so its outstanding work requests were returned unprocessed",
        (
            "an earlier completion failed on this QP",
            "the application moved the QP to ERR to close it",
            "the peer's fault broke the connection and the library tore the QP down",
        ),
        (
            "find the first completion on this QP that is not 5: it names the fault",
            "if there is none, read the peer's log and the async events",
        ),
    ),
    (
        6,
        "MW_BIND_ERR",
        "memory management operation error",
        "memory bind operation error",
        0x06,
        "local",
        "binding a memory window or registering memory through the send queue was refused",
        ("MW or MR of another PD", "MR without MW_BIND permission", "key index or state invalid for the request"),
        ("check access flags and PD of the MR and the window",),
    ),
    (
        7,
        "BAD_RESP_ERR",
        "bad response error",
        "bad response error",
        0x10,
        "remote",
        "the responder answered with an opcode that does not fit the request",
        ("responder firmware or driver fault", "corrupted or mixed-up packets", "two QPs use one QPN and PSN range"),
        ("capture the flow and look at the response opcodes", "compare firmware of both ends"),
    ),
    (
        8,
        "LOC_ACCESS_ERR",
        "local access error",
        "local access error",
        0x11,
        "local",
        "the responder hit a protection error on its own buffer while it executed a remote write with immediate",
        ("local MR deregistered while the peer still writes to it", "local MR lacks the permission"),
        ("check that the MR outlives the peer's writes",),
    ),
    (
        9,
        "REM_INV_REQ_ERR",
        "remote invalid request error",
        "remote invalid request error",
        0x12,
        "local or remote",
        "the responder refused the request as not allowed on its QP (NAK 0x61)",
        (
            "message longer than the receive buffer",
            "operation not enabled in the peer QP's access flags",
            "peer MR without that permission (mlx5: vendor 0x8a)",
            "more outstanding READs or atomics than max_dest_rd_atomic",
        ),
        (
            "compare the request with the peer's qp_access_flags, receive size and max_dest_rd_atomic",
            "both QPs are in ERR now: rebuild both",
        ),
    ),
    (
        10,
        "REM_ACCESS_ERR",
        "remote access error",
        "remote access error",
        0x13,
        "remote or local",
        "the responder's memory check refused the address, the rkey or the permission (NAK 0x62)",
        (
            "rkey stale: the peer deregistered the MR or restarted",
            "address or length outside the peer's MR",
            "peer MR without REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC",
            "a peer that is dying deregisters its memory before its QP goes",
        ),
        (
            "compare the address and rkey that were used with the ones that the peer exported last",
            "ask whether the peer restarted or freed the buffer",
            "both QPs are in ERR now: rebuild both",
        ),
    ),
    (
        11,
        "REM_OP_ERR",
        "remote operation error",
        "remote operation error",
        0x14,
        "remote",
        "the responder accepted the request and then failed to carry it out (NAK 0x63)",
        ("fault at the responder's DMA, PCIe or memory", "malformed receive work request at the responder"),
        ("read the responder's log, PCIe AER counters and completions: the cause is there",),
    ),
    (
        12,
        "RETRY_EXC_ERR",
        "transport retry counter exceeded",
        "transport retry counter exceeded",
        0x15,
        "path or remote",
        "no acknowledgement came within timeout and retry_cnt; it means 'no answer', never by itself 'peer dead'",
        (
            "peer process or node gone, or peer QP in ERR or RESET",
            "link down or flapping, switch or route lost",
            "wrong GID, VLAN, dest_qp_num, PSN or path MTU: packets are dropped silently",
            "packets lost: lossy priority, PFC or ECN not configured",
            "PFC storm holds the traffic",
        ),
        (
            "ask the peer first: is the process alive, is its QP in RTS (`rdma res show qp`)?",
            "compare GID type and index, MTU, VLAN and priority of both ends",
            "local_ack_timeout_err, out_of_sequence and link counters of both ends over the window",
            "`rdmadiag explain ack-timeout` for how long ago the silence began",
        ),
    ),
    (
        13,
        "RNR_RETRY_EXC_ERR",
        "RNR retry counter exceeded",
        "RNR retry counter exceeded",
        0x16,
        "remote",
        "the receiver had no receive work request posted, rnr_retry times in a row",
        (
            "receiver posts too few receives, or too late",
            "receiver thread is stuck",
            "rnr_retry below 7 and min_rnr_timer short",
            "shared receive queue drained by other QPs",
        ),
        (
            "post receives before the peer sends; raise the receive queue depth",
            "set rnr_retry 7 (without end) or a longer min_rnr_timer",
            "out_of_buffer at the receiver over the window",
        ),
    ),
    (
        14,
        "LOC_RDD_VIOL_ERR",
        "local RDD violation error",
        "local RDD violation error",
        None,
        "local",
        "reliable datagram only; no current device makes it",
        (),
        ("read the driver's mapping: the provider chose it",),
    ),
    (
        15,
        "REM_INV_RD_REQ_ERR",
        "remote invalid RD request",
        "remote invalid RD request",
        None,
        "remote",
        "reliable datagram only in the specification; EFA uses it for a bad destination QPN",
        ("EFA: the peer's QP does not exist or is in error",),
        ("EFA: check that the peer still runs and its QPN",),
    ),
    (
        16,
        "REM_ABORT_ERR",
        "aborted error",
        "operation aborted",
        0x22,
        "remote or none",
        "the operation was aborted",
        (
            "mlx5 on an SRQ with vendor 0x93 or 0x99: handled by the library, harmless",
            "EFA: the peer reset the connection",
        ),
        ("mlx5: `rdmadiag explain vendor-err` with the vendor code", "otherwise read the peer's log"),
    ),
    (
        17,
        "INV_EECN_ERR",
        "invalid EE context number",
        "invalid EE context number",
        None,
        "none",
        "reliable datagram only; no current device makes it",
        (),
        ("read the driver's mapping: the provider chose it",),
    ),
    (
        18,
        "INV_EEC_STATE_ERR",
        "invalid EE context state",
        "invalid EE context state",
        None,
        "none",
        "reliable datagram only; no current device makes it",
        (),
        ("read the driver's mapping: the provider chose it",),
    ),
    (
        19,
        "FATAL_ERR",
        "fatal error",
        "fatal error",
        None,
        "local",
        "the device or the transport broke down",
        ("device fatal event, firmware reset, PCIe error",),
        ("dmesg around that time: mlx5 health, AER, reset lines", "IBV_EVENT_DEVICE_FATAL in the application's log"),
    ),
    (
        20,
        "RESP_TIMEOUT_ERR",
        "response timeout error",
        "response timeout error",
        None,
        "path or remote",
        "no response in time; EFA's word for an unresponsive or unreachable peer",
        ("peer gone or unreachable", "EFA: security group does not allow the peer's traffic"),
        ("ask the peer first, then the path", "EFA: the security group must allow all traffic within itself"),
    ),
    (
        21,
        "GENERAL_ERR",
        "general error",
        "general error",
        None,
        "local",
        "the provider has no better status; the vendor code says more",
        ("provider specific",),
        ("`rdmadiag explain vendor-err` with the vendor code; dmesg",),
    ),
    (
        22,
        "TM_ERR",
        "TM error",
        "unknown",
        None,
        "local",
        "tag matching failed",
        ("tag matching list out of step between library and device",),
        ("turn hardware tag matching off to confirm (UCX_RC_TM_ENABLE=n)",),
    ),
    (
        23,
        "TM_RNDV_INCOMPLETE",
        "TM software rendezvous",
        "unknown",
        None,
        "none",
        "tag matching handed a rendezvous to software: information, not an error",
        (),
        ("nothing to do",),
    ),
)

NAMES = tuple(row[1] for row in _ROWS)
"""Name (without IBV_WC_) by number."""

_BY_TEXT = {text.lower(): row[0] for row in _ROWS for text in (row[3], row[2], row[1])}
_BY_TEXT["unknown"] = -1
_BY_SYNDROME = {row[4]: row[0] for row in _ROWS if row[4] is not None}
GENERAL_ERR = 21


def number(text: str) -> int | None:
    """Return the status that a number, a name or a library's text means; None when it means none."""
    word = text.strip()
    head, _, tail = word.partition("(")
    inner = tail.rstrip(") ")
    for part in (word, head.strip(), inner):
        if part.isascii() and part.isdecimal() and len(part) < 4:
            return int(part) if int(part) < len(_ROWS) else None
        low = part.lower()
        if low.startswith("0x") and len(low) < 6:
            try:
                value = int(low, 16)
            except ValueError:
                continue
            return value if value < len(_ROWS) else None
        for prefix in ("ibv_wc_", "ib_wc_", "wc_"):
            low = low.removeprefix(prefix)
        found = _BY_TEXT.get(low, _BY_TEXT.get(low.replace(" ", "_").replace("-", "_"), -1))
        if found >= 0:
            return found
    return None


def from_syndrome(syndrome: int) -> int:
    """Return the wc status that mlx5 gives for a CQE syndrome: 21 (GENERAL_ERR) for any that has none of its own."""
    return _BY_SYNDROME.get(syndrome, GENERAL_ERR)


def lookup(status: int) -> dict[str, Any] | None:
    """Return all that is known of a status number, or None for one that does not exist."""
    if not 0 <= status < len(_ROWS):
        return None
    _, name, text, kernel, syndrome, side, meaning, causes, steps = _ROWS[status]
    return {
        "name": name,
        "number": status,
        "meaning": meaning,
        "side": side,
        "causes": list(causes),
        "next": list(steps),
        "text": text,
        "kernel_text": kernel,
        "mlx5_syndrome": None if syndrome is None else f"{syndrome:#04x}",
        "sources": list(_SOURCES),
    }


def decode(*words: str) -> dict[str, Any]:
    """Decode a status. Raises BadInput, listing the known names, for anything that is none."""
    text = " ".join(words).strip()
    for key in ("status=", "status ", "error "):
        text = text.removeprefix(key)
    found = number(text)
    answer = None if found is None else lookup(found)
    if answer is None:
        from rdmadiag.explain._words import refuse

        error: BadInput = refuse("wc status", text, "a number 0 to 23, a name, or the library's text", NAMES)
        raise error
    return answer
