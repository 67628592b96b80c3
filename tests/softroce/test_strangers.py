"""What is not ours, in a real lab: strangers' qdiscs, routes, addresses, rules and injections are refused, or left alone."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.inject import NotApplied, everything, in_lab, inject, status
from rdmadiag.lab import Lab, topology
from tests.softroce.conftest import ROOT, environment, our_words, ours, wait_until

pytestmark = pytest.mark.usefixtures("state")


def stranger(lab: Lab, text: str) -> str:
    """Run a shell text as somebody else does, and return what it printed."""
    ran = lab.run(["sh", "-ec", text])
    assert ran.code == 0, ran
    return ran.text


def timeless(text: str) -> str:
    """Leave out lifetimes that run down."""
    return re.sub(r"_lft \d+sec", "", text)


def port_again(lab: Lab, port: str) -> str:
    """Return the text that gives a port of the switch its own qdiscs again."""
    lines = topology.qdiscs(port, topology.shape(lab.options))
    return "\n".join([f"tc -n switch qdisc del dev {port} root", *(f"tc -n switch {line}" for line in lines)])


# Its IPv6 address is there again, and found to be nobody else's.
PORT_UP = (
    "ip -n switch link set p2 up; until ip -n switch -6 addr show dev p2 -tentative | grep -q inet6; do sleep 0.1; done"
)
ROUTE = "198.51.100.0/24 via 10.0.0.1 dev v2"
CASES: list[tuple[str, str, str, dict[str, Any], str]] = [
    # what they have put there, how they take it away, the fault, its parameters, what is said
    ("tc -n switch qdisc replace dev p2 root handle 7: pfifo limit 77", "PORT", "delay", {}, "foreign root qdisc.* pfifo 7:"),
    ("tc -n switch qdisc replace dev p2 parent 1:1 handle 77: pfifo limit 77", "PORT", "rate-limit", {}, "foreign qdisc.* pfifo 77:"),
    (f"ip route add {ROUTE}", f"ip route del {ROUTE}", "route-lost", {}, "198.51.100.0/24 via 10.0.0.1.*foreign routes over v2"),
    (f"ip route add {ROUTE} table 77", f"ip route del {ROUTE} table 77", "link-down", {}, "table 77.*foreign routes over v2"),
    (f"ip route add {ROUTE}", f"ip route del {ROUTE}", "address-gone", {}, "foreign routes over v2"),
    (f"ip route add {ROUTE}", f"ip route del {ROUTE}", "gid-moved", {}, "foreign routes over v2"),
    ("ip addr add 192.0.2.9/24 dev v2", "ip addr del 192.0.2.9/24 dev v2", "address-gone", {}, "wanted exactly one IPv4 address on v2"),
    ("ip addr add 192.0.2.9/24 dev v2", "ip addr del 192.0.2.9/24 dev v2", "gid-moved", {}, "wanted exactly one IPv4 address on v2"),
    (
        "ip addr change 10.0.0.2/24 dev v2 valid_lft 3600 preferred_lft 3600",
        "ip addr change 10.0.0.2/24 dev v2 valid_lft forever preferred_lft forever",
        "address-gone", {}, "an address with a lifetime, left alone",
    ),
    (
        "ip neigh replace 10.0.0.1 lladdr 02:00:00:00:00:99 dev v2 nud permanent",
        "ip neigh del 10.0.0.1 dev v2",
        "neighbour-wrong", {}, "02:00:00:00:00:99 PERMANENT",
    ),
    ("ip -n switch link set p2 mtu 4100", "ip -n switch link set p2 mtu 4200", "mtu-mismatch", {}, "p2.* mtu 4100"),
    ("ip -n switch link set p2 down", PORT_UP, "flap", {}, "p2 is down already"),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("put", "take", "fault", "values", "said"), CASES, ids=lambda value: str(value)[:40])
def test_what_a_stranger_has_put_there_is_refused_and_left_alone(
    lab: Lab, clean: Callable[[], str], put: str, take: str, fault: str, values: dict[str, Any], said: str
) -> None:
    stranger(lab, put)
    try:
        before = timeless(clean())
        injection = inject(fault, values, in_lab(lab), 60)
        with pytest.raises(NotApplied, match=f"(?s){said}"):
            injection.start()
        assert injection.outcome.clean, injection.outcome.problems
        assert timeless(clean()) == before and status() == []
    finally:
        stranger(lab, port_again(lab, "p2") if take == "PORT" else take)


RULES = """nft -f - <<'END'
table netdev theirs {
chain in {
type filter hook ingress device "p2" priority 0;
udp dport 4791 counter accept
}
}
END"""


@pytest.mark.long
def test_rules_of_a_stranger_on_the_same_port_stay_as_they_are(lab: Lab, clean: Callable[[], str]) -> None:
    in_switch = {"host": "switch"}
    assert lab.run(["sh", "-ec", RULES], **in_switch).code == 0
    listed = ["nft", "-s", "list", "table", "netdev", "theirs"]
    before = lab.run(listed, **in_switch).text
    assert "counter accept" in before
    try:
        with inject("blackout", {}, in_lab(lab), 60) as injection:
            assert lab.run(listed, **in_switch).text == before
        assert injection.outcome.clean
        assert lab.run(listed, **in_switch).text == before
    finally:
        lab.run(["nft", "delete", "table", "netdev", "theirs"], **in_switch)


@pytest.mark.long
def test_a_qdisc_that_a_stranger_puts_in_the_place_of_ours_meanwhile_stays_and_that_is_said(
    lab: Lab, clean: Callable[[], str]
) -> None:
    theirs = "tc -n switch qdisc replace dev p2 root handle 7: pfifo limit 77"
    injection = inject("delay", {}, in_lab(lab), 600)
    injection.start()
    try:
        stranger(lab, theirs)
        wait_until(lambda: injection.over, 120)
        assert (injection.outcome.verdict, injection.outcome.how) == ("REVERT_FAILED", "aborted")
        assert "p2's egress: no longer in force, and not by us" in injection.outcome.why
        assert any(problem.startswith("new: qdisc pfifo 7: ") for problem in injection.outcome.problems)
        assert "pfifo 7: root" in stranger(lab, "tc -n switch qdisc show dev p2")
        assert [result.clean for result in everything()] == [False]
        assert [result.clean for result in everything(as_is=True)] == [True]
        assert "pfifo 7: root" in stranger(lab, "tc -n switch qdisc show dev p2")
        assert status() == []
    finally:
        stranger(lab, port_again(lab, "p2"))


@pytest.mark.long
def test_of_two_injectors_that_know_nothing_of_each_other_the_second_refuses(
    lab: Lab, state: Path, tmp_path: Path, clean: Callable[[], str]
) -> None:
    words = our_words("inject", "blackout", "--for", "600s", "--lab", lab.name)
    other = environment() | {"XDG_STATE_HOME": str(tmp_path / "theirs")}
    first = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=other)
    try:
        assert first.stderr
        tag = first.stderr.readline().split()[1]
        for fault in ("loss", "delay", "flap"):
            second = ours("inject", fault, "--for", "5s", "--lab", lab.name)
            assert second.returncode == 7, second
            assert f"already carries injection {tag}" in second.stderr
        assert ours("inject", "status").stdout.strip() == "nothing is on"
        assert first.poll() is None
    finally:
        first.terminate()
        out, err = first.communicate(timeout=120)
    assert "off: the node is as it was before" in out, out + err


@pytest.mark.long
def test_status_and_revert_say_the_same_however_often_they_are_asked(lab: Lab, clean: Callable[[], str]) -> None:
    assert [ours("inject", "revert", "--all").stdout for _ in range(2)] == ["nothing was on\n"] * 2
    with inject("link-down", {}, in_lab(lab), 600) as injection:
        shown = [ours("inject", "status", "--format", "json") for _ in range(2)]
        assert shown[0].stdout == shown[1].stdout and [one.returncode for one in shown] == [0, 0]
        assert f'"tag": "{injection.tag}"' in shown[0].stdout
        held = clean()
        assert "in force" in ours("inject", "status").stdout and clean() == held
        told = [ours("inject", "revert", "--all") for _ in range(3)]
        assert [one.returncode for one in told] == [0, 0, 0]
        assert told[0].stdout.startswith(f"{injection.tag} link-down") and told[0].stdout.endswith(": off\n")
        assert [one.stdout for one in told[1:]] == ["nothing was on\n"] * 2
        by_name = ours("inject", "revert", injection.tag)
        assert by_name.returncode == 0 and by_name.stdout.endswith(": off\n")
        assert ours("inject", "status").stdout == "nothing is on\n"
