"""Captures of a lab in which a rule about the wire fires: what is done there, and what was recorded.

`python -m tests.softroce.wire_lab [CASE...]`, with a lab named in RDMADIAG_LAB, records them anew into tests/data/captures; test_wire.py
does the same and keeps nothing. Everything in a capture is made by rdma_rxe, or says in `how` what we added.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rdmadiag import lab as labs
from rdmadiag.diagnose import coverage, wire
from rdmadiag.inject import in_lab, inject
from rdmadiag.lab import inflight, packets
from tests.softroce.conftest import ROOT, Worker, command, environment
from tests.softroce.wire_captures import CASES, Case

FOLDER = ROOT / "tests/data/captures"
PORTS = "echo '$ ibstat'; ibstat"
RECORD = [sys.executable, "-m", "rdmadiag", "pcap", "record"]


def confirmed(folder: Path) -> list[str]:
    """Return the rules that are confirmed on the capture in a folder, or on two taps of a path."""
    report = coverage.taps_of(str(folder))
    if report is None:
        expect = folder / "expect.json"
        (path,) = folder.glob("capture.*")
        report = wire.look([str(path)], expect=str(expect) if expect.exists() else None).report
    return sorted({finding["rule"] for finding in report["findings"] if finding["answer"] == "confirmed"})


@contextlib.contextmanager
def recorded(lab: labs.Lab, tap: str, snaplen: int, into: Path) -> Iterator[None]:
    """Record a port of the switch while the block runs; the capture is `into` afterwards."""
    there = f"/tmp/wire-{os.getpid()}-{tap}"
    words = [*RECORD, tap, "-o", there, "--snaplen", str(snaplen), "--format", "json"]
    process = subprocess.Popen(
        command("exec", lab.name, "--host", "switch", "--", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert f"recording {tap}" in said, said + process.stderr.read()
        yield
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    told = json.loads(out)
    assert told["dropped"] == 0 and len(told["files"]) == 1, (told, err)
    into.write_bytes(lab.run(["cat", told["files"][0]]).out)
    lab.run(["rm", told["files"][0]])


def capture(lab: labs.Lab, verbs: Worker, case: Case, folder: Path) -> list[Path]:
    """Do what a case says and return its captures, in a folder, with what belongs to them."""
    if case.expect:
        (folder / "expect.json").write_text(json.dumps({"schema": "rdmadiag.expect/1", **case.expect}, indent=1) + "\n")
    if case.ports:
        (folder / coverage.NODE).write_text(lab.run(["sh", "-c", PORTS]).text)
    paths = [
        folder / (f"tap-{n + 1}.pcapng" if len(case.taps) > 1 else "capture.pcapng") for n in range(len(case.taps))
    ]
    with contextlib.ExitStack() as stack:
        if case.switch:
            verbs("in_switch", script=case.switch[0])
            stack.callback(verbs, "in_switch", script=case.switch[1])
        for tap, path in zip(case.taps, paths, strict=True):
            stack.enter_context(recorded(lab, tap, case.snaplen, path))
        if case.changes:
            stack.enter_context(inflight.changes(lab, list(case.changes)))
        if case.fault:
            stack.enter_context(inject(*case.fault, in_lab(lab), for_seconds=60))
        if case.cm:
            verbs("cm_connect", port=case.cm[0], seconds=case.cm[1])
        if case.steps:
            _traffic(lab, verbs, case)
        if case.frames:
            verbs("inject", frames=list(case.frames))
        time.sleep(case.linger)
    return paths


def _traffic(lab: labs.Lab, verbs: Worker, case: Case) -> None:
    made = verbs("open_pair", one=case.one, two=case.two)
    try:
        verbs("talk", steps=list(case.steps))
        for frame in case.forged:
            to, name = frame["to"], frame["name"]
            source, end = ("h2", 0) if to == "h1" else ("h1", 1)
            path = packets.path(lab, source, to)._replace(**frame.get("path", {}))
            parameters = {"path": path, "dest_qp": made["qpns"][end], **frame.get("parameters", {})}
            if name != "cnp":
                parameters["psn"] = (made["psns"][0] + frame["psn_after"]) & 0xFFFFFF
            sent = {"name": name, "parameters": parameters, "changes": frame.get("changes", [])}
            packets.send(lab, to, [sent], count=frame.get("count", 1), seconds=30, rate=frame.get("rate"))
        if case.forged and case.linger:
            time.sleep(case.linger)
    finally:
        verbs("close_pair")


def write(lab: labs.Lab, verbs: Worker, name: str, case: Case) -> list[str]:
    """Record a case into tests/data/captures, packed, with what is confirmed on it. Returns that."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for path in capture(lab, verbs, case, folder):
        packed = folder / f"{path.name}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        path.unlink()
    found = confirmed(folder)
    kernel = lab.run(["uname", "-r"]).text.strip()
    told = {"origin": f"lab, rdma_rxe of Linux {kernel}: {case.how}", "confirmed": found}
    (folder / "expected.json").write_text(json.dumps(told, indent=1) + "\n")
    return found


def main() -> None:
    """Record the cases named, or all."""
    lab = labs.find(os.environ["RDMADIAG_LAB"])
    verbs = Worker(lab.name)
    for name in sys.argv[1:] or CASES:
        case = CASES[name]
        found = write(lab, verbs, name, case)
        missing = sorted(set(case.rules) - set(found))
        print(f"{name}: {', '.join(found)}{f'; NOT {missing}' if missing else ''}", flush=True)
    verbs.close()


if __name__ == "__main__":
    main()
