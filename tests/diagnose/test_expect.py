"""expect init: a file of what a good node has; a bad node, and one that was not seen, are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rdmadiag.cli import cli
from rdmadiag.diagnose import check, expect, rulebook
from rdmadiag.errors import BadFile, BadInput

NODES = Path(__file__).parent.parent / "data/nodes"
GOOD = str(NODES / "mlx5-roce-8nic-h100")


def init(*paths: str, **options: Any) -> expect.Written:
    return expect.init(check.check(check.Request(given=paths, budget=60, **options)))


def test_a_good_node_gives_what_its_adapters_have_in_common(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["expect", "init", "--from", GOOD, "-o", str(tmp_path / "e.json")])
    assert done.exit_code == 0, done.output
    content = json.loads((tmp_path / "e.json").read_text())
    assert content["nic_count"] == 8 and content["rate_gbps"] == 400 and content["active_mtu"] == 4096
    assert rulebook.expectations(str(tmp_path / "e.json")) == {k: v for k, v in content.items() if k != "schema"}
    assert "left out: dscp" in done.stderr


def test_the_good_node_is_fine_by_its_own_file_and_one_with_less_is_not(
    tmp_path: Path, checked: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "e.json").write_text(json.dumps(init(GOOD).content))
    assert checked(GOOD, expect=str(tmp_path / "e.json"))["summary"]["exit_code"] == 0
    found = {f["rule"] for f in checked(NODES / "missing-nic", expect=str(tmp_path / "e.json"))["findings"]}
    assert "nic-missing" in found


def test_what_differs_between_adapters_is_left_out_and_said() -> None:
    written = init(str(NODES / "mlx5-roce-storage-nics"))
    assert "rate_gbps" not in written.content and "differ" in written.left_out["rate_gbps"]


def test_a_bad_node_is_refused_with_its_rule_unless_that_is_skipped() -> None:
    with pytest.raises(BadInput, match="not a good node: .*port-not-active"):
        init(str(NODES / "mlx5-port-down"))
    assert init(str(NODES / "mlx5-port-down"), fail_on="critical").content["nic_count"]


def test_a_node_of_which_devices_were_not_seen_and_two_nodes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("$ ulimit -l\nunlimited\n")
    with pytest.raises(BadInput, match="not seen well enough"):
        init(str(tmp_path / "x.txt"))
    with pytest.raises(BadInput, match="made of one node, not of 2"):
        init(f"a={GOOD}", f"b={GOOD}")


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text("mine")
    done = CliRunner().invoke(cli, ["expect", "init", "--from", GOOD, "-o", str(tmp_path / "e.json")])
    assert isinstance(done.exception, BadFile) and (tmp_path / "e.json").read_text() == "mine"


def test_firmware_is_expected_as_text_and_the_rest_as_numbers(tmp_path: Path) -> None:
    for value, wanted in (('"fw_ver": 28', "wanted a text"), ('"nic_count": "8"', "wanted a number")):
        (tmp_path / "e.json").write_text(f'{{"schema": "rdmadiag.expect/1", {value}}}')
        with pytest.raises(BadFile, match=wanted):
            rulebook.expectations(str(tmp_path / "e.json"))
