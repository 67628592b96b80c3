"""What real adapters did under injected faults (tests/data/faults): told apart as far as that can be, and no further."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FAULTS = sorted(path for path in (Path(__file__).parent / "data/faults").iterdir() if path.is_dir())

# The symptom, the causes that counters prove, and the first cause that is named though it cannot be proven; all at the
# client unless a name says otherwise. ('' where nothing is to be named.)
EXPECTED: dict[str, tuple[str, set[str], str]] = {
    "sge-longer-than-mr": ("wc-local-protection-error", {"error-completions-beyond-flush"}, "local-key-or-range-wrong"),
    "wrong-lkey": ("wc-local-protection-error", {"error-completions-beyond-flush"}, "local-key-or-range-wrong"),
    "read-without-local-write": (
        "wc-local-protection-error",
        {"error-completions-beyond-flush"},
        "local-key-or-range-wrong",
    ),
    "qp-moved-to-error": ("wc-flush-only", set(), ""),
    "server-mr-without-remote-write": (
        "wc-remote-invalid-request",
        {"remote-invalid-requests"},
        "operation-not-allowed-at-peer",
    ),
    "wrong-rkey": ("wc-remote-access-error", {"remote-access-error"}, "peer-key-not-valid"),
    "address-out-of-mr": ("wc-remote-access-error", {"remote-access-error"}, "peer-key-not-valid"),
    "no-receive-posted": ("wc-rnr-retry-exceeded", {"rnr-retries-exhausted", "server: responder-out-of-buffer"}, ""),
    "server-qp-in-error": ("wc-retry-exceeded", {"transport-retries-exceeded", "ack-timeouts-rising"}, ""),
    "server-process-killed": ("wc-retry-exceeded", {"transport-retries-exceeded", "ack-timeouts-rising"}, ""),
    "netdev-set-down": ("", set(), ""),
}
ALIKE = [{"wrong-rkey", "address-out-of-mr"}, {"server-qp-in-error", "server-process-killed"}]
MUST_NOT_BE_CONFIRMED = {"peer-died-or-restarted", "packet-loss-on-path", "traffic-not-lossless", "peer-key-not-valid"}


def report_of(fault: Path, checked: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Check both ends of a fault."""
    return checked(f"client={fault / 'client'}", f"server={fault / 'server'}")


def said(report: dict[str, Any]) -> frozenset[tuple[str, ...]]:
    """Return what a report says of a fault: findings with their messages (which name the vendor's code), and their proof."""
    return frozenset((f["rule"], f["answer"], str(f["subject"].get("node")), f["message"]) for f in report["findings"])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda path: path.name)
def test_a_measured_fault_has_its_symptom_and_the_causes_that_its_counters_prove(
    fault: Path, checked: Callable[..., dict[str, Any]]
) -> None:
    symptom, causes, first = EXPECTED[fault.name]
    findings = report_of(fault, checked)["findings"]
    assert {f["rule"] for f in findings if f["kind"] == "symptom"} == ({symptom} if symptom else set())
    proven = {
        f["rule"] if f["subject"]["node"] == "client" else f"server: {f['rule']}"
        for f in findings
        if f["kind"] == "cause" and f["answer"] == "confirmed" and f["severity"] != "info"
    }
    assert proven == causes
    maybe = [f["rule"] for f in findings if f["kind"] == "cause" and f["answer"] == "unknown"]
    assert not first or maybe[0] == first
    assert MUST_NOT_BE_CONFIRMED.isdisjoint(rule.removeprefix("server: ") for rule in proven)


def test_eight_of_ten_are_told_apart_and_the_two_pairs_that_nothing_here_tells_apart_stay_alike(
    checked: Callable[..., dict[str, Any]],
) -> None:
    classes: defaultdict[frozenset[tuple[str, ...]], set[str]] = defaultdict(set)
    for fault in FAULTS:
        classes[said(report_of(fault, checked))].add(fault.name)
    assert len(classes) == 9, "eight of ten faults, and the netdev that is down, which changed nothing"
    assert len([names for names in classes.values() if len(names) > 1]) == len(ALIKE)
    assert all(names in classes.values() for names in ALIKE)


def test_a_netdev_that_is_set_down_moves_no_error_counter(checked: Callable[..., dict[str, Any]]) -> None:
    (fault,) = [fault for fault in FAULTS if fault.name == "netdev-set-down"]
    report = report_of(fault, checked)
    assert [f["rule"] for f in report["findings"] if f["answer"] == "confirmed"] == []
