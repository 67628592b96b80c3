"""What of a scenario the schema cannot tell: names that exist nowhere, proofs that prove nothing, times that do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from rdmadiag.diagnose.rulebook import Rulebook
from rdmadiag.errors import BadFile, BadInput
from rdmadiag.scenario import condition, quantities, scenario
from rdmadiag.scenario.scenario import Scenario

_BEFORE = ("goodput_before", "errors", "event", "status")
"""Quantities that are measured of the time before the first fault."""


def lint(word: str, book: Rulebook) -> Scenario:
    """Check one scenario in full, with every value of its parameters. Raises BadFile with the place, BadInput."""
    path, data = scenario.path_of(word), scenario.read(word)
    bound = scenario.bind(path, data)
    _parameters(path, data)
    check(bound, book)
    for name, entry in data.get("parameters", {}).items():
        for n, value in enumerate(entry.get("values", [])):
            try:
                check(scenario.bind(path, data, {name: value}), book)
            except (BadFile, BadInput) as error:
                raise BadFile(path, f"/parameters/{name}/values/{n}", f"with {value!r}: {error}") from error
    return bound


def _parameters(path: str, data: Mapping[str, Any]) -> None:
    text = repr({name: part for name, part in data.items() if name != "parameters"})
    for name in data.get("parameters", {}):
        if f"'${name}'" not in text and f"${{{name}}}" not in text:
            raise BadFile(path, f"/parameters/{name}", f'is used nowhere; wanted "${name}" in the place of a value')


def check(found: Scenario, book: Rulebook) -> None:
    """Check a bound scenario. Raises BadFile with the place."""
    path = found.path
    _topology(found)
    _workload(found)
    _faults(found)
    names = [one.name for one in found.timeline]
    for n, name in enumerate(names):
        if name in names[:n]:
            raise BadFile(path, f"/timeline/{n}/name", f"{name!r} is the name of an earlier one too; give another name")
    for place, name, wanted in _asked(found):
        _quantity(path, place, name, wanted, names)
        if place.startswith("/steady/") and name.partition(".")[0] not in _BEFORE:
            raise BadFile(
                path, place, f"is known of the whole run only; wanted one of {', '.join(_BEFORE)} (event.*, status.*)"
            )
    _proofs(found)
    _times(found, names)
    for part, patterns in (("must", found.must), ("must_not", found.must_not)):
        for n, pattern in enumerate(patterns):
            if not any(fnmatchcase(rule, pattern) for rule in book.rules):
                raise BadFile(path, f"/findings/{part}/{n}", f"no rule {pattern!r}; `rdmadiag rules list` shows all")
    for n, pattern in enumerate(found.must):
        if pattern in found.must_not:
            raise BadFile(path, f"/findings/must/{n}", f"{pattern!r} is in must_not too")


def _topology(found: Scenario) -> None:
    from rdmadiag.lab import Options

    try:
        Options(**found.topology)
    except (BadInput, TypeError) as error:
        raise BadFile(found.path, "/topology", str(error)) from error


def _workload(found: Scenario) -> None:
    from rdmadiag import workloads
    from rdmadiag.workloads._contract import checked

    try:
        adapter = workloads.load(found.workload)
    except BadInput as error:
        raise BadFile(found.path, "/workload/name", str(error)) from error
    try:
        checked(adapter.PARAMETERS, found.workload_parameters)
    except BadInput as error:
        raise BadFile(found.path, "/workload/parameters", str(error)) from error


def _faults(found: Scenario) -> None:
    from rdmadiag import faults

    for n, one in enumerate(found.timeline):
        if one.on:
            continue
        try:
            known = {parameter.name: parameter for parameter in faults.find(one.fault).PARAMETERS}
        except BadInput as error:
            raise BadFile(found.path, f"/timeline/{n}/inject", str(error)) from error
        for name, value in one.parameters.items():
            place = f"/timeline/{n}/parameters/{name}"
            if name not in known:
                raise BadFile(
                    found.path, place, f"fault {one.fault} has no such parameter; it has {', '.join(known) or 'none'}"
                )
            try:
                known[name].check(value)
            except BadInput as error:
                raise BadFile(found.path, place, str(error)) from error


def _asked(found: Scenario) -> Iterator[tuple[str, str, Any]]:
    parts: dict[str, Mapping[str, Any]] = {
        "requires/measured": found.requires.get("measured", {}),
        "steady": found.steady,
        "fired": found.fired,
        "expect": found.expect,
    }
    for part, conditions in parts.items():
        for name, wanted in conditions.items():
            yield f"/{part}/{name}", name, wanted


def _quantity(path: str, place: str, name: str, wanted: Any, injections: list[str]) -> None:
    quantity = quantities.of(name)
    if quantity is None:
        near = quantities.near(name)
        raise BadFile(
            path, place, f"no such quantity; {'near: ' + ', '.join(near) if near else 'docs/scenarios.md has all'}"
        )
    family, _, rest = name.partition(".")
    if family == "fault" and rest.partition(".")[0] not in injections:
        raise BadFile(path, place, f"no fault of that name in the timeline; it has {', '.join(injections) or 'none'}")
    if family == "status":
        from rdmadiag.explain import wc_status
        from rdmadiag.kv.recovery import DEADLINE

        if rest not in wc_status.NAMES and rest != DEADLINE:
            raise BadFile(path, place, f"{rest!r} is no ibv_wc_status without IBV_WC_, nor {DEADLINE}")
    if family == "signal":
        from rdmadiag.explain.counters import MEANINGS

        if rest not in MEANINGS:
            raise BadFile(
                path, place, f"{rest!r} is no meaning of a counter; `rdmadiag explain counters rxe` lists them"
            )
    if isinstance(wanted, Mapping):
        least, most = wanted.get("min"), wanted.get("max")
        for word in ("min", "max"):
            if word in wanted and (isinstance(wanted[word], bool) or not isinstance(wanted[word], condition.NUMBERS)):
                raise BadFile(path, f"{place}/{word}", f"{wanted[word]!r}: wanted a number")
        if least is not None and most is not None and least > most:
            raise BadFile(path, place, f"min {least} is above max {most}: nothing can be both")


def _proofs(found: Scenario) -> None:
    if not found.timeline:
        if found.fired:
            raise BadFile(found.path, "/fired", "the timeline has no fault that could have acted")
        return
    witnesses = {quantity.witness for name in found.fired if (quantity := quantities.of(name)) is not None}
    if len(witnesses) < 2:
        has = ", ".join(sorted(witnesses)) or "none"
        raise BadFile(
            found.path,
            "/fired",
            f"wanted proofs of two kinds of witness (injector, counters, states, workload); it has {has}",
        )
    for name, wanted in found.fired.items():
        quiet = 1 if name.endswith("_share") else 0
        if condition.holds(wanted, quiet) is not False or (name.startswith("goodput_") and quiet == 0):
            raise BadFile(
                found.path, f"/fired/{name}", f"holds where nothing happened too ({quiet}), so it proves nothing"
            )


def _times(found: Scenario, names: list[str]) -> None:
    end = 0.0
    for n, one in enumerate(found.timeline):
        if one.at_seconds is not None and not one.background:
            end = max(end, one.at_seconds + one.for_seconds)
        for key, event in (("event", one.event), ("after", one.after)):
            name, dot, what = event.rpartition(".")
            if dot and what in ("begin", "end") and name not in names[:n]:
                raise BadFile(
                    found.path, f"/timeline/{n}/at_event/{key}", f"no earlier fault {name!r}; earlier are {', '.join(names[:n]) or 'none'}"
                )  # fmt: skip
    if end + found.settle_seconds > found.run_seconds:
        raise BadFile(
            found.path,
            "/abort/run_seconds",
            f"{found.run_seconds:g} s are over before the faults and settling are ({end + found.settle_seconds:g} s)",
        )
