"""Evidence that is judged does not give the fault away."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.prove import strip
from rdmadiag.scenario.record import BEFORE, CAPTURES, DURING, Folder
from tests.prove.trials import RECORDED, TAG

OURS = ("rdmadiag", TAG, "prove-")


def texts(path: str) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {m.name: f.read().decode(errors="replace") for m in archive if (f := archive.extractfile(m)) is not None}


def test_the_recorded_evidence_did_give_the_fault_away() -> None:
    (during,) = Folder(RECORDED).bundles(DURING)
    assert any(TAG in text for text in texts(during).values())


def test_nothing_of_ours_is_left_in_what_is_judged(tmp_path: Path) -> None:
    found, counts = strip.copy(Folder(RECORDED), tmp_path)
    assert counts["lines of the kernel log"] >= 1
    for path in (*found[BEFORE], *found[DURING]):
        for name, text in texts(path).items():
            format_ = ("schema", "rdmadiag")  # says that it is a bundle, and of which release
            kept = text
            if name.endswith(strip.MANIFEST):
                kept = json.dumps({key: value for key, value in json.loads(text).items() if key not in format_})
            assert not [word for word in OURS if word in kept], (
                name,
                [line for line in kept.splitlines() if "rdmadiag" in line][:3],
            )
    for path in found["texts"]:
        assert "rdmadiag" not in Path(path).read_text()
    assert len(found[CAPTURES]) == 2


def test_processes_of_the_work_stay_and_those_that_came_with_the_fault_go() -> None:
    stripper = strip.Stripper("lab", ["27278"], ["p1", "br1"])
    stripper.known = {"1", "20"}
    tree = "/proc/1/comm:init\n/proc/20/comm:rdma-server\n/proc/30/comm:sh\n/proc/40/comm:rdma-client\n"
    assert stripper.tree(tree, ["40"]) == tree.replace("/proc/30/comm:sh\n", "")
    assert stripper.counts["lines about processes"] == 1


def test_the_switch_is_nobodys_to_look_at() -> None:
    stripper = strip.Stripper("lab", [], ["p1", "br1"])
    tree = "/sys/class/net/p1/mtu:4200\n# absent: /sys/class/net/br1/device\n/sys/class/net/p10/mtu:1500\n/sys/class/net/v1/mtu:4200\n"
    assert stripper.tree(tree, []) == "/sys/class/net/p10/mtu:1500\n/sys/class/net/v1/mtu:4200\n"
    shown = json.loads(stripper.printed(json.dumps([{"ifname": "p1"}, {"ifname": "v1"}, {"dev": "br1"}, 3])))
    assert shown == [{"ifname": "v1"}, 3]


def test_a_rule_of_the_firewall_stays_and_loses_our_name() -> None:
    stripper = strip.Stripper("lab", ["abcd1234"], [])
    assert (
        stripper.text("table inet rdmadiag_abcd1234 { udp dport 4791 drop }")
        == "table inet filter { udp dport 4791 drop }"
    )


@given(st.text(max_size=300))
def test_any_text_is_stripped_without_an_error(text: str) -> None:
    stripper = strip.Stripper("lab", ["abcd"], ["p1"])
    for made in (stripper.tree(text, []), stripper.printed(text), stripper.kernel_log(text)):
        assert "rdmadiag" not in made.lower()
