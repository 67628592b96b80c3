"""A fault in a lab comes off whatever dies: each way of dying with each means by which faults act. Two samples are quick, the rest is long."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmadiag import inject as door
from rdmadiag import lab as labs
from rdmadiag.faults import Refused
from rdmadiag.lab import Lab
from tests.softroce import dying
from tests.softroce.conftest import Cli, ours

LEASE_SECONDS = 12.0  # an emulated guest on a busy machine takes seconds to answer
QUICK = [("table", "injector, kill -9"), ("change", "both, kill -9")]
LONG = [(mechanism, way) for mechanism in dying.MECHANISMS for way in dying.WAYS if (mechanism, way) not in QUICK]
pytestmark = pytest.mark.usefixtures("off")


@pytest.fixture
def off(real_cache: None, state: Path) -> Iterator[None]:
    """Take off what a test that failed has left, so that the next one does not fail for it."""
    yield
    door.everything()


@pytest.mark.parametrize(
    ("mechanism", "way"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.long) for one in LONG)], ids=str
)
def test_it_comes_off_whatever_dies(lab: Lab, state: Path, mechanism: str, way: str) -> None:
    found = dying.dies(lab, mechanism, way, state, LEASE_SECONDS)
    if way != "both, kill -9" or mechanism == "table":
        assert found.by == dying.ITSELF


@pytest.mark.long
@pytest.mark.parametrize("mechanism", dying.MECHANISMS)
def test_it_comes_off_and_that_is_recorded_on_a_full_disk(lab: Lab, tmp_path: Path, mechanism: str) -> None:
    dying.on_a_full_disk(lab, mechanism, tmp_path / "disk", LEASE_SECONDS)


@pytest.fixture
def own_lab(cli: Cli, name: str) -> Iterator[Lab]:
    """Return a lab of the test's own, which it may restart."""
    made = cli("up", name)
    assert made.returncode == 0, made.stderr
    yield labs.find(name)


@pytest.mark.long
def test_after_a_restart_of_the_guest_nothing_is_left_and_the_journal_knows(own_lab: Lab, state: Path) -> None:
    for mechanism in dying.MECHANISMS:
        own_lab, _ = dying.in_a_restart(own_lab, mechanism, state, LEASE_SECONDS)


def _freeze(process: str) -> str:
    group = "/run/freezer/it"
    return (
        f"mkdir -p /run/freezer && mount -t cgroup -o freezer none /run/freezer && mkdir -p {group} && "
        f"read -r pid rest < {process}.pid && for p in $(pgrep -s $pid); do echo $p > {group}/cgroup.procs; done && "
        f"echo FROZEN > {group}/freezer.state && until grep -q FROZEN {group}/freezer.state; do sleep 0.1; done"
    )


_THAW = (
    "echo THAWED > /run/freezer/it/freezer.state; until ! grep -q . /run/freezer/it/cgroup.procs; do sleep 0.1; done; "
    "rmdir /run/freezer/it; umount /run/freezer; rmdir /run/freezer"
)
# What keeps each undoing from its end, what it says then, and what mends that. A frozen process cannot be killed (cgroup v1); a qdisc whose
# handle somebody else has taken cannot be put back; what lies on a netdev of another name is not found.
HINDERED = {
    "table": (_freeze("owner"), "still there: lives owner.pid", _THAW),
    "detour": (
        "tc -n switch qdisc replace dev p2 parent 6d1a:1 handle 10: pfifo",
        "step 1 Error: ",
        "tc -n switch qdisc replace dev p2 parent 6d1a:1 handle 6d1c: bfifo limit 1048576",
    ),
    "process": (_freeze("worker"), "still there: lives worker.pid", _THAW),
    "changer": (_freeze("change"), "still there: lives change.pid", _THAW),
    "change": ("ip link set v2 name hidden", "v2", "ip link set hidden name v2"),
}


@pytest.mark.long
@pytest.mark.parametrize("mechanism", dying.MECHANISMS)
def test_a_failed_undo_step_is_said_the_netdev_stays_claimed_and_revert_tries_again(
    lab: Lab, state: Path, mechanism: str
) -> None:
    hinder, said, mend = HINDERED[mechanism]
    with dying.held(lab, mechanism, state, 60) as one:
        assert one.run(hinder) == 0
        one.process.send_signal(signal.SIGTERM)
        out, err = one.process.communicate(timeout=300)
    try:
        assert one.process.returncode == 8 and "REVERT_FAILED" in out and said in out, out + err
        assert f"rdmadiag inject revert {one.tag}" in out
        again = ours("inject", "revert", one.tag)
        assert again.returncode == 8 and said in again.stdout, again
        assert ours("inject", "status").returncode == 1
        with pytest.raises(Refused, match=f"already carries injection {one.tag}"):
            door.inject(dying.MECHANISMS[mechanism][0], {}, door.in_lab(lab), 60).start()
    finally:
        mended = lab.run(["sh", "-ec", mend])
    assert mended.code == 0, mended
    assert ours("inject", "revert", one.tag).returncode == 0
    dying.settle(lab, one.before)


# What a stranger does who takes the fault off himself, or kills a process of its own.
ENDED = {
    "table": "read -r pid rest < owner.pid && kill -9 $pid",
    "detour": "read -r pid rest < owner.pid && kill -9 $pid",
    "process": "read -r pid rest < worker.pid && kill -9 $pid",
    "changer": "read -r pid rest < change.pid && kill -9 $pid",
    "change": "ip link set v2 up",
}


@pytest.mark.long
@pytest.mark.parametrize("mechanism", dying.MECHANISMS)
def test_what_a_stranger_has_ended_is_aborted_and_the_rest_comes_off(lab: Lab, state: Path, mechanism: str) -> None:
    with dying.held(lab, mechanism, state, 60) as one:
        assert one.run(ENDED[mechanism]) == 0
        out, err = one.process.communicate(timeout=300)
    assert one.process.returncode == 6 and "no longer in force, and not by us" in out, out + err
    assert "off: the node is as it was before" in out
    dying.settle(lab, one.before)
