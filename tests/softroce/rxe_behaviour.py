"""What rxe did, by kernel release: statuses, states of both QPs, and the counters that moved (requester; responder), as data.

Measured in the lab. A number is exact; ">0" moved. Counters of packets and deferred ACKs move in health too and are left out. An
entry of a release other than the first says only what differs there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

KERNELS = ("6.1", "6.12", "7.3")
"""Releases on which this was measured; the first is the base. On another one the tests are skipped and say so."""
IN_HEALTH = {"sent_pkts", "rcvd_pkts", "sent_bytes", "rcvd_bytes", "ack_deferred", "rdma_sends", "rdma_recvs"}


class Row(NamedTuple):
    """One case: `run` are arguments of verbs_cases.work; `switch` is a queueing discipline at the switch's port p2."""

    run: dict[str, Any]
    statuses: dict[str, int]
    states: tuple[str, str]
    requester: dict[str, Any]
    responder: dict[str, Any]
    switch: str = ""


FLUSHED = {"REM_ACCESS_ERR": 1, "WR_FLUSH_ERR": 3}
# The timer is longer than the answers take: with 10 (4 ms) rxe resends beside what a NAK asked for and takes a resent packet for a part of another
# request, REM_INV_REQ_ERR in 2 of 40 runs of 32 requests, and once in CI among 16 of which packets were duplicated; with 16 (268 ms) in none of 50.
MENDED = {"timeout": 16, "retry_cnt": 7, "count": 16}
# Chance has no seed in netem before Linux 6.6: so many packets that a NAK comes (of 16 requests one run in a hundred was mended by timers).
BY_CHANCE = {**MENDED, "count": 32}
ROWS: dict[str, dict[str, Row]] = {
    "6.1": {
        "a WRITE beyond the MR": Row({"beyond": True, "timeout": 18}, FLUSHED, ("ERR", "ERR"), {}, {}),
        "a READ beyond the MR": Row({"opcode": "RDMA_READ", "beyond": True, "timeout": 18}, FLUSHED, ("ERR", "ERR"), {}, {}),
        "a WRITE with a wrong rkey": Row({"rkey_off": 0xFF, "timeout": 18}, FLUSHED, ("ERR", "ERR"), {}, {}),
        "a READ with a wrong rkey": Row(
            {"opcode": "RDMA_READ", "rkey_off": 0xFF, "timeout": 18}, FLUSHED, ("ERR", "ERR"), {}, {}
        ),
        "a SEND without a receive, rnr_retry 2": Row(
            {"opcode": "SEND", "count": 1, "size": 64, "rnr_retry": 2, "min_rnr_timer": 1, "timeout": 18},
            {"RNR_RETRY_EXC_ERR": 1}, ("ERR", "RTS"),
            {"rcvd_rnr_err": 3, "retry_rnr_exceeded_err": 1}, {"send_rnr_err": 3},
        ),
        "a SEND without a receive, rnr_retry 7: the retransmit timer ends it": Row(
            {"opcode": "SEND", "count": 1, "size": 64, "rnr_retry": 7, "min_rnr_timer": 1, "timeout": 8, "retry_cnt": 2},
            {"RETRY_EXC_ERR": 1}, ("ERR", "RTS"),
            {"rcvd_rnr_err": ">0", "retry_exceeded_err": 1, "completer_retry_err": "any"}, {"send_rnr_err": ">0"},
        ),
        "5 % loss": Row(
            BY_CHANCE, {"SUCCESS": 32}, ("RTS", "RTS"),
            {"rcvd_seq_err": ">0", "completer_retry_err": ">0"}, {"out_of_seq_request": ">0", "duplicate_request": "any"},
            "netem loss 5%",
        ),
        "all lost, retry_cnt 2": Row(
            {"timeout": 10, "retry_cnt": 2, "count": 2, "size": 4096}, {"RETRY_EXC_ERR": 1, "WR_FLUSH_ERR": 1}, ("ERR", "RTS"),
            {"retry_exceeded_err": 1, "completer_retry_err": ">0"}, {}, "netem loss 100%",
        ),
        "2 % corrupt": Row(
            BY_CHANCE, {"SUCCESS": 32}, ("RTS", "RTS"),
            {"rcvd_seq_err": ">0", "completer_retry_err": ">0"}, {"out_of_seq_request": ">0", "duplicate_request": "any"},
            "netem corrupt 2%",
        ),
        "reordered": Row(
            MENDED, {"SUCCESS": 16}, ("RTS", "RTS"),
            {"rcvd_seq_err": "any", "completer_retry_err": "any"}, {"out_of_seq_request": ">0", "duplicate_request": "any"},
            "netem delay 2ms reorder 75% 50%",
        ),
        "10 % duplicated": Row(
            MENDED, {"SUCCESS": 16}, ("RTS", "RTS"), {"rcvd_seq_err": "any", "completer_retry_err": "any"},
            {"duplicate_request": ">0", "out_of_seq_request": "any"}, "netem duplicate 10%",
        ),
        "the peer's QP still in RESET": Row(
            {"both": False, "timeout": 10, "retry_cnt": 1, "count": 1}, {"RETRY_EXC_ERR": 1}, ("ERR", "RESET"),
            {"retry_exceeded_err": 1, "completer_retry_err": ">0"}, {},
        ),
    },
    "6.12": {},
    "7.3": {},
}  # fmt: skip


def rows(release: str) -> dict[str, Row] | None:
    """Return the rows of a kernel; None when it was not measured."""
    known = next((kernel for kernel in KERNELS if release.startswith(f"{kernel}.")), None)
    return None if known is None else {**ROWS[KERNELS[0]], **ROWS[known]}


def differences(wanted: dict[str, Any], moved: dict[str, int]) -> list[str]:
    """Return what is not as wanted of the counters of one end."""
    told = []
    for name, want in wanted.items():
        got = moved.get(name, 0)
        if want != "any" and (got <= 0 if want == ">0" else got != want):
            told.append(f"{name} moved by {got}, wanted {want}")
    return told + [
        f"{name} moved by {got}, wanted 0"
        for name, got in moved.items()
        if name not in wanted and name not in IN_HEALTH
    ]
