"""RNR NAK timer codes: how long a requester waits before it sends again to a receiver that was not ready.

Codes: IBA vol 1, 9.7.5.2.8; kernel include/rdma/ib_verbs.h (`ib_rnr_timeout`).
"""

from __future__ import annotations

from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain._words import number, refuse, seconds, span, value_of

HELP = "RNR NAK timer: CODE (0-31) to time, or a time such as 0.64ms to the code; [rnr_retry]"
EXAMPLES = (("12",), ("0.64ms",), ("1", "rnr_retry", "6"), ("14", "7"))

MILLISECONDS = (
    655.36,
    0.01,
    0.02,
    0.03,
    0.04,
    0.06,
    0.08,
    0.12,
    0.16,
    0.24,
    0.32,
    0.48,
    0.64,
    0.96,
    1.28,
    1.92,
    2.56,
    3.84,
    5.12,
    7.68,
    10.24,
    15.36,
    20.48,
    30.72,
    40.96,
    61.44,
    81.92,
    122.88,
    163.84,
    245.76,
    327.68,
    491.52,
)
"""Milliseconds by code; code 0 is the longest."""


def code_for(time_seconds: float) -> int:
    """Return the code of the shortest timer that is not below a time in seconds; code 0 when none is long enough."""
    longer = [(ms, code) for code, ms in enumerate(MILLISECONDS) if ms * 1e-3 >= time_seconds * (1 - 1e-9)]
    return min(longer)[1] if longer else 0


def decode(*words: str) -> dict[str, Any]:
    """Decode a timer code or find the code for a time. Raises BadInput for anything else."""
    plain = [value_of(word) for word in words if word.lower() not in ("rnr_retry", "min_rnr_timer")]
    if not 1 <= len(plain) <= 2:
        raise BadInput("rnr-timer wants a code 0 to 31 or a time such as 0.64ms, and at most one rnr_retry")
    time = seconds(plain[0])
    read = number(plain[0])
    code = code_for(time) if time is not None else read[0] if read else -1
    if not 0 <= code < len(MILLISECONDS):
        raise refuse("RNR timer", plain[0], "a code 0 to 31, or a time with its unit (0.64ms)")
    wait = MILLISECONDS[code] * 1e-3
    answer: dict[str, Any] = {
        "name": f"min_rnr_timer {code}",
        "number": code,
        "meaning": f"wait at least {span(wait)} after an RNR NAK, then send again",
        "side": "the receiver sets it; the sender waits",
        "wait_seconds": wait,
        "causes": ["the receiver had no receive work request posted when the message came"],
        "next": ["post receives earlier or deeper; a longer timer only hides a receiver that is too slow"],
    }
    if time is not None:
        answer["read_as"] = f"time {span(time)}: the shortest timer that is not below it"
        if time > wait * (1 + 1e-9):
            answer["read_as"] = f"time {span(time)}: longer than any timer; {code} is the longest"
    if len(plain) == 2:
        retry = number(plain[1])
        if not retry or retry[0] > 7:
            raise refuse("rnr_retry", plain[1], "0 to 7 (7 retries without end)")
        answer["rnr_retry"] = retry[0]
        answer["gives_up_after_seconds"] = None if retry[0] == 7 else retry[0] * wait
        answer["gives_up"] = (
            "never: rnr_retry 7 retries without end"
            if retry[0] == 7
            else f"at the RNR NAK number {retry[0] + 1}, after at least {span(retry[0] * wait)} of waiting"
        )
    answer["sources"] = [
        "IBA vol 1, 9.7.5.2.8 (RNR NAK timer field)",
        "kernel include/rdma/ib_verbs.h (ib_rnr_timeout)",
        "rxe waits at least one jiffy and has 61.41 ms at code 25: drivers/infiniband/sw/rxe/rxe_comp.c",
    ]
    return answer
