"""Write a manual page of each command, from its `--help`, into a folder: `python docs/man.py FOLDER`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from rdmadiag import __version__
from rdmadiag.cli import cli


def pages() -> dict[str, str]:
    """Return the pages by file name: rdmadiag.1, and rdmadiag-COMMAND.1 of each command and sub-command."""
    found: dict[str, str] = {}
    waiting: list[tuple[click.Context, click.Command]] = [(click.Context(cli, info_name="rdmadiag"), cli)]
    while waiting:
        context, command = waiting.pop()
        found[f"{context.command_path.replace(' ', '-')}.1"] = _page(context, command)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                if inner is not None and not inner.hidden:
                    waiting.append((click.Context(inner, info_name=name, parent=context), inner))
    return found


def _page(context: click.Context, command: click.Command) -> str:
    name = context.command_path.replace(" ", "-")
    lines = [
        f'.TH "{name.upper()}" "1" "" "rdmadiag {__version__}" "rdmadiag manual"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(command.get_short_help_str(200))}",
        ".SH SYNOPSIS",
        f".B {_text(context.command_path)}",
        _text(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
    ]
    options = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    if options:
        lines.append(".SH OPTIONS")
        for names, meaning in options:
            lines += [".TP", f"\\fB{_text(names)}\\fR", _text(meaning) or "."]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None and not found.hidden:
                lines += [".TP", f"\\fB{_text(inner)}\\fR", _text(found.get_short_help_str(200)) or "."]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    # As click reads help texts: an empty line parts paragraphs, and a line \b keeps the lines of one as they are.
    for paragraph in re.split(r"\n\s*\n", re.sub(r"\n {4}", "\n", text.strip())):
        lines = paragraph.split("\n")
        kept = lines[0].strip() == "\b"
        yield ".PP"
        if kept:
            yield from (".nf", *(_text(line) for line in lines[1:]), ".fi")
        else:
            yield _text(" ".join(line.strip() for line in lines))


def _text(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").rstrip()
    return f"\\&{text}" if text[:1] in (".", "'") else text


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/man.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file, page in pages().items():
        (folder / file).write_text(page)
    print(f"{len(pages())} pages in {folder}")
