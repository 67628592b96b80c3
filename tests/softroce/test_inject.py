"""Faults on a real lab: they fire, two proofs say so, and the node is as it was before."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rdmadiag import inject as door
from rdmadiag.faults import Refused
from rdmadiag.inject import in_lab, inject
from rdmadiag.lab import Lab
from tests.softroce.conftest import PINGPONG, ours

pytestmark = pytest.mark.usefixtures("state")


@contextmanager
def traffic(lab: Lab, seconds: int = 600) -> Iterator[None]:
    """Keep RC messages going between the two devices while the block runs."""
    # A pair that fails, on a busy machine, is no end of the traffic: its subshell ends, and its server with it.
    # Messages of 16 packets, so that a burst does not fit a short queue.
    pair = PINGPONG.format(one="rxe1", two="rxe2", address="10.0.0.1", count="300 -s 65536", port=18600)
    script = f"end=$(($(date +%s) + {seconds})); while [ $(date +%s) -lt $end ] && [ ! -e /run/stop ]; do ( trap 'kill $server' EXIT\n{pair}\n); done"
    lab.run(["rm", "-f", "/run/stop"])
    runner = threading.Thread(target=lab.run, args=(["sh", "-c", script],))
    runner.start()
    try:
        yield
    finally:
        lab.run(["touch", "/run/stop"])
        runner.join()


def until_fired(injection: Any) -> door.Fired:
    """Wait until both proofs say yes, or its time is over."""
    while not injection.over:
        fired = injection.fired()
        if fired.answer == "yes":
            return fired
    return injection.outcome.fired


PATH_FAULTS = [
    ("loss", {"percent": 5}),
    ("blackout", {}),
    ("corrupt", {"percent": 5}),
    ("delay", {"ms": 30}),
    ("rate-limit", {"mbit": 5}),
    ("burst-loss", {"enter": 2}),
    ("ack-loss", {"percent": 50}),
    ("reorder", {"percent": 5}),
    ("duplicate", {"percent": 20}),
    ("jitter", {"ms": 30, "vary": 5}),
    ("queue-limit", {"bytes": 8400, "mbit": 20}),
    ("cnp-storm", {"victim": "h2", "rate": 50}),
]


@pytest.mark.parametrize("fault,values", PATH_FAULTS[:1])
def test_a_fault_fires_by_two_proofs_and_comes_off(
    lab: Lab, clean: Callable[[], str], fault: str, values: dict[str, Any]
) -> None:
    with traffic(lab), inject(fault, values, in_lab(lab), for_seconds=120) as injection:
        fired = until_fired(injection)
    assert fired.own.answer == "yes", fired
    assert fired.other.answer == "yes", fired
    assert (injection.outcome.verdict, injection.outcome.problems) == ("FIRED", []), injection.outcome.fired


@pytest.mark.long
@pytest.mark.parametrize("fault,values", PATH_FAULTS[1:])
def test_every_path_fault_fires_by_two_proofs_and_comes_off(
    lab: Lab, clean: Callable[[], str], fault: str, values: dict[str, Any]
) -> None:
    test_a_fault_fires_by_two_proofs_and_comes_off(lab, clean, fault, values)


def test_without_traffic_a_fault_has_not_fired(lab: Lab, clean: Callable[[], str]) -> None:
    with inject("corrupt", {"percent": 100}, in_lab(lab), for_seconds=60) as injection:
        pass
    assert injection.outcome.verdict == "NOT_FIRED"
    assert injection.outcome.fired.own.answer == "no"


def test_a_second_injection_on_a_netdev_is_refused_and_leaves_the_first_alone(
    lab: Lab, clean: Callable[[], str]
) -> None:
    with inject("blackout", {}, in_lab(lab), for_seconds=120) as first:
        with pytest.raises(Refused, match=f"already carries injection {first.tag}"), inject("loss", {}, in_lab(lab)):
            pass
        assert not first.over
    assert first.outcome.clean


def test_a_dry_run_shows_the_plan_and_changes_nothing(lab: Lab, state: Path, clean: Callable[[], str]) -> None:
    shown = ours("inject", "loss", "--percent", "5", "--for", "30s", "--lab", lab.name, "--dry-run", "--format", "json")
    assert shown.returncode == 0, shown.stderr
    plan = json.loads(shown.stdout)
    assert (
        plan["schema"] == "rdmadiag.plan/1" and plan["netdevs"] == ["p1", "p2"] and plan["devices"] == ["rxe1", "rxe2"]
    )
    assert not (state / "rdmadiag" / "inject").exists() or not os.listdir(state / "rdmadiag" / "inject")
