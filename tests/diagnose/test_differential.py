"""Causes are told from symptoms: confirmed, ruled out, unknown; on shared subject keys; best first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rdmadiag.diagnose import differential, engine, rulebook
from rdmadiag.evidence.store import Evidence

MakeRule = Callable[..., rulebook.Rule]
MakeEvidence = Callable[..., Evidence]

DEAD_QP = "SELECT node, device, 1 AS wrong FROM qp WHERE state = 'ERR'"


def judged(evidence: Evidence, *rules: rulebook.Rule) -> differential.Judged:
    book = rulebook.Rulebook(rules)
    return differential.judge(book, engine.evaluate(evidence, book))


@pytest.fixture
def symptom(make_rule: MakeRule) -> rulebook.Rule:
    return make_rule("qp-dead", DEAD_QP, kind="symptom", message="a QP of {device} is dead")


def flap(make_rule: MakeRule, wrong: str = "value = 'flap'", **keys: Any) -> rulebook.Rule:
    query = f"SELECT node, device, {wrong} AS wrong, origin FROM log"
    return make_rule("link-flapped", query, explains=["qp-dead"], fine="no flap on {device}", **keys)


def test_a_confirmed_cause_explains_a_symptom_of_the_same_device(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    evidence = make_evidence(qp=[{"device": "mlx5_0", "state": "ERR"}], log=[{"device": "mlx5_0", "value": "flap"}])
    cause, effect = judged(evidence, symptom, flap(make_rule)).findings
    assert (cause["rule"], cause["answer"], cause["explains"]) == ("link-flapped", "confirmed", ["qp-dead"])
    assert (effect["rule"], effect["explained_by"]) == ("qp-dead", ["link-flapped"])
    assert cause["evidence"][0]["origin"] == "here"


def test_a_flap_on_one_device_does_not_explain_a_dead_qp_on_another(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    evidence = make_evidence(qp=[{"device": "mlx5_0", "state": "ERR"}], log=[{"device": "mlx5_7", "value": "flap"}])
    findings = judged(evidence, symptom, flap(make_rule)).findings
    assert [finding["explains"] for finding in findings if finding["rule"] == "link-flapped"] == [[]]
    assert [finding["explained_by"] for finding in findings if finding["rule"] == "qp-dead"] == [[]]


def test_a_cause_on_one_node_does_not_explain_a_symptom_on_another(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    evidence = make_evidence(
        nodes=("a", "b"),
        qp=[{"node": "a", "device": "mlx5_0", "state": "ERR"}],
        log=[{"node": "b", "device": "mlx5_0", "value": "flap"}],
    )
    findings = judged(evidence, symptom, flap(make_rule)).findings
    assert all(finding["explains"] == [] for finding in findings)


def test_a_subject_that_one_side_does_not_have_does_not_part_them() -> None:
    assert differential.compatible({"node": "a", "device": "x"}, {"node": "a"})
    assert not differential.compatible({"node": "a", "port": 1}, {"node": "a", "port": 2})


def test_a_cause_with_a_no_row_is_ruled_out_with_that_row(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    evidence = make_evidence(qp=[{"device": "mlx5_0", "state": "ERR"}], log=[{"device": "mlx5_0", "value": "calm"}])
    result = judged(evidence, symptom, flap(make_rule))
    assert [finding["rule"] for finding in result.findings] == ["qp-dead"]
    (entry,) = result.ruled_out
    assert (entry["rule"], entry["reason"], entry["for"]) == ("link-flapped", "no flap on mlx5_0", ["qp-dead"])


def test_a_cause_that_cannot_be_told_is_unknown_with_the_step_that_settles_it(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    evidence = make_evidence(gaps=("log",), qp=[{"device": "mlx5_0", "state": "ERR"}])
    rule = flap(make_rule, settle="dmesg | grep 'Link down'")
    cause = judged(evidence, symptom, rule).findings[0]
    assert (cause["rule"], cause["answer"], cause["settle"]) == ("link-flapped", "unknown", "dmesg | grep 'Link down'")
    assert "not permitted" in cause["message"]


def test_an_unknown_cause_without_a_symptom_is_no_finding(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    assert judged(make_evidence(gaps=("log", "qp")), symptom, flap(make_rule)).findings == []


def test_a_confirmed_cause_without_a_symptom_is_a_risk(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    (finding,) = judged(make_evidence(log=[{"device": "mlx5_0", "value": "flap"}]), symptom, flap(make_rule)).findings
    assert (finding["answer"], finding["explains"]) == ("confirmed", [])


def unknowns(make_rule: MakeRule, *names: str, **keys: dict[str, Any]) -> list[rulebook.Rule]:
    return [
        make_rule(
            name,
            "SELECT node, NULL AS wrong, NULL AS lean FROM node",
            explains=["qp-dead"],
            **keys.get(name.replace("-", "_"), {}),
        )
        for name in names
    ]


def test_at_most_three_unknown_causes_are_findings_best_first(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    leaning = {"query": "SELECT node, NULL AS wrong, 2 AS lean FROM node"}
    rules = unknowns(
        make_rule, "a-rare", "b-some", "c-often", "d-some", a_rare={"prior": "rarely"}, c_often={"prior": "often"}
    )
    rules.append(make_rule("e-leans", leaning["query"], prior="rarely", explains=["qp-dead"]))
    findings = judged(make_evidence(qp=[{"device": "x", "state": "ERR"}]), symptom, *rules).findings
    assert [f["rule"] for f in findings if f["kind"] == "cause"] == ["e-leans", "c-often", "b-some"]
    assert findings[-1]["also_possible"] == ["d-some", "a-rare"]


def test_unknown_causes_step_back_where_one_is_confirmed(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    evidence = make_evidence(qp=[{"device": "mlx5_0", "state": "ERR"}], log=[{"device": "mlx5_0", "value": "flap"}])
    findings = judged(evidence, symptom, flap(make_rule), *unknowns(make_rule, "maybe")).findings
    assert [f["rule"] for f in findings] == ["link-flapped", "qp-dead"]
    assert findings[1]["also_possible"] == ["maybe"]


def test_a_root_cause_ranks_above_its_effect(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    cable = make_rule(
        "cable-bad", "SELECT node, device, 1 AS wrong FROM log", explains=["link-flapped"], severity="warning"
    )
    evidence = make_evidence(qp=[{"device": "mlx5_0", "state": "ERR"}], log=[{"device": "mlx5_0", "value": "flap"}])
    findings = judged(evidence, symptom, flap(make_rule, severity="critical"), cable).findings
    assert [f["rule"] for f in findings] == ["cable-bad", "link-flapped", "qp-dead"]
    assert findings[1]["explained_by"] == ["cable-bad"]


def test_causes_of_causes_are_followed_to_the_symptom(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    deep = make_rule("deep", "SELECT node, NULL AS wrong FROM node", explains=["link-flapped"])
    evidence = make_evidence(gaps=("log",), qp=[{"device": "mlx5_0", "state": "ERR"}])
    findings = judged(evidence, symptom, flap(make_rule), deep).findings
    assert {f["rule"] for f in findings if f["answer"] == "unknown"} == {"link-flapped", "deep"}


def test_many_subjects_of_one_rule_are_counted_not_listed(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    evidence = make_evidence(qp=[{"device": f"mlx5_{n}", "state": "ERR"} for n in range(50)])
    findings = judged(evidence, symptom).findings
    assert len(findings) == differential.SUBJECTS
    assert "30 more like this" in findings[-1]["message"]


def test_rows_of_one_subject_are_one_finding_with_all_its_proof(
    make_rule: MakeRule, make_evidence: MakeEvidence
) -> None:
    rule = flap(make_rule)
    evidence = make_evidence(log=[{"device": "mlx5_0", "value": "flap"}] * 3)
    (finding,) = judged(evidence, rule, make_rule("qp-dead", DEAD_QP, kind="symptom")).findings
    assert len(finding["evidence"]) == 3


def test_the_first_causes_are_of_different_rules(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    evidence = make_evidence(
        qp=[{"device": f"mlx5_{n}", "state": "ERR"} for n in range(3)],
        log=[{"device": f"mlx5_{n}", "value": "flap"} for n in range(3)],
    )
    heat = make_rule("too-hot", "SELECT node, 1 AS wrong FROM node", explains=["qp-dead"], severity="warning")
    findings = judged(evidence, symptom, flap(make_rule, severity="critical"), heat).findings
    assert [f["rule"] for f in findings[:4]] == ["too-hot", "link-flapped", "link-flapped", "link-flapped"]


def test_behind_a_confirmed_middle_cause_the_unknown_ones_are_named(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    deep = make_rule("cable-bad", "SELECT node, NULL AS wrong, 'a hint' AS hint FROM node", explains=["link-flapped"])
    evidence = make_evidence(qp=[{"device": "mlx5_0", "state": "ERR"}], log=[{"device": "mlx5_0", "value": "flap"}])
    findings = judged(evidence, symptom, flap(make_rule), deep).findings
    assert [(f["rule"], f["answer"], f["explains"]) for f in findings] == [
        ("link-flapped", "confirmed", ["qp-dead"]),
        ("cable-bad", "unknown", ["link-flapped"]),
        ("qp-dead", "confirmed", []),
    ]


def test_a_cause_that_evidence_speaks_of_comes_before_one_that_nothing_speaks_of(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    silent = make_rule("a-silent", "SELECT node, 1 AS wrong FROM port", explains=["qp-dead"], prior="often")
    told = make_rule("b-told", "SELECT node, NULL AS wrong FROM node", explains=["qp-dead"], prior="sometimes")
    evidence = make_evidence(gaps=("port",), qp=[{"device": "x", "state": "ERR"}])
    findings = judged(evidence, symptom, silent, told).findings
    assert [f["rule"] for f in findings if f["kind"] == "cause"] == ["b-told", "a-silent"]


def test_a_step_with_a_missing_column_names_what_is_to_be_put_in(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    evidence = make_evidence(gaps=("log",), qp=[{"device": "x", "state": "ERR"}])
    rule = flap(make_rule, settle="ethtool {netdev}; rdma link show {device}")
    cause = judged(evidence, symptom, rule).findings[0]
    assert cause["settle"] == "ethtool NETDEV; rdma link show DEVICE"


def test_a_cause_that_evidence_speaks_for_is_worth_settling_without_a_symptom(
    make_rule: MakeRule, make_evidence: MakeEvidence
) -> None:
    leaning = make_rule("leans", "SELECT node, device, origin, NULL AS wrong, 1 AS lean, 'odd' AS hint FROM device")
    bare = make_rule("bare", "SELECT node, NULL AS origin, NULL AS wrong, 1 AS lean FROM node")
    (finding,) = judged(make_evidence(device=[{"device": "x"}]), leaning, bare).findings
    assert (finding["rule"], finding["answer"], finding["message"], finding["explains"]) == (
        "leans",
        "unknown",
        "odd",
        [],
    )


def test_a_cause_named_by_another_kind_of_name_is_said_to_be_perhaps_another_adapter(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    port = make_rule(
        "slot-bad", "SELECT node, bdf, 1 AS wrong, origin FROM log", message="{bdf} is bad", explains=["qp-dead"]
    )
    sure = make_rule(
        "sure", "SELECT node, device, 1 AS wrong, origin FROM qp", severity="warning", explains=["qp-dead"]
    )
    evidence = make_evidence(qp=[{"device": "mlx5_3", "state": "ERR"}], log=[{"bdf": "0000:1a:00.0"}])
    first, second, _ = judged(evidence, symptom, port, sure).findings
    assert first["rule"] == "sure"
    assert second["rule"] == "slot-bad" and "cannot be told" in second["message"]


def test_names_of_one_adapter_are_told_apart_where_the_evidence_knows_them(
    make_rule: MakeRule, make_evidence: MakeEvidence, symptom: rulebook.Rule
) -> None:
    rule = make_rule(
        "slot-bad", "SELECT node, bdf, 1 AS wrong, origin FROM pci WHERE revision = 'ff'", explains=["qp-dead"]
    )
    devices = [{"device": "mlx5_0", "bdf": "0000:1a:00.0"}, {"device": "mlx5_1", "bdf": "0000:3c:00.0"}]
    for bdf, wanted in (("0000:1a:00.0", ["qp-dead"]), ("0000:3c:00.0", [])):
        evidence = make_evidence(
            device=devices, qp=[{"device": "mlx5_0", "state": "ERR"}], pci=[{"bdf": bdf, "revision": "ff"}]
        )
        findings = judged(evidence, symptom, rule).findings
        assert [f["explains"] for f in findings if f["rule"] == "slot-bad"] == [wanted]


def test_a_finding_names_the_container_and_the_gpu_of_what_it_is_about(tmp_path, checked):
    node = tmp_path / "tree.txt"
    real = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0"
    lines = []
    for bdf, code, ids, port in (("0000:19:00.0", "30200", "10DE:2330", 0), ("0000:1a:00.0", "20700", "15B3:1021", 1)):
        place = f"{real}/0000:17:0{port}.0/{bdf}"
        lines += [
            f"/sys/bus/pci/devices/{bdf} -> {place}",
            f"{place}/uevent:PCI_CLASS={code}",
            f"{place}/uevent:PCI_ID={ids}",
        ]
    for bridge in (f"{real}/0000:17:00.0", f"{real}/0000:17:01.0", real, "/sys/devices/pci0000:15/0000:15:01.0"):
        name = bridge.rpartition("/")[2]
        lines += [f"/sys/bus/pci/devices/{name} -> {bridge}", f"{bridge}/uevent:PCI_CLASS=60400"]
        lines += [f"{bridge}/uevent:PCI_ID=1000:C030"]
    lines += [
        "/sys/class/infiniband/mlx5_0/ports/1/state:1: DOWN",
        "/sys/class/infiniband/mlx5_0/ports/1/phys_state:3: Disabled",
    ]
    lines += [
        "/sys/class/infiniband/mlx5_0/ports/1/link_layer:InfiniBand",
        "/sys/class/infiniband/mlx5_0/device -> " + place,
    ]
    lines += ["/proc/77/comm:kv_prefill", "/proc/77/status:Uid:\t1000\t1000\t1000\t1000"]
    lines += ["/proc/77/cgroup:0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"]
    node.write_text("\n".join(lines) + "\n")
    qp = '[{"ifindex":0,"ifname":"mlx5_0","port":1,"lqpn":17,"type":"RC","state":"ERR","pid":77,"comm":"kv_prefill"}]'
    (tmp_path / "qp.json").write_text(qp)
    (found,) = [f for f in checked(tmp_path)["findings"] if f["rule"] == "qp-in-error"]
    assert found["owner"] == {
        "pid": 77,
        "comm": "kv_prefill",
        "uid": 1000,
        "container": "slurm job 4711",
        "job": "4711",
    }
    assert (found["adapter"]["gpu_bdf"], found["adapter"]["path"], found["adapter"]["rail"]) == (
        "0000:19:00.0",
        "PIX",
        0,
    )
