"""The report of a run as one HTML file: verdict, timeline, what was asked of it, findings, evidence, environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rdmadiag.render._page import page
from rdmadiag.render._page import text as _t
from rdmadiag.render.run import _timeline, _words

FILE = "report.html"
_COLOURS = {
    "PASS": "#2b8a3e", "FAIL": "#c92a2a", "NOT_FIRED": "#e67700", "INVALID": "#e67700", "ABORTED": "#e67700",
    "UNSUPPORTED": "#1864ab", "REVERT_FAILED": "#862e9c",
}  # fmt: skip
_STYLE = """
header b{letter-spacing:.03em}header h1{font-size:19px;font-weight:600;margin:2px 0 6px}table{width:100%}td{overflow-wrap:anywhere}
.short td:nth-child(-n+3){white-space:nowrap}.short td:nth-child(5){min-width:9em;overflow-wrap:normal}.mark{white-space:nowrap}
pre{background:var(--soft);padding:8px 10px;overflow:auto;font-size:12.5px;white-space:pre-wrap;margin:6px 0}
.chip{display:inline-block;border:1px solid var(--line);border-radius:9px;padding:0 8px;font-size:12.5px}
svg{width:100%;height:auto;display:block;margin-top:6px}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .name{text-anchor:end;font-weight:600}
svg .dim{fill:var(--dim);font-size:11px}svg .name+.dim{text-anchor:end}svg .tick{font-size:11px;fill:var(--dim)}svg .band{font-weight:700;font-size:12px}
svg .field{fill:none;stroke:var(--line)}svg .grid{stroke:var(--line);stroke-dasharray:2 4}
"""


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the page; everything that was read from a run is text in it, never markup."""
    verdict = report["verdict"]
    head = f"<b>{verdict}</b><h1>{_t(report['label'])}: {_t(report['title'])}</h1><p>{_t(report['reason'])}</p>"
    return page(f"{verdict} {report['label']}", _COLOURS[verdict], head, _STYLE, _body(report))


def _body(report: Mapping[str, Any]) -> Iterator[str]:
    if report["finding"]:
        yield f"<p><b>Worth knowing:</b> {_t(report['finding'])}</p>"
    yield f"<p>{' '.join(_t(line) for line in report['about'])}</p>"
    yield "<h2>Timeline</h2>" + _timeline.svg(report)
    yield from _answers(report)
    yield from _faults(report)
    yield from _findings(report)
    yield from _quantities(report)
    yield from _events(report)
    yield from _environment(report)


def _mark(answer: str) -> str:
    return f'<td class="mark {_t(answer)}">{_words.MARKS.get(answer, "?")}</td>'


def _answers(report: Mapping[str, Any]) -> Iterator[str]:
    yield '<h2>What was asked of it</h2><table class="short"><tr><th></th><th>part</th><th>question</th><th>seen</th><th>wanted</th><th>from</th></tr>'
    for a in report["answers"]:
        cells = "".join(f"<td>{_t(a[name])}</td>" for name in ("question", "got", "wanted"))
        yield f'<tr>{_mark(a["answer"])}<td>{_words.PARTS[a["part"]]}</td>{cells}<td class="dim">{_t(a["origin"])}</td></tr>'
    yield "</table>"
    if report["problems"]:
        yield "<h3>Not seen</h3><ul>" + "".join(f"<li>{_t(problem)}</li>" for problem in report["problems"]) + "</ul>"


def _faults(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Injection and revert</h2>"
    if not report["faults"]:
        yield "<p>No fault: a run to compare with.</p>"
    for (name, told), fault in zip(_words.faults(report), report["faults"], strict=True):
        yield f"<h3>{_t(name)}</h3><p>{_t(told)}</p><table><tr><th></th><th>proof</th><th></th></tr>"
        for kind, answer, text in _words.proofs(fault):
            yield f"<tr>{_mark(answer)}<td>{kind}</td><td>{_t(text)}</td></tr>"
        yield "</table>"
        if fault.get("plan"):
            steps = "\n\n".join(
                f"# {what}\n{do}" for what, do in zip(fault["plan"], fault.get("do") or [], strict=False)
            )
            yield f"<details><summary>what was done ({len(fault['plan'])} steps)</summary><pre>{_t(steps)}</pre></details>"


def _findings(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Findings, and what proved them</h2>"
    found = list(_words.findings(report))
    if not found:
        yield "<p>No rule was confirmed from the evidence of this run.</p>"
    for phase, finding in found:
        subject = ", ".join(f"{key} {value}" for key, value in (finding["subject"] or {}).items() if key != "node")
        yield f'<h3>{_t(finding["title"])} <code>{_t(finding["rule"])}</code> <span class="chip">{_t(finding["severity"])}</span> <span class="chip">{_t(phase)}</span></h3>'
        yield f"<p>{_t(finding['message'])}{f' <span class=dim>({_t(subject)})</span>' if subject else ''}</p>"
        rows = [
            ", ".join(f"{k} {v}" for k, v in row.items() if v is not None) for row in (finding["evidence"] or [])[:5]
        ]
        if rows:
            yield "<pre>" + "\n".join(_t(row) for row in rows) + "</pre>"


def _quantities(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Measured</h2><details><summary>every quantity that a scenario can ask about</summary><table>"
    yield "<tr><th>quantity</th><th>value</th><th>from</th></tr>"
    for name, entry in report["quantities"].items():
        value = "unknown" if entry["value"] is None else entry["value"]
        yield f'<tr><td><code>{_t(name)}</code></td><td>{_t(value)}</td><td class="dim">{_t(entry["origin"])}</td></tr>'
    yield "</table></details>"


def _events(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Events</h2><details><summary>what happened, by time</summary><table>"
    for event in report["events"]:
        words = ", ".join(
            f"{key} {value}" for key, value in event.get("values", {}).items() if value not in (None, "", {})
        )
        yield f"<tr><td>{event['seconds']:.2f} s</td><td>{_t(event.get('from'))}</td><td>{_t(event.get('kind'))}</td><td>{_t(words)}</td></tr>"
    yield "</table></details>"


def _environment(report: Mapping[str, Any]) -> Iterator[str]:
    environment = report["environment"]
    rows = [
        ("started", report["started"]),
        ("seed", report["seed"]),
        ("rdmadiag", environment["rdmadiag"]),
        ("folder", report["folder"]),
    ]
    for group in ("machine", "lab", "workload"):
        for name, value in (environment[group] or {}).items():
            rows.append((f"{group}: {name}", value))
    yield "<h2>Environment</h2><table>"
    yield from (f"<tr><td>{_t(name)}</td><td>{_t(value)}</td></tr>" for name, value in rows if value not in (None, {}))
    yield "</table>"
    if environment["links"]:
        heads = list(environment["links"][0])
        yield "<table><tr>" + "".join(f"<th>{_t(head)}</th>" for head in heads) + "</tr>"
        for link in environment["links"]:
            yield "<tr>" + "".join(f"<td>{_t(link[head])}</td>" for head in heads) + "</tr>"
        yield "</table>"
