"""The report of runs as JUnit XML: a test suite a run, a test case a question. FAIL is a failure, other bad verdicts an error.

UNSUPPORTED is skipped. So a build that counts failures and errors comes to the same answer as the exit code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from rdmadiag.render.junit import clean, quoted
from rdmadiag.render.run import _words

FILE = "junit.xml"
Case = tuple[str, str, str, str]  # class, name, outcome ('', failure, error, skipped), message


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return one run."""
    return render_all([report])


def render_all(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return several runs as one file."""
    suites = [(report, list(_cases(report))) for report in reports]
    every = [case for _, cases in suites for case in cases]
    seconds = sum(report["seconds"] or 0.0 for report in reports)
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="rdmadiag run" {_counts(every, False)} time="{seconds:.3f}">\n'
    return head + "".join(_suite(report, cases) for report, cases in suites) + "</testsuites>"


def _cases(report: Mapping[str, Any]) -> Iterator[Case]:
    verdict = report["verdict"]
    outcome = {"PASS": "", "FAIL": "failure", "UNSUPPORTED": "skipped"}.get(verdict, "error")
    yield f"scenario.{report['label']}", "verdict", outcome, f"{verdict}: {report['reason']}"
    for a in report["answers"]:
        # Only where the run could be judged does an answer of its own fail a build; the verdict has failed it elsewhere.
        bad = a["answer"] != "yes"
        decided = verdict in ("FAIL", "PASS") and a["answer"] == "no"
        told = f"{a['got']}, wanted {a['wanted']} ({a['origin']})"
        yield (
            f"scenario.{report['label']}.{a['part']}",
            a["question"],
            "failure" if decided else "skipped" if bad else "",
            told,
        )


def _suite(report: Mapping[str, Any], cases: Sequence[Case]) -> str:
    properties = {"verdict": report["verdict"], "seed": report["seed"], "folder": report["folder"], **report["chosen"]}
    told = "".join(
        f"  <property name={quoted(name)} value={quoted(str(value))}/>\n" for name, value in properties.items()
    )
    head = f'<testsuite name={quoted(report["label"])} {_counts(cases, True)} time="{report["seconds"] or 0:.3f}">\n'
    said = "\n".join(f"fault {text}" for _, text in _words.faults(report))
    body = "".join(map(_case, cases))
    out = escape(clean(said))
    return f"{head} <properties>\n{told} </properties>\n{body} <system-out>{out}</system-out>\n</testsuite>\n"


def _counts(cases: Sequence[Case], skipped: bool) -> str:
    count = {name: sum(1 for case in cases if case[2] == name) for name in ("failure", "error", "skipped")}
    text = f'tests="{len(cases)}" failures="{count["failure"]}" errors="{count["error"]}"'
    return f'{text} skipped="{count["skipped"]}"' if skipped else text


def _case(case: Case) -> str:
    kind, name, outcome, message = case
    head = f' <testcase classname={quoted(kind)} name={quoted(name)} time="0"'
    if not outcome:
        return f"{head}/>\n"
    kind_of = "" if outcome == "skipped" else ' type="rdmadiag"'
    return f"{head}><{outcome} message={quoted(message)}{kind_of}/></testcase>\n"
