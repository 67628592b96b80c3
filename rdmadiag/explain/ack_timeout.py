"""Local ACK timeout: how long a requester waits for an answer, and how long until it gives up.

4.096 us x 2^code: IBA vol 1, 9.7.6.1.3; kernel drivers/infiniband/sw/rxe/rxe_qp.c. A device may wait up to four times
that for each try. mlx5 adaptive retransmission replaces the timer by its own, so its times are measured, not computed.
"""

from __future__ import annotations

import math
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain._words import number, refuse, seconds, span, value_of

HELP = "local ACK timeout CODE (0-31), or a time such as 67ms; [retry_cnt N]: when a dead peer is noticed"
EXAMPLES = (("14",), ("14", "retry_cnt", "7"), ("20", "7"), ("67ms",), ("1s", "retry_cnt=3"))

UNIT_SECONDS = 4.096e-6
_NOTES = (
    "rxe: retry_cnt 7 is never counted down, so it retries without end (rxe_comp.c); hardware does seven retries",
    "mlx5 with adaptive retransmission has its own timers (randomised, doubling): the code only sets the order of size",
    "measured on ConnectX-6 with retry_cnt 7: code 14 gives up after 3.5 to 3.8 s, code 20 after 57 to 58.5 s",
)


def timeout_seconds(code: int) -> float | None:
    """Return the wait for one try in seconds, None for code 0 (waits for ever)."""
    return UNIT_SECONDS * 2.0**code if code else None


def code_for(time_seconds: float) -> int:
    """Return the code, 1 to 31, whose time is nearest by ratio to a time in seconds."""
    if time_seconds <= UNIT_SECONDS:
        return 1
    return max(1, min(31, round(math.log2(time_seconds / UNIT_SECONDS))))


def decode(*words: str) -> dict[str, Any]:
    """Decode a code or find the code for a time. Raises BadInput for anything else."""
    plain = [value_of(word) for word in words if word.lower() not in ("retry_cnt", "timeout", "retry")]
    if not 1 <= len(plain) <= 2:
        raise BadInput("ack-timeout wants a code 0 to 31 or a time such as 67ms, and at most one retry_cnt")
    time = seconds(plain[0])
    read = number(plain[0])
    if time is not None:
        code = code_for(time)
    elif read and read[0] <= 31:
        code = read[0]
    else:
        raise refuse("ACK timeout", plain[0], "a code 0 to 31, or a time with its unit (67ms)")
    wait = timeout_seconds(code)
    retry = number(plain[1]) if len(plain) == 2 else (7, "")
    if not retry or retry[0] > 7:
        raise refuse("retry_cnt", plain[1], "0 to 7")
    tries = retry[0] + 1
    answer: dict[str, Any] = {
        "name": f"timeout {code}",
        "number": code,
        "meaning": "waits for ever: a lost ACK is never noticed"
        if wait is None
        else f"{span(wait)} for one try (4.096 us x 2^{code}); the device may take up to {span(4 * wait)}",
        "side": "the requester waits",
        "timeout_seconds": wait,
        "retry_cnt": retry[0],
        "gives_up": "never"
        if wait is None
        else f"after {span(tries * wait)} to {span(4 * tries * wait)}: {tries} tries, then RETRY_EXC_ERR (12)",
        "gives_up_seconds": None if wait is None else [tries * wait, 4 * tries * wait],
        "next": [
            "choose it so that the last figure is below the application's own deadline",
            "too short and a busy switch or a link flap kills QPs; too long and a dead peer holds the job",
        ],
    }
    if time is not None:
        answer["read_as"] = f"time {span(time)}: code {code} is the nearest"
    answer["notes"] = list(_NOTES)
    answer["sources"] = [
        "IBA vol 1, 9.7.6.1.3 (local ACK timeout)",
        "kernel drivers/infiniband/sw/rxe/rxe_qp.c, rxe_comp.c",
        "NVIDIA: Adaptive Retransmission Parameters Control (ROCE_ACCL)",
        "measured: github.com/unionxic/rdma-fault-characterization",
    ]
    return answer
