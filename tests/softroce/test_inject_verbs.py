"""Verbs faults on real rxe: queue pairs of our own are misused, completions and the kernel say so, and nothing is left."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rdmadiag.evidence.row import Line
from rdmadiag.inject import in_lab, inject
from rdmadiag.lab import Lab
from rdmadiag.sources import completions
from tests.softroce.conftest import Worker
from tests.softroce.test_inject import until_fired

pytestmark = pytest.mark.usefixtures("state")

REFUSED = {"REM_ACCESS_ERR": 1, "WR_FLUSH_ERR": 1}
INVALID = {"REM_INV_REQ_ERR": 1, "WR_FLUSH_ERR": 1}
DEAD = {"RETRY_EXC_ERR": 1}
BOTH, ONE, NONE = ["ERR", "ERR"], ["ERR", "RTS"], ["RTS", "RTS"]
READ, ATOMIC = {"operation": "read"}, {"operation": "atomic"}
# What each does once on rxe of Linux 6.1: statuses and counts, and states of its queue pairs.
CASES: list[tuple[str, dict[str, Any], dict[str, int], list[str]]] = [
    ("bad-rkey", {}, REFUSED, BOTH),
    ("bad-rkey", READ, REFUSED, BOTH),
    ("bad-rkey", ATOMIC, REFUSED, BOTH),
    ("address-out-of-range", {}, REFUSED, BOTH),
    ("address-out-of-range", READ, REFUSED, BOTH),
    ("address-out-of-range", ATOMIC, REFUSED, BOTH),
    ("mr-deregistered", {}, {"SUCCESS": 1, **REFUSED}, BOTH),
    ("mr-deregistered", READ, {"SUCCESS": 1, **REFUSED}, BOTH),
    ("access-missing", {}, REFUSED, BOTH),
    ("access-missing", READ, REFUSED, BOTH),
    ("access-missing", ATOMIC, REFUSED, BOTH),
    ("access-missing", {"of": "qp"}, INVALID, BOTH),
    ("access-missing", {"of": "qp", **READ}, INVALID, BOTH),
    ("access-missing", {"of": "qp", **ATOMIC}, INVALID, BOTH),
    ("receiver-not-ready", {"kind": "exhausted"}, {"RNR_RETRY_EXC_ERR": 1, "WR_FLUSH_ERR": 1}, ONE),
    ("receiver-not-ready", {"kind": "transient"}, {"SUCCESS": 2, "late": 2}, NONE),
    ("receiver-not-ready", {"kind": "stall"}, {"stalled": 1}, NONE),
    ("qp-error", {}, {"WR_FLUSH_ERR": 4}, ONE),
    ("qp-error", {"end": "responder"}, {**DEAD, "WR_FLUSH_ERR": 3}, BOTH),
    ("wrong-transition", {"step": "reset-rtr"}, {"refused": 1}, ["RESET", "RESET"]),
    ("wrong-transition", {"step": "init-rts"}, {"refused": 1}, ["INIT", "RESET"]),
    ("wrong-transition", {"step": "rtr-init"}, {"refused": 1}, ["RESET", "RTR"]),
    ("wrong-transition", {"step": "rts-rtr"}, {"refused": 1}, ["RESET", "RTS"]),
    ("cq-overrun", {}, {"lost": 53}, ["RESET", "RTS", "RTS"]),  # rxe makes 7 entries of 4
    ("receive-too-small", {}, {"REM_OP_ERR": 1, "WR_FLUSH_ERR": 2, "LOC_QP_OP_ERR": 1}, BOTH),
    ("wrong-psn", {}, DEAD, ONE),
    ("wrong-path-mtu", {}, {"SUCCESS": 1, **INVALID}, BOTH),
    ("wrong-gid", {"kind": "nobody"}, {"refused": 1}, ["INIT", "RTS"]),
    ("wrong-gid", {"kind": "own"}, DEAD, ONE),
    ("wrong-gid", {"kind": "index"}, {"refused": 1}, ["INIT", "RTS"]),
]
# Whole injections: one a fault, and each kind that has proofs of its own.
WHOLE = [case for case in CASES if not {"step", "operation"} & set(case[1])] + [
    ("wrong-transition", {"step": "init-rts"}, {}, []),
    ("wrong-psn", {"by": -1000}, {}, []),
]
FIRST = [next(case for case in CASES if case[0] == fault) for fault in dict.fromkeys(case[0] for case in CASES)]


@pytest.mark.parametrize(
    ("fault", "values", "counts", "states"),
    [pytest.param(*case, marks=() if case in FIRST else (pytest.mark.long,)) for case in CASES],
)
def test_a_misuse_ends_as_rxe_ends_it(
    verbs: Worker, fault: str, values: dict[str, Any], counts: dict[str, int], states: list[str]
) -> None:
    told = verbs("misuse", fault=fault, values=values)
    assert (told["counts"], told["states"]) == ({"misuses": 1, **counts}, states), told
    lines = [Line(number, text) for number, text in enumerate(told["log"].splitlines(), 1)]
    logged = Counter(row.values["wc_name"] for row in completions.parse(lines))
    failed = {name: n for name, n in counts.items() if name.endswith("_ERR")}
    assert dict(logged) == failed, told["log"]


@pytest.mark.long
def test_a_psn_behind_is_taken_for_a_duplicate_and_may_even_be_acknowledged(verbs: Worker) -> None:
    # rxe of Linux 6.1 did both: success for data that never arrived, and no answer that counted.
    told = verbs("misuse", fault="wrong-psn", values={"by": -1000})["counts"]
    assert told in ({"misuses": 1, "SUCCESS": 1, "not_written": 1}, {"misuses": 1, **DEAD}), told


@pytest.mark.parametrize(
    ("fault", "values"),
    [(fault, values) for fault, values, _, _ in WHOLE],
)
@pytest.mark.long
def test_a_verbs_fault_fires_by_two_proofs_and_leaves_no_queue_pair(
    lab: Lab,
    clean: Callable[[], str],
    fault: str,
    values: dict[str, Any],
) -> None:
    with inject(fault, values, in_lab(lab), for_seconds=120) as injection:
        fired = until_fired(injection)
        pid = re.search(
            r"own (\d+)", lab.run(["sh", "-c", f"echo own $(cat /run/rdmadiag-inject/{injection.tag}/own.pid)"]).text
        )
    assert (fired.own.answer, fired.other.answer) == ("yes", "yes"), fired
    assert (injection.outcome.verdict, injection.outcome.problems) == ("FIRED", [])
    assert pid and f" pid {pid[1]} " not in lab.run(["rdma", "res", "show", "qp"]).text
