"""The command pcap: what it prints in each format, exit codes, standard input."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).parent.parent.parent
PCAPS = ROOT / "tests/data/pcaps"
LAB = str(PCAPS / "softroce-6.1-requester-lab.pcap")
Run = Callable[..., Any]


def test_text_names_the_capture_its_flows_and_what_is_wrong(rdmadiag: Run) -> None:
    result = rdmadiag("pcap", LAB)
    assert result.returncode == 1
    assert "427 packets, 427 RoCEv2" in result.stdout and "retries exhausted" in result.stdout
    assert "[wire-retries-exhausted]" in result.stdout and "tshark -Y" in result.stdout


def test_json_is_the_report_with_its_flows(rdmadiag: Run) -> None:
    value = json.loads(rdmadiag("pcap", LAB, "--format", "json").stdout)
    jsonschema.validate(value, json.loads((ROOT / "rdmadiag/render/report.schema.json").read_text()))
    assert len(value["flows"]) == 25 and value["summary"]["exit_code"] == 1


def test_csv_has_a_row_for_each_flow(rdmadiag: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(rdmadiag("pcap", LAB, "--format", "csv").stdout)))
    assert len(rows) == 25 and {row["state"] for row in rows} >= {"idle", "retries exhausted"}


def test_a_capture_comes_through_a_pipe_and_a_quiet_one_exits_with_0() -> None:
    data = (PCAPS / "synthetic-ipv6-write-200.pcap").read_bytes()
    command = [sys.executable, "-m", "rdmadiag", "pcap", "-", "--format", "json"]
    result = subprocess.run(command, input=data, capture_output=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)["flows"]) == 4


def test_an_interrupted_live_pipe_is_said_with_what_came() -> None:
    data = Path(LAB).read_bytes()
    command = [sys.executable, "-m", "rdmadiag", "pcap", "-", "--format", "json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdin.write(data[:60_000])
        process.stdin.flush()
        while int.from_bytes(fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)), sys.byteorder):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.stdin.write(data[60_000:])  # what tcpdump still had
        process.stdin.flush()
        value = json.loads(process.stdout.read())
    assert len(value["flows"]) == 25 and value["summary"]["exit_code"] == 1


def test_one_queue_pair_is_shown_in_full_by_either_end(rdmadiag: Run) -> None:
    result = rdmadiag("pcap", LAB, "--qp", "0x36")
    assert (
        "dead after a fatal NAK" in result.stdout
        and "NAK_REMOTE_ACCESS" in result.stdout
        and "victim_frame 294" in result.stdout
    )
    assert rdmadiag("pcap", LAB, "--qp", "9999").returncode == 2
    assert rdmadiag("pcap", LAB, "--qp", "many").returncode == 2


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_timeline_is_drawn(ending: str, rdmadiag: Run, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    rdmadiag("pcap", LAB, "--qp", "0x44", "--timeline", str(path))
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG" if ending == "png" else b"<?xml") and len(data) > 5000


def test_a_timeline_is_a_table_too(rdmadiag: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rdmadiag("pcap", LAB, "--qp", "0x44", "--timeline", str(path))
    head, *rows = [line.split(",") for line in path.read_text().splitlines()]
    assert head[:3] == ["seconds", "requests", "sent_again"] and all(len(row) == len(head) for row in rows)
    assert sum(int(row[1]) for row in rows) > sum(int(row[2]) for row in rows) > 0
    refused = rdmadiag("pcap", LAB, "--timeline", str(tmp_path / "no" / "x.csv"))
    assert refused.returncode == 2 and "cannot be written" in refused.stderr


def test_wrong_use_says_what_was_wanted(rdmadiag: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no capture")
    for args in (
        (),
        (str(tmp_path / "x"),),
        (str(tmp_path / "absent"),),
        (LAB, "--tap", LAB),
        (LAB, "--timeline", str(tmp_path / "x.nosuch")),
    ):
        result = rdmadiag("pcap", *args)
        assert result.returncode == 2 and result.stdout == "", args
        assert "wanted" in result.stderr and "Traceback" not in result.stderr, result.stderr


def test_check_reads_captures_beside_other_evidence(rdmadiag: Run) -> None:
    log = str(ROOT / "tests/data/reports/06-nccl-tests-206-memlock")
    value = json.loads(rdmadiag("check", "--from", LAB, "--from", log, "--format", "json").stdout)
    rules = {f["rule"] for f in value["findings"] if f["answer"] == "confirmed"}
    assert {"wire-retries-exhausted", "memlock-too-low"} <= rules
    assert {node["node"] for node in value["nodes"]} == {"softroce-6.1-requester-lab", "06-nccl-tests-206-memlock"}
