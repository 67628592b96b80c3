"""Faults of a host on a real lab: limits of a process, its storage, the device and the module; each by two proofs, each undone."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rdmadiag.faults import Refused
from rdmadiag.inject import NotApplied, in_lab, inject
from rdmadiag.lab import Lab, find
from tests.softroce.conftest import Cli, Worker
from tests.softroce.test_inject import until_fired

pytestmark = pytest.mark.usefixtures("state")

Victim = Callable[..., None]


@pytest.fixture
def victim(lab: Lab) -> Iterator[Victim]:
    """Return a function that starts a shell text in the guest as a process of a name; all are ended afterwards."""
    names = []

    def start(name: str, text: str, by: str = "") -> None:
        names.append(name)
        words = (
            f"ln -sf /bin/sh /run/{name}\nsetsid {by} /run/{name} -c {shlex.quote(text)} </dev/null >/dev/null 2>&1 &\n"
            f"until pgrep -x {name} >/dev/null; do sleep 0.1; done"
        )
        assert lab.run(["sh", "-c", words], timeout_seconds=60).code == 0

    yield start
    for name in names:
        lab.run(["sh", "-c", f"for p in $(pgrep -x {name}); do kill -9 -$p; done; rm -f /run/{name}"])


def fired(lab: Lab, fault: str, values: dict[str, Any]) -> None:
    """Inject, and see both proofs and that it is off."""
    with inject(fault, values, in_lab(lab), for_seconds=120) as injection:
        seen = until_fired(injection)
    assert (seen.own.answer, seen.other.answer) == ("yes", "yes"), seen
    assert (injection.outcome.verdict, injection.outcome.problems) == ("FIRED", [])


NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all"


@pytest.mark.long
def test_a_low_memlock_limit_of_a_process_is_set_and_given_back(
    lab: Lab,
    victim: Victim,
    clean: Callable[[], str],
) -> None:
    victim("locker", "while :; do sleep 1; done", NOBODY)
    read = ["sh", "-c", "grep locked /proc/$(pgrep -x locker)/limits"]
    before = lab.run(read).text
    assert "Max locked memory" in before
    fired(lab, "memlock-low", {"process": "locker", "kib": 64})
    assert lab.run(read).text == before


@pytest.mark.long
def test_a_memlock_limit_that_binds_nobody_is_refused(lab: Lab, victim: Victim, clean: Callable[[], str]) -> None:
    victim("rootlocker", "while :; do sleep 1; done")
    with (
        pytest.raises(NotApplied, match="has CAP_IPC_LOCK"),
        inject("memlock-low", {"process": "rootlocker"}, in_lab(lab)),
    ):
        pass


@pytest.mark.long
def test_a_process_is_throttled_and_let_go(lab: Lab, victim: Victim, clean: Callable[[], str]) -> None:
    victim("spinner", "while :; do :; done")
    fired(lab, "cpu-limit", {"process": "spinner", "share": 10})


@pytest.mark.long
def test_a_process_is_held_below_a_memory_limit_and_let_go(lab: Lab, victim: Victim, clean: Callable[[], str]) -> None:
    victim(
        "eater",
        "while :; do dd if=/dev/zero of=/dev/shm/eaten bs=1M count=48 2>/dev/null; rm /dev/shm/eaten; sleep 0.2; done",
    )
    fired(lab, "memory-limit", {"process": "eater", "mib": 16})


@pytest.mark.long
def test_storage_of_a_process_is_slow_and_then_as_it_was(lab: Lab, victim: Victim, clean: Callable[[], str]) -> None:
    made = lab.run(
        [
            "sh",
            "-ec",
            "modprobe brd rd_nr=1 rd_size=65536; mke2fs -q /dev/ram0; mkdir -p /run/tier; mount /dev/ram0 /run/tier\n"
            "dd if=/dev/zero of=/run/tier/blocks bs=1M count=16 conv=fsync 2>/dev/null",
        ]
    )
    assert made.code == 0, made.err.decode()
    try:
        with pytest.raises(NotApplied, match="is on no block device"):
            victim("other", "while :; do sleep 1; done")
            inject("slow-storage", {"process": "other", "path": "/run"}, in_lab(lab)).start()
        victim("reader", "while :; do dd if=/run/tier/blocks of=/dev/null bs=64k iflag=direct 2>/dev/null; done")
        fired(lab, "slow-storage", {"process": "reader", "path": "/run/tier", "kib_per_second": 256})
    finally:
        lab.run(
            ["sh", "-c", "for p in $(pgrep -x reader); do kill -9 -$p; done; sleep 0.5; umount /run/tier; rmmod brd"]
        )


@pytest.mark.long
def test_a_device_that_is_open_is_not_removed_and_one_that_is_not_comes_back(
    lab: Lab,
    verbs: Worker,
    clean: Callable[[], str],
) -> None:
    verbs("hold")
    try:
        with pytest.raises(NotApplied, match="has rxe2 open"), inject("device-removed", {}, in_lab(lab)):
            pass
    finally:
        verbs("let_go")
    fired(lab, "device-removed", {})
    assert lab.run(["cat", "/sys/class/infiniband/rxe2/ports/1/state"]).text.strip() == "4: ACTIVE"


@pytest.mark.long
def test_the_module_goes_only_where_each_host_has_a_kernel_and_comes_back_with_its_device(
    cli: Cli,
    name: str,
    lab: Lab,
    state: object,
) -> None:
    with pytest.raises(Refused, match="needs one a host: rdmadiag lab up NAME --kernel-per-host"):
        inject("module-gone", {}, in_lab(lab))
    made = cli("up", name, "--kernel-per-host")
    assert made.returncode == 0, made.stderr
    own = find(name)
    fired(own, "module-gone", {"host": "h2"})
    listed = own.run(["sh", "-c", "lsmod | grep -w rdma_rxe; rdma link"], host="h2").text
    assert "rdma_rxe" in listed and "link rxe2/1 state ACTIVE" in listed, listed
    assert "rxe1/1 state ACTIVE" in own.run(["rdma", "link"], host="h1").text
