"""rdmadiag query: ask the evidence in SQL."""

from __future__ import annotations

import sys

import click

from rdmadiag.cli import _output
from rdmadiag.cli._options import BUDGET, seconds


@click.command(short_help="Ask the evidence in SQL (SELECT only).")
@click.argument("sql")
@click.option(
    "--from",
    "given",
    multiple=True,
    metavar="[NODE=]PATH",
    help="Ask about a file, folder, archive or - instead of this node; repeatable.",
)
@click.option(
    "--window",
    default="0",
    callback=seconds,
    show_default=True,
    help="Time between two samples of counters; 0 takes one sample.",
)
@BUDGET
@click.option("--format", "form", default="text", type=click.Choice(["text", "csv", "json"]), show_default=True)
def command(sql: str, given: tuple[str, ...], window: float, budget: float, form: str) -> None:
    """Run one SELECT over the evidence tables (`rdmadiag tables` prints them); read-only, bounded in time and memory.

    \b
    Examples:
      rdmadiag query "SELECT device, port, state, rate_gbps FROM port"
      rdmadiag query --from dump.json --format csv "SELECT state, count(*) FROM qp GROUP BY state"
      rdmadiag query "SELECT * FROM gap"
    """
    from rdmadiag.diagnose import check

    names, rows, more = check.query(check.Request(given=given, window=window, budget=budget), sql, _output.progress)
    if form == "json":
        _output.emit(
            _output.as_json(
                {"schema": "rdmadiag.rows/1", "columns": names, "rows": [list(row) for row in rows], "left_out": more}
            )
        )
    elif form == "csv":
        _output.emit(_csv(names, rows))
    else:
        _output.emit(
            "\n".join(_output.fitted(rows, names) if _output.is_terminal(sys.stdout) else _output.columns(rows, names))
        )
    if more:
        _output.note(f"{more} more rows were left out")


def _csv(names: list[str], rows: list[tuple[object, ...]]) -> str:
    import csv
    import io

    from rdmadiag.render.text import printable

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([printable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return buffer.getvalue().rstrip("\n")
