"""JUnit XML for continuous integration: a test case a finding, a cause that was ruled out, and a part that could not be seen.

Written after the schema that Jenkins and the Maven Surefire plugin publish. Failures are what exits 1, errors what exits 3,
so a build that counts them comes to the same answer as the exit code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from rdmadiag.render import _line

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SILENT = ("not_given", "assumed", "restricted")

Case = tuple[str, str, str, str, str]  # class, name, outcome ('', failure, error, skipped), its message, its text


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return one test suite a node; what is of no one node is in the first."""
    names = [str(node["node"]) for node in report["nodes"]] or ["nothing"]
    cases: dict[str, list[Case]] = {name: [] for name in names}
    for node, case in _cases(report):
        cases.get(str(node), cases[names[0]]).append(case)
    suites = [_suite(name, found) for name, found in cases.items()]
    every = [case for found in cases.values() for case in found]
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="rdmadiag" {_counts(every, False)}>\n'
        + "".join(suites)
        + "</testsuites>"
    )


def _cases(report: Mapping[str, Any]) -> Iterator[tuple[Any, Case]]:
    summary = report["summary"]
    yield (
        None,
        ("rdmadiag.verdict", _line.line(report, 200), "skipped" if summary["verdict"] == "unknown" else "", "", ""),
    )
    if summary["exit_code"] == 3 and not any(gap["kind"] not in _SILENT for gap in report["gaps"]):
        yield (
            None,
            (
                "rdmadiag.reading",
                "what was given",
                "error",
                "nothing known was recognised",
                "\n".join(summary["unrecognised"]),
            ),
        )
    fails = {id(finding) for finding in _line.failing(report)}
    for finding in report["findings"]:
        place = _line.place(finding["subject"])
        name = f"{finding['rule']}{f' {place}' if place else ''}"
        outcome = "failure" if id(finding) in fails else "skipped" if finding["answer"] == "unknown" else ""
        yield (
            finding["subject"].get("node"),
            (f"rdmadiag.{finding['layer']}", name, outcome, finding["title"], _text(finding)),
        )
    for entry in report["ruled_out"]:
        yield entry["subject"].get("node"), ("rdmadiag.ruled_out", f"{entry['rule']}: {entry['reason']}", "", "", "")
    for gap in report["gaps"]:
        outcome = "skipped" if gap["kind"] in _SILENT or summary["exit_code"] != 3 else "error"
        name = f"{gap['source']} {gap.get('subject', '')}".strip()
        yield (
            gap.get("node"),
            ("rdmadiag.reading", name, outcome, gap["reason"], f"{', '.join(gap['tables'])}\n{gap.get('how', '')}"),
        )


def _text(finding: Mapping[str, Any]) -> str:
    lines = [f"{finding['severity']}{' (known)' if finding['known'] else ''}: {finding['message']}"]
    lines += [f"proof: {row.get('origin', '')}: {row.get('text') or row}" for row in finding["evidence"][:3]]
    lines += [f"fix {number}. {step}" for number, step in enumerate(finding["fix"], 1)]
    lines += [f"settle it: {finding['settle']}"] if finding["settle"] else []
    return "\n".join(lines)


def _counts(cases: list[Case], skipped: bool) -> str:
    count = {name: sum(1 for case in cases if case[2] == name) for name in ("failure", "error", "skipped")}
    text = f'tests="{len(cases)}" failures="{count["failure"]}" errors="{count["error"]}"'
    return f'{text} skipped="{count["skipped"]}"' if skipped else text


def _suite(name: str, cases: list[Case]) -> str:
    return f"<testsuite name={quoted(name)} {_counts(cases, True)}>\n{''.join(map(_case, cases))}</testsuite>\n"


def _case(case: Case) -> str:
    kind, name, outcome, message, text = case
    head = f' <testcase classname={quoted(kind)} name={quoted(name)} time="0"'
    if outcome == "skipped":
        return f"{head}><skipped message={quoted(message)}/></testcase>\n"
    if outcome:
        return f'{head}><{outcome} message={quoted(message)} type="rdmadiag">{escape(clean(text))}</{outcome}></testcase>\n'
    return f"{head}><system-out>{escape(clean(text))}</system-out></testcase>\n" if text else f"{head}/>\n"


def clean(text: str) -> str:
    """Return a text without the characters that XML cannot hold."""
    return _NO_XML.sub("\ufffd", str(text))


def quoted(text: str) -> str:
    """Return a text as an attribute of XML, quotes and all."""
    return quoteattr(_line.CONTROL.sub(" ", clean(text)))
