"""What sources yield: rows of evidence tables, gaps where they could not look, and how to know a pasted text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One row of an evidence table (see schema.sql); columns left out are NULL.

    `at` is where it was read: a path of the node (live or captured tree), or the line number in a pasted text.
    """

    table: str
    values: dict[str, Any]
    at: str | int


class Rows(NamedTuple):
    """Many rows of one table at once, for what comes by the ten thousand (QPs, MRs): tuples in the order of `columns`."""

    table: str
    columns: Sequence[str]
    tuples: Iterable[Sequence[Any]]
    at: str | int


class Gap(NamedTuple):
    """Something that could not be seen: the tables it leaves incomplete, why, and how to get it.

    `kind`: not_given, not_permitted, unreadable, timeout, crash, truncated, restricted, assumed.
    """

    tables: tuple[str, ...]
    reason: str
    kind: str = "unreadable"
    how: str = ""
    subject: str = ""


class Line(NamedTuple):
    """One line of a pasted text: its number in the file (from 1), and its text without colour codes or line end."""

    number: int
    text: str


class Text(NamedTuple):
    """A text that a tool prints and a person pastes: how to know it, and its parser.

    `signs` are regular expressions (the subset that Hyperscan takes: no look-around, no back-references); a line that
    any of them matches says that this tool's output is here. They must be specific: a sign that also matches another
    tool's text runs this parser on it, so the parser must pass over lines it does not know. `parse` gets the lines of
    one section (one command's output, or the whole file) and yields rows with `at` = line number; it never raises
    for any input. `commands` are the program names whose prompt line (`$ ibstat`) announces this text.
    """

    tool: str
    signs: tuple[str, ...]
    parse: Callable[[Sequence[Line]], Iterable[Row | Rows | Gap]]
    commands: tuple[str, ...] = ()
    by_line: bool = False
    """True: the parser needs only the lines that a sign matches, each with six that follow; so logs of any size work."""
    log: str | None = None
    """'kernel' or 'application' when the text is a log; rules' patterns are matched over every text anyway."""


class Json(NamedTuple):
    """A JSON text that a tool prints: known by keys that its first objects have; `parse` gets the list of objects.

    `keys`: one tuple a form; a form is recognised when one of the first objects has all of its keys.
    `names`: a pattern whose group is the netdev in the command line, for JSON that does not name it; objects get it as `ifname`.
    `columns`: where a list may be long, the keys of which `parse_columns` gets the values of each object, when all objects have them.
    """

    tool: str
    keys: tuple[tuple[str, ...], ...]
    parse: Callable[[list[dict[str, Any]]], Iterable[Row | Rows | Gap]]
    commands: tuple[str, ...] = ()
    names: str = ""
    columns: tuple[str, ...] = ()
    parse_columns: Callable[[list[tuple[Any, ...]]], Iterable[Row | Rows | Gap]] | None = None


class Printed(NamedTuple):
    """A text that a source got from the node itself (the kernel log), to be read like a pasted one, complete.

    `end_seconds` is now, on the clock that its lines' times are from [s]; `end_epoch` the same moment since 1970 [s].
    """

    tool: str
    text: str
    at: str
    end_seconds: float | None = None
    end_epoch: float | None = None
