"""Completions have an age as log lines have, and --since holds for them too."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

from click.testing import CliRunner

from rdmadiag.cli import cli
from rdmadiag.diagnose import check
from rdmadiag.evidence import paste
from rdmadiag.evidence.given import GivenText
from rdmadiag.evidence.paste import Library
from rdmadiag.evidence.row import Row

COMPLETIONS = (
    "[2026-03-01 10:00:00] node-a:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with status=12 opcode=1 len=0 vendor err 129\n"
    "[2026-03-05 10:00:00] node-a:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with status=13 opcode=1 len=0 vendor err 135\n"
    "[2026-03-05 11:00:00] node-a:1:2 [0] NCCL INFO bye\n"
)


def test_completions_have_the_age_of_their_line_counted_from_the_end_of_the_log(library: Library) -> None:
    stream = io.BytesIO(COMPLETIONS.encode())
    read = paste.read_text(library, GivenText(None, "x", "x", stream), time.monotonic() + 60, 86400.0)
    rows = [item.values for _, _, item in read.items if isinstance(item, Row) and item.table == "completion"]
    assert [(row["wc_status"], row["age_seconds"], row["recent"]) for row in rows] == [
        (12, 4 * 86400.0 + 3600.0, 0),
        (13, 3600.0, 1),
    ]


def test_completions_older_than_since_are_no_findings_and_are_counted(tmp_path: Path) -> None:
    (tmp_path / "nccl.log").write_text(COMPLETIONS)

    def statuses(since: float) -> tuple[list[int], int]:
        checked = check.check(check.Request(given=(str(tmp_path / "nccl.log"),), since=since, budget=60))
        found = [row[0] for row in checked.evidence.db.execute("SELECT wc_status FROM completion ORDER BY 1")]
        return found, checked.report["summary"]["log_lines_left_out"]

    assert statuses(86400.0) == ([13], 1)
    assert statuses(10 * 86400.0) == ([12, 13], 0)


def test_since_may_be_a_time_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "nccl.log").write_text(COMPLETIONS)

    def left_out(since: str) -> int:
        arguments = ["check", "--from", str(tmp_path / "nccl.log"), "--since", since, "--format", "json"]
        return int(json.loads(CliRunner().invoke(cli, arguments).stdout)["summary"]["log_lines_left_out"])

    assert left_out("2026-03-05T10:30") == 2
    assert left_out("2026-03-04") == 1
    assert left_out("2026-02-01 00:00:00") == 0
    assert "neither" in CliRunner().invoke(cli, ["check", "--since", "25:99"]).output
    assert "future" in CliRunner().invoke(cli, ["check", "--since", "9000-01-01"]).output
