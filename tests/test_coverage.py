"""Every rule fires on something real, or the run in which it is to fire is named."""

from __future__ import annotations

import pytest

from rdmadiag.diagnose import rulebook
from tests import coverage


@pytest.mark.slow
def test_every_rule_fires_somewhere_or_its_run_is_planned(book: rulebook.Rulebook) -> None:
    fired, planned = coverage.fired(), coverage.planned()
    assert [rule.id for rule in book if rule.id not in fired and rule.id not in planned] == []
    assert sorted(name for name in planned if name not in book) == [], "planned for a rule that does not exist"
    assert sorted(name for name in planned if name in fired) == [], "planned, but it fires already: take it out"
    assert len(fired) >= 90
