"""A fault comes off whatever becomes of its injector, its watchdog, the journal's disk, an undo step or the node.

On this machine's own kernel, in namespaces, so that each way of dying is tried with each mechanism in seconds; what needs netem or an
RDMA device is tried in a lab (tests/softroce).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rdmadiag.faults import Refused
from rdmadiag.inject import everything, inject, journal, revert, status, target
from rdmadiag.inject.injector import Injection, NotApplied, RevertFailed
from tests.inject import netns

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.slow
MECHANISMS = {
    "table": ("blackout", {}),
    "process": ("flap", {"host": "h2", "down_ms": "100", "up_ms": "100"}),
    "change": ("address-gone", {"host": "h2"}),
}
BY_MECHANISM = pytest.mark.parametrize("mechanism", MECHANISMS)
_LOOK = "ls /run/rdmadiag-inject 2>/dev/null; nft list tables; tc qdisc show; ip -o -4 addr; ip -o link | sed 's/,NO-CARRIER//'; ip route; pgrep --ns $$ --nslist net -f '[l]ink set .p down'"


def wait_until(what: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something is true; fail when it does not come true in ample time."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)


class Place:
    """A namespace, a journal of its own, and an injector in a process that may be killed."""

    def __init__(self, state: Path, lease: float = 3.0) -> None:
        self.state, self.lease, self.space = state, lease, netns.start()
        self.node = netns.NetnsNode(self.space.pid)
        self.aim = netns.aim_at(self.space.pid)
        self.before = self.look()
        self.injector: subprocess.Popen[str] | None = None

    def look(self) -> str:
        """Return the node's state."""
        return self.node.run(_LOOK).text

    def on(self, mechanism: str, wrapper: tuple[str, ...] = (), state: Path | None = None) -> str:
        """Put a fault on in a process of its own; return its name."""
        fault, values = MECHANISMS[mechanism]
        words = [sys.executable, "-m", "tests.inject.netns", fault, str(state or self.state), str(self.space.pid)]
        words.append(str(self.lease))
        self.injector = subprocess.Popen(
            [*wrapper, *words, *(f"{key}={value}" for key, value in values.items())],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self.injector.stdout and self.injector.stderr
        line = self.injector.stdout.readline()
        assert line.startswith("on: "), self.injector.stderr.read()
        return line.split()[1]

    def kill_watchdog(self, tag: str) -> None:
        """Kill the watchdog on the node."""
        text = f"cd /run/rdmadiag-inject/{tag} && read -r pid rest < watchdog.pid && kill -9 $pid"
        assert self.node.run(text).code == 0

    def is_as_before(self) -> bool:
        """Tell whether nothing is in force any more; the files of an injection may be left."""
        return self.effect(self.look()) == self.effect(self.before)

    def wait_as_before(self) -> None:
        """Wait until nothing is in force any more; fail with what is."""
        try:
            wait_until(self.is_as_before)
        except AssertionError:
            left = self.node.run("head -50 /run/rdmadiag-inject/*/over /run/rdmadiag-inject/*/undone").text
            assert self.effect(self.look()) == self.effect(self.before), left

    @staticmethod
    def effect(text: str) -> list[str]:
        """Leave out the names of injections."""
        return [line for line in text.splitlines() if not re.fullmatch(r"[0-9a-f]{8}|on-\w+", line)]

    def end(self) -> str:
        """Wait for the injector's end and return what it printed."""
        assert self.injector
        out, err = self.injector.communicate(timeout=60)
        return out + err

    def settle(self) -> None:
        """Revert twice: it is no error, nothing is left, and everybody says so."""
        for _ in range(2):
            assert [result.problems for result in everything() if not result.clean] == []
        assert status() == []
        wait_until(lambda: self.look() == self.before)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return a namespace and a journal."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for module in (target, revert):  # netns.aim_at sets them
        monkeypatch.setattr(module, "door", module.door)
    made = Place(tmp_path / "state")
    yield made
    if made.space.poll() is None:
        made.node.run("pkill -9 --ns $$ --nslist net -f .")
    for process in (made.injector, made.space):
        if process and process.poll() is None:
            process.kill()
        if process:
            process.communicate()


@BY_MECHANISM
def test_it_comes_off_within_the_lease_when_the_injector_is_killed(place: Place, mechanism: str) -> None:
    place.on(mechanism)
    assert place.injector and not place.is_as_before()
    place.injector.kill()
    place.wait_as_before()
    place.settle()


@BY_MECHANISM
def test_it_comes_off_within_the_lease_when_the_injector_is_stopped(place: Place, mechanism: str) -> None:
    place.on(mechanism)
    assert place.injector
    place.injector.send_signal(signal.SIGSTOP)
    place.wait_as_before()
    place.injector.send_signal(signal.SIGCONT)
    assert "ABORTED: the watchdog took it off: its injector gave no sign of life" in place.end()
    place.settle()


@BY_MECHANISM
def test_it_comes_off_when_the_watchdog_is_killed(place: Place, mechanism: str) -> None:
    place.kill_watchdog(place.on(mechanism))
    assert "ABORTED: its watchdog is gone" in place.end()
    place.settle()


@BY_MECHANISM
def test_killed_both_the_kernel_takes_it_off_or_the_next_start_does(place: Place, mechanism: str) -> None:
    tag = place.on(mechanism)
    assert place.injector
    place.injector.kill()
    place.kill_watchdog(tag)
    place.injector.wait()
    if mechanism == "table":
        place.wait_as_before()
    assert [entry["state"] for entry in status()] == ["left behind"]
    with inject("loss", {"percent": 1}, place.aim, 60) as second:
        assert [result.tag for result in second.healed] == [tag]
        assert [result.clean for result in second.healed] == [True]
    place.settle()


@BY_MECHANISM
def test_killed_both_and_the_journal_lost_the_next_start_on_that_netdev_takes_it_off(
    place: Place, mechanism: str
) -> None:
    tag = place.on(mechanism)
    assert place.injector
    place.injector.kill()
    place.kill_watchdog(tag)
    place.injector.wait()
    for path in journal.folder().glob("*.json"):
        path.unlink()
    fault, values = MECHANISMS[mechanism]
    with inject(fault, values, netns.aim_at(place.space.pid), 60):
        pass
    place.settle()


@BY_MECHANISM
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_it_comes_off_when_the_injector_is_told_to_end(place: Place, mechanism: str, number: signal.Signals) -> None:
    place.on(mechanism)
    assert place.injector
    place.injector.send_signal(number)
    place.end()
    place.wait_as_before()
    place.settle()


@BY_MECHANISM
def test_it_comes_off_and_that_is_recorded_on_a_full_disk(place: Place, mechanism: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=200k none {disk} && exec "$@"'
    place.on(mechanism, ("unshare", "-m", "sh", "-c", mount, "sh"), disk)
    assert place.injector
    inside = Path(f"/proc/{place.injector.pid}/root{disk}")
    with (inside / "full").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    place.kill_watchdog(next((inside / "rdmadiag/inject").glob("*.json")).stem)
    with next((inside / "rdmadiag/inject").glob("*.json")).open() as written:
        assert "ABORTED: its watchdog is gone" in place.end()
        assert '"state": "clean"' in written.read()
    assert place.look() == place.before


@BY_MECHANISM
@pytest.mark.parametrize("full_of", ["bytes", "files"])
def test_it_comes_off_where_the_memory_of_the_node_is_full(place: Place, mechanism: str, full_of: str) -> None:
    place.node.run("mount -o remount,size=1m,nr_inodes=200 /run")
    place.on(mechanism)
    assert place.injector
    fill = {"bytes": "dd if=/dev/zero of=/run/full bs=4k", "files": "n=0; while : > /run/full$n; do n=$((n+1)); done"}
    assert "No space left" in place.node.run(f"{fill[full_of]}").err.decode()
    place.injector.kill()
    place.wait_as_before()
    assert [result.problems for result in everything() if not result.clean] == []
    place.node.run("rm -f /run/full*")
    place.settle()


@pytest.mark.long
def test_a_failed_undo_step_is_said_the_others_are_undone_and_revert_tries_again(place: Place) -> None:
    # The address cannot come back while another netdev's place is taken by a netdev that is gone.
    injection = inject("address-gone", {"host": "h2"}, place.aim, 60)
    injection.start()
    place.node.run("ip link set v2 name hidden")
    outcome = injection.stop()
    assert outcome.verdict == "REVERT_FAILED"
    assert any("v2" in problem for problem in outcome.problems)
    assert f"rdmadiag inject revert {injection.tag}" in injection.left_text()
    assert [result.clean for result in everything()] == [False]
    with pytest.raises(Refused, match=f"already carries injection {injection.tag}"):
        inject("address-gone", {"host": "h2"}, netns.aim_at(place.space.pid), 60).start()
    place.node.run("ip link set hidden name v2")
    place.node.run("ip link set v2 up")
    place.settle()


@pytest.mark.long
def test_a_block_whose_node_is_not_clean_raises(place: Place) -> None:
    with pytest.raises(RevertFailed, match="is not off"), inject("address-gone", {"host": "h2"}, place.aim, 60):
        place.node.run("ip link set v2 name hidden")
    place.node.run("ip link set hidden name v2; ip link set v2 up")
    place.settle()


@BY_MECHANISM
def test_after_a_restart_of_the_node_nothing_is_left_and_the_journal_knows(place: Place, mechanism: str) -> None:
    place.on(mechanism)
    assert place.injector
    place.node.run("pkill -9 --ns $$ --nslist net -f .")
    place.space.wait()
    assert "RevertFailed" in (said := place.end()) and "the node does not answer" in said
    again = netns.start()
    try:
        for path in journal.folder().glob("*.json"):
            path.write_text(path.read_text().replace(f'"netns": "{place.space.pid}"', f'"netns": "{again.pid}"'))
        assert all(result.clean for result in everything())
        assert status() == []
    finally:
        netns.NetnsNode(again.pid).run("pkill -9 --ns $$ --nslist net -f .")
        again.communicate()


def test_two_injections_on_one_netdev_the_second_refuses_and_the_first_holds(place: Place) -> None:
    with inject("blackout", {}, place.aim, 60) as first:
        with pytest.raises(Refused, match=f"already carries injection {first.tag}"):
            inject("loss", {}, netns.aim_at(place.space.pid), 60).start()
        assert not first.over
        assert place.node.run("nft list tables").text.count("rdmadiag") == 1
    assert first.outcome.clean
    place.settle()


def test_two_injections_on_two_netdevs_live_side_by_side(place: Place) -> None:
    with inject("address-gone", {"host": "h2"}, place.aim, 60):
        with inject("firewall", {"host": "h1"}, netns.aim_at(place.space.pid), 60) as second:
            pass
        assert second.outcome.clean, second.outcome.problems
    place.settle()


def test_what_is_not_ours_is_left_alone(place: Place) -> None:
    place.node.run(
        "nft add table ip theirs; ip addr add 192.0.2.9/24 dev v2; ip neigh add 10.0.0.1 lladdr 02:00:00:00:00:99 dev v2 nud permanent; ip link set p1 mtu 4100; "
        "ip route add 198.51.100.0/24 via 10.0.0.2 dev v1; ip route add 203.0.113.0/24 via 10.0.0.2 dev v1 table 77; ip link set p2 down"
    )
    before = place.look()
    for fault, values, said in (
        ("address-gone", {"host": "h2"}, "wanted exactly one IPv4 address on v2"),
        ("neighbour-wrong", {"host": "h2", "peer": "10.0.0.1"}, "02:00:00:00:00:99 PERMANENT"),
        ("delay", {}, "foreign root qdisc, left alone"),
        ("mtu-mismatch", {"host": "h1"}, "p1.* mtu 4100 "),
        ("route-lost", {"host": "h1"}, "(?s)198.51.100.0/24 via 10.0.0.2 .*foreign routes over v1, left alone"),
        ("link-down", {"host": "h1"}, "(?s)203.0.113.0/24 via 10.0.0.2 table 77 .*foreign routes over v1, left alone"),
        ("address-gone", {"host": "h1"}, "foreign routes over v1, left alone"),
        ("flap", {"host": "h2"}, "p2 is down already"),
    ):
        injection = Injection(fault, values, netns.aim_at(place.space.pid), 60)
        with pytest.raises(Exception, match=said):
            injection.start()
        assert injection.outcome.clean, injection.outcome.problems
    assert place.look().replace(" dev", "") == before.replace(" dev", "")


@pytest.mark.parametrize(
    "fault,values",
    [
        ("loss", {"percent": "50"}),
        ("burst-loss", {"bad_loss": "50"}),
        ("blackout", {"source": "h1", "destination": "h2"}),
        ("corrupt", {}),
        ("ack-loss", {}),
        ("ce-mark", {}),
        ("partition", {}),
        ("flap", {"down_ms": "100"}),
        ("link-down", {}),
        ("mtu-mismatch", {}),
        ("mtu-mismatch", {"at": "host"}),
        ("address-gone", {}),
        ("route-lost", {}),
        ("neighbour-wrong", {}),
        ("firewall", {}),
        ("cpu-pressure", {"processes": "1"}),
        ("process-stopped", {"process": "VICTIM"}),
        ("process-killed", {"process": "VICTIM"}),
        ("process-restarted", {"process": "VICTIM", "after_ms": "0"}),
        ("slow-consumer", {"process": "VICTIM"}),
    ],
    ids=str,
)
def test_a_fault_goes_on_counts_and_comes_off(place: Place, fault: str, values: dict[str, str]) -> None:
    victim = subprocess.Popen(
        ["nsenter", "-t", str(place.space.pid), "-U", "--preserve-credentials", "-n", "-m", "sleep", "1000"]
    )
    values = {key: value.replace("VICTIM", str(victim.pid)) for key, value in values.items()}
    try:
        with inject(fault, values, place.aim, 60) as injection:
            own = injection.fired().own
            assert own.answer in ("yes", "no"), own
            if injection.plan.hits == ("in_force",):
                assert own.answer == "yes", own
        assert injection.outcome.clean, injection.outcome.problems
        assert injection.outcome.how == "held", injection.outcome.why
        assert place.effect(place.look()) == place.effect(place.before)
    finally:
        if victim.poll() is None:
            victim.kill()
        victim.wait()


SEND = """import json, sys
from rdmadiag.roce import send
path = dict(src="10.0.0.2", dst="10.0.0.1", src_mac="02:00:00:00:00:02", dst_mac="02:00:00:00:00:01")
frames = [
    dict(name="ack", parameters=dict(path=path, dest_qp=34, psn=100)),
    dict(name="write", parameters=dict(path=path, dest_qp=17, psn=7, rkey=1, va=0)),
]
permit = dict(netdev="p1", addresses=["10.0.0.1"], by="a test")
print(send.from_plan(dict(permit=permit, frames=frames, count=200, seconds=20, rate=200)))
"""


@pytest.mark.parametrize(
    "fault", ["cnp-storm", "forged-nak", "forged-rnr", "forged-write", "replay", "malformed", "psn-jump"]
)
def test_packets_are_forged_into_a_flow_and_end_with_it(place: Place, fault: str) -> None:
    words = f"cd {ROOT} && {sys.executable} -c '{SEND}'"
    with inject(fault, {"victim": "h1", "rate": "50"}, place.aim, 60) as injection:
        sent = place.node.run(words)
        assert "packets=200" in sent.text, sent
        wait_until(lambda: injection.fired().own.answer == "yes")
    assert injection.outcome.clean, injection.outcome.problems
    assert 1 <= injection.outcome.fired.own.values["sent"] <= 120
    assert place.look() == place.before


def test_an_audit_line_tells_the_beginning_and_the_end(place: Place) -> None:
    with inject("blackout", {}, place.aim, 60) as injection:
        pass
    lines = (journal.folder() / "audit.log").read_text().splitlines()
    assert [injection.tag in line and journal.who() in line for line in lines] == [True, True]
    assert lines[0].endswith("begins") and "NOT_FIRED" in lines[1]


def test_what_says_abort_ends_it(place: Place) -> None:
    told: list[str | None] = [None, "goodput fell below the floor"]
    with inject(
        "blackout", {}, place.aim, 60, abort_when=lambda: told.pop(0) if len(told) > 1 else told[0]
    ) as injection:
        assert injection.wait(60)
    assert (injection.outcome.verdict, injection.outcome.why) == ("ABORTED", "goodput fell below the floor")


def test_its_time_ends_it(place: Place) -> None:
    with inject("blackout", {}, place.aim, 1) as injection:
        assert injection.wait(60)
    assert injection.outcome.why == "its time was over" and injection.outcome.clean


def test_what_somebody_else_takes_off_is_noticed(place: Place) -> None:
    with inject("address-gone", {"host": "h2"}, place.aim, 60) as injection:
        place.node.run("ip addr add 10.0.0.2/24 dev v2")
        assert injection.wait(60)
    assert injection.outcome.how == "aborted" and "no longer in force, and not by us" in injection.outcome.why
    assert injection.outcome.clean


def test_a_journal_that_cannot_be_written_stops_it_before_anything_changes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    injection = inject("blackout", {}, place.aim, 60)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(journal.JournalError, match="nothing was changed"):
        injection.start()
    assert place.look() == place.before
    assert list(journal.entries()) == []


def test_an_address_with_a_lifetime_stays_and_its_running_down_is_no_difference(place: Place) -> None:
    place.node.run("ip addr change 10.0.0.1/24 dev v1 valid_lft 3000 preferred_lft 3000")
    injection = inject("address-gone", {"host": "h1"}, place.aim, 60)
    with pytest.raises(NotApplied, match="an address with a lifetime, left alone"):
        injection.start()
    shown = place.node.run("ip -o addr show dev v1").text
    with inject("firewall", {"host": "h1"}, netns.aim_at(place.space.pid), 60) as second:
        wait_until(lambda: place.node.run("ip -o addr show dev v1").text != shown)
    assert (second.outcome.clean, second.outcome.problems) == (True, [])
