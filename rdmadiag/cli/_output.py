"""Where commands print: results on standard output in the chosen format, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from rdmadiag.errors import RdmadiagError


def is_terminal(stream: Any) -> bool:
    """Tell whether somebody looks at a stream; a closed one is None."""
    return stream is not None and bool(stream.isatty())


def width() -> int:
    """Return the columns to fill: the terminal's, at most 120; 100 where there is none."""
    if not is_terminal(sys.stdout):
        return 100
    import shutil

    return min(shutil.get_terminal_size((100, 24)).columns, 120)


def wrapped(line: str) -> str:
    """Return a line broken between words at a terminal's width, what follows two columns deeper; as it is where nobody looks."""
    import textwrap

    if not is_terminal(sys.stdout) or len(line) <= width():
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(
        line.strip(),
        width(),
        initial_indent=indent[2:],
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def emit(text: str) -> None:
    """Print a result."""
    click.echo(text, color=is_terminal(sys.stdout))


def emit_line(value: Mapping[str, Any]) -> None:
    """Print one line of JSON at once: a program reads it while we go on."""
    click.echo(as_line(value))
    sys.stdout.flush()


def as_line(value: Mapping[str, Any]) -> str:
    """Return JSON in one line of ASCII."""
    return json.dumps(value, separators=(",", ":"), default=str)


def note(text: str) -> None:
    """Print what is not the result."""
    click.echo(text, err=True)


def progress(text: str) -> None:
    """Show what is being read, where somebody looks on."""
    if is_terminal(sys.stderr):
        click.echo(f"\r\x1b[Kreading {text[-70:]}\r", nl=False, err=True)


def end_progress() -> None:
    """Take the last line of progress away."""
    if is_terminal(sys.stderr):
        click.echo("\r\x1b[K", nl=False, err=True)


def note_unread_input() -> None:
    """Say so when something waits on standard input that was not asked for."""
    import os
    import select
    import stat

    try:
        piped = stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode) and select.select([sys.stdin], [], [], 0)[0]
    except (OSError, ValueError, AttributeError):
        return  # closed, or none
    if piped:
        note("rdmadiag: standard input was not read, this node was looked at; --from - reads it")


def report(form: str, value: Mapping[str, Any]) -> int:
    """Render a report in one of the formats of rdmadiag/render; returns the exit code, which may be the format's own."""
    from rdmadiag import registry, render

    if is_terminal(sys.stderr):
        click.echo("\r\x1b[K", nl=False, err=True)
    module = registry.load(render, form)
    emit(module.render(value, is_terminal(sys.stdout), width()))
    return int(module.exit_code(value) if hasattr(module, "exit_code") else value["summary"]["exit_code"])


def refused(form: str, error: RdmadiagError) -> int:
    """Say, as the format's caller wants it, that a check could not be made; returns the exit code. Raises the error for other formats."""
    from rdmadiag import registry, render

    module = registry.load(render, form)
    if not hasattr(module, "refused"):
        raise error
    text, code = module.refused(str(error))
    emit(text)
    note(f"rdmadiag: {error}")
    return int(code)


def formats() -> click.Choice[str]:
    """Return the names of the report formats as a choice."""
    from rdmadiag import registry, render

    return click.Choice(registry.names(render))


def run_formats() -> click.Choice[str]:
    """Return the names of the formats of a run's report as a choice."""
    from rdmadiag import registry
    from rdmadiag.render import run

    return click.Choice(registry.names(run))


def run_reports(form: str, reports: Sequence[Mapping[str, Any]]) -> None:
    """Print reports of runs; JSON of several is a list."""
    from rdmadiag import registry
    from rdmadiag.render import run

    if form == "json" and len(reports) != 1:
        emit(as_json({"schema": "rdmadiag.run-reports/1", "runs": list(reports)}))
        return
    module = registry.load(run, form)
    if hasattr(module, "render_all"):
        emit(module.render_all(reports))
        return
    emit("\n\n".join(module.render(report, is_terminal(sys.stdout), width()) for report in reports))


@contextlib.contextmanager
def run_progress(total: int) -> Iterator[Callable[[int, str, Any], None]]:
    """Yield a function that shows how far run NUMBER of `total` is: a bar for a terminal, else a line for each new step."""
    if is_terminal(sys.stderr):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)

            def show(number: int, label: str, step: Any) -> None:
                of = f"{number}/{total} " if total > 1 else ""
                known = step.total if step.total > 0 else None
                bar.update(
                    task, description=f"{of}{label}: {step.text}", total=known, completed=min(step.done, known or 0)
                )

            yield show
        return
    said = [""]

    def tell(number: int, label: str, step: Any) -> None:
        text = f"{label}: {step.text}"
        if text != said[0]:
            said[0] = text
            note(f"run {number}/{total} {text}")

    yield tell


def prove_formats() -> click.Choice[str]:
    """Return the names of the formats of a report of `rdmadiag prove` as a choice."""
    from rdmadiag import registry
    from rdmadiag.render import prove

    return click.Choice(registry.names(prove))


@contextlib.contextmanager
def prove_progress() -> Iterator[Callable[[Any], None]]:
    """Yield a function that shows how far trials are, with the time left: a bar for a terminal, else a line for each trial."""

    def left(at: Any) -> str:
        return "" if at.left_seconds is None else f", about {at.left_seconds / 60:.0f} min left"

    if is_terminal(sys.stderr):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)

            def show(at: Any) -> None:
                text = f"{at.number}/{at.total} {at.trial}: {at.text}{left(at)}"
                bar.update(task, description=text, total=at.total, completed=at.number - 1)

            yield show
        return
    said = [""]

    def tell(at: Any) -> None:
        if at.trial != said[0]:
            said[0] = at.trial
            note(f"trial {at.number}/{at.total} {at.trial}{left(at)}")

    yield tell


def as_json(value: Any) -> str:
    """Return JSON in ASCII, so that nothing in it is obeyed by a terminal."""
    return json.dumps(value, indent=1, default=str)


def listing(
    form: str, schema: str, name: str, entries: Sequence[Mapping[str, Any]], text: Callable[[], Iterable[str]]
) -> None:
    """Print a list: JSON as {"schema": ..., NAME: [...]}, or the lines that `text` gives."""
    if form == "json":
        emit(as_json({"schema": f"rdmadiag.{schema}/1", name: list(entries)}))
    else:
        emit("\n".join(text()))


def columns(rows: Sequence[Sequence[Any]], heads: Sequence[str] = ()) -> list[str]:
    """Return rows as aligned columns, control characters taken out."""
    from rdmadiag.render.text import printable

    cells = [
        [printable("" if cell is None else str(cell)) for cell in row]
        for row in ([list(heads), *rows] if heads else rows)
    ]
    widths = [max(len(row[n]) for row in cells) for n in range(len(cells[0]))] if cells else []
    return ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in cells]


_NARROWEST = 12


def fitted(rows: Sequence[Sequence[Any]], heads: Sequence[str]) -> list[str]:
    """Return rows as columns of a terminal: the widest are narrowed until all fit, and their cells go on below."""
    import textwrap

    from rdmadiag.render.text import printable

    cells = [[printable("" if cell is None else str(cell)) for cell in row] for row in [list(heads), *rows]]
    widths = [min(max(len(row[n]) for row in cells), width()) for n in range(len(heads))]
    while sum(widths) + 2 * (len(widths) - 1) > width() and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    lines: list[str] = []
    for row in cells:
        parts = [textwrap.wrap(cell, size) or [""] for cell, size in zip(row, widths, strict=True)]
        for n in range(max(map(len, parts))):
            line = "  ".join(
                (part[n] if n < len(part) else "").ljust(size) for part, size in zip(parts, widths, strict=True)
            )
            lines.append(line.rstrip())
    return lines
