"""A fault in a lab comes off whatever dies: each way of dying with each means by which faults act. Two samples are quick, the rest is long."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmadiag import inject as door
from rdmadiag.faults import Refused
from rdmadiag.lab import Lab
from tests.softroce import dying
from tests.softroce.conftest import ours

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
def test_it_comes_off_and_that_is_recorded_on_a_full_disk(lab: Lab, tmp_path: Path) -> None:
    dying.on_a_full_disk(lab, "detour", tmp_path / "disk", LEASE_SECONDS)


@pytest.mark.long
def test_a_failed_undo_step_is_said_the_netdev_stays_claimed_and_revert_tries_again(lab: Lab, state: Path) -> None:
    # A qdisc whose handle somebody else has taken meanwhile cannot be put back.
    hinder = "tc -n switch qdisc replace dev p2 parent 6d1a:1 handle 10: pfifo"
    mend = "tc -n switch qdisc replace dev p2 parent 6d1a:1 handle 6d1c: bfifo limit 1048576"
    mechanism, said = "detour", "step 1 Error: "
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


@pytest.mark.long
def test_what_a_stranger_has_ended_is_aborted_and_the_rest_comes_off(lab: Lab, state: Path) -> None:
    with dying.held(lab, "changer", state, 60) as one:
        assert one.run("read -r pid rest < change.pid && kill -9 $pid") == 0
        out, err = one.process.communicate(timeout=300)
    assert one.process.returncode == 6 and "no longer in force, and not by us" in out, out + err
    assert "off: the node is as it was before" in out
    dying.settle(lab, one.before)
