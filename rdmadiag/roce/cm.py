"""Connection manager messages (REQ, REP, RTU, DREQ, REJ) as they cross the wire: QPNs, first PSNs, timeouts and retry counts.

A CM MAD is a UD SEND to QP 1: 24 bytes of MAD header, then the message. (IBA vol 1, 12.6; kernel drivers/infiniband/core/cm_msgs.h,
include/rdma/ibta_vol1_c12.h)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rdmadiag.roce import headers
from rdmadiag.roce.columns import Columns, address

CLASS_CM = 0x07
NAMES = {
    0x10: "REQ",
    0x11: "MRA",
    0x12: "REJ",
    0x13: "REP",
    0x14: "RTU",
    0x15: "DREQ",
    0x16: "DREP",
    0x17: "SIDR_REQ",
    0x18: "SIDR_REP",
}
MTUS = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
MAD_BYTES = 256
LIMIT = 1 << 14
"""Most handshakes kept."""
COPY_NS = 1_000_000
"""A REQ that comes again sooner is a copy of it [ns]."""
REASONS = {
    1: "no QP available",
    2: "no EEC available",
    3: "no resources available",
    4: "timeout",
    5: "unsupported request",
    6: "invalid comm id",
    7: "invalid comm instance",
    8: "invalid service id",
    9: "invalid transport service type",
    10: "stale connection",
    11: "RDC does not exist",
    12: "primary GID rejected",
    13: "primary LID rejected",
    14: "invalid SL",
    15: "invalid traffic class",
    16: "invalid hop limit",
    17: "invalid packet rate",
    24: "port and CM redirection",
    25: "port redirection",
    26: "invalid MTU",
    27: "insufficient responder resources",
    28: "consumer reject",
    29: "RNR retry count reject",
    30: "duplicate local comm id",
    31: "invalid class version",
    32: "invalid flow label",
}
"""Reject reasons, IBA vol 1, 12.6.7.2; kernel include/rdma/ib_cm.h."""


def parse(mad: bytes) -> dict[str, Any] | None:
    """Return the fields of a CM message from its MAD (256 bytes), None when it is none or cut off."""
    if len(mad) < 24 + 8 or mad[0] != 1 or mad[1] != CLASS_CM:
        return None
    name = NAMES.get(int.from_bytes(mad[16:18], "big"))
    body = mad[24:]
    if name is None:
        return None

    def bits(at: int, size: int) -> int:
        return int.from_bytes(body[at : at + size], "big")

    found: dict[str, Any] = {"message": name, "local_comm_id": bits(0, 4)}
    if name not in ("REQ", "SIDR_REQ", "SIDR_REP"):
        found["remote_comm_id"] = bits(4, 4)
    wanted = {"REQ": 96, "REP": 28, "REJ": 12, "DREQ": 12}.get(name, 8)
    if len(body) < wanted:
        return None
    if name == "REQ":
        found |= {
            "service_id": bits(8, 8),
            "qpn": bits(32, 3),
            "responder_resources": body[35],
            "initiator_depth": body[39],
            "remote_cm_response_timeout": body[43] >> 3,
            "starting_psn": bits(44, 3),
            "local_cm_response_timeout": body[47] >> 3,
            "retry_cnt": body[47] & 7,
            "pkey": bits(48, 2),
            "path_mtu": MTUS.get(body[50] >> 4),
            "rnr_retry": body[50] & 7,
            "timeout": body[95] >> 3,
        }
    elif name == "REP":
        found |= {
            "qpn": bits(12, 3),
            "starting_psn": bits(20, 3),
            "responder_resources": body[24],
            "initiator_depth": body[25],
            "target_ack_delay": body[26] >> 3,
            "rnr_retry": body[27] >> 5,
        }
    elif name == "REJ":
        found |= {"rejects": ("REQ", "REP", "other", "other")[body[8] >> 6], "reason": bits(10, 2)}
        found["meaning"] = REASONS.get(found["reason"], "reserved reason")
    elif name == "DREQ":
        found["qpn"] = bits(8, 3)
    return found


class Connections:
    """Handshakes by the two communication ids, in the order of their REQs."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, str, int], dict[str, Any]] = {}
        self.all: list[dict[str, Any]] = []
        self.left_out = 0

    def add(self, src: str, dst: str, time: int, frame: int, message: dict[str, Any]) -> None:
        """Take one message."""
        name = message["message"]
        key = (src, dst, message["local_comm_id"])
        back = (dst, src, message.get("remote_comm_id", -1))
        forth = (dst, src, message["local_comm_id"])
        if name == "REQ":
            if key in self.open:
                # A mirror's second copy is no second request: CM waits longer than that.
                self.open[key]["req_sent"] += time - self.open[key]["req_last"] > COPY_NS
                self.open[key]["req_last"] = time
                return
            if len(self.all) >= LIMIT:
                self.left_out += 1
                return
            entry: dict[str, Any] = {
                "src": src,
                "dst": dst,
                "req": message,
                "req_frame": frame,
                "req_time": time,
                "req_last": time,
                "req_sent": 1,
                "state": "REQ",
            }
            self.open[key] = entry
            self.all.append(entry)
            return
        entry_ = self.open.get(back) or self.open.get(key) or self.open.get(forth)
        if entry_ is None:
            return
        if name == "REP" and "rep" not in entry_:
            entry_ |= {"rep": message, "rep_frame": frame, "rep_time": time, "state": "REP"}
        elif name == "REJ" and src == entry_["src"]:
            return  # it takes its own request back: nobody rejected it
        elif name == "REJ":
            entry_ |= {"rej": message, "rej_frame": frame, "state": "REJ", "rej_by": src}
        elif name == "MRA" and entry_["state"] == "REQ" and src == entry_["dst"]:
            entry_ |= {"mra_frame": frame, "state": name}  # it was heard; the answer takes longer
        elif name in ("RTU", "DREQ", "DREP") and entry_["state"] != "REJ":
            entry_ |= {f"{name.lower()}_frame": frame, "state": name}


def take(c: Columns, rows: np.ndarray, into: Connections) -> None:
    """Take the CM messages among datagrams (rows of the columns)."""
    for row in rows[c.destqp[rows] == 1].tolist():
        at = int(c.bth[row]) + int(headers.HEADER_BYTES[c.opcode[row]])
        message = parse(c.data[at : min(at + MAD_BYTES, int(c.end[row]))].tobytes())
        if message is not None:
            src, dst = address(*c.src[row]), address(*c.dst[row])
            into.add(src, dst, int(c.time[row]), int(c.frame[row]), message)


def rows(connections: Connections, last_time: int) -> list[dict[str, Any]]:
    """Return rows of table cm_handshake, of a capture that ends at `last_time` [ns]."""
    found = []
    for entry in connections.all:
        req, rep, rej = entry["req"], entry.get("rep", {}), entry.get("rej", {})
        found.append(
            {
                "src": entry["src"],
                "dst": entry["dst"],
                "state": entry["state"],
                "req_frame": entry["req_frame"],
                "req_sent": entry["req_sent"],
                "qpn": req["qpn"],
                "peer_qpn": rep.get("qpn"),
                "starting_psn": req["starting_psn"],
                "peer_starting_psn": rep.get("starting_psn"),
                "path_mtu": req["path_mtu"],
                "timeout": req["timeout"],
                "retry_cnt": req["retry_cnt"],
                "rnr_retry": req["rnr_retry"],
                "peer_rnr_retry": rep.get("rnr_retry"),
                "rej_frame": entry.get("rej_frame"),
                "rej_reason": rej.get("reason"),
                "rej_meaning": rej.get("meaning"),
                "rep_frame": entry.get("rep_frame"),
                "rtu_frame": entry.get("rtu_frame"),
                "dreq_frame": entry.get("dreq_frame"),
                "answer_ms": (entry["rep_time"] - entry["req_time"]) / 1e6 if "rep_time" in entry else None,
                "silent_seconds": (last_time - entry["req_time"]) / 1e9,
            }
        )
    return found
