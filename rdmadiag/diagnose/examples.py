"""Run a rule on the examples in its own file: the evidence each names, and the answer each must give."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, NamedTuple

from rdmadiag import sources
from rdmadiag.diagnose import engine, rulebook
from rdmadiag.errors import BadFile
from rdmadiag.evidence import collect, paste
from rdmadiag.evidence.given import GivenText
from rdmadiag.evidence.row import Gap, Row
from rdmadiag.evidence.store import Evidence
from rdmadiag.evidence.texts import Library

NODE = "n"
_SINCE = 86400.0


class Tried(NamedTuple):
    """One example: which (`wrong/0`), and the problem with the rule's answer, '' when it is right."""

    rule: str
    example: str
    problem: str


def evidence_of(example: Mapping[str, list[Any]], book: rulebook.Rulebook, library: Library, place: str) -> Evidence:
    """Make the evidence that an example names. Raises BadFile for a table or column that does not exist.

    Keys: a table's name with rows (node `n` unless a row names one); `text`: lines of a pasted log or tool output;
    `kernel_text`: lines of a whole kernel log; `gaps`: names of tables or views that could not be seen.
    """
    evidence = Evidence(rulebook.extra_log_columns(book))
    for name, rows in example.items():
        if name == "gaps":
            evidence.gap(NODE, "example", Gap(tuple(rows), "not given", "not_given"))
        elif name in ("text", "kernel_text"):
            _paste(evidence, library, "\n".join(rows), name == "kernel_text")
        else:
            for number, row in enumerate(rows):
                try:
                    evidence.add(row.get("node", NODE), {k: v for k, v in row.items() if k != "node"}, name, "example")
                except (ValueError, KeyError) as error:
                    raise BadFile(place, f"{name}/{number}", f"{error}") from error
    evidence.add(NODE, {}, "node", "example")
    evidence.finish()
    return evidence


def _paste(evidence: Evidence, library: Library, text: str, kernel: bool) -> None:
    read = paste.read_text(
        library, GivenText(None, "example", "example", BytesIO(text.encode())), time.monotonic() + 60, _SINCE
    )
    for source, host, item in read.items:
        if isinstance(item, Row) and item.table == "reading" and kernel:
            continue
        evidence.add_item(host or NODE, source, item, "example")
    if kernel:
        evidence.add(
            NODE,
            {"source": "dmesg", "log": "kernel", "complete": 1, "lines": text.count("\n") + 1},
            "reading",
            "example",
        )


def run(rule: rulebook.Rule, book: rulebook.Rulebook, library: Library) -> Iterator[Tried]:
    """Try every example of a rule."""
    for wanted in ("wrong", "fine", "unknown"):
        for number, example in enumerate(rule.data["examples"][wanted]):
            place = f"/examples/{wanted}/{number}"
            evidence = evidence_of(example, book, library, f"{rule.path}: {place}")
            result = engine.evaluate(evidence, rulebook.Rulebook([rule]))[rule.id]
            yield Tried(rule.id, f"{wanted}/{number}", _problem(wanted, result))


def _problem(wanted: str, result: engine.Result) -> str:
    answers = [answer.wrong for answer in result.answers]
    got = "wrong" if 1 in answers else "unknown" if None in answers else "fine"
    if got == wanted:
        return ""
    rows = "; ".join(f"{answer.wrong}: {answer.reason or answer.row}" for answer in result.answers[:3]) or "no row"
    return f"answers {got}, wanted {wanted} ({rows})"


def library_for(book: rulebook.Rulebook) -> Library:
    """Make the library of all tools and all patterns, for many examples."""
    return collect.library(sources.load(), book.patterns())
