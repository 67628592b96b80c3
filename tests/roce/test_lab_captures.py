"""Captures recorded in the lab (tests/softroce/wire_lab.py): each rule about the wire fires on one, and says what it must say."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose import rulebook, wire
from rdmadiag.diagnose.coverage import taps_of
from tests import coverage

DATA = Path(__file__).parent.parent / "data"
FOLDERS = sorted(path.parent for path in (DATA / "captures").glob("*/expected.json"))
KERNEL = sorted((DATA / "pcaps").glob("softroce-*.pcap"))
"""Captures of rdma_rxe from before: tests/data/pcaps/origin.md."""


@functools.cache
def report(place: Path) -> dict[str, Any]:
    """Return the report of one capture, or of two taps of a path."""
    if place.is_file():
        return wire.look([str(place)]).report
    expect = place / "expect.json"
    paths = [str(path) for path in sorted(place.glob("*.pcapng.gz"))]
    return taps_of(str(place)) or wire.look(paths, expect=str(expect) if expect.exists() else None).report


def confirmed(place: Path) -> list[str]:
    return sorted({f["rule"] for f in report(place)["findings"] if f["answer"] == "confirmed"})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_on_a_capture_of_the_lab_exactly_what_was_done_there_is_confirmed(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    assert confirmed(folder) == expected["confirmed"], expected["origin"]


def test_every_rule_about_the_wire_fires_on_a_capture_of_the_lab(book: rulebook.Rulebook) -> None:
    fired = {rule for place in [*FOLDERS, *KERNEL] for rule in confirmed(place)}
    of_captures = {rule.id for rule in book if rule.layer == "wire" and rule.id.startswith("wire-")}
    assert of_captures - fired <= set(coverage.planned()) and len(of_captures) >= 54


def test_a_capture_in_which_nothing_is_wrong_says_so_and_all_its_icrcs_are_good() -> None:
    looked = wire.look([str(DATA / "captures/nothing-wrong/capture.pcapng.gz")])
    assert [f["rule"] for f in looked.report["findings"] if f["severity"] != "info"] == []
    assert looked.report["summary"]["verdict"] == "fine" and looked.report["summary"]["exit_code"] == 0
    ((good, bad, cut, lost),) = looked.evidence.db.execute("SELECT icrc_good, icrc_bad, cut, dropped FROM capture")
    assert good > 40 and (bad, cut, lost) == (0, 0, 0)


@pytest.mark.parametrize("place", [*FOLDERS, *KERNEL], ids=lambda path: path.name)
def test_every_finding_gives_a_filter_and_frames_and_says_what_the_capture_cannot_show(place: Path) -> None:
    for finding in report(place)["findings"]:
        if finding["layer"] != "wire":  # of what else was given beside the captures
            continue
        assert "arrived" in finding["cannot_show"], finding["rule"]
        if finding["answer"] == "confirmed":
            (said,) = re.findall(r"tshark -Y '([^']+)'", finding["message"])
            assert all(row["filter"] for row in finding["evidence"])
            assert said == finding["evidence"][0]["filter"]
            assert re.search(r"\bframes? (\d+|in )|not in it", finding["message"]), finding["message"]


def test_every_rule_about_captures_words_a_filter_and_frames(book: rulebook.Rulebook) -> None:
    for rule in book:
        if rule.layer == "wire" and rule.id.startswith("wire-"):
            assert "tshark -Y '{filter}'" in rule.message, rule.id
            assert re.search(r"frames? \{", rule.message), rule.id
            assert rule.settle or rule.kind == "symptom", rule.id
