"""A scenario that is not well formed is refused with the file, the place, and what was wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose.rulebook import Rulebook
from rdmadiag.errors import BadFile, BadInput
from rdmadiag.scenario import lint, scenario
from tests.scenario.examples import GOOD, changed, written


def refusal(folder: Path, book: Rulebook, **parts: Any) -> BadFile:
    with pytest.raises(BadFile) as found:
        lint.lint(written(folder, **parts), book)
    assert found.value.path.endswith("example.json")
    return found.value


def injection(**parts: Any) -> list[dict[str, Any]]:
    entry = {**GOOD["timeline"][0], **parts}
    return [{name: part for name, part in entry.items() if part is not None}]


def test_a_good_scenario_is_well_formed(tmp_path: Path, book: Rulebook) -> None:
    assert lint.lint(written(tmp_path), book).timeline[0].parameters == {"percent": 1}


@pytest.mark.parametrize(
    ("parts", "place", "said"),
    [
        ({"titel": "x"}, "/", "titel"),
        ({"title": "x"}, "/title", "too short"),
        ({"id": "other"}, "/id", "file's name"),
        ({"seed": -1}, "/seed", "minimum"),
        ({"timeline": injection(at_seconds=None)}, "/timeline/0", "at_seconds or at_event"),
        ({"timeline": injection(at_event={"event": "x"})}, "/timeline/0", "at_seconds or at_event"),
        ({"timeline": injection(for_seconds=0)}, "/timeline/0/for_seconds", "number from 0.001"),
        ({"timeline": injection(for_seconds="4 s")}, "/timeline/0/for_seconds", "number"),
        ({"timeline": injection(at_seconds=-1)}, "/timeline/0/at_seconds", "number"),
        ({"timeline": injection(parameters={"percent": "$share"})}, "/timeline/0/parameters/percent", "known: percent"),
        ({"timeline": injection(parameters={"percent": 1})}, "/parameters/percent", "used nowhere"),
        ({"timeline": injection() * 2}, "/timeline/1/name", "earlier one"),
        ({"timeline": injection(at_seconds=None, at_event={"event": "loss.end"})}, "/timeline/0/at_event/event", "no earlier fault"),
        (
            {"timeline": injection(at_seconds=None, at_event={"event": "layer", "after": "flap.end"})},
            "/timeline/0/at_event/after",
            "no earlier fault",
        ),
        ({"timeline": injection(for_seconds=400)}, "/abort/run_seconds", "over before"),
        ({"topology": {"rate": "fast"}}, "/topology", "wanted a rate"),
        ({"topology": {"hosts": 99}}, "/topology", "wanted 2 to 16"),
        ({"expect": {"corrupted": 0}}, "/expect/corrupted", "near: corrupt"),
        ({"expect": {"corrupt": {"min": 2, "max": 1}}}, "/expect/corrupt", "nothing can be both"),
        ({"expect": {"corrupt": {"least": 1}}}, "/expect/corrupt", "not valid"),
        ({"expect": {"corrupt": {"min": "many"}}}, "/expect/corrupt/min", "wanted a number"),
        ({"expect": {"status.RETRY_EXC": 0}}, "/expect/status.RETRY_EXC", "no ibv_wc_status"),
        ({"expect": {"signal.lost": 0}}, "/expect/signal.lost", "no meaning of a counter"),
        ({"expect": {"fault.los.dropped": 1}}, "/expect/fault.los.dropped", "no fault of that name"),
        ({"fired": {}}, "/fired", "two kinds"),
        ({"fired": {"signal.out_of_sequence": {"min": 1}, "signal.tx_packets": {"min": 1}}}, "/fired", "two kinds"),
        ({"fired": {**GOOD["fired"], "retries": {"min": 0}}}, "/fired/retries", "proves nothing"),
        ({"fired": {**GOOD["fired"], "goodput_during": {"max": 5}}}, "/fired/goodput_during", "proves nothing"),
        ({"fired": {**GOOD["fired"], "goodput_during_share": {"max": 1.5}}}, "/fired/goodput_during_share", "proves nothing"),
        ({"steady": {"corrupt": 0}}, "/steady/corrupt", "whole run only"),
        ({"findings": {"must": ["no-such-rule"]}}, "/findings/must/0", "no rule"),
        ({"findings": {"must": ["rnr-*"], "must_not": ["rnr-*"]}}, "/findings/must/0", "must_not too"),
        ({"requires": {"kernel_at_least": "six"}}, "/requires/kernel_at_least", "does not match"),
    ],
)  # fmt: skip
def test_a_fault_in_it_is_named_with_its_place(
    tmp_path: Path, book: Rulebook, parts: dict[str, Any], place: str, said: str
) -> None:
    found = refusal(tmp_path, book, **parts)
    assert found.place == place and said in str(found)


def test_a_matrix_value_that_does_not_fit_is_named(tmp_path: Path, book: Rulebook) -> None:
    parameters = {"percent": {"default": 1, "unit": "percent"}, "rate": {"default": "200mbit", "unit": "rate", "values": ["1gbit", "fast"]}}  # fmt: skip
    found = refusal(tmp_path, book, parameters=parameters, topology={"rate": "$rate"})
    assert found.place == "/parameters/rate/values/1" and "fast" in str(found)


def test_what_is_not_json_is_named_by_line_and_column(tmp_path: Path, book: Rulebook) -> None:
    path = tmp_path / "example.json"
    path.write_text('{"schema": \n oops}')
    with pytest.raises(BadFile, match=r"line 2 column 2"):
        lint.lint(str(path), book)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[]", b"[" * 100000, b"", b'{"id": 1, "id": 2}'])
def test_garbage_is_refused(tmp_path: Path, book: Rulebook, content: bytes) -> None:
    path = tmp_path / "example.json"
    path.write_bytes(content)
    with pytest.raises(BadFile):
        lint.lint(str(path), book)


def test_an_unknown_name_shows_near_ones_or_the_way_to_the_list() -> None:
    with pytest.raises(BadInput, match="scenario list"):
        scenario.load("qqqqqq")


def test_a_chosen_value_takes_the_place_of_the_default(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert scenario.load(path, {"percent": "5"}).timeline[0].parameters == {"percent": 5}
    assert scenario.load(path, {"percent": "0.5"}).label == "example,percent=0.5"
    with pytest.raises(BadInput, match="wanted a number"):
        scenario.load(path, {"percent": "much"})
    with pytest.raises(BadInput, match="it has percent"):
        scenario.load(path, {"loss": 1})


def test_a_matrix_goes_through_all_values_but_those_chosen(tmp_path: Path) -> None:
    two = {**GOOD["parameters"], "mode": {"default": "push", "unit": "mode", "values": ["push", "pull"]}}
    path = written(tmp_path, parameters=two, workload={"name": "kv", "parameters": {"mode": "$mode"}})
    assert len(list(scenario.matrix(path, {}))) == 6
    assert [one.label for one in scenario.matrix(path, {"percent": 1})] == ["example,mode=push,percent=1", "example,mode=pull,percent=1"]  # fmt: skip
    with pytest.raises(BadInput, match="no parameter with values"):
        list(scenario.matrix(path, {"percent": 1, "mode": "pull"}))


def test_the_schema_takes_no_unknown_key_anywhere(tmp_path: Path, book: Rulebook) -> None:
    for part in ("workload", "findings", "topology"):
        data = changed()
        data[part] = {**data[part], "nosuch": 1}
        path = tmp_path / "example.json"
        path.write_text(json.dumps(data))
        with pytest.raises(BadFile, match="nosuch"):
            lint.lint(str(path), book)


def test_a_value_may_stand_within_a_text_and_so_may_the_folder(tmp_path: Path) -> None:
    found = scenario.load(
        written(tmp_path, workload={"name": "command", "parameters": {"client": "${folder}/run ${percent} $percent"}})
    )
    assert found.workload_parameters["client"] == f"{tmp_path}/run 1 $percent"


def test_an_entry_is_a_fault_or_an_act_on_an_end(tmp_path: Path, book: Rulebook) -> None:
    act = {"act": "freeze", "on": "server", "at_seconds": 3, "for_seconds": 2}
    fired = {"fault.freeze.own": "yes", "stall_seconds": {"min": 1}}
    assert lint.lint(written(tmp_path, timeline=[act], parameters=None, fired=fired), book).timeline[0].on == "server"
    for wrong in (
        {**act, "inject": "loss"},
        {"at_seconds": 3, "for_seconds": 2},
        {"act": "kill", "at_seconds": 3, "for_seconds": 2},
    ):
        assert "inject, or act and on" in str(refusal(tmp_path, book, timeline=[wrong], parameters=None, fired=fired))
