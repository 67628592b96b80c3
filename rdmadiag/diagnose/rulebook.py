"""Load rules from JSON files and check them before anything runs."""

from __future__ import annotations

import json
import marshal
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rdmadiag import __version__, cache
from rdmadiag.errors import BadFile, BadInput
from rdmadiag.patterns import late

FILE_LIMIT_BYTES = 1 << 20
PRIORS = {"often": 2, "sometimes": 1, "rarely": 0}
SEVERITIES = ("info", "warning", "error", "critical")

_PATTERN_QUERY = {
    "kernel": """
        SELECT r.node, e.device, e.port, e.netdev, e.bdf, e.qpn, e.pid, e.comm, e.peer, e.gid, e.gid_index, e.call, e.errno, e.syndrome,
               e.status, e.value, e.expected, e.version, e.module, e.program, e.text, e.origin, count(e.text) AS times, r.lines,
               CASE WHEN e.text IS NOT NULL THEN 1 WHEN r.complete THEN 0 END AS wrong
          FROM (SELECT node, max(coalesce(complete, 0)) AS complete, sum(lines) AS lines FROM reading WHERE log = 'kernel' GROUP BY node) r
          LEFT JOIN kernel_event e ON e.node = r.node AND e.rule = :rule
         GROUP BY r.node, e.device, e.port, e.netdev, e.bdf, e.qpn, e.module""",
    "application": """
        SELECT node, device, port, netdev, bdf, qpn, pid, comm, peer, peer_device, gid, gid_index, call, errno, syndrome, status, value,
               expected, version, module, program, text, origin, count(*) AS times, 1 AS wrong
          FROM app_event WHERE rule = :rule GROUP BY node, device, port, netdev, peer, peer_device, call""",
}


class Rule:
    """One rule: its file's content as attributes, with defaults filled in. `own`: not a shipped one."""

    def __init__(self, path: str, data: Mapping[str, Any]) -> None:
        self.path = path
        self.own = False
        self._data = data
        self.id: str = data["id"]
        self.kind: str = data["kind"]
        self.layer: str = data["layer"]
        self.severity: str = data["severity"]
        self.title: str = data["title"]
        self.message: str = data["message"]
        self.fine: str = data.get("fine", "")
        self.prior: str = data.get("prior", "sometimes")
        self.patterns: list[str] = data.get("patterns", [])
        self.log: str = data.get("log", "application")
        self.query: str = "\n".join(data["query"]) if "query" in data else _PATTERN_QUERY[self.log]
        self.explains: list[str] = data.get("explains", [])
        self.lies_in: str = data.get("lies_in", "node")
        self.fix: list[str] = data.get("fix", [])
        self.settle: str = data.get("settle", "")
        self.refs: list[str] = data.get("refs", [])
        self.false_alarm: str = data.get("false_alarm", "")
        self.parameters: dict[str, Any] = {name: value["default"] for name, value in data.get("parameters", {}).items()}

    @property
    def data(self) -> Mapping[str, Any]:
        """All of its file's content; what no check needs of a shipped one is read from there. Raises BadFile."""
        if "examples" not in self._data:
            self._data = read_json(self.path)
        return self._data


class Rulebook:
    """All rules of a run, by id, in the order of their files. `stamp` tells their files' versions, when all are shipped ones."""

    def __init__(self, rules: Iterable[Rule], stamp: str = "") -> None:
        self.rules = {rule.id: rule for rule in rules}
        self.stamp = stamp
        patterns = "\n".join(pattern for rule in self.rules.values() for pattern in rule.patterns)
        self.groups = sorted(set(_GROUP.findall(patterns)))

    def __iter__(self) -> Any:
        return iter(self.rules.values())

    def __getitem__(self, name: str) -> Rule:
        return self.rules[name]

    def __contains__(self, name: str) -> bool:
        return name in self.rules

    def __len__(self) -> int:
        return len(self.rules)

    def patterns(self) -> list[tuple[str, int, str, str]]:
        """Return (rule id, pattern index, log, pattern) of every log pattern."""
        return [(rule.id, n, rule.log, p) for rule in self.rules.values() for n, p in enumerate(rule.patterns)]

    def choose(self, only: Sequence[str], skip: Sequence[str], layers: Sequence[str]) -> Rulebook:
        """Return the rules that --only, --skip and --layer leave; ids may have * in them. Raises BadInput for an unknown one."""
        if not (only or skip or layers):
            return self
        wanted, unwanted = self._named(only, "--only"), self._named(skip, "--skip")
        known = sorted({rule.layer for rule in self.rules.values()})
        for layer in layers:
            if layer not in known:
                raise BadInput(f"--layer {layer}: no rule is of this layer; known: {', '.join(known)}")
        return Rulebook(
            rule
            for rule in self.rules.values()
            if (not only or rule.id in wanted) and rule.id not in unwanted and (not layers or rule.layer in layers)
        )

    def _named(self, names: Sequence[str], option: str) -> set[str]:
        import difflib
        from fnmatch import fnmatchcase

        found: set[str] = set()
        for name in (part.strip() for text in names for part in text.split(",")):
            matching = {rule for rule in self.rules if fnmatchcase(rule, name)}
            if not matching:
                near = difflib.get_close_matches(name, list(self.rules), 3, 0.4)
                hint = f"near: {', '.join(near)}" if near else "`rdmadiag rules list` shows all"
                raise BadInput(f"{option} {name}: no such rule; {hint}")
            found |= matching
        return found

    def causes_of(self, name: str) -> list[Rule]:
        """Return the cause rules that say they explain a rule, directly."""
        return [rule for rule in self.rules.values() if name in rule.explains]


_GROUP = late(r"\(\?P<(\w+)>")


def shipped_folder() -> str:
    """Return the folder of the shipped rules: in the package, or beside it where that is a source checkout."""
    package = os.path.dirname(os.path.dirname(__file__))
    inside = os.path.join(package, "rules")
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(package), "rules")


def files(folder: str) -> list[str]:
    """Return the rule files below a folder, sorted; rule.schema.json is not one."""
    found = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        found += [
            os.path.join(place, name) for name in sorted(names) if name.endswith(".json") and name != "rule.schema.json"
        ]
    return found


def read_json(path: str, limit: int = FILE_LIMIT_BYTES) -> Any:
    """Read a JSON file of at most `limit` bytes. Raises BadFile with the place of what cannot be read."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for without end
            raise BadFile(path, "", "not a regular file (a folder, pipe, device or socket); wanted a JSON file")
        if status.st_size > limit:
            raise BadFile(path, "", f"larger than {limit} bytes; wanted a small JSON file")
        with open(path, encoding="utf-8") as file:
            return json.load(file, object_pairs_hook=_no_twins)
    except OSError as error:
        raise BadFile(path, "", f"cannot be read: {error.strerror}; wanted a JSON file") from error
    except json.JSONDecodeError as error:
        raise BadFile(path, f"line {error.lineno} column {error.colno}", f"not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise BadFile(path, f"byte {error.start}", "not UTF-8 text; wanted JSON") from error
    except RecursionError as error:
        raise BadFile(path, "", "nested too deeply; wanted JSON as rule.schema.json has it") from error
    except _TwinError as error:
        raise BadFile(path, f"key {error}", "stands twice in one object") from error


class _TwinError(Exception):
    pass


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _TwinError(name)
            seen.add(name)
    return result


def _shipped() -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    # Which versions of which files they are, and of each its path and what a check needs of it. In one file that loads in a tenth of
    # the time.
    folder = shipped_folder()
    paths = files(folder)
    changed = [(path, (status := os.stat(path)).st_mtime_ns, status.st_size) for path in paths]
    stamp = repr((sys.version, __version__, changed))
    key = stamp.encode()
    if (kept := cache.load("rulebook", key)) is not None:
        return stamp, list(marshal.loads(kept))
    found = []
    for path in paths:
        with open(path, "rb") as file:
            data = json.loads(file.read())
        del data["examples"]
        if "query" in data:
            data["query"] = ["\n".join(data["query"])]
        found.append((path, data))
    cache.save("rulebook", key, marshal.dumps(found))
    return stamp, found


def load(folders: Sequence[str] = ()) -> Rulebook:
    """Load the shipped rules and those of more folders (people's own, which are checked in full). Raises BadFile."""
    stamp, shipped = _shipped()
    rules = [Rule(path, data) for path, data in shipped]
    if not folders:
        return Rulebook(rules, stamp)
    known = {rule.id: rule for rule in rules}
    own = []
    for folder in folders:
        paths = files(folder) if os.path.isdir(folder) else [folder]
        if not paths:
            raise BadFile(folder, "", "holds no rule; wanted JSON files")
        for path in paths:
            rule = parse(path, read_json(path), check_layer=False)
            if rule.id in known:
                raise BadFile(path, "/id", f"{rule.id!r} is also the id of {known[rule.id].path}")
            known[rule.id] = rule
            rule.own = True
            own.append(rule)
    book = Rulebook([*rules, *own])
    check(book, own)
    return book


def parse(path: str, data: Any, check_layer: bool = True) -> Rule:
    """Check one file's content against rule.schema.json and its own name. Raises BadFile with the JSON pointer."""
    import jsonschema

    with open(os.path.join(shipped_folder(), "rule.schema.json"), encoding="utf-8") as file:
        validator = jsonschema.Draft202012Validator(json.load(file))
    errors = sorted(validator.iter_errors(data), key=lambda e: [str(part) for part in e.absolute_path])
    if errors:
        error = errors[0]
        raise BadFile(path, "/" + "/".join(str(part) for part in error.absolute_path), _shorten(error.message))
    rule = Rule(path, data)
    stem = os.path.basename(path)[:-5]
    if rule.id != stem:
        raise BadFile(path, "/id", f"{rule.id!r} is not the file's name {stem!r}")
    folder = os.path.basename(os.path.dirname(path))
    if check_layer and rule.layer != folder:
        raise BadFile(path, "/layer", f"{rule.layer!r} is not the folder's name {folder!r}")
    return rule


def _shorten(text: str) -> str:
    return text if len(text) < 200 else text[:197] + "..."


def check(book: Rulebook, rules: Iterable[Rule]) -> None:
    """Check what spans rules and what only SQLite and the pattern compiler know. Raises BadFile with the place."""
    from rdmadiag.diagnose import engine
    from rdmadiag.evidence.store import Evidence

    evidence = Evidence(extra_log_columns=extra_log_columns(book))
    rules = list(rules)
    _check_patterns(rules)
    for rule in rules:
        for number, name in enumerate(rule.explains):
            if name not in book:
                raise BadFile(rule.path, f"/explains/{number}", f"no rule {name!r}")
            if rule.kind == "symptom":
                raise BadFile(rule.path, "/explains", "a symptom explains nothing; only causes do")
        columns = engine.prepare(evidence.db, rule)
        for key in ("message", "fine", "settle"):
            for name in _FIELD.findall(rule.data.get(key, "")):
                if name not in columns:
                    raise BadFile(
                        rule.path, f"/{key}", f"{{{name}}} is not a column of the query; it has {', '.join(columns)}"
                    )
        for number, text in enumerate(rule.fix):
            for name in _FIELD.findall(text):
                if name not in columns:
                    raise BadFile(rule.path, f"/fix/{number}", f"{{{name}}} is not a column of the query")
        _check_cycle(book, rule)


def _check_patterns(rules: Sequence[Rule]) -> None:
    # All at once is quick; one by one only to find which one is wrong.
    from rdmadiag.evidence.scan import Scanner, pattern_problem

    patterns = [(rule, number, pattern) for rule in rules for number, pattern in enumerate(rule.patterns)]
    try:
        for *_, pattern in patterns:
            re.compile(pattern)
        Scanner([pattern for *_, pattern in patterns], cached=False)
    except (re.error, BadInput):
        for rule, number, pattern in patterns:
            if (problem := pattern_problem(pattern)) is not None:
                raise BadFile(rule.path, f"/patterns/{number}", problem) from None
        raise


_FIELD = late(r"\{(\w+)\}")


def _check_cycle(book: Rulebook, rule: Rule) -> None:
    # Depth first with a parent note, so that the message can show the way round.
    came: dict[str, str] = {}
    waiting = [rule.id]
    while waiting:
        name = waiting.pop()
        for effect in book[name].explains:
            if effect == rule.id:
                way = [effect, name]
                while way[-1] != rule.id:
                    way.append(came[way[-1]])
                raise BadFile(rule.path, "/explains", f"explains itself: {' -> '.join(reversed(way))}")
            if effect in book and effect not in came:
                came[effect] = name
                waiting.append(effect)


def extra_log_columns(book: Rulebook) -> list[str]:
    """Return the named groups of patterns that table log has no column for: columns are added for them."""
    from rdmadiag.evidence.store import log_columns

    known = log_columns()
    return [name for name in book.groups if name not in known]


def _is_number(value: Any) -> bool:
    # A finite one that SQLite can hold; JSON here also reads NaN, Infinity, and integers of any length.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63


def site_parameters(path: str, book: Rulebook) -> dict[str, dict[str, Any]]:
    """Read a site file: {"schema": "rdmadiag.site/1", "parameters": {RULE: {NAME: VALUE}}}. Raises BadFile."""
    data = read_json(path)
    if (
        not isinstance(data, dict)
        or data.get("schema") != "rdmadiag.site/1"
        or not isinstance(data.get("parameters"), dict)
    ):
        raise BadFile(path, "", 'wanted {"schema": "rdmadiag.site/1", "parameters": {RULE: {NAME: VALUE}}}')
    for extra in sorted(set(data) - {"schema", "parameters"}):
        raise BadFile(path, f"/{extra}", "unknown key; known: schema, parameters")
    for name, values in data["parameters"].items():
        if name not in book:
            raise BadFile(path, f"/parameters/{name}", "no such rule")
        if not isinstance(values, dict):
            raise BadFile(path, f"/parameters/{name}", "wanted an object of parameter values")
        for key, value in values.items():
            default = book[name].parameters.get(key)
            if default is None:
                raise BadFile(
                    path,
                    f"/parameters/{name}/{key}",
                    f"no such parameter; known: {', '.join(book[name].parameters) or 'none'}",
                )
            numeric = isinstance(default, (int, float))
            if not (_is_number(value) if numeric else isinstance(value, str)):
                raise BadFile(
                    path, f"/parameters/{name}/{key}", f"wanted {'a number' if numeric else 'a text'}, not {value!r}"
                )
    return dict(data["parameters"])


def expectations(path: str) -> dict[str, Any]:
    """Read an expectation file: {"schema": "rdmadiag.expect/1", NAME: VALUE ...}. Raises BadFile."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("schema") != "rdmadiag.expect/1":
        raise BadFile(path, "", 'wanted {"schema": "rdmadiag.expect/1", "nic_count": 8, ...}')
    known = ("active_mtu", "cnp_dscp", "dscp", "ecn", "fw_ver", "mtu_bytes", "nic_count", "rate_gbps")
    for name, value in data.items():
        if name == "schema":
            continue
        if name not in known:
            raise BadFile(path, f"/{name}", f"unknown expectation; known: {', '.join(known)}")
        if name == "fw_ver" and isinstance(value, str) and value:
            continue
        if name == "fw_ver":
            raise BadFile(path, f"/{name}", f"wanted a text such as 28.39.1002, not {value!r}")
        if not _is_number(value) or not 0 <= value < 1e12:
            raise BadFile(path, f"/{name}", f"wanted a number from 0 on, not {value!r}")
    return {name: value for name, value in data.items() if name != "schema"}
