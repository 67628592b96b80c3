"""Every output format renders every report; the text says the verdict first and nothing that a terminal would obey."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rdmadiag.render
from rdmadiag import registry
from rdmadiag.render import text

DATA = Path(__file__).parent.parent / "data"
FORMATS = registry.names(rdmadiag.render)
FOLDERS = [
    DATA / "nodes/rxe-rnr",
    DATA / "nodes/mlx5-roce-8nic-h100",
    DATA / "reports/48-ucx-8229-memlock64",
    DATA / "reports/01-nccl-426-default-gid",
]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_renders_a_report(name: str, folder: Path, checked: Callable[..., dict[str, Any]]) -> None:
    report = checked(folder)
    before = copy.deepcopy(report)
    printed = registry.load(rdmadiag.render, name).render(report, False, 100)
    assert printed.strip()
    assert report == before, "a renderer changes nothing"


def test_the_verdict_comes_first_then_symptom_cause_proof_fix_and_next_step(
    checked: Callable[..., dict[str, Any]],
) -> None:
    printed = text.render(checked(DATA / "nodes/rxe-rnr"))
    assert printed.startswith("rxe-lab: WRONG: ")
    places = [printed.index(word) for word in ("ERROR: ", "CAUSE: ", "fix 1. ", "\nNext\n")]
    assert places == sorted(places)
    assert "proof: " in printed


def test_a_healthy_node_says_so_in_the_first_line(checked: Callable[..., dict[str, Any]]) -> None:
    assert (
        "nothing wrong at warning or above"
        in text.render(checked(DATA / "nodes/mlx5-roce-8nic-h100"), width=200).splitlines()[0]
    )


def test_nothing_judged_is_not_called_healthy(checked: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary\n")
    report = checked(tmp_path / "notes.txt")
    assert report["summary"]["verdict"] == "unknown"
    assert "UNKNOWN" in text.render(report)
    assert "notes.txt" in text.render(report)


def test_what_a_baseline_has_is_marked_known(checked: Callable[..., dict[str, Any]]) -> None:
    report = copy.deepcopy(checked(DATA / "nodes/rxe-rnr"))
    for finding in report["findings"]:
        finding["known"] = finding["answer"] == "confirmed"
    report["summary"].update(verdict="fine", exit_code=0, known=4)
    assert "nothing new at warning or above; 4 known" in text.render(report, width=200)
    assert "[rnr-retries-exhausted] (known)" in text.render(report, width=200)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_keep_the_width_where_words_allow_it(width: int, checked: Callable[..., dict[str, Any]]) -> None:
    printed = text.render(checked(DATA / "reports/48-ucx-8229-memlock64"), width=width)
    assert [line for line in printed.splitlines() if len(line) > width and len(line.split()) > 4] == []


def test_a_terminal_gets_colours_and_the_same_words(checked: Callable[..., dict[str, Any]]) -> None:
    report = checked(DATA / "nodes/rxe-rnr")
    coloured = text.render(report, terminal=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == text.render(report).split()


def test_control_characters_of_evidence_do_not_pass(checked: Callable[..., dict[str, Any]]) -> None:
    report = copy.deepcopy(checked(DATA / "nodes/rxe-rnr"))
    for finding in report["findings"]:
        finding["message"] = "\x1b[2J\x9b31m\x07evil\r\u202e"
        finding["evidence"] = [{"origin": "\x1b]0;x\x07", "text": "\x1b[31mred"}]
    printed = text.render(report)
    assert not [c for c in printed if not c.isprintable() and c != "\n"]
    json_text = registry.load(rdmadiag.render, "json").render(report)
    assert all(31 < ord(c) < 127 or c == "\n" for c in json_text)
    assert json.loads(json_text) == report


def test_a_finding_names_the_switch_port_that_its_adapter_is_cabled_to(
    checked: Callable[..., dict[str, Any]],
) -> None:
    report = checked(DATA / "nodes/mlx5-roce-qos-mixed")
    finding = next(f for f in report["findings"] if f["rule"] == "lossless-profile-differs")
    assert finding["cabled_to"] == "leaf-4 Ethernet24 (gpu-h100 rail 4)"
    assert "cabled to: leaf-4 Ethernet24 (gpu-h100 rail 4)" in text.render(report, width=200)
    assert not any("cabled_to" in f for f in checked(DATA / "nodes/sonic-pfc-storm")["findings"])
