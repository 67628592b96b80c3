"""Read a scenario, check it, and bind its parameters. Errors name the file and the place in it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.diagnose.rulebook import read_json
from rdmadiag.errors import BadFile, BadInput
from rdmadiag.patterns import late

SCHEMA = "rdmadiag.scenario/1"
SCHEMA_FILE = "scenario.schema.json"
SETTLE_SECONDS = 3.0
RUN_SECONDS = 300.0
SILENT_SECONDS = 30.0


class Injection(NamedTuple):
    """One entry of the timeline; times in seconds. `on` is empty for a fault, else the end of the workload that is acted on."""

    name: str
    fault: str
    on: str
    parameters: Mapping[str, Any]
    for_seconds: float
    at_seconds: float | None
    event: str
    nth: int
    then_seconds: float
    budget: Mapping[str, float]
    background: bool = False
    """It is held until the run is over, and no time is counted from it."""
    after: str = ""
    """Only events behind the first one of this name count."""
    where: Mapping[str, Any] = {}
    """What the event must say: layer 10, for example."""


class Scenario:
    """One scenario with its parameters bound; raw content in `data`, what a user chose in `chosen`."""

    def __init__(self, path: str, data: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
        self.path, self.data, self.chosen = path, data, dict(chosen)
        self.id: str = data["id"]
        self.title: str = data["title"]
        self.about: list[str] = data["about"]
        self.finding: str = data.get("finding", "")
        self.verdict: str = data.get("verdict", "PASS")
        self.requires: Mapping[str, Any] = data.get("requires", {})
        self.topology: Mapping[str, Any] = data.get("topology", {})
        self.workload: str = data["workload"]["name"]
        self.workload_parameters: Mapping[str, Any] = data["workload"].get("parameters", {})
        self.results: list[str] = data["workload"].get("results", [])
        self.captures = bool(data.get("captures", False))
        self.steady: Mapping[str, Any] = data.get("steady", {})
        self.timeline = [_injection(entry) for entry in data["timeline"]]
        both = {f"fault.{one.name}.{proof}": "yes" for one in self.timeline for proof in ("own", "other")}
        self.fired: Mapping[str, Any] = data.get("fired", both)
        self.expect: Mapping[str, Any] = data["expect"]
        self.must: list[str] = data["findings"].get("must", [])
        self.must_not: list[str] = data["findings"].get("must_not", [])
        abort = data.get("abort", {})
        self.run_seconds = float(abort.get("run_seconds", RUN_SECONDS))
        self.silent_seconds = float(abort.get("silent_seconds", SILENT_SECONDS))
        self.abort_on_kernel_warnings = bool(abort.get("kernel_warnings", True))
        self.settle_seconds = float(data.get("settle_seconds", SETTLE_SECONDS))
        self.seed = int(data.get("seed", 1))

    def with_seed(self, seed: int) -> Scenario:
        """Return the same scenario with another seed."""
        return Scenario(self.path, {**self.data, "seed": seed}, self.chosen)

    @property
    def label(self) -> str:
        """The id, with what a user chose."""
        return self.id + "".join(f",{name}={value}" for name, value in sorted(self.chosen.items()))


def _injection(entry: Mapping[str, Any]) -> Injection:
    event = entry.get("at_event", {})
    at = entry.get("at_seconds")
    return Injection(
        entry.get("name", what := entry.get("inject") or entry["act"]),
        what,
        entry.get("on", ""),
        entry.get("parameters", {}),
        float(entry["for_seconds"]),
        None if at is None else float(at),
        event.get("event", ""),
        int(event.get("count", 1)),
        float(event.get("then_seconds", 0.0)),
        entry.get("budget", {}),
        bool(entry.get("background", False)),
        event.get("after", ""),
        event.get("where", {}),
    )


def shipped_folder() -> str:
    """Return the folder of the shipped scenarios."""
    import importlib

    return str(next(iter(importlib.import_module("rdmadiag.scenarios").__path__)))


def names() -> list[str]:
    """Return the ids of the shipped scenarios, sorted."""
    return sorted(n[:-5] for n in os.listdir(shipped_folder()) if n.endswith(".json") and n != SCHEMA_FILE)


def path_of(word: str) -> str:
    """Return the file that a word means: a path, or the id of a shipped scenario. Raises BadInput."""
    if os.sep in word or word.endswith(".json") or os.path.exists(word):
        return word
    if word in names():
        return os.path.join(shipped_folder(), f"{word}.json")
    import difflib

    near = difflib.get_close_matches(word, names(), 3, 0.4)
    hint = f"near: {', '.join(near)}" if near else "`rdmadiag scenario list` shows all"
    raise BadInput(f"no scenario {word!r}; {hint}")


def read(word: str) -> dict[str, Any]:
    """Read a scenario's file and check it against the schema. Raises BadFile with the place, BadInput for an unknown id."""
    path = path_of(word)
    data = read_json(path)
    check_form(path, data)
    return dict(data)


def check_form(path: str, data: Any, named: bool = True) -> None:
    """Check content against the published schema and (`named`) the file's name. Raises BadFile with the JSON pointer."""
    import jsonschema

    schema = read_json(os.path.join(shipped_folder(), SCHEMA_FILE))
    errors = sorted(
        jsonschema.Draft202012Validator(schema).iter_errors(data),
        key=lambda error: [str(part) for part in error.absolute_path],
    )
    if errors:
        error = errors[0]
        place = "/" + "/".join(str(part) for part in error.absolute_path)
        raise BadFile(path, place, _shorten(_told(error)))
    stem = os.path.basename(path).removesuffix(".json")
    if named and data["id"] != stem:
        raise BadFile(path, "/id", f"{data['id']!r} is not the file's name {stem!r}")


def _told(error: Any) -> str:
    if error.validator == "oneOf" and "at_seconds" in str(error.validator_value):
        return "wanted either at_seconds or at_event: when it begins"
    if error.validator == "oneOf":
        return "wanted either inject, or act and on: what is done"
    return str(error.message)


def _shorten(text: str) -> str:
    return text if len(text) < 300 else text[:297] + "..."


def bind(path: str, data: Mapping[str, Any], chosen: Mapping[str, Any] | None = None) -> Scenario:
    """Put parameter values in the place of "$NAME". Raises BadInput for a value that is none, BadFile for a name that is none."""
    known = data.get("parameters", {})
    values = {name: entry["default"] for name, entry in known.items()}
    for name, value in (chosen or {}).items():
        if name not in known:
            raise BadInput(f"scenario {data['id']} has no parameter {name!r}; it has {', '.join(known) or 'none'}")
        values[name] = _fitting(data["id"], name, value, known[name]["default"])
    bound = {name: _bound(path, f"/{name}", part, values) for name, part in data.items() if name != "parameters"}
    _numbers(path, bound)
    return Scenario(path, bound, {name: values[name] for name in chosen or {}})


def _fitting(scenario: str, name: str, value: Any, default: Any) -> Any:
    # A value of the command line is a text; it takes the type of the default.
    if isinstance(default, bool):
        words = {"true": True, "false": False, "yes": True, "no": False}
        found = value if isinstance(value, bool) else words.get(str(value).lower())
        if found is None:
            raise BadInput(f"{scenario}: {name}={value}: wanted true or false")
        return found
    if isinstance(default, (int, float)):
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise BadInput(f"{scenario}: {name}={value}: wanted a number") from None
        if not abs(number) < 1e15:
            raise BadInput(f"{scenario}: {name}={value}: wanted a number below 1e15")
        return int(number) if number.is_integer() else number
    return str(value)


def _bound(path: str, place: str, part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        return {key: _bound(path, f"{place}/{key}", inner, values) for key, inner in part.items()}
    if isinstance(part, list):
        return [_bound(path, f"{place}/{n}", inner, values) for n, inner in enumerate(part)]
    if not isinstance(part, str):
        return part
    for name in _INSIDE.findall(part) or _WHOLE.findall(part):
        if name not in values and name != "folder":
            raise BadFile(path, place, f"no parameter {name!r}; known: {', '.join(values) or 'none'}")
    if whole := _WHOLE.fullmatch(part):
        return values[whole[1]]
    own = {**values, "folder": os.path.dirname(os.path.abspath(path))}
    return _INSIDE.sub(lambda match: str(own[match[1]]), part)


def restored(path: str, data: Mapping[str, Any], chosen: Mapping[str, Any]) -> Scenario:
    """Return a scenario as it was run: its values are in their places already. Raises BadFile."""
    check_form(path, data, named=False)
    _numbers(path, data)
    return Scenario(path, data, chosen)


_WHOLE = late(r"^\$(\w+)$")
_INSIDE = late(r"\$\{(\w+)\}")


_TIMES = ("at_seconds", "for_seconds")


def _numbers(path: str, data: Mapping[str, Any]) -> None:
    # The schema lets "$NAME" stand for a number; what has come in its place must be one.
    wanted: list[tuple[str, Any, float]] = [
        (f"/timeline/{n}/{key}", entry[key], 0.0 if key == "at_seconds" else 0.001)
        for n, entry in enumerate(data["timeline"])
        for key in _TIMES
        if key in entry
    ]
    for n, entry in enumerate(data["timeline"]):
        event = entry.get("at_event", {})
        wanted += [
            (f"/timeline/{n}/at_event/{key}", event[key], 0.0) for key in ("count", "then_seconds") if key in event
        ]
    abort = data.get("abort", {})
    wanted += [(f"/abort/{key}", abort[key], 0.001) for key in ("run_seconds", "silent_seconds") if key in abort]
    if "settle_seconds" in data:
        wanted.append(("/settle_seconds", data["settle_seconds"], 0.0))
    for place, value, least in wanted:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= 86400:
            raise BadFile(path, place, f"{value!r}: wanted a number from {least:g} to 86400")


def load(word: str, chosen: Mapping[str, Any] | None = None) -> Scenario:
    """Read, check and bind one scenario. Raises BadFile, BadInput."""
    return bind(path_of(word), read(word), chosen)


def matrix(word: str, chosen: Mapping[str, Any]) -> Iterator[Scenario]:
    """Yield a scenario for every combination of its parameters' `values`; those that are chosen stay. Raises BadInput, BadFile."""
    data = read(word)
    axes: Sequence[tuple[str, Sequence[Any]]] = [
        (name, entry["values"])
        for name, entry in data.get("parameters", {}).items()
        if "values" in entry and name not in chosen
    ]
    if not axes:
        raise BadInput(f"--matrix: scenario {data['id']} has no parameter with values to go through")
    for values in itertools.product(*(values for _, values in axes)):
        yield bind(path_of(word), data, {**chosen, **dict(zip((name for name, _ in axes), values, strict=True))})
