"""The command line: exit codes, formats, and errors of one line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).parent.parent.parent
NODES = ROOT / "tests/data/nodes"
REPORTS = ROOT / "tests/data/reports"
Run = Callable[..., subprocess.CompletedProcess[str]]


def test_help_shows_commands_exit_codes_and_examples(rdmadiag: Run) -> None:
    result = rdmadiag("--help")
    assert result.returncode == 0
    for word in ("check", "explain", "query", "rules", "tables", "Exit codes", "Examples:"):
        assert word in result.stdout


def test_a_fault_exits_1_and_a_healthy_node_0(rdmadiag: Run) -> None:
    assert rdmadiag("check", "--from", str(REPORTS / "06-nccl-tests-206-memlock")).returncode == 1
    assert rdmadiag("check", "--from", str(NODES / "mlx5-roce-8nic-h100")).returncode == 0


def test_fail_on_sets_the_severity_that_exits_1(rdmadiag: Run) -> None:
    folder = str(REPORTS / "54-mooncake-1450-cross-rail")
    assert rdmadiag("check", "--from", folder, "--fail-on", "warning").returncode == 1
    assert rdmadiag("check", "--from", str(NODES / "mlx5-roce-8nic-h100"), "--fail-on", "critical").returncode == 0


WRONG = {
    "missing file": (("check", "--from", "/nosuch"), "/nosuch: cannot be read: No such file"),
    "unknown option": (("check", "--nosuch"), "No such option"),
    "unknown command": (("nosuch",), "No such command 'nosuch'"),
    "unknown rule": (("rules", "show", "nosuch"), "no rule 'nosuch'"),
    "unknown table": (("tables", "nosuch"), "no table nosuch; known: node"),
    "unknown topic": (("explain", "nosuch", "1"), "known: "),
    "bad word": (("explain", "wc", "99"), "rdmadiag: "),
    "unknown plan": (("plan", "nosuch"), "known: ecn, kv"),
    "plan without its values": (("plan", "window", "rate=1gbit"), "plan window needs rtt=50us, block=64KiB"),
    "bad duration": (("check", "--window", "soon"), "'soon' is not a duration"),
    "negative duration": (("check", "--window", "-1"), "is not a duration"),
    "bad site file": (("check", "--site", "/nosuch"), "/nosuch: cannot be read"),
    "write query": (
        ("query", "--from", str(REPORTS / "06-nccl-tests-206-memlock"), "DELETE FROM node"),
        "only SELECT is allowed",
    ),
    "unknown column": (
        ("query", "--from", str(REPORTS / "06-nccl-tests-206-memlock"), "SELECT nosuch FROM node"),
        "no such column: nosuch",
    ),
}


@pytest.mark.parametrize(("args", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_use_exits_2_with_one_clear_message(rdmadiag: Run, args: tuple[str, ...], message: str) -> None:
    result = rdmadiag(*args)
    assert result.returncode == 2, result
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


JSON_COMMANDS = {
    "check": ("check", "--from", str(REPORTS / "06-nccl-tests-206-memlock"), "--format", "json"),
    "check with timing": (
        "check",
        "--from",
        str(REPORTS / "06-nccl-tests-206-memlock"),
        "--format",
        "json",
        "--timing",
    ),
    "check --explain": (
        "check",
        "--from",
        str(REPORTS / "06-nccl-tests-206-memlock"),
        "--explain",
        "memlock-too-low",
        "--format",
        "json",
    ),
    "query": (
        "query",
        "--from",
        str(REPORTS / "06-nccl-tests-206-memlock"),
        "SELECT * FROM process_limit",
        "--format",
        "json",
    ),
    "rules list": ("rules", "list", "--format", "json"),
    "rules show": ("rules", "show", "no-rdma-device", "--format", "json"),
    "rules lint": ("rules", "lint", "--format", "json"),
    "rules test": ("rules", "test", "no-rdma-device", "--format", "json"),
    "tables": ("tables", "--format", "json"),
    "explain": ("explain", "wc", "12", "--format", "json"),
    "explain topics": ("explain", "--format", "json"),
    "plan": ("plan", "kv", "model=llama-3-70b", "--format", "json"),
    "plan topics": ("plan", "--format", "json"),
}


@pytest.mark.parametrize("args", JSON_COMMANDS.values(), ids=JSON_COMMANDS.keys())
def test_json_is_all_that_stands_on_standard_output(rdmadiag: Run, args: tuple[str, ...]) -> None:
    value = json.loads(rdmadiag(*args).stdout)
    assert value["schema"].startswith("rdmadiag.")
    assert all(ord(c) < 127 for c in rdmadiag(*args).stdout)


@pytest.mark.parametrize(
    "folder",
    sorted(p for p in NODES.iterdir() if p.is_dir())[:6] + sorted(p for p in REPORTS.iterdir() if p.is_dir())[:8],
    ids=lambda p: p.name,
)
def test_every_report_object_keeps_its_schema(folder: Path, checked: Callable[..., dict[str, Any]]) -> None:
    schema = json.loads((ROOT / "rdmadiag/render/report.schema.json").read_text())
    jsonschema.validate(json.loads(json.dumps(checked(folder))), schema)


def test_a_live_check_keeps_the_schema_and_says_what_root_would_add(rdmadiag: Run) -> None:
    result = rdmadiag("check", "--window", "0", "--format", "json")
    report = json.loads(result.stdout)
    jsonschema.validate(report, json.loads((ROOT / "rdmadiag/render/report.schema.json").read_text()))
    assert result.returncode == report["summary"]["exit_code"]
    assert report["nodes"][0]["node"] == os.uname().nodename


def test_explain_prints_query_rows_and_parameters(rdmadiag: Run) -> None:
    result = rdmadiag("check", "--from", str(REPORTS / "06-nccl-tests-206-memlock"), "--explain", "memlock-too-low")
    assert "query:" in result.stdout and "YES:" in result.stdout and "process_limit" in result.stdout


def test_csv_and_table_show_the_same_rows(rdmadiag: Run) -> None:
    sql = "SELECT name, soft FROM process_limit"
    folder = str(REPORTS / "06-nccl-tests-206-memlock")
    table = rdmadiag("query", "--from", folder, sql).stdout.split()
    csv = rdmadiag("query", "--from", folder, sql, "--format", "csv").stdout.replace(",", " ").split()
    assert table == csv == ["name", "soft", "memlock", str(8192 * 1024)]


def test_standard_input_is_read_with_a_dash(rdmadiag: Run) -> None:
    result = rdmadiag("check", "--from", "prefill=-", "--format", "json", stdin="$ ulimit -l\n64\n")
    assert json.loads(result.stdout)["nodes"][0]["node"] == "prefill"


def test_escape_sequences_of_a_log_reach_no_terminal(rdmadiag: Run) -> None:
    evil = "node-a:1:2 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129 \x1b]0;pwned\x07\x1b[2J\x9b31m\n"
    for form in ("text", "json"):
        printed = rdmadiag("check", "--from", "-", "--format", form, stdin=evil).stdout
        assert "completion" in printed or "wc-retry" in printed
        assert not any(c in printed for c in "\x1b\x07\x9b")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = "python -m rdmadiag tables | head -1"
    environment = {**os.environ, "PATH": f"{Path(os.sys.executable).parent}:{os.environ['PATH']}"}  # type: ignore[attr-defined]
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60, check=False
    )
    assert "Traceback" not in result.stderr
