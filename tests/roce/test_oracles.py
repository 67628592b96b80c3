"""The two lab captures: the engine's numbers are the kernel's counters, case by case, and what it names is what was injected.

The .txt beside each capture holds, for every case, what the kernel's counters of rdma_rxe moved and how the QP ended.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose import wire

PCAPS = Path(__file__).parent.parent / "data/pcaps"
QUIET = (
    "connectx-vf-ack-cnp-reconstructed",
    "scapy-uts-cx4lx-cnp",
    "scapy-uts-rocev1-write-ack",
    "synthetic-ipv6-write-200",
)


def counters(name: str) -> dict[str, tuple[dict[str, int], str, list[list[int]]]]:
    """Return counters that moved, QP state and completions of every case of an oracle."""
    text = (PCAPS / f"{name}.txt").read_text()
    found = {}
    for part in text.split("### ")[1:]:
        moved = re.search(r"counters: (\{.*?\}) \| qp (\w+) \| wc\(wr,status,op\) (\[.*\])", part)
        assert moved, part
        found[part.splitlines()[0]] = (ast.literal_eval(moved[1]), moved[2], ast.literal_eval(moved[3]))
    return found


@pytest.fixture(scope="module")
def requester() -> dict[int, dict[str, Any]]:
    flows = wire.look([str(PCAPS / "softroce-6.1-requester-lab.pcap")]).report["flows"]
    return {flow["first_frame"]: flow for flow in flows}


@pytest.fixture(scope="module")
def responder() -> dict[int, dict[str, Any]]:
    flows = wire.look([str(PCAPS / "softroce-6.1-responder-lab.pcap")]).report["flows"]
    return {flow["qpn"]: flow for flow in flows}


REQUESTER_CASES = {  # first frame: case of the oracle
    1: "WRITE acked",
    3: "WRITE no ack: timeout=12(16.8ms) retry_cnt=3",
    253: "3 WRITEs, NAK seq @500",
    261: "3 WRITEs, NAK seq @501 (implicit ack 500)",
    268: "3 WRITEs, NAK seq @501 x5 back-to-back, retry_cnt=3",
    279: "NAK seq @500 x5 spaced, retry_cnt=3",
    290: "NAK invalid req 0x61",
    294: "NAK rem access 0x62",
    298: "NAK rem op 0x63",
    300: "NAK 0x64 inv RD",
    302: "AETH reserved type 0x40",
    304: "FORGED NAK 0x62 with PSN 600 (never sent)",
    308: "FORGED NAK 0x62 PSN below window (400)",
    314: "NAK 0x62 bad ICRC",
    317: "NAK 0x62 wrong src IP",
    320: "RNR NAK timer=14(1.28ms) x1 then ack",
    324: "RNR NAK timer=0x1f(491ms)",
    328: "RNR NAK x4, rnr_retry=3",
    336: "CNP while outstanding",
    339: "ACK w/ CE + BECN",
    341: "WRITE 3000B, NAK seq @501",
    348: "READ 3000B, only FIRST answered -> partial retry",
    355: "SEND x3 then RNR @500",
    363: "BIG WRITE 65536 (64 pkts)",
}


@pytest.mark.parametrize("frame", REQUESTER_CASES)
def test_resends_of_a_requester_are_those_that_the_kernel_counted(
    frame: int, requester: dict[int, dict[str, Any]]
) -> None:
    moved, _, _ = counters("softroce-6.1-requester-lab")[REQUESTER_CASES[frame]]
    flow = requester[frame]
    assert flow["packets"] == moved["sent_pkts"]
    assert flow["resends"] - flow["resends_after_rnr"] == moved.get("completer_retry_err", 0)
    # The RNR NAK that ends a QP is counted, and followed by no resend.
    assert flow["resends_after_rnr"] == moved.get("rcvd_rnr_err", 0) - moved.get("retry_rnr_exceeded_err", 0)
    assert flow.get("rnr_naks", 0) == moved.get("rcvd_rnr_err", 0)


def test_a_request_that_rxe_resends_without_end_is_named_so(requester: dict[int, dict[str, Any]]) -> None:
    # The oracle read the counters before the QP was destroyed; the capture goes on.
    moved, state, done = counters("softroce-6.1-requester-lab")["WRITE no ack: timeout=10(4.2ms) retry_cnt=7"]
    flow = requester[7]
    assert flow["state"] == "resends without end" and state == "RTS" and done == []
    assert flow["packets"] == 246 >= moved["sent_pkts"]
    assert flow["resends_timeout"] == 245 >= moved["completer_retry_err"]


@pytest.mark.parametrize(
    "frame,state,settings",
    [
        (3, "retries exhausted", {"retry_cnt_seen": 3, "timeout_code_seen": 12}),
        (290, "dead after a fatal NAK", {}),
        (294, "dead after a fatal NAK", {}),
        (298, "dead after a fatal NAK", {}),
        (300, "dead after a fatal NAK", {}),
        (328, "RNR retries exhausted", {"rnr_retry_seen": 3, "rnr_timer_seen": 14}),
    ],
)
def test_a_qp_that_went_to_error_is_found_dead(
    frame: int, state: str, settings: dict[str, int], requester: dict[int, dict[str, Any]]
) -> None:
    _, qp, done = counters("softroce-6.1-requester-lab")[REQUESTER_CASES[frame]]
    assert qp == "ERR" and any(status in (9, 10, 11, 12, 13) for _, status, _ in done)
    assert requester[frame]["state"] == state
    assert {name: requester[frame][name] for name in settings} == settings


@pytest.mark.parametrize("frame", [1, 253, 261, 268, 308, 314, 317, 320, 324, 336, 339, 341, 355, 363])
def test_a_qp_that_lived_is_not_found_dead(frame: int, requester: dict[int, dict[str, Any]]) -> None:
    _, qp, _ = counters("softroce-6.1-requester-lab")[REQUESTER_CASES[frame]]
    assert qp == "RTS"
    assert requester[frame]["state"] == "idle"


@pytest.mark.parametrize(
    "frame,cause",
    [
        (3, "timeout"),
        (253, "after_nak"),
        (261, "after_nak"),
        (320, "after_rnr"),
        (341, "after_nak"),
        (348, "read_rerequest"),
        (355, "after_rnr"),
    ],
)
def test_the_cause_of_a_resend_is_the_one_injected(
    frame: int, cause: str, requester: dict[int, dict[str, Any]]
) -> None:
    named = {
        name.removeprefix("resends_")
        for name in requester[frame]
        if name.startswith("resends_") and requester[frame][name]
    }
    assert cause in named - {"by_cause"}
    assert named - {"by_cause"} <= {cause, "timeout"}


RESPONDER_CASES = {  # DestQP: case of the oracle
    0x11: "good WRITE",
    0x1A: "CE-marked WRITE",
    0x1B: "FECN+BECN+res bits set WRITE",
    0x1C: "PSN ahead x3 (102,103,104) then 100",
    0x1D: "PSN behind (99) WRITE dup",
    0x1F: "bad VA",
    0x20: "bad rkey but DMALEN 0",
    0x21: "bad rkey no AckReq",
    0x22: "WRITE to QP w/o remote write",
    0x23: "MIDDLE without FIRST",
    0x25: "len mismatch RETH 100 vs 64",
    0x26: "SEND no recv -> RNR",
    0x27: "SEND RNR then recv posted",
    0x28: "READ",
    0x29: "FETCH_ADD + dup",
    0x2A: "FETCH_ADD misaligned",
    0x2B: "FETCH_ADD bad rkey",
}


@pytest.mark.parametrize("qpn", RESPONDER_CASES)
def test_what_a_responder_answered_is_what_the_kernel_counted(qpn: int, responder: dict[int, dict[str, Any]]) -> None:
    moved, state, _ = counters("softroce-6.1-responder-lab")[RESPONDER_CASES[qpn]]
    flow = responder[qpn]
    assert flow["nak_sequence"] == moved.get("out_of_seq_request", 0)
    assert flow["rnr_naks"] == moved.get("send_rnr_err", 0)
    assert flow["packets"] == moved["rcvd_pkts"]
    # A duplicate is a repeat that the responder had answered (an RNR NAK is no answer, and what fills a hole is no duplicate).
    assert flow["resends"] - flow["resends_after_rnr"] - flow["resends_after_nak"] == moved.get("duplicate_request", 0)
    assert (flow["state"] == "dead after a fatal NAK") == (state == "ERR")


@pytest.mark.parametrize(
    "qpn,syndrome", [(0x1E, 0x62), (0x1F, 0x62), (0x22, 0x61), (0x23, 0x61), (0x25, 0x61), (0x2A, 0x61), (0x2B, 0x62)]
)
def test_a_nak_names_the_request_that_it_refuses(qpn: int, syndrome: int, responder: dict[int, dict[str, Any]]) -> None:
    (nak,) = [entry for entry in responder[qpn]["naks"] if entry["syndrome"] == syndrome]
    assert nak["victim_frame"] == responder[qpn]["first_frame"]


def test_the_bad_key_is_named(responder: dict[int, dict[str, Any]]) -> None:
    (nak,) = responder[0x1E]["naks"]
    assert (nak["rkey"], nak["size_bytes"], nak["va"]) == (0xDEAD00, 64, "0x3545d000")


def test_rules_name_what_was_injected(checked: Callable[..., dict[str, Any]]) -> None:
    wanted = {
        "softroce-6.1-requester-lab": {
            "wire-retries-exhausted", "wire-resends-without-end", "wire-rnr-exhausted", "wire-nak-invalid-request", "wire-nak-remote-access",
            "wire-nak-operational", "wire-nak-invalid-rd", "wire-nak-reserved", "wire-nak-contradicted", "wire-icrc-bad", "wire-receiver-not-ready",
            "wire-lost-after-tap", "wire-timeouts", "wire-congestion",
        },
        "softroce-6.1-responder-lab": {
            "wire-icrc-bad", "wire-reserved-opcode", "wire-transport-version", "wire-partition-key-differs", "wire-length-mismatch",
            "wire-nak-invalid-request", "wire-nak-remote-access", "wire-receiver-not-ready", "wire-lost-before-tap", "wire-answers-lost",
        },
    }  # fmt: skip
    for name, rules in wanted.items():
        report = checked(PCAPS / f"{name}.pcap")
        assert rules <= {f["rule"] for f in report["findings"] if f["answer"] == "confirmed"}


@pytest.mark.parametrize("name", QUIET)
def test_a_capture_in_which_nothing_is_wrong_gives_no_warning(
    name: str, checked: Callable[..., dict[str, Any]]
) -> None:
    report = checked(PCAPS / f"{name}.pcap")
    assert [f["rule"] for f in report["findings"] if f["severity"] != "info" and f["kind"] == "cause"] == []
    assert report["summary"]["verdict"] == "fine" and report["summary"]["exit_code"] == 0


def test_every_confirmed_finding_about_a_flow_names_frames_and_a_filter(checked: Callable[..., dict[str, Any]]) -> None:
    for path in PCAPS.glob("soft*.pcap"):
        for finding in checked(path)["findings"]:
            if finding["answer"] == "confirmed":
                assert "tshark -Y" in finding["message"], finding["rule"]
                assert all(row.get("filter") for row in finding["evidence"] if "origin" in row), finding["rule"]


def test_marks_are_judged_by_the_sites_policy_and_only_with_one(tmp_path: Path) -> None:
    rules = {"wire-dscp-not-as-policy", "wire-cnp-dscp-not-as-policy", "wire-not-ecn-by-policy"}

    def confirmed(policy: dict[str, int] | None) -> set[str]:
        path = tmp_path / "policy.json"
        path.write_text(json.dumps({"schema": "rdmadiag.expect/1"} | (policy or {})))
        capture = str(PCAPS / "softroce-6.1-requester-lab.pcap")
        report = wire.look([capture], expect=None if policy is None else str(path)).report
        return rules & {f["rule"] for f in report["findings"] if f["answer"] == "confirmed"}

    assert confirmed({"dscp": 26, "cnp_dscp": 48, "ecn": 1}) == rules - {"wire-not-ecn-by-policy"}  # these have ECT
    assert confirmed({"dscp": 0, "cnp_dscp": 0}) == set()
    assert confirmed(None) == set()
