"""rdmadiag tables: the evidence tables, with the meaning, unit and source of every column."""

from __future__ import annotations

import click

from rdmadiag.cli import _output


@click.command(short_help="Print the evidence tables: every column with its unit and source.")
@click.argument("names", nargs=-1)
@click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)
def command(names: tuple[str, ...], form: str) -> None:
    """Print the evidence tables that rules and `rdmadiag query` read (all, or those named).

    \b
    Examples:
      rdmadiag tables
      rdmadiag tables port gid
    """
    from rdmadiag.errors import BadInput
    from rdmadiag.evidence import store

    tables = store.tables()
    if unknown := [name for name in names if name not in tables]:
        raise BadInput(f"no table {', '.join(unknown)}; known: {', '.join(tables)}")
    chosen = [tables[name] for name in names or tables]
    entries = [
        {
            "name": t.name,
            "view": t.view,
            "meaning": t.meaning,
            "key": t.key,
            "columns": [c._asdict() for c in t.columns],
        }
        for t in chosen
    ]

    def text() -> list[str]:
        lines: list[str] = []
        for table in chosen:
            lines += [f"{table.name}{' (view)' if table.view else ''}: {table.meaning}"]
            lines += [f"  {line}" for line in _output.columns([(c.name, c.type, c.meaning) for c in table.columns])]
            lines.append("")
        return lines[:-1]

    _output.listing(form, "tables", "tables", entries, text)
