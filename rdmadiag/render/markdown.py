"""The report as Markdown, for a ticket: the verdict, each symptom with its causes, what was ruled out, what was not seen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rdmadiag.render import _line
from rdmadiag.render.text import printable

PROOFS, RULED_OUT, GAPS = 5, 20, 30
_MARKS = re.compile(r"([\\`*<>\[\]|~])")
_WORDS = {"wrong": "WRONG", "fine": "nothing wrong", "unknown": "UNKNOWN"}


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the report as Markdown; nothing of the evidence is taken for markup."""
    return "\n".join(_report(report))


def _report(report: Mapping[str, Any]) -> Iterator[str]:
    summary, findings = report["summary"], report["findings"]
    names = ", ".join(str(node["node"]) for node in report["nodes"]) or "nothing"
    yield f"# {as_text(names)}: {_WORDS[summary['verdict']]}"
    yield ""
    yield as_text(_line.line(report, 300))
    told: set[int] = set()
    for symptom in [f for f in findings if f["kind"] == "symptom"]:
        yield from _finding(symptom, 2)
        for cause in findings:
            if cause["kind"] == "cause" and symptom["rule"] in cause["explains"] and id(cause) not in told:
                told.add(id(cause))
                yield from _finding(cause, 3)
    rest = [f for f in findings if f["kind"] == "cause" and id(f) not in told]
    for title, answer in (("Wrong, though no symptom of it is seen", "confirmed"), ("Worth settling", "unknown")):
        if any(f["answer"] == answer for f in rest):
            yield from ("", f"## {title}")
            for cause in rest:
                if cause["answer"] == answer:
                    yield from _finding(cause, 3)
    if report["ruled_out"]:
        yield from ("", "## Ruled out", "")
        yield from (f"- `{e['rule']}`: {as_text(e['reason'])}" for e in report["ruled_out"][:RULED_OUT])
        yield from _more(report["ruled_out"], RULED_OUT)
    if report["gaps"]:
        yield from ("", "## Not seen", "")
        for gap in report["gaps"][:GAPS]:
            how = f" To see it: {as_text(gap['how'])}." if gap.get("how") else ""
            yield f"- {as_text(', '.join(gap['tables']))}: {as_text(gap['reason'])}.{how}"
        yield from _more(report["gaps"], GAPS)


def _finding(finding: Mapping[str, Any], level: int) -> Iterator[str]:
    sure = finding["answer"] == "confirmed"
    head = finding["severity"].upper() if sure else "Unknown"
    known = " (known)" if finding["known"] else ""
    yield from ("", f"{'#' * level} {head}: {as_text(finding['title'])}{known} (`{finding['rule']}`)", "")
    yield as_text(finding["message"])
    if finding["evidence"]:
        yield ""
        for row in finding["evidence"][:PROOFS]:
            shown = row.get("text") or ", ".join(f"{name} {value}" for name, value in row.items() if name != "origin")
            origin = row.get("origin")
            yield f"- proof: {as_code(f'{origin}: {shown}' if origin else str(shown))}"
        yield from _more(finding["evidence"], PROOFS)
    if finding["settle"]:
        yield from ("", f"Settle it: {as_code(finding['settle'])}")
    if finding["fix"]:
        yield ""
        yield from (f"{number}. {as_text(step)}" for number, step in enumerate(finding["fix"], 1))


def _more(entries: Sequence[Any], shown: int) -> Iterator[str]:
    if len(entries) > shown:
        yield f"- and {len(entries) - shown} more"


def as_text(text: str) -> str:
    """Return a text as one line of Markdown in which nothing is taken for markup."""
    return _MARKS.sub(r"\\\1", _one_line(text))


def as_code(text: str) -> str:
    """Return a text as one line of code."""
    text = _one_line(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"`{text}`"


def _one_line(text: str) -> str:
    return " ".join(printable(str(text)).split())
