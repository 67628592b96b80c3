"""Contracts of every fault: tested the moment its file exists, on hosts that only record what they are told."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdmadiag import faults
from rdmadiag.errors import BadInput
from rdmadiag.faults import REACHES, Cable, Change, Parameter, Plan, Refused, Table, Target
from rdmadiag.faults._steps import Restore
from rdmadiag.inject import _shell
from rdmadiag.lab.pattern import in_bursts, randomly, select

NAMES = faults.names()
LAB = Target(
    kind="lab",
    title="lab x",
    tag="0a1b2c3d",
    cables=tuple(
        Cable(f"h{n}", f"v{n}", f"rxe{n}", f"10.0.0.{n}", f"02:00:00:00:00:0{n}", 4200, f"p{n}", "br1") for n in (1, 2)
    ),
    plain=tuple(
        Cable(f"h{n}", f"e{n}", "", f"10.0.100.{n}", f"02:00:00:00:64:0{n}", 1500, f"q{n}", "br0") for n in (1, 2)
    ),
    queue="qdisc replace dev {port} parent 1:1 handle 10: bfifo limit 1048576",
    rate=200_000_000,
)
KERNELS = replace(LAB, title="lab of kernels", one_kernel=False)
NAMESPACES = replace(LAB, title="lab of namespaces", namespaces=True)
SOFTWARE = Target(
    kind="software",
    title="device rxe0 of this host",
    tag="0a1b2c3d",
    cables=(Cable("here", "eth1", "rxe0", "192.0.2.1", "02:00:00:00:00:01", 1500),),
)
HARDWARE = Target(
    kind="hardware",
    title="device mlx5_0 of this host",
    tag="0a1b2c3d",
    cables=(Cable("here", "eth1", "mlx5_0", "192.0.2.1", "02:00:00:00:00:01", 4200),),
)


def plan_of(name: str, target: Target, **values: Any) -> Plan:
    """Return a fault's plan with its defaults, and the values that it cannot do without."""
    needed = getattr(faults.find(name), "EXAMPLE", {})
    return faults.make_plan(name, {**needed, **values}, target)


def where_it_reaches(name: str) -> list[Target]:
    """Return the targets that a fault can act on."""
    return [
        target for target in (LAB, KERNELS, SOFTWARE, HARDWARE) if target.kind in REACHES[faults.find(name).REACH].kinds
    ]


def test_a_fault_of_a_host_acts_in_its_namespace_where_hosts_have_one_and_the_module_is_still_everybodys() -> None:
    flap = plan_of("address-gone", NAMESPACES)
    assert (plan_of("address-gone", LAB).place, flap.place) == ("", plan_of("address-gone", KERNELS).place)
    assert NAMESPACES.apart and KERNELS.apart and not LAB.apart and not SOFTWARE.apart
    with pytest.raises(Refused, match="share a kernel"):
        plan_of("module-gone", NAMESPACES)


@pytest.mark.parametrize("name", [name for name in NAMES if faults.find(name).REACH == "path"])
def test_an_echo_that_is_to_prove_a_fault_meets_it_on_a_device_and_none_is_met_otherwise(name: str) -> None:
    plan = plan_of(name, SOFTWARE)
    rules = "".join(step.rules for step in plan.steps if isinstance(step, Table))
    assert ("echo-request" in rules) == (plan.moves.kind == "rtt")
    assert plan.moves.kind != "rtt" or plan.moves.at_least > 0


def test_incast_comes_from_all_hosts_but_the_destination_and_is_proven_by_marks_where_the_port_marks() -> None:
    hosts = (*LAB.cables, replace(LAB.cables[0], host="h3", netdev="v3", device="rxe3", port="p3"))
    four = replace(LAB, cables=hosts, queue="qdisc replace dev {port} parent 1:1 handle 10: red limit 1048576 ecn")
    plan = plan_of("incast", four)
    assert '"sources": ["rxe1", "rxe3"], "destination": "rxe2"' in plan.steps[0].do()
    assert (plan.moves.kind, plan.moves.names, plan.notes) == ("file", ("InCEPkts",), ())
    assert plan_of("incast", four, traffic_class=0).moves.kind == "counter", "packets that cannot be marked are dropped"
    assert plan_of("incast", LAB).moves.kind == "counter" and "only h1 sends" in plan_of("incast", LAB).notes[0]
    with pytest.raises(BadInput, match="wanted another host"):
        plan_of("incast", four, source="h2")


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_says_what_it_is_what_it_takes_and_what_it_leaves(name: str) -> None:
    fault = faults.find(name)
    assert fault.__doc__ and fault.TITLE and fault.SIGNS
    assert fault.REACH in REACHES
    for parameter in fault.PARAMETERS:
        assert parameter.meaning and parameter.check(parameter.default) == parameter.default
        if isinstance(parameter.default, (int, float)) and not isinstance(parameter.default, bool):
            assert parameter.least is not None, f"{parameter.name} has no least value"
    names = [parameter.name for parameter in fault.PARAMETERS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_has_steps_two_proofs_and_locks_what_it_changes(name: str) -> None:
    for target in where_it_reaches(name):
        try:
            plan = plan_of(name, target)
        except Refused as refusal:
            assert target is not KERNELS or "needs a lab of one kernel" in str(refusal), refusal
            continue
        assert plan.steps and plan.hits
        assert plan.moves.names or plan.moves.kind != "counter"
        for step in plan.steps:
            assert step.what and step.do() and step.undo() and step.holds()
            if isinstance(step, Table):
                assert set(step.netdevs) <= set(plan.netdevs)
        assert any(step.count() for step in plan.steps), "nothing of it counts"
        assert sum(isinstance(step, Restore) for step in plan.steps) <= 1, "they share the file `checked`"


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_undone_in_reverse_order_on_a_recording_host(name: str, tmp_path: Path) -> None:
    for number, target in enumerate(where_it_reaches(name)):
        try:
            plan = plan_of(name, target)
        except Refused:
            continue
        done, undone = record(plan, tmp_path / str(number))
        assert done == list(range(len(plan.steps)))
        assert undone == list(reversed(done))


def record(plan: Plan, folder: Path) -> tuple[list[int], list[int]]:
    """Run the real texts of a plan with steps that only write down that they were reached; return their order."""
    folder.mkdir()
    steps = [
        Change(step.what, doing=f"echo {n} >> done", undoing=f"echo {n} >> undone; rm -f on{n}", test=f"[ -e on{n} ]")
        for n, step in enumerate(plan.steps)
    ]
    steps = [Change(s.what, f"{s.doing}; : > on{n}", s.undoing, s.test) for n, s in enumerate(steps)]
    text = "\n".join(["set -e", _shell.FUNCTIONS, *(step.do() for step in steps)])
    (folder / "functions").write_text(_shell.FUNCTIONS)
    (folder / "undo").write_text(_shell.undo_text(steps, [], 0))
    for script in (["sh", "-c", text], ["sh", "./undo"], ["sh", "./undo"]):
        ran = subprocess.run(script, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr
    assert "end 0" in ran.stdout, "undone twice is no error"
    return [[int(word) for word in (folder / what).read_text().split()] for what in ("done", "undone")]  # type: ignore[return-value]


def test_a_command_that_fails_in_the_middle_of_an_undoing_is_said_and_the_other_steps_are_undone(
    tmp_path: Path,
) -> None:
    steps = [
        Change("first", undoing="rm on0", test="[ -e on0 ]"),
        Change("second", undoing="echo 'no such link' >&2; false\nrm on1", test="[ -e on1 ]"),
        Change("third", undoing="rm on2", test="[ -e on2 ]"),
    ]
    for number in range(3):
        (tmp_path / f"on{number}").touch()
    (tmp_path / "functions").write_text(_shell.FUNCTIONS)
    text = _shell.undo_text(steps, [], 0)
    ran = subprocess.run(["sh", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ran.stdout.splitlines() == ["undone 2", "failed 1 no such link ", "undone 0", "end 1"], ran
    assert [(tmp_path / f"on{number}").exists() for number in range(3)] == [False, True, False]


@pytest.mark.parametrize("name", NAMES)
def test_every_text_of_a_plan_is_shell(name: str) -> None:
    for target in where_it_reaches(name):
        try:
            plan = plan_of(name, target)
        except Refused:
            continue
        texts = [text for step in plan.steps for text in (step.do(), step.undo(), step.holds(), step.count())]
        texts += [
            _shell.arm_text("0a1b2c3d", "it's", plan, 20, 30),
            _shell.do_text("0a1b2c3d", "it's", plan.steps, 30),
            _shell.beat_text("0a1b2c3d", plan.steps),
            _shell.undo_text(plan.steps, plan.netdevs, 0.1),
            _shell.count_text(plan.steps),
            _shell.state_text("0a1b2c3d", plan.netdevs),
        ]
        for text in texts:
            ran = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)
            assert (ran.returncode, ran.stderr) == (0, ""), text


@pytest.mark.parametrize("name", [name for name in NAMES if "hardware" not in REACHES[faults.find(name).REACH].kinds])
def test_a_fault_that_hardware_traffic_never_meets_is_refused_there_with_what_would_do(name: str) -> None:
    with pytest.raises(Refused, match=rf"{name} cannot act on device mlx5_0.*lab \(--lab\)"):
        plan_of(name, HARDWARE)


def test_an_unknown_parameter_and_a_bad_value_name_what_is_wanted() -> None:
    with pytest.raises(BadInput, match="fault loss has no parameter 'share'; it has: percent, seed"):
        plan_of("loss", LAB, share=3)
    with pytest.raises(BadInput, match="--percent 'many'; wanted a number in percent from 0.01 to 100"):
        plan_of("loss", LAB, percent="many")
    with pytest.raises(BadInput, match="--percent 101"):
        plan_of("loss", LAB, percent=101)
    with pytest.raises(BadInput, match="--percent nan"):
        plan_of("loss", LAB, percent=float("nan"))
    with pytest.raises(BadInput, match="no host 'h9' in lab x; there are h1, h2"):
        plan_of("loss", LAB, source="h9")
    with pytest.raises(BadInput, match="wanted at least 1280 on a host's netdev"):
        faults.make_plan("mtu-mismatch", {"mtu": 1279, "at": "host"}, LAB)
    with pytest.raises(BadInput, match="leave no two hosts"):
        plan_of("loss", LAB, source="h1", destination="h1")


def test_a_text_parameter_takes_no_shell() -> None:
    parameter = Parameter("name", "x", "a name")
    for hostile in ("$(reboot)", "a;b", "a`b`", "a\nb", "a'b", 'a"b', "a|b", "a>b", "a&b", "\\"):
        with pytest.raises(BadInput):
            parameter.check(hostile)


def test_a_seed_chooses_the_same_packets_and_another_seed_others() -> None:
    assert randomly(0.05, 7) == randomly(0.05, 7)
    assert randomly(0.05, 7) != randomly(0.05, 8)
    assert in_bursts(0.01, 0.3, 1, 0, 7) == in_bursts(0.01, 0.3, 1, 0, 7)


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.05, 0.3, 0.7, 1.0])
def test_a_random_pattern_hits_its_share(share: float) -> None:
    period, hit = randomly(share, 1)
    assert len(hit) == max(round(share * period), 1)
    assert hit == sorted(set(hit)) and hit[-1] < period


def test_a_bursty_pattern_loses_the_same_share_in_longer_runs() -> None:
    def runs(hit: list[int]) -> float:
        return len(hit) / sum(1 for number in hit if number - 1 not in set(hit))

    period, bursts = in_bursts(0.01, 0.2, 1.0, 0.0, 1)
    _, single = randomly(len(bursts) / period, 1)
    assert 0.03 < len(bursts) / period < 0.07  # 0.01 / (0.01 + 0.2) = 4.8 %
    assert 3 < runs(bursts) < 8  # 1 / 0.2 = 5 packets
    assert runs(single) < 1.5


def test_a_pattern_as_nft_names_each_packet_once() -> None:
    text = select(16, [3, 5])
    assert text == "numgen inc mod 16 vmap { 3 : goto hit, 5 : goto hit }"
    assert select(4, [0, 1, 2, 3]) == "goto hit"


def test_rules_hold_only_for_leased_netdevs() -> None:
    for name in NAMES:
        try:
            plan = plan_of(name, LAB)
        except Refused:  # what needs a kernel a host
            plan = plan_of(name, KERNELS)
        for step in plan.steps:
            if isinstance(step, Table) and step.netdevs:
                gates = [line for line in step.rules.splitlines() if "goto hit" in line]
                assert gates and all("@lease" in line for line in gates), name
