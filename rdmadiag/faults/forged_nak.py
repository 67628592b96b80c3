"""A NAK that the responder never sent: a firmware error, or somebody else on the wire."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _packets as packets

TITLE = "Forged NAKs to a requester, of any kind, in and out of its window"
REACH = "switch"
PARAMETERS = (
    packets.victim("h2"),
    Parameter(
        "error",
        "remote-access",
        "kind of NAK",
        choices=("psn-sequence-error", "invalid-request", "remote-access", "remote-operational", "invalid-rd-request"),
    ),
    Parameter(
        "ahead",
        0,
        "its PSN, counted from the oldest that is not acknowledged; negative: before the window",
        "",
        -(2**22),
        2**22,
    ),
    packets.RATE,
    packets.MOST,
)
SIGNS = (
    "in the window: WC 9, 10 or 11 at the requester, WC 5 for the rest, QP in ERR; the responder knows of no error and stays RTS",
    "psn-sequence-error: resends without loss (completer_retry_err, duplicate_request)",
    "ahead of all that was sent: rxe completes what is pending as success (WC 0), though it never arrived",
    "before the window, or idle: nothing",
)
DIAGNOSIS = Diagnosis(
    ("wire-nak-never-sent",),
    "NAKs come to the requester that its peer never sent, as the captures of both ends show",
    parameters={"victim": "h1"},
)


def plan(target: Target, values: Values) -> Plan:
    """Send a NAK behind an ACK that goes to the host."""
    made_with = {"error": values["error"], "ahead": values["ahead"]}
    moves = packets.ERRORS
    if values["error"] == "psn-sequence-error":
        moves = Moves("counter", ("completer_retry_err", "rcvd_seq_err", "packet_seq_err"))
    return packets.plan(target, values, "nak", made_with, moves)
