"""The report as one HTML file: how often each fault was named, fault by finding, precision, classes, healthy runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rdmadiag.render._page import page
from rdmadiag.render._page import text as _t
from rdmadiag.render.prove import _words

FILE = "prove.html"
_STYLE = """
:root{--width:1180px}td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bar{display:inline-block;width:120px;height:9px;background:var(--soft);position:relative;margin-top:6px}.bar i{position:absolute;top:0;bottom:0;background:var(--dim);opacity:.45}
.bar u{position:absolute;top:-2px;bottom:-2px;width:3px;background:var(--ink)}.wide{overflow-x:auto}
.matrix td,.matrix th{padding:2px 4px;text-align:center;min-width:24px}.matrix th.row,.matrix td.row{text-align:left;white-space:nowrap;padding-right:10px}
.matrix th.col{height:190px;vertical-align:bottom;padding:0;min-width:26px}.matrix th.col span{writing-mode:vertical-rl;transform:rotate(180deg);font-weight:400;white-space:nowrap}
.hit{background:color-mix(in srgb,var(--yes) 35%,transparent);font-weight:700}.miss{background:color-mix(in srgb,var(--no) 35%,transparent);font-weight:700}
"""


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the page; everything that was read from trials is text in it, never markup."""
    colour = "#2b8a3e" if report["bar"]["met"] else "#e67700"
    sentences = "".join(f"<p>{_t(sentence)}</p>" for sentence in _words.summary(report))
    head = f"<b>{_words.share(report['figures']['share'])} named first</b>{sentences}"
    return page("Diagnosis proven by faults", colour, head, _STYLE, _body(report))


def _body(report: Mapping[str, Any]) -> Iterator[str]:
    yield from _faults(report)
    yield from _matrix(report)
    yield from _precision(report)
    yield from _classes(report)
    yield from _healthy(report)
    yield from _rest(report)


def _bar(recall: float | None, pair: Any) -> str:
    if recall is None:
        return ""
    left, right = 100 * pair[0], 100 * pair[1]
    return f'<span class="bar"><i style="left:{left:.1f}%;width:{right - left:.1f}%"></i><u style="left:{min(97.5, 100 * recall):.1f}%"></u></span>'


def _faults(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Faults</h2><p class=dim>Right: a cause that names the fault's class came first. The bar is the 95 % interval (Wilson), the mark the share.</p>"
    yield "<div class=wide><table><tr><th>fault</th><th>class</th><th>right</th><th>runs</th><th>recall</th><th></th><th>confirmed</th><th>first sign after</th><th>named first</th></tr>"
    for row in report["faults"]:
        good = row["recall"] is not None and row["right"] == row["runs"]
        yield (
            f"<tr><td><b>{_t(row['fault'])}</b></td><td>{_t(row['class'] if row['class'] != row['fault'] else '')}</td>"
            f"<td class=n>{row['right']}</td><td class=n>{row['runs']}</td><td class='n {'yes' if good else 'no'}'>{_words.share(row['recall'])}</td>"
            f"<td>{_bar(row['recall'], row['interval'])}</td><td class=n>{row['confirmed']}</td>"
            f"<td class=n>{_words.seconds(row['detect_seconds'])}</td><td>{_t(_words.named(row))}</td></tr>"
        )
    yield "</table></div>"


def _matrix(report: Mapping[str, Any]) -> Iterator[str]:
    matrix = report["matrix"]
    yield "<h2>Fault by what was named first</h2><p class=dim>Runs; green where that names the fault's class.</p>"
    heads = "".join(f"<th class=col><span>{_t(column)}</span></th>" for column in matrix["columns"])
    yield f"<div class=wide><table class=matrix><tr><th class=row></th>{heads}</tr>"
    for row, cells, right in zip(matrix["rows"], matrix["cells"], matrix["right"], strict=True):
        shown = ""
        for count, fits in zip(cells, right, strict=True):
            kind = "hit" if fits and count else "miss" if count and row != "healthy" else ""
            shown += f'<td class="{kind}">{count or ""}</td>'
        yield f"<tr><td class=row>{_t(row)}</td>{shown}</tr>"
    yield "</table></div>"


def _precision(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Precision</h2><p class=dim>Of the runs in which a class was named first, how many were of it.</p><table><tr><th>class</th><th>named</th><th>right</th><th>precision</th><th></th></tr>"
    for row in report["precision"]:
        yield (
            f"<tr><td>{_t(row['class'])}</td><td class=n>{row['named']}</td><td class=n>{row['right']}</td>"
            f"<td class=n>{_words.share(row['precision'])}</td><td>{_bar(row['precision'], row['interval'])}</td></tr>"
        )
    yield "</table>"


def _classes(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Faults that count as one class</h2><p class=dim>Written down before the run. Each sign, and in how many runs of each fault it was seen; signs whose intervals do not meet are marked.</p>"
    for one in report["classes"]:
        same = {True: "identical column by column", False: "NOT identical", None: "not compared: not all were run"}[
            one["identical"]
        ]
        yield f"<h3>{_t(one['name'])}: {_t(', '.join(one['faults']))} <span class={'yes' if one['identical'] else 'no' if one['identical'] is False else 'dim'}>{same}</span></h3><p>{_t(one['why'])}.</p>"
        heads = "".join(f"<th>{_t(name)} (of {one['runs'][name]})</th>" for name in one["faults"])
        yield f"<details><summary>{len(one['columns'])} signs</summary><table><tr><th>sign</th>{heads}<th></th></tr>"
        for column in one["columns"]:
            cells = "".join(f"<td class=n>{column['runs'][name]}</td>" for name in one["faults"])
            mark = "" if column["same"] else "<td class=no>differs</td>"
            yield f"<tr><td><code>{_t(column['sign'])}</code></td>{cells}{mark}</tr>"
        yield "</table></details>"


def _healthy(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>False alarms</h2>"
    if not report["healthy"]["alarms"]:
        yield f"<p>None in {report['healthy']['runs']} healthy runs.</p>"
        return
    yield "<table><tr><th>run</th><th>rule</th><th>severity</th><th>message</th></tr>"
    for alarm in report["healthy"]["alarms"]:
        cells = "".join(f"<td>{_t(alarm[name])}</td>" for name in ("trial", "rule", "severity", "message"))
        yield f"<tr>{cells}</tr>"
    yield "</table>"


def _rest(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>What names each fault rightly</h2><table><tr><th>fault</th><th>rules</th><th>why</th></tr>"
    for row in report["faults"]:
        yield f"<tr><td>{_t(row['fault'])}</td><td><code>{_t(', '.join(row['rules']))}</code></td><td>{_t(row['why'])}</td></tr>"
    yield "</table>"
    if report["left_out"]:
        yield "<h2>Left out</h2><table>"
        yield from (f"<tr><td>{_t(one['trial'])}</td><td>{_t(one['why'])}</td></tr>" for one in report["left_out"])
        yield "</table>"
    if report["not_proven"]:
        yield "<h2>What no trial can put on</h2><table>"
        yield from (f"<tr><td>{_t(one['fault'])}</td><td>{_t(one['why'])}</td></tr>" for one in report["not_proven"])
        yield "</table>"
    taken = ", ".join(f"{count} {what}" for what, count in report["stripped"].items())
    yield f"<h2>Taken out of the evidence</h2><p>{_t(taken or 'nothing')}.</p><p class=dim>rdmadiag {_t(report['rdmadiag'])}, {_t(report['folder'])}</p>"
