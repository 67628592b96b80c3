"""rdmadiag check: say what is wrong, what proves it, what was ruled out, and what is unknown."""

from __future__ import annotations

from typing import Any

import click

from rdmadiag.cli import _output
from rdmadiag.cli._options import BUDGET, PATH, seconds, since
from rdmadiag.errors import RdmadiagError
from rdmadiag.render.text import printable

HELP = """Say what is wrong with RDMA on this node, or in what --from names.

\b
Examples:
  rdmadiag check                               this node, counters over 1 second
  sudo rdmadiag check --window 10              counters over 10 seconds; root sees more
  rdmadiag check --from bundle.tar.gz          a captured node
  rdmadiag check --from prefill=a/ --from decode=b/     two nodes
  ibstat | rdmadiag check --from - --format json
  rdmadiag check --peer decode-0.tar.gz        this node and the one that it talks to
  rdmadiag check --previous monday.tar.gz      counters since then
  rdmadiag check --baseline known.json         only what is new fails
  rdmadiag check --explain memlock-too-low     why a rule says what it says

Exit codes: 0 nothing at or above --fail-on is proven wrong; 1 something is; 2 wrong use or a bad file; 3 nothing
proven, but something that was asked for could not be read. With --format npd: 0 OK, 1 NonOK, 2 Unknown; with
--format nagios: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
"""


@click.command(help=HELP, short_help="Say what is wrong, what proves it, and what is unknown.")
@click.argument("paths", nargs=-1, metavar="")
@click.option(
    "--from",
    "given",
    multiple=True,
    metavar="[NODE=]PATH",
    help="Look at a file, folder, archive or - instead of this node; repeatable.",
)
@click.option(
    "--window",
    default="1s",
    callback=seconds,
    show_default=True,
    help="Time between the two samples of counters; 0 takes one sample.",
)
@BUDGET
@click.option(
    "--since",
    default="24h",
    callback=since,
    show_default=True,
    metavar="TIME",
    help="Leave out log lines that are older: counted from the log's end (15m, 24h, 7d), or than a time (2026-11-30T08:15, 08:15).",
)
@click.option("--only", multiple=True, metavar="RULE", help="Only these rules (ids, with * for any part); repeatable.")
@click.option("--skip", multiple=True, metavar="RULE", help="All but these rules; repeatable.")
@click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="LAYER",
    help="Only rules of this layer (roce, pcie, app ...); repeatable.",
)
@click.option(
    "--baseline",
    type=PATH,
    metavar="FILE",
    help="An earlier JSON report: what it found is shown as known and fails nothing.",
)
@click.option(
    "--previous",
    type=PATH,
    metavar="FILE",
    help="An earlier bundle, capture or JSON report of this node: counters count from there.",
)
@click.option(
    "--peer",
    multiple=True,
    metavar="[NODE=]PATH",
    help="The other end, captured: what both must agree on is compared; repeatable.",
)
@click.option("--expect", type=PATH, help="Expectation file: what nodes of this kind must have.")
@click.option("--site", type=PATH, help="Site file: overrides parameters of rules.")
@click.option("--rules", "folders", multiple=True, type=PATH, help="More rules: a folder or a file; repeatable.")
@click.option("--explain", metavar="RULE", help="Show one rule's query, rows, parameters, arithmetic and gaps.")
@click.option(
    "--fail-on",
    default="warning",
    type=click.Choice(["info", "warning", "error", "critical"]),
    show_default=True,
    help="Exit 1 from this severity on.",
)
@click.option("--timing", is_flag=True, help="Print on standard error what each source took.")
@click.option("--format", "form", default="text", type=_output.formats(), show_default=True)
@click.pass_context
def command(
    context: click.Context, /, paths: tuple[str, ...], form: str, explain: str | None, timing: bool, **options: Any
) -> None:
    """Run the check."""
    import gc

    gc.disable()  # a short process: looking for cycles that nothing makes takes a tenth of its time
    from rdmadiag.diagnose import check

    if paths:
        raise click.UsageError(f"{paths[0]} is not an option; to look at it: " + " ".join(f"--from {p}" for p in paths))
    if not options["given"]:
        _output.note_unread_input()
        if options["window"] > 2:
            _output.progress(f"this node; two samples of its counters {options['window']:g} s apart")
    try:
        checked = check.check(check.Request(**options), progress=_output.progress)
    except RdmadiagError as error:
        context.exit(_output.refused(form, error))
    if context.obj is not None:
        context.obj.append(checked)
    if timing:
        _output.note(
            "\n".join(
                _output.columns(
                    [(t.source, f"{t.seconds * 1000:.1f} ms", t.items) for t in checked.timings],
                    ("source", "time", "rows"),
                )
            )
        )
    if explain:
        _explain(form, check.explain(checked, explain))
    else:
        context.exit(_output.report(form, checked.report))
    context.exit(checked.report["summary"]["exit_code"])


def _explain(form: str, value: dict[str, Any]) -> None:
    if form == "json":
        _output.emit(_output.as_json(value))
        return
    lines = [f"{value['rule']} ({value['kind']}): {value['title']}", ""]
    lines.append(f"answers: {len(value['answers']) or 'none: not applicable here'} ({value['seconds'] * 1000:.1f} ms)")
    for answer in value["answers"][:50]:
        lines.append(f"  {answer['answer'].upper()}: {answer['says']}")
        lines += [f"      {name} = {item}" for name, item in answer["row"].items() if item is not None]
    lines += ["", "query:", *(f"  {line}" for line in value["query"].splitlines())]
    lines += ["", "patterns:", *(f"  {pattern}" for pattern in value["patterns"])] if value["patterns"] else []
    for name, parameter in value["parameters"].items():
        lines.append(
            f"parameter :{name} = {parameter['value']} {parameter['unit']} (default {parameter['default']}; {parameter['source']})"
        )
    lines += ["", f"reads: {', '.join(value['reads'])}"]
    lines += [
        f"gap: {', '.join(gap['tables'])}: {gap['reason']}. {gap.get('how', '')}".rstrip() for gap in value["gaps"]
    ]
    lines += [f"not a false alarm? {value['false_alarm']}"] if value["false_alarm"] else []
    lines += [
        f"explains: {', '.join(value['explains']) or 'nothing'}",
        f"explained by: {', '.join(value['explained_by']) or 'nothing'}",
    ]
    lines += [f"see: {ref}" for ref in value["refs"]]
    _output.emit("\n".join(printable(line) for line in lines))
