"""The report of a run for a terminal: the verdict, why, and every question with its answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rdmadiag.render.run import _words
from rdmadiag.render.text import printable

_STYLES = {
    "PASS": "bold green", "FAIL": "bold red", "NOT_FIRED": "bold yellow", "INVALID": "bold yellow",
    "ABORTED": "bold yellow", "UNSUPPORTED": "bold cyan", "REVERT_FAILED": "bold white on red",
}  # fmt: skip


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the report as text; the verdict in colour for a terminal."""
    lines = [printable(line) for line in _lines(report)]
    if not terminal:
        return "\n".join(lines)
    from rich.console import Console
    from rich.text import Text

    console = Console(width=width, force_terminal=True, highlight=False)
    with console.capture() as capture:
        console.print(Text(lines[0], _STYLES[report["verdict"]]))
        for line in lines[1:]:
            console.print(Text(line, "bold red" if line.startswith("  NO ") else ""))
    return capture.get().rstrip("\n")


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{report['verdict']}  {report['label']}: {report['title']}"
    yield f"  {report['reason']}"
    if report["finding"]:
        yield f"  worth knowing: {report['finding']}"
    for _, text in _words.faults(report):
        yield f"  fault {text}"
    rows = [(a["part"], a["question"], a["got"], a["wanted"], a["answer"]) for a in report["answers"]]
    widths = [max((len(str(row[n])) for row in rows), default=0) for n in range(3)]
    for part, question, got, wanted, answer in rows:
        mark = _words.MARKS[answer]
        yield f"  {mark:7} {part:{widths[0]}}  {question:{widths[1]}}  {got:{min(widths[2], 40)}}  wanted {wanted}"
    yield from (f"  {line}" for line in timeline(report))
    for phase, finding in _words.findings(report):
        yield f"  found {phase}: {finding['severity']}: {finding['title']} [{finding['rule']}]"
    for problem in report["problems"][1 if report["reason"] in report["problems"][:1] else 0 :]:
        yield f"  not seen: {problem}"
    yield f"  {report['folder']}"


_LEVELS = " ▁▂▃▄▅▆▇█"


def timeline(report: Mapping[str, Any], columns: int = 72) -> Iterator[str]:
    """Yield goodput over time as a line of blocks, and below it where each fault was held."""
    series = report["series"]
    values, step = series["goodput_bytes_per_second"], series["bin_seconds"]
    if not values:
        return
    each = max(1, math.ceil(len(values) / columns))
    means = [sum(part) / len(part) for n in range(0, len(values), each) if (part := values[n : n + each])]
    most = max(means)
    blocks = "".join(_LEVELS[math.ceil(mean / most * 8) if most else 0] for mean in means)
    yield f"goodput |{blocks}| most {most / 1e6:.2f} MB/s, {len(values) * step:.0f} s"
    for fault in report["faults"]:
        begin, end = fault["begin_seconds"], fault["end_seconds"]
        if begin is not None:
            first = int(begin / step / each)
            last = int((len(values) * step if end is None else end) / step / each)
            marks = "".join("#" if first <= n <= last else "." for n in range(len(means)))
            yield f"fault   |{marks}| {fault['name']}"
