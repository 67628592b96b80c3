"""What ends an injection before its time, on a real lab: the steady state is broken, the kernel warns, another queue pair is hurt."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rdmadiag.inject import in_lab, inject
from rdmadiag.lab import Lab, find, packets
from tests.softroce.conftest import ROOT, Cli, Worker, environment, wait_until

pytestmark = pytest.mark.usefixtures("state")

AMPLE = 240.0


@pytest.mark.long
def test_it_is_aborted_when_the_steady_state_is_broken(
    lab: Lab,
    state: Path,
    clean: Callable[[], str],
) -> None:
    asked = f"{sys.executable} -m rdmadiag lab exec {lab.name} -- test ! -e /run/unsteady"
    words = ["blackout", "--for", "600s", "--lab", lab.name, "--abort-when", asked]
    running = subprocess.Popen(
        [sys.executable, "-m", "rdmadiag", "inject", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    try:
        assert running.stderr and running.stderr.readline().startswith("on: ")
        lab.run(["touch", "/run/unsteady"])
        out, err = running.communicate(timeout=AMPLE)
    finally:
        running.send_signal(signal.SIGTERM)
        lab.run(["rm", "-f", "/run/unsteady"])
    assert running.returncode == 6, out + err
    assert "ABORTED" in out and "ended with 1" in out and "off: the node is as it was before" in out, out


@pytest.mark.long
def test_it_is_aborted_when_a_queue_pair_of_others_goes_to_error(
    lab: Lab,
    verbs: Worker,
    clean: Callable[[], str],
) -> None:
    qpns = verbs("hold", timeout=18, retry_cnt=6)["qpns"]
    try:
        with inject("bad-rkey", {}, in_lab(lab), for_seconds=600) as injection:
            wait_until(lambda: injection.fired().own.values.get("REM_ACCESS_ERR", 0) > 2, AMPLE)
            assert not injection.over, f"its own queue pairs are in ERR, and that is no reason: {injection.outcome.why}"
            assert verbs("fail_held") == "ERR"
            wait_until(lambda: injection.over, AMPLE)
    finally:
        verbs("let_go")
    assert injection.outcome.verdict == "ABORTED"
    assert f"went to ERR: rxe1 QP {qpns[0]}" in injection.outcome.why


@pytest.mark.long
def test_it_is_aborted_when_the_kernel_warns(cli: Cli, name: str, state: Path) -> None:
    made = cli("up", name)
    assert made.returncode == 0, made.stderr
    lab = find(name)
    worker = Worker(name)
    try:
        held = worker("hold", timeout=18, retry_cnt=6)
        # Rx of an AETH of a reserved type is a real kernel WARNING of rxe 6.1: it needs work that waits for an answer.
        with inject("blackout", {"source": "h1"}, in_lab(lab), for_seconds=600) as injection:
            assert worker("held_work", seconds=0.5, size=64)["statuses"] == []
            bad = {"path": packets.path(lab, "h2", "h1"), "dest_qp": held["qpns"][0], "psn": held["psns"][0]}
            sent = packets.send(
                lab, "h1", [{"name": "reserved-aeth", "parameters": bad}], count=3, seconds=5, accept=["reserved-aeth"]
            )
            assert sent.packets == 3
            wait_until(lambda: injection.over, AMPLE)
        log = lab.run(["dmesg"]).text
    finally:
        worker.close()
    assert "WARNING: CPU" in log, log[-2000:]
    assert injection.outcome.verdict == "ABORTED" and injection.outcome.clean
    assert injection.outcome.why.startswith("the kernel warned"), injection.outcome.why
