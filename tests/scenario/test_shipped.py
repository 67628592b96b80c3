"""Every shipped scenario is well formed, with every value of its parameters; the schema is one."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from rdmadiag.diagnose.rulebook import Rulebook
from rdmadiag.scenario import lint, scenario


def test_the_schema_is_a_schema() -> None:
    path = Path(scenario.shipped_folder(), scenario.SCHEMA_FILE)
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


@pytest.mark.parametrize("name", scenario.names())
def test_a_shipped_scenario_is_well_formed(name: str, book: Rulebook) -> None:
    lint.lint(name, book)


@pytest.mark.parametrize("name", scenario.names())
def test_a_shipped_scenario_asks_something_of_what_it_runs(name: str) -> None:
    found = scenario.load(name)
    assert found.expect and (found.must or found.must_not)
