"""rdmadiag rules: list, show, check and try the rules."""

from __future__ import annotations

import os
from typing import Any

import click

from rdmadiag.cli import _options, _output

FORMAT = click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)
FOLDERS = click.option(
    "--rules", "folders", multiple=True, type=_options.PATH, help="More rules: a folder or a file; repeatable."
)


@click.group(short_help="List, show, check (lint) and try (test) the rules.")
def command() -> None:
    """Work with the rules.

    \b
    Examples:
      rdmadiag rules list --layer roce
      rdmadiag rules show rnr-retries-exhausted
      rdmadiag rules lint my-rules/
      rdmadiag rules test my-rules/no-spare-nic.json
      rdmadiag rules test --coverage
    """


@command.command("list", short_help="List the rules.")
@click.option("--layer", help="Only rules of this layer.")
@click.option("--kind", type=click.Choice(["symptom", "cause"]), help="Only symptoms, or only causes.")
@FOLDERS
@FORMAT
def list_rules(layer: str | None, kind: str | None, folders: tuple[str, ...], form: str) -> None:
    """List the rules."""
    from rdmadiag.diagnose import rulebook

    rules = [r for r in rulebook.load(folders) if layer in (None, r.layer) and kind in (None, r.kind)]
    entries = [
        {"id": r.id, "kind": r.kind, "layer": r.layer, "severity": r.severity, "title": r.title, "explains": r.explains}
        for r in rules
    ]
    _output.listing(
        form,
        "rules",
        "rules",
        entries,
        lambda: _output.columns([(r.layer, r.kind, r.severity, r.id, r.title) for r in rules]),
    )


@command.command("show", short_help="Show one rule.")
@click.argument("name")
@FOLDERS
@FORMAT
def show(name: str, folders: tuple[str, ...], form: str) -> None:
    """Show all of one rule: query, patterns, parameters, fixes, sources."""
    from rdmadiag.diagnose import rulebook
    from rdmadiag.errors import BadInput

    book = rulebook.load(folders)
    if name not in book:
        raise BadInput(f"no rule {name!r}; `rdmadiag rules list` shows all")
    rule = book[name]
    if form == "json":
        _output.emit(_output.as_json({"schema": "rdmadiag.rule/1", **rule.data}))
    else:
        _output.emit("\n".join(_lines(rule, [cause.id for cause in book.causes_of(name)])))


def _lines(rule: Any, causes: list[str]) -> list[str]:
    lines = [
        f"{rule.id}: {rule.title}",
        f"{rule.kind}, layer {rule.layer}, {rule.severity}; as a cause {rule.prior}; lies in the {rule.lies_in}",
        "",
        "query:",
    ]
    lines += [f"  {line}" for line in rule.query.splitlines()]
    lines += ["patterns:", *(f"  {pattern}" for pattern in rule.patterns)] if rule.patterns else []
    for name, parameter in rule.data.get("parameters", {}).items():
        lines.append(f"parameter {name} = {parameter['default']} {parameter['unit']} ({parameter['source']})")
    lines += ["", f"says: {rule.message}", *(f"fix {n}. {step}" for n, step in enumerate(rule.fix, 1))]
    lines += [f"settle it: {rule.settle}"] if rule.settle else []
    lines += [f"not to be confused: {rule.false_alarm}"] if rule.false_alarm else []
    lines += [f"explains: {', '.join(rule.explains) or 'nothing'}", f"explained by: {', '.join(causes) or 'nothing'}"]
    return lines + [f"see: {ref}" for ref in rule.refs] + [f"file: {rule.path}"]


@command.command("lint", short_help="Check rule files against the format, SQLite and the pattern compiler.")
@click.argument("paths", nargs=-1, type=_options.PATH)
@FORMAT
def lint(paths: tuple[str, ...], form: str) -> None:
    """Check the shipped rules, or your own files and folders. Exit 2 names the file and the place of the first fault."""
    from rdmadiag.diagnose import rulebook

    if paths:
        rules = [rule for rule in rulebook.load(paths) if not rule.path.startswith(rulebook.shipped_folder())]
    else:
        book = rulebook.Rulebook(
            rulebook.parse(path, rulebook.read_json(path)) for path in rulebook.files(rulebook.shipped_folder())
        )
        rulebook.check(book, book)
        rules = list(book)
    _output.listing(
        form,
        "rules",
        "rules",
        [{"id": r.id, "path": r.path} for r in rules],
        lambda: [f"{len(rules)} rules are well formed"],
    )


@command.command("test", short_help="Try rules on their own examples.")
@click.argument("names", nargs=-1)
@click.option("--coverage", is_flag=True, help="Instead say which rules fire on real evidence, and where.")
@click.option("--data", type=_options.PATH, help="Folder of evidence for --coverage (tests/data of a source checkout).")
@FORMAT
@click.pass_context
def test(context: click.Context, names: tuple[str, ...], coverage: bool, data: str | None, form: str) -> None:
    """Try rules (all, those named, or files and folders of your own) on the examples in their files; exit 1 when one fails.

    With --coverage: which rules fire on a report, captured node, measured fault, published text or lab run; exit 1 below 90.
    """
    if coverage:
        context.exit(_coverage(names, data, form))

    from rdmadiag.diagnose import examples, rulebook
    from rdmadiag.errors import BadInput

    own = tuple(name for name in names if os.path.exists(name))
    book = rulebook.load(own)
    if unknown := [name for name in names if name not in own and name not in book]:
        raise BadInput(f"no rule and no file {', '.join(unknown)}; `rdmadiag rules list` shows all")
    chosen = [rule for rule in book if not names or rule.id in names or any(rule.path.startswith(path) for path in own)]
    library = examples.library_for(book)
    tried = [result for rule in chosen for result in examples.run(rule, book, library)]
    failed = [result for result in tried if result.problem]

    def text() -> list[str]:
        return [
            *(f"{t.rule} {t.example}: {t.problem}" for t in failed),
            f"{len(tried) - len(failed)} of {len(tried)} examples of {len(chosen)} rules hold",
        ]

    _output.listing(form, "examples", "examples", [t._asdict() for t in tried], text)
    context.exit(1 if failed else 0)


def _coverage(names: tuple[str, ...], data: str | None, form: str) -> int:
    from rdmadiag.diagnose import coverage, rulebook
    from rdmadiag.errors import BadInput

    folder = data or coverage.default_folder()
    if not os.path.isdir(folder):
        raise BadInput(f"{folder}: not a folder")
    fired, planned = coverage.fired(folder), coverage.planned(folder)
    book = rulebook.load()
    if unknown := [name for name in names if name not in book]:
        raise BadInput(f"no rule {', '.join(unknown)}; `rdmadiag rules list` shows all")
    chosen = [rule.id for rule in book if not names or rule.id in names]
    entries = [{"rule": rule, "fires_on": fired.get(rule, []), "planned": planned.get(rule)} for rule in chosen]

    def text() -> list[str]:
        width = max(map(len, chosen), default=0)
        lines = [
            f"{rule:{width}}  {', '.join(fired[rule])}"
            if rule in fired
            else f"{rule:{width}}  - {planned.get(rule, '')}"
            for rule in chosen
        ]
        total = f"{len(fired)} of {len(book)} rules fire on real evidence in {folder} (wanted: {coverage.WANTED})"
        return [*lines, total]

    _output.listing(form, "coverage", "rules", entries, text)
    return 0 if len(fired) >= coverage.WANTED else 1
