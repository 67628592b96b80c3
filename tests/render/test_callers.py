"""Formats that programs read: each keeps its caller's rules on every report, and none calls unknown healthy."""

from __future__ import annotations

import copy
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rdmadiag.render import junit, markdown, nagios, npd, prometheus, slurm

DATA = Path(__file__).parent.parent / "data"
Report = dict[str, Any]
Checked = Callable[..., Report]
EVIL = "\x1b[2J|`$(reboot)'\"\n<b>]]>&\u202e\ud800\x00 ü\\"


@pytest.fixture(scope="module")
def wrong(checked: Checked) -> Report:
    return checked(DATA / "nodes/rxe-rnr")


@pytest.fixture(scope="module")
def fine(checked: Checked) -> Report:
    return checked(DATA / "nodes/mlx5-roce-8nic-h100")


@pytest.fixture(scope="module")
def unknown(checked: Checked, tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp("u") / "notes.txt"
    path.write_text("dear diary\n")
    return checked(path)


@pytest.fixture(scope="module")
def evil(wrong: Report) -> Report:
    report = copy.deepcopy(wrong)
    for finding in report["findings"]:
        finding["message"] = finding["title"] = EVIL
        finding["subject"]["device"] = EVIL
        finding["evidence"] = [{"origin": EVIL, "text": EVIL}]
        finding["fix"] = [EVIL]
    return report


REPORTS = ["wrong", "fine", "unknown", "evil"]
CODES = {"wrong": (1, 2), "fine": (0, 0), "unknown": (2, 3), "evil": (1, 2)}


@pytest.mark.parametrize("name", REPORTS)
def test_node_problem_detector_gets_one_short_line_and_its_own_code(name: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(name)
    line = npd.render(report)
    assert len(line.encode()) <= 80 and line.isprintable() and line.isascii()
    assert npd.exit_code(report) == CODES[name][0]


def test_node_problem_detector_is_told_the_rule_and_the_port(wrong: Report) -> None:
    assert npd.render(wrong).startswith("rnr-retries-exhausted rxe1/1: The receiver had no receive posted")


@pytest.mark.parametrize("name", REPORTS)
def test_nagios_gets_a_status_line_performance_data_and_its_own_code(name: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(name)
    first, *more = nagios.render(report).split("\n")
    code = nagios.exit_code(report)
    assert code == CODES[name][1]
    told, data = first.split(" | ")  # a second bar would begin more performance data
    assert told.startswith(f"RDMADIAG {nagios.WORDS[code]} - ")
    assert all(re.fullmatch(r"[a-z_]+=\d+;;;0", value) for value in data.split(" "))
    assert not any("|" in line for line in more)


def test_nagios_warns_when_the_worst_is_a_warning(wrong: Report) -> None:
    report = copy.deepcopy(wrong)
    for finding in report["findings"]:
        finding["severity"] = "warning"
    assert nagios.exit_code(report) == 1


def test_a_check_that_could_not_be_made_is_unknown_to_nagios_and_node_problem_detector() -> None:
    assert nagios.refused("a: b | c") == ("RDMADIAG UNKNOWN - a: b / c", 3)
    line, code = npd.refused("x" * 200)
    assert (len(line), code) == (80, 2)


@pytest.mark.parametrize("name", REPORTS)
def test_a_reason_for_slurm_survives_a_shell_in_double_quotes(name: str, request: pytest.FixtureRequest) -> None:
    reason = slurm.render(request.getfixturevalue(name))
    assert re.fullmatch(r"rdmadiag: [A-Za-z0-9 ._:/+-]{5,110}", reason)
    said = subprocess.run(["sh", "-c", f'printf %s "{reason}"'], capture_output=True, text=True, check=True)
    assert said.stdout == reason


CHILDREN = {"failure", "error", "skipped", "system-out", "system-err"}


@pytest.mark.parametrize("name", REPORTS)
def test_junit_keeps_the_rules_of_its_schema(name: str, request: pytest.FixtureRequest) -> None:
    # By hand after junit-10.xsd of the Jenkins xUnit plug-in: elements, attributes and where they may stand.
    root = ET.fromstring(junit.render(request.getfixturevalue(name)).encode(errors="strict"))
    assert root.tag == "testsuites" and set(root.attrib) <= {"name", "time", "tests", "failures", "disabled", "errors"}
    for suite in root:
        assert suite.tag == "testsuite" and {"name", "tests"} <= set(suite.attrib)
        assert set(suite.attrib) <= {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"}
        cases = list(suite)
        for outcome in ("failure", "error", "skipped"):
            key = {"failure": "failures", "error": "errors"}.get(outcome, outcome)
            assert int(suite.attrib[key]) == sum(1 for case in cases if case.find(outcome) is not None)
        assert int(suite.attrib["tests"]) == len(cases)
        for case in cases:
            assert case.tag == "testcase" and {"name", "classname"} <= set(case.attrib)
            assert {child.tag for child in case} <= CHILDREN and len(list(case)) <= 1
            for child in case:
                assert set(child.attrib) <= {"message", "type"}


@pytest.mark.parametrize("name", REPORTS)
def test_junit_counts_come_to_the_exit_code(name: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(name)
    root = ET.fromstring(junit.render(report).encode())
    assert (int(root.attrib["failures"]) > 0) == (report["summary"]["exit_code"] == 1)
    assert (int(root.attrib["errors"]) > 0) == (report["summary"]["exit_code"] == 3)


@pytest.mark.parametrize("name", REPORTS)
def test_prometheus_metrics_parse_and_have_help_and_type_and_no_series_twice(
    name: str, request: pytest.FixtureRequest
) -> None:
    text = prometheus.render(request.getfixturevalue(name)) + "\n"
    families = list(text_string_to_metric_families(text))
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for family in families:
        assert family.documentation and family.type == "gauge" and family.samples
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen
            seen.add(key)
    names = {family.name for family in families}
    assert {"rdmadiag_info", "rdmadiag_verdict", "rdmadiag_exit_code", "rdmadiag_rules"} <= names


def _values(report: Report, name: str) -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(prometheus.render(report) + "\n")
    return [(s.labels, s.value) for family in families if family.name == name for s in family.samples]


def test_prometheus_is_told_no_zero_while_the_verdict_is_unknown(fine: Report, unknown: Report) -> None:
    assert [value for _, value in _values(fine, "rdmadiag_findings") if value == 0]
    assert [value for _, value in _values(unknown, "rdmadiag_findings") if value == 0] == []
    assert ({"verdict": "unknown"}, 1.0) in _values(unknown, "rdmadiag_verdict")


def test_prometheus_is_told_each_finding_with_its_subject(wrong: Report) -> None:
    found = [labels for labels, _ in _values(wrong, "rdmadiag_finding") if labels["rule"] == "rnr-retries-exhausted"]
    assert found[0]["device"] == "rxe1" and found[0]["severity"] == "critical" and "qpn" not in found[0]


def test_two_queue_pairs_of_one_port_are_one_series_of_two(wrong: Report) -> None:
    report = copy.deepcopy(wrong)
    first = report["findings"][0]
    report["findings"] = [{**first, "subject": {**first["subject"], "qpn": n}} for n in (1, 2)]
    assert [value for _, value in _values(report, "rdmadiag_finding")] == [2.0]


def test_markdown_has_verdict_symptom_cause_proof_and_fix_in_order(wrong: Report) -> None:
    printed = markdown.render(wrong)
    places = [
        printed.index(word) for word in ("# rxe-lab: WRONG", "## ERROR: Queue", "- proof: `", "### CRITICAL", "\n1. ")
    ]
    assert places == sorted(places)


def test_nothing_of_the_evidence_is_markup_in_markdown(evil: Report) -> None:
    printed = markdown.render(evil)
    outside = re.sub(r"(`+).*?\1", "", printed)
    assert not re.search(r"(?<!\\)[<>\[\]|]", outside)
    assert not any(c in printed for c in "\x1b\u202e\x00")
