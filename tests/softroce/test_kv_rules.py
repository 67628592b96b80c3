"""Each rule about KV transfers and block stores fires on a run over real rxe in which its fault was made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose.rulebook import Rulebook
from tests.softroce.conftest import Worker
from tests.softroce.rule_cases import CASES

WANTED = 15


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_the_rule_is_confirmed_on_a_run_in_the_lab_with_its_fault(
    name: str, verbs: Worker, checked: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "result.jsonl"
    path.write_text("".join(f"{line}\n" for line in verbs("rule_case", name=name)))
    confirmed = [finding["rule"] for finding in checked(path)["findings"] if finding["answer"] == "confirmed"]
    rule = CASES[name][1]
    assert confirmed == [] if rule is None else rule in confirmed


def test_the_lab_runs_prove_enough_rules_of_layers_kv_and_storage(book: Rulebook) -> None:
    proven = {rule for _, rule in CASES.values() if rule}
    assert len([rule for rule in proven if book[rule].layer in ("kv", "storage")]) >= WANTED
