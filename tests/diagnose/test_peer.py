"""--peer: what both ends must agree on is compared, for the nodes that it joins and for no others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose import check
from rdmadiag.errors import BadFile, BadInput
from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import parse_tree

NODES = Path(__file__).parent.parent / "data/nodes"
ROCE, IB = str(NODES / "mlx5-roce-8nic-h100"), str(NODES / "mlx5-ib-8nic-h100")
Checked = Callable[..., dict[str, Any]]


def about_ends(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f["rule"]: f for f in report["findings"] if f["rule"].endswith("-between-ends") and f["answer"] == "confirmed"
    }


def test_ends_of_two_link_layers_are_found_and_the_subject_names_both(checked: Checked) -> None:
    found = about_ends(checked(ROCE, peer=(f"other={IB}",)))
    subject = found["link-layer-differs-between-ends"]["subject"]
    assert subject["peer"] == "other" and subject["node"] == "gpu-h100-r07-u21"
    assert "InfiniBand" in found["link-layer-differs-between-ends"]["message"]


def test_two_nodes_that_are_not_said_to_be_peers_are_not_compared(checked: Checked) -> None:
    assert "link-layer-differs-between-ends" not in about_ends(checked(f"a={ROCE}", f"b={IB}"))


def test_a_node_agrees_with_another_one_like_it(checked: Checked) -> None:
    assert about_ends(checked(ROCE, peer=(f"other={ROCE}",))) == {}


def test_a_live_node_is_compared_with_a_captured_one(checked: Checked) -> None:
    tree, seconds = parse_tree((NODES / "mlx5-roce-8nic-h100/tree.txt").read_text())
    host = CapturedHost(tree, "here", seconds)
    done = check.check(check.Request(window=0, budget=60, peer=(f"there={IB}",)), host=host)
    assert about_ends(done.report)["link-layer-differs-between-ends"]["subject"] == {"node": "here", "peer": "there"}
    here = [gap for gap in done.report["gaps"] if gap.get("node") == "here" and gap["source"] == "given"]
    assert here == [], "what was not given of the peer is no gap of the live node"


def test_what_both_jobs_set_differently_is_found(checked: Checked, tmp_path: Path) -> None:
    for name, timeout in (("a", 22), ("b", 14)):
        (tmp_path / f"{name}.txt").write_text(f"$ env\nNCCL_IB_TIMEOUT={timeout}\nNCCL_IB_TC=106\n")
    report = checked(f"a={tmp_path}/a.txt", peer=(f"b={tmp_path}/b.txt",))
    assert set(about_ends(report)) == {"timeouts-differ-between-ends"}


def test_the_peer_explains_a_symptom_that_names_its_end_by_an_address(checked: Checked, tmp_path: Path) -> None:
    line = "a:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with status=12 opcode=1 len=0 vendor err 129\n"
    (tmp_path / "a.txt").write_text("$ env\nNCCL_IB_TIMEOUT=14\n")
    (tmp_path / "a.log").write_text(line)
    (tmp_path / "b.txt").write_text("$ env\nNCCL_IB_TIMEOUT=22\n")
    report = checked(f"a={tmp_path}/a.txt", f"a={tmp_path}/a.log", peer=(f"b={tmp_path}/b.txt",))
    assert "wc-retry-exceeded" in about_ends(report)["timeouts-differ-between-ends"]["explains"]


def test_a_peer_that_is_the_node_itself_is_refused(checked: Checked) -> None:
    with pytest.raises(BadInput, match="not about another node"):
        checked(ROCE, peer=(ROCE,))
    with pytest.raises(BadFile):
        checked(ROCE, peer=("/nosuch",))


def test_ends_whose_nics_have_pfc_on_other_priorities_are_found(checked: Checked, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(ROCE, tmp_path / name)
    text = (tmp_path / "b/mlnx_qos.txt").read_text()
    (tmp_path / "b/mlnx_qos.txt").write_text(
        text.replace("enabled     0   0   0   1   0", "enabled     0   0   0   0   1")
    )
    found = about_ends(checked(f"a={tmp_path}/a", peer=(f"b={tmp_path}/b",)))
    assert "PFC on priorities 3 here and 4 there" in found["traffic-class-differs-between-ends"]["message"]
