"""Options of check that choose rules, know an earlier report, or are given what is no file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rdmadiag.cli import _output, cli, query
from rdmadiag.diagnose import check, rulebook
from rdmadiag.errors import BadFile, BadInput, RdmadiagError

NODES = Path(__file__).parent.parent / "data/nodes"
FAULTY = str(NODES / "rxe-rnr")
Checked = Callable[..., dict[str, Any]]


def rules_of(report: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in report["findings"]}


def test_only_the_rules_that_are_asked_for_are_evaluated(checked: Checked) -> None:
    report = checked(FAULTY, only=("rnr-*", "wc-rnr-retry-exceeded"))
    assert {"rnr-retries-exhausted", "wc-rnr-retry-exceeded"} <= rules_of(report)
    assert "qp-in-error" not in rules_of(report)
    assert report["summary"]["rules"]["all"] < 10


def test_a_skipped_rule_says_nothing(checked: Checked) -> None:
    assert "qp-in-error" in rules_of(checked(FAULTY))
    assert "qp-in-error" not in rules_of(checked(FAULTY, skip=("qp-in-error",)))


def test_a_layer_alone_is_evaluated(checked: Checked) -> None:
    report = checked(FAULTY, layers=("qp",))
    assert {finding["layer"] for finding in report["findings"]} == {"qp"}


def test_a_part_that_no_chosen_rule_reads_does_not_make_the_answer_unknown(checked: Checked, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"x" * 257 + b"ustar" + b"x" * 600)
    (tmp_path / "ulimit.txt").write_text("$ ulimit -l\nunlimited\n")
    assert checked(tmp_path)["summary"]["exit_code"] == 3
    assert checked(tmp_path, only=("memlock-too-low",))["summary"]["exit_code"] == 3, "a file that was given was lost"


@pytest.mark.parametrize("option", ["only", "skip"])
def test_an_unknown_rule_is_refused_with_near_ones(option: str, checked: Checked) -> None:
    with pytest.raises(BadInput, match="rnr-retries-exhausted"):
        checked(FAULTY, **{option: ("rnr-retry-exhausted",)})


def test_an_unknown_layer_is_refused_with_the_known_ones(checked: Checked) -> None:
    with pytest.raises(BadInput, match="known: app, "):
        checked(FAULTY, layers=("nosuch",))


@pytest.fixture(scope="module")
def baseline(checked: Checked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("b") / "known.json"
    path.write_text(json.dumps(checked(FAULTY), default=str))
    return path


def test_what_the_baseline_has_is_known_and_does_not_fail(checked: Checked, baseline: Path) -> None:
    report = checked(FAULTY, baseline=str(baseline))
    confirmed = [f for f in report["findings"] if f["answer"] == "confirmed"]
    assert confirmed and all(finding["known"] for finding in confirmed)
    assert not any(f["known"] for f in report["findings"] if f["answer"] == "unknown")
    assert (report["summary"]["exit_code"], report["summary"]["known"]) == (0, len(confirmed))


def test_what_is_new_fails_though_the_rest_is_known(checked: Checked, baseline: Path, tmp_path: Path) -> None:
    data = json.loads(baseline.read_text())
    data["findings"] = [f for f in data["findings"] if f["rule"] != "qp-in-error"]
    (tmp_path / "b.json").write_text(json.dumps(data))
    report = checked(FAULTY, baseline=str(tmp_path / "b.json"))
    assert report["summary"]["exit_code"] == 1
    assert [f["rule"] for f in report["findings"] if f["answer"] == "confirmed" and not f["known"]] == ["qp-in-error"]


def test_the_same_fault_on_another_port_is_new_and_with_another_qp_is_not(
    checked: Checked, baseline: Path, tmp_path: Path
) -> None:
    data = json.loads(baseline.read_text())
    for finding in data["findings"]:
        finding["subject"] |= {"qpn": 99, "pid": 99}
    (tmp_path / "b.json").write_text(json.dumps(data))
    assert checked(FAULTY, baseline=str(tmp_path / "b.json"))["summary"]["exit_code"] == 0
    for finding in data["findings"]:
        finding["subject"] |= {"device": "rxe7"}
    (tmp_path / "b.json").write_text(json.dumps(data))
    assert checked(FAULTY, baseline=str(tmp_path / "b.json"))["summary"]["exit_code"] == 1


BAD_REPORTS = {
    "[]": "/schema",
    '{"schema": "rdmadiag.site/1"}': "/schema",
    '{"schema": "rdmadiag.report/1", "nodes": [], "findings": {}}': "/findings",
    '{"schema": "rdmadiag.report/1", "nodes": [], "findings": [{"rule": 1, "subject": {}}]}': "/findings/0",
    '{"schema": "rdmadiag.report/1", "nodes": [], "findings": [5]}': "/findings",
    "{": "not JSON",
}


@pytest.mark.parametrize("content", BAD_REPORTS)
def test_a_baseline_that_is_no_report_is_refused_with_its_place(content: str, checked: Checked, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(content)
    with pytest.raises(BadFile, match=BAD_REPORTS[content]):
        checked(FAULTY, baseline=str(tmp_path / "b.json"))


@pytest.mark.parametrize("option", ["site", "expect", "baseline", "previous"])
def test_a_pipe_or_a_device_instead_of_a_file_is_refused_at_once(option: str, checked: Checked, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero", "/nosuch"):
        with pytest.raises(RdmadiagError, match=path):
            checked(FAULTY, **{option: path})
    with pytest.raises(BadFile, match="not a regular file"):
        rulebook.load((str(tmp_path / "pipe"),))


def test_a_window_is_not_waited_for_where_there_is_no_counter() -> None:
    class Nothing:
        name, live, root = "n", True, True

        def __getattr__(self, name: str) -> Any:
            from rdmadiag.errors import NotPresent

            def refuse(*_: object) -> Any:
                raise NotPresent("not there")

            return (lambda: time.monotonic()) if name == "clock" else refuse

    done: Any = check.check(check.Request(window=3600.0), host=Nothing())  # the test's own time limit would end it
    assert done.report["summary"]["rules"]["all"] > 100


def test_a_table_that_is_not_there_is_answered_with_near_ones() -> None:
    with pytest.raises(BadInput, match="near: port"):
        check.query(check.Request(given=(FAULTY,)), "SELECT * FROM ports")


def test_explain_is_wrapped_and_says_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = CliRunner().invoke(cli, ["explain", "wc", "12"]).output
    monkeypatch.setattr(_output, "width", lambda: 50)
    monkeypatch.setattr(_output, "is_terminal", lambda stream: True)
    narrow = CliRunner().invoke(cli, ["explain", "wc", "12"]).output
    assert [line for line in narrow.splitlines() if len(line) > 50 and len(line.split()) > 3] == []
    assert narrow.split() == wide.split()


def test_rows_of_a_query_fit_a_terminal_and_are_not_broken_for_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "SELECT device, netdev, origin FROM port"
    words = ["query", "--from", FAULTY, sql]
    assert len(CliRunner().invoke(cli, words).stdout.splitlines()) == 3
    monkeypatch.setattr(_output, "width", lambda: 40)
    monkeypatch.setattr(query._output, "is_terminal", lambda stream: True)
    lines = CliRunner().invoke(cli, words).stdout.splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 40


@pytest.mark.parametrize(("form", "code"), [("npd", 2), ("nagios", 3)])
def test_callers_with_codes_of_their_own_get_them_when_a_check_cannot_be_made(form: str, code: int) -> None:
    result = CliRunner().invoke(cli, ["check", "--from", "/nosuch", "--format", form])
    assert result.exit_code == code and "nknown" in result.output.lower()


@pytest.mark.parametrize(("form", "code"), [("npd", 1), ("nagios", 2), ("slurm", 1), ("prometheus", 1)])
def test_callers_get_their_code_of_a_faulty_node(form: str, code: int) -> None:
    assert CliRunner().invoke(cli, ["check", "--from", FAULTY, "--format", form]).exit_code == code
