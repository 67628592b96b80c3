"""Published outputs of tools (tests/data/texts): each confirms what its expected.json names, and nothing else that is loud."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TEXTS = sorted(path.parent for path in (Path(__file__).parent / "data/texts").glob("*/expected.json"))
LOUD = {"warning", "error", "critical"}


@pytest.mark.parametrize("folder", TEXTS, ids=lambda path: path.name)
def test_a_published_text_confirms_what_it_shows_and_nothing_else(
    folder: Path, checked: Callable[..., dict[str, Any]]
) -> None:
    wanted = set(json.loads((folder / "expected.json").read_text())["confirmed"])
    report = checked(folder)
    assert report["summary"]["unrecognised"] == []
    confirmed = {f["rule"]: f["severity"] for f in report["findings"] if f["answer"] == "confirmed"}
    assert wanted <= set(confirmed)
    assert {rule for rule, severity in confirmed.items() if severity in LOUD} <= wanted


@pytest.mark.parametrize("folder", TEXTS, ids=lambda path: path.name)
def test_a_published_text_names_its_origin(folder: Path) -> None:
    assert len(re.sub(r"# Origin", "", (folder / "origin.md").read_text()).strip()) > 80
