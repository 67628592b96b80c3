"""The report of a run as Markdown, for a ticket or a summary of a build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rdmadiag.render.markdown import as_code, as_text
from rdmadiag.render.run import _words

FILE = "report.md"


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the report as Markdown; nothing that was read from the run is taken for markup."""
    return "\n".join(_lines(report))


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {report['verdict'].replace('_', chr(92) + '_')}: {as_text(report['label'])}"
    yield ""
    yield as_text(report["title"])
    yield ""
    yield as_text(report["reason"])
    if report["finding"]:
        yield from ("", f"Worth knowing: {as_text(report['finding'])}")
    yield from ("", "| | part | question | seen | wanted |", "|---|---|---|---|---|")
    for a in report["answers"]:
        cells = (as_text(a[name]) for name in ("question", "got", "wanted"))
        yield f"| {_words.MARKS[a['answer']]} | {_words.PARTS[a['part']]} | {' | '.join(cells)} |"
    for (_, told), fault in zip(_words.faults(report), report["faults"], strict=True):
        yield from ("", f"## Fault {as_text(fault['name'])}", "", as_text(told), "")
        yield from (
            f"- {kind}: {_words.MARKS.get(answer, '?')}: {as_text(text)}" for kind, answer, text in _words.proofs(fault)
        )
    found = list(_words.findings(report))
    if found:
        yield from ("", "## Findings", "")
        yield from (f"- `{f['rule']}` ({phase}, {f['severity']}): {as_text(f['message'])}" for phase, f in found)
    if report["problems"]:
        yield from ("", "## Not seen", "", *(f"- {as_text(problem)}" for problem in report["problems"]))
    yield from (
        "",
        f"Seed {report['seed']}; evidence: {as_code(report['folder'])}; again: {as_code('rdmadiag judge ' + report['folder'])}",
    )
