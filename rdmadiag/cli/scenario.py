"""rdmadiag scenario: list, show and check scenarios."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from rdmadiag.cli import _output

FORMAT = click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)


@click.group(short_help="List, show and check (lint) scenarios.")
def command() -> None:
    """Work with scenarios; `rdmadiag run` runs them.

    \b
    Examples:
      rdmadiag scenario list
      rdmadiag scenario show loss
      rdmadiag scenario lint my-scenario.json
      rdmadiag scenario lint
    """


@command.command("list", short_help="List the shipped scenarios.")
@click.option("--fault", help="Only scenarios with this fault.")
@click.option("--workload", help="Only scenarios with this workload.")
@FORMAT
def list_scenarios(fault: str | None, workload: str | None, form: str) -> None:
    """List the shipped scenarios: id, workload, faults, title; * where what really happens is a finding.

    \b
    Examples:
      rdmadiag scenario list --workload mooncake
    """
    from rdmadiag.scenario import scenario

    found = [scenario.load(name) for name in scenario.names()]
    found = [one for one in found if workload in (None, one.workload)]
    found = [one for one in found if fault is None or fault in [entry.fault for entry in one.timeline]]
    entries = [
        {
            "id": one.id,
            "title": one.title,
            "workload": one.workload,
            "faults": [entry.fault for entry in one.timeline],
            "parameters": scenario.read(one.id).get("parameters", {}),
            "finding": one.finding or None,
        }
        for one in found
    ]
    rows = [
        (e["id"], e["workload"], ", ".join(e["faults"]) or "-", f"{e['title']}{' *' * bool(e['finding'])}")
        for e in entries
    ]
    _output.listing(
        form,
        "scenarios",
        "scenarios",
        entries,
        lambda: _output.columns(rows, ("id", "workload", "faults", "")) if rows else ["none"],
    )


@command.command("show", short_help="Show one scenario.")
@click.argument("word", metavar="FILE|NAME")
@FORMAT
def show(word: str, form: str) -> None:
    """Show one scenario as words, or (json) as its file has it.

    \b
    Examples:
      rdmadiag scenario show blackout-short
    """
    from rdmadiag.scenario import scenario

    data = scenario.read(word)
    if form == "json":
        _output.emit(_output.as_json(data))
    else:
        _output.emit("\n".join(_output.wrapped(line) for line in _lines(scenario.load(word), data)))


def _lines(found: Any, data: dict[str, Any]) -> Iterator[str]:
    from rdmadiag.scenario import condition, quantities

    yield f"{found.id}: {found.title}"
    yield from (f"  {line}" for line in found.about)
    if found.finding:
        yield f"  finding: {found.finding}"
    yield ""
    for name, entry in data.get("parameters", {}).items():
        values = f", with --matrix {', '.join(map(str, entry['values']))}" if "values" in entry else ""
        yield f"parameter {name} = {entry['default']} ({entry['unit']}){values}"
    told = ", ".join(f"{name} {value}" for name, value in found.topology.items()) or "as `rdmadiag lab up` makes it"
    yield f"lab: {told}"
    words = " ".join(f"{name}={value}" for name, value in found.workload_parameters.items())
    yield f"workload: {found.workload} {words}".rstrip()
    for entry in found.timeline:
        when = (
            f"at {entry.at_seconds:g} s"
            if entry.at_seconds is not None
            else f"at event {entry.event} number {entry.nth}"
        )
        words = " ".join(f"{name}={value}" for name, value in entry.parameters.items())
        yield f"{when}: {entry.fault} {words}".rstrip() + f" for {entry.for_seconds:g} s"
    yield f"then the workload goes on for {found.settle_seconds:g} s; seed {found.seed}"
    parts = (
        ("requires", found.requires.get("measured", {})),
        ("steady before", found.steady),
        ("the fault acted", found.fired),
        ("expected", found.expect),
    )
    for title, conditions in parts:
        for name, wanted in conditions.items():
            yield f"{title}: {name} {condition.words(wanted)}{quantities.unit(name)}"
    yield from (f"finding must appear: {rule}" for rule in found.must)
    yield from (f"finding must not appear: {rule}" for rule in found.must_not)
    yield from (f"see: {ref}" for ref in data.get("refs", []))
    yield f"file: {found.path}"


@command.command("lint", short_help="Check scenario files.")
@click.argument("paths", nargs=-1, metavar="FILE|FOLDER...")
@FORMAT
def lint(paths: tuple[str, ...], form: str) -> None:
    """Check the shipped scenarios, or your own files and folders. Exit 2 names the file and the place of the first fault.

    \b
    Examples:
      rdmadiag scenario lint my-scenarios/
    """
    from rdmadiag.diagnose import rulebook
    from rdmadiag.scenario import lint as linter
    from rdmadiag.scenario import scenario

    words: list[str] = []
    for path in paths or scenario.names():
        words += _files(path) if os.path.isdir(path) else [path]
    book = rulebook.load()
    found = [linter.lint(word, book) for word in words]
    entries = [{"id": one.id, "path": one.path} for one in found]
    _output.listing(form, "scenarios", "scenarios", entries, lambda: [f"{len(found)} scenarios are well formed"])


def _files(folder: str) -> list[str]:
    from rdmadiag.errors import BadFile

    names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.endswith(".schema.json"))
    if not names:
        raise BadFile(folder, "", "holds no scenario; wanted JSON files")
    return [os.path.join(folder, name) for name in names]
