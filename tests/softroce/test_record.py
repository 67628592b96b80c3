"""`rdmadiag pcap record` on a netdev of the lab: as many packets as were sent, and a capture that reads clean."""

from __future__ import annotations

import json
import subprocess
import sys

from rdmadiag.lab import Lab, packets
from tests.softroce.conftest import ROOT, Cli, command, environment


def test_what_is_recorded_is_what_was_sent_and_drops_are_counted(lab: Lab, cli: Cli) -> None:
    words = [
        sys.executable,
        "-m",
        "rdmadiag",
        "pcap",
        "record",
        "v2",
        "-o",
        "/tmp/r",
        "--count",
        "300",
        "--format",
        "json",
    ]
    recorder = subprocess.Popen(
        command("exec", lab.name, "--", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    try:
        assert recorder.stderr is not None and "recording v2" in recorder.stderr.readline()
        frame = {"name": "cnp", "parameters": {"path": packets.path(lab, "h1", "h2"), "dest_qp": 0xABCDE}}
        assert packets.send(lab, "h2", [frame], count=300, seconds=60).packets == 300
        out, _ = recorder.communicate(timeout=120)
    finally:
        recorder.kill()
    told = json.loads(out)
    assert (told["packets"], told["dropped"], told["files"]) == (300, 0, ["/tmp/r-00001.pcapng"])
    shown = lab.run(
        [sys.executable, "-m", "rdmadiag", "pcap", "/tmp/r-00001.pcapng"], environment={"PYTHONPATH": str(ROOT)}
    ).text
    assert "300 packets, 300 RoCEv2" in shown and "300 good, 0 bad" in shown
