"""The formats of a run's report: each shows the verdict, the proofs and what was asked, and takes nothing of it for markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from rdmadiag import registry
from rdmadiag.render import run as formats
from rdmadiag.scenario import judge, report
from rdmadiag.scenario.goodput import Goodput
from rdmadiag.scenario.measure import Run
from tests.scenario.examples import HELD, bound, measured

NAMES = registry.names(formats)
NASTY = '<script>alert(1)</script> | ``` ]]> & "quoted" \x1b[31m \x00'


def made(verdict_of: Any = None, **parts: Any) -> dict[str, Any]:
    """Return the report of a made run; `parts` replace parts of it."""
    found = bound()
    fault = {
        **HELD._asdict(),
        "parameters": {"percent": 1},
        "for_seconds": 4,
        "plan": ["a table"],
        "do": ["nft"],
        "own": {"answer": "yes", "text": "its own means counted: hit 12"},
        "other": {"answer": "yes", "text": "RDMA counters moved: rxe1 rcvd_seq_err 9"},
    }
    finding = {
        "rule": "packet-loss-on-path", "kind": "cause", "answer": "confirmed", "severity": "error", "title": "Packets are lost",
        "message": "rxe1/1: 9 signs of loss", "subject": {"device": "rxe1"}, "evidence": [{"device": "rxe1", "origin": "tree.txt"}],
    }  # fmt: skip
    samples = [
        {"seconds": n * 0.5, "node": "lab", "qps": {"RTS": 2}, "counters": {"rxe1/1": {"completer_retry_err": n}}}
        for n in range(20)
    ]
    facts = {"faults": [fault], "started": "2026-11-30T10:00:00Z", "seconds": 20.5, "seed": 7, "rdmadiag": "0.1.0"}
    run = Run(found, facts, measured(), [{"seconds": 0.0, "from": "client", "kind": "ready", "values": {}}], samples,
              Goodput([1e5] * 100), {"after": {"findings": [finding]}})  # fmt: skip
    return {**report.build(run, verdict_of or judge.judge(found, run.measured), "/runs/example"), **parts}


@pytest.mark.parametrize("name", NAMES)
def test_a_format_shows_the_verdict_the_reason_and_the_proofs(name: str) -> None:
    text = registry.load(formats, name).render(made())
    for wanted in ("PASS", "example", "hit 12" if name in ("html", "json", "markdown", "journal") else "loss"):
        assert wanted in text


@pytest.mark.parametrize("verdict", judge.EXIT_CODES)
@pytest.mark.parametrize("name", NAMES)
def test_a_format_takes_every_verdict(name: str, verdict: str) -> None:
    assert verdict.split("_")[0] in registry.load(formats, name).render(made(judge.Verdict(verdict, "because", [])))


@pytest.mark.parametrize("name", NAMES)
def test_a_format_takes_a_run_in_which_nothing_was_seen(name: str) -> None:
    found = bound()
    empty = Run(found, {}, judge.Measured({}, problems=["nothing was seen"]), [], [], Goodput([]), {})
    told = report.build(empty, judge.judge(found, empty.measured), "/runs/empty")
    assert "INVALID" in registry.load(formats, name).render(told)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_read_is_never_markup(name: str) -> None:
    told = made(title=NASTY, reason=NASTY, label=NASTY, about=[NASTY], problems=[NASTY])
    told["answers"][0] |= {"got": NASTY, "question": NASTY}
    text = registry.load(formats, name).render(told)
    assert "\x1b" not in text and "\x00" not in text
    if name == "html":
        assert "<script" not in text
    elif name == "junit":
        ElementTree.fromstring(text)
    elif name == "markdown":
        assert "<script>" not in text.replace("\\<script\\>", "")


class _Outside(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [
            f"{tag} {n}={v}" for n, v in attrs if n in ("src", "href", "data", "poster") or "url(" in (v or "")
        ]
        if tag in ("script", "iframe", "object", "link", "base", "form"):
            self.found.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_from_outside_and_closes_its_tags() -> None:
    page = registry.load(formats, "html").render(made())
    parser = _Outside()
    parser.feed(page)
    assert parser.found == [] and parser.open == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page) == []
    assert page.index("PASS</b>") < page.index("Timeline") < page.index("What was asked")


def test_the_page_shades_the_time_of_the_fault() -> None:
    page = registry.load(formats, "html").render(made())
    assert re.search(r'<rect x="([\d.]+)" y="22" width="([\d.]+)"[^>]*opacity="0.2"', page)


def test_junit_fails_where_the_exit_code_does() -> None:
    module = registry.load(formats, "junit")
    found = bound()
    bad = judge.judge(found, measured(corrupt=1))
    blind = judge.judge(found, measured(corrupt=None))
    root = ElementTree.fromstring(module.render_all([made(), made(bad), made(blind)]))
    assert [(s.get("failures"), s.get("errors")) for s in root] == [("0", "0"), ("2", "0"), ("0", "1")]
    assert (root.get("failures"), root.get("errors")) == ("2", "1")


def test_the_journal_has_the_keys_of_a_chaos_toolkit_journal() -> None:
    told = json.loads(registry.load(formats, "journal").render(made()))
    assert {"chaoslib-version", "experiment", "start", "end", "duration", "status", "deviated", "steady_states", "run", "rollbacks"} <= set(told)  # fmt: skip
    assert told["status"] == "completed" and told["deviated"] is False
    assert told["run"][0]["status"] == told["rollbacks"][0]["status"] == "succeeded"
    left = made(judge.Verdict("REVERT_FAILED", "still there", []))
    left["faults"][0]["reverted"] = "no"
    told = json.loads(registry.load(formats, "journal").render(left))
    assert told["status"] != "completed" and told["rollbacks"][0]["status"] == "failed"


def test_the_line_of_blocks_marks_when_the_fault_was_held() -> None:
    text = registry.load(formats, "text").render(made())
    fault = next(line for line in text.splitlines() if line.strip().startswith("fault   |"))
    marks = fault.partition("|")[2].partition("|")[0]
    assert 0.25 < marks.index("#") / len(marks) < 0.35 and 0.65 < (marks.rindex("#") + 1) / len(marks) < 0.75
