"""What a run's folder says: every quantity that a scenario can ask about, with where it is from or why it is not known."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.errors import BadFile
from rdmadiag.scenario import record, said, scenario
from rdmadiag.scenario.goodput import RECOVERED_SHARE, Delivery, Goodput, goodput, of_progress, stall
from rdmadiag.scenario.judge import NO, UNKNOWN, YES, Held, Measure, Measured
from rdmadiag.scenario.record import Folder
from rdmadiag.scenario.scenario import Scenario

_ENDS = ("client", "server")
_PATH_STATES = ("demoted", "probation", "returned", "preempted")


class Run(NamedTuple):
    """A run as its folder tells it: what a verdict is made of (`measured`), and what a report shows beside it."""

    scenario: Scenario
    facts: Mapping[str, Any]
    """run.json"""
    measured: Measured
    events: Sequence[Mapping[str, Any]]
    samples: Sequence[Mapping[str, Any]]
    goodput: Goodput
    reports: Mapping[str, Mapping[str, Any]]
    """rdmadiag.report/1 by phase: during, after."""


def read(folder: Folder) -> Run:
    """Read a run's folder. Raises BadFile when it is none; what is missing in it is a problem of the run."""
    stored = folder.read("scenario.json", "rdmadiag.run-scenario/1")
    facts = folder.read("run.json", record.SCHEMA)
    source = str(folder.path / "scenario.json")
    data, chosen = stored.get("scenario"), stored.get("chosen")
    if not isinstance(data, dict) or not isinstance(chosen, dict):
        raise BadFile(source, "/scenario", "wanted a scenario, and what was chosen of it")
    found = scenario.restored(source, data, chosen)
    problems = [str(problem) for problem in _list(facts, "problems")]
    events = _lines(folder, "events.jsonl", problems)
    samples = _lines(folder, "samples.jsonl", problems)
    result = _result(folder, problems)
    faults = [_held(entry) for entry in _list(facts, "faults") if isinstance(entry, dict)]
    end = _number(facts.get("workload"), "end_seconds")
    if end is None:
        problems.append("when the workload ended is not known")
    deliveries = _deliveries(events)
    flow = goodput(deliveries, end or 0.0)
    quantities: dict[str, Measure] = {}
    quantities |= _of_result(result)
    looked = _looked(events)
    quantities |= _of_goodput(flow, deliveries, faults, looked)
    quantities |= _of_events(events, math.inf if end is None else end)
    tried = [held for held in faults if not held.background]
    begins = [held.begin_seconds for held in tried if held.begin_seconds is not None]
    ends = [
        (h.begin_seconds, h.end_seconds) for h in tried if h.begin_seconds is not None and h.end_seconds is not None
    ]
    starts = [held.start_seconds for held in tried if held.start_seconds is not None]
    if begins:
        quantities |= _detected(events, min([*begins, *starts]), math.inf if end is None else end)
    quantities |= _of_samples(samples, end)
    quantities |= _of_injector(facts)
    reports, more, unjudged = said.checked(folder, problems)
    quantities |= more
    confirmed = {rule for report in reports.values() for rule in said.confirmed(report)}
    ended = facts.get("end")
    how, reason = (str(ended.get(name, "")) for name in ("how", "reason")) if isinstance(ended, dict) else ("", "")
    if how not in ("done", "aborted", "unsupported"):
        problems.insert(0, "the run has no end: it was killed, or it still runs")
    first = min([*begins, *starts], default=math.inf if end is None else end)
    steady = _of_events(events, first) | {"goodput_before": quantities["goodput_before"]}
    for name in asked(found):
        if name.partition(".")[0] in ("event", "status") and events:
            quantities.setdefault(name, Measure(0, "not among the events"))
            steady.setdefault(name, Measure(0, "not among the events"))
    measured = Measured(
        quantities,
        steady,
        faults,
        sorted(confirmed),
        sorted(unjudged - confirmed),
        looked_late_seconds=looked - min(ends)[1] if ends else 0.0,
        aborted=reason or "stopped" if how == "aborted" else "",
        unsupported=reason or "cannot run here" if how == "unsupported" else "",
        problems=problems,
    )
    return Run(found, facts, measured, events, samples, flow, reports)


def asked(found: Scenario) -> set[str]:
    """Return the names of all quantities that a scenario asks about."""
    return {*found.requires.get("measured", {}), *found.steady, *found.fired, *found.expect}


def _list(facts: Mapping[str, Any], name: str) -> list[Any]:
    value = facts.get(name)
    return value if isinstance(value, list) else []


def _number(values: Any, name: str) -> float | None:
    value = values.get(name) if isinstance(values, Mapping) else None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def _lines(folder: Folder, name: str, problems: list[str]) -> list[dict[str, Any]]:
    try:
        return [line for line in folder.lines(name) if _number(line, "seconds") is not None]
    except BadFile as error:
        problems.append(str(error))
        return []


def _result(folder: Folder, problems: list[str]) -> dict[str, Any]:
    try:
        return folder.read("workload/result.json", "rdmadiag.workload/1")
    except BadFile as error:
        problems.append(f"the workload left no result: {error}")
        return {}


def _held(entry: Mapping[str, Any]) -> Held:
    begin = _number(entry, "begin_seconds")
    reverted = entry.get("reverted")
    known = reverted if reverted in (YES, NO, UNKNOWN) else UNKNOWN
    return Held(
        str(entry.get("name")),
        str(entry.get("fault")),
        begin,
        _number(entry, "end_seconds"),
        str(known),
        str(entry.get("proof", "")),
        str(entry.get("waited_for", "")),
        _number(entry, "start_seconds"),
        _number(entry, "off_seconds"),
        entry.get("background") is True,
    )


def _values(event: Mapping[str, Any]) -> Mapping[str, Any]:
    values = event.get("values")
    return values if isinstance(values, Mapping) else {}


def _deliveries(events: Sequence[Mapping[str, Any]]) -> list[Delivery]:
    """Return what the client claimed as transferred, by time: its layers where it names them, else its progress."""
    layers, starts, last = [], [list[tuple[float, float]]()], 0.0
    begins = [0.0]
    for event in events:
        seconds, values = float(event["seconds"]), _values(event)
        if event.get("from") != "client":
            continue
        nbytes = _number(values, "bytes")
        if event.get("kind") == "layer" and nbytes is not None:
            took = _number(values, "seconds") or 0.0
            layers.append(Delivery(max(last, seconds - took), seconds, nbytes))
            last = seconds
        elif event.get("kind") == "progress" and nbytes is not None:
            starts[-1].append((seconds, nbytes))
        elif event.get("kind") == "ready":
            starts.append([])
            begins.append(seconds)
    if layers:
        return layers
    return [one for points, begin in zip(starts, begins, strict=True) for one in of_progress(points, begin)]


# --- quantities ---


def _of_result(result: Mapping[str, Any]) -> dict[str, Measure]:
    origin = "workload/result.json"

    def get(*names: str) -> Any:
        value: Any = result
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    places = {
        "ok": ("ok",),
        "claimed_bytes": ("claimed_bytes",),
        "carrier": ("carrier",),
        "carried": ("carried", "answer"),
        "verified_blocks": ("content", "blocks"),
        "wrong_blocks": ("content", "wrong"),
        "reconnects": ("reconnects",),
    }
    found = {name: Measure(_plain(get(*place)), f"{origin} /{'/'.join(place)}") for name, place in places.items()}
    if get("content", "answer") == UNKNOWN:
        found["wrong_blocks"] = Measure(None, f"{origin}: no content was compared")
    for name in ("ok", "carried"):
        if found[name].value == UNKNOWN:
            found[name] = Measure(None, f"{origin}: {get('carried', 'why') or get('doubts')}")
    for group in ("metrics", "parameters"):
        for name, value in (get(group) or {}).items() if isinstance(get(group), Mapping) else ():
            found[f"fact.{name}"] = Measure(_plain(value), f"{origin} /{group}/{name}")
    for role in ("client", "server"):
        told = get("results", role)
        for name, value in told.items() if isinstance(told, Mapping) else ():
            found[f"fact.{name}"] = Measure(_plain(value), f"{origin} /results/{role}/{name}")
        found[f"fact.{role}_exit_code"] = Measure(_plain(get("exit_codes", role)), f"{origin} /exit_codes/{role}")
    return found


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, bool)) else None


def _looked(events: Sequence[Mapping[str, Any]]) -> float:
    return max(
        (float(e["seconds"]) for e in events if e.get("from") == "witness" and e.get("kind") == record.LOOKED),
        default=0.0,
    )


def _of_goodput(
    flow: Goodput, deliveries: Sequence[Delivery], faults: Sequence[Held], looked: float
) -> dict[str, Measure]:
    begun = [held for held in faults if held.begin_seconds is not None and not held.background]
    origin = "events.jsonl"
    if not begun:
        mean, longest = flow.between(0.0, flow.end), stall(deliveries, 0.0, flow.end)
        return {"goodput_before": Measure(mean, origin), "stall_seconds": Measure(longest, origin)}
    begin = min(held.begin_seconds for held in begun if held.begin_seconds is not None)
    start = min([begin, *(held.start_seconds for held in begun if held.start_seconds is not None)])
    ends = [held.end_seconds for held in begun if held.end_seconds is not None]
    end = max(ends, default=None) if len(ends) == len(begun) else None
    around = [
        h.begin_seconds for h in faults if h.background and h.begin_seconds is not None and h.begin_seconds < start
    ]
    before = flow.between(max(around, default=0.0), start)
    found: dict[str, Any] = {"goodput_before": before, "stall_seconds": stall(deliveries, begin, flow.end)}
    told: dict[str, str] = {}
    if end is not None:
        found["goodput_during"] = flow.between(begin, end)
        end = max([end, *(held.off_seconds for held in begun if held.off_seconds is not None)])
        back = flow.recovered(end, RECOVERED_SHARE * before) if before else None
        found["recovery_seconds"] = None if back is None else back - end
        rest = flow.end - end
        told["recovery_seconds"] = (
            f"goodput did not come back within the {rest:.1f} s that the workload went on"
            if back == math.inf
            else f"{RECOVERED_SHARE:.0%} of the goodput before, {origin}"
            if back is not None
            else "the workload ended too soon after the fault"
            if before
            else "no payload arrived before the fault"
        )
        first = flow.first_byte(end)
        found["first_byte_seconds"] = None if first is None else first - end
        found["goodput_after"] = flow.between(max(looked, end if back in (None, math.inf) else back), flow.end)
        for name in ("during", "after"):
            value = found[f"goodput_{name}"]
            found[f"goodput_{name}_share"] = value / before if before and value is not None else None
    return {name: Measure(value, told.get(name, origin)) for name, value in found.items()}


def _of_events(events: Sequence[Mapping[str, Any]], end: float) -> dict[str, Measure]:
    """Count the workload's events up to a time; what a program says when it is stopped is no sign of a fault."""
    from rdmadiag.explain import wc_status

    kinds: Counter[str] = Counter(error=0)
    statuses: Counter[str] = Counter()
    for event in events:
        if event.get("from") not in _ENDS or float(event["seconds"]) >= end:
            continue
        kind, status = str(event.get("kind")), _values(event).get("status")
        kinds[kind] += 1
        why = str(_values(event).get("why", ""))
        if kind == "reconnect" and (word := re.split("[ :]", why, maxsplit=1)[0]) in ("fallback", "back", "session"):
            kinds[word] += 1  # as rdmadiag kv words it
        elif kind == "path" and (state := _values(event).get("state")) in _PATH_STATES:
            kinds[str(state)] += 1
        if kind == "error":
            if isinstance(status, int) and 0 <= status < len(wc_status.NAMES):
                status = wc_status.NAMES[status]
            if isinstance(status, str):
                statuses[status.removeprefix("IBV_WC_")] += 1
    found = {f"event.{kind}": Measure(count, "events.jsonl") for kind, count in kinds.items()}
    found |= {f"status.{name}": Measure(count, "events.jsonl") for name, count in statuses.items()}
    return found | {"errors": Measure(kinds["error"], "events.jsonl")}


def _detected(events: Sequence[Mapping[str, Any]], start: float, end: float) -> dict[str, Measure]:
    """Count from when nothing was on yet: what acts while it is put on is detected some time later, never at once."""
    errors = [float(e["seconds"]) for e in events if e.get("from") in _ENDS and e.get("kind") == "error"]
    after = [at - start for at in errors if start <= at < end]
    return {"detect_seconds": Measure(min(after, default=math.inf), "events.jsonl: the first error")}


def _of_samples(samples: Sequence[Mapping[str, Any]], end: float | None) -> dict[str, Measure]:
    by_node: dict[str, list[Mapping[str, Any]]] = {}
    for sample in samples:
        by_node.setdefault(str(sample.get("node")), []).append(sample)
    if not by_node:
        return {}
    origin = "samples.jsonl"
    in_error = down = left = 0
    blind = False
    for series in by_node.values():
        states = [qps for sample in series if isinstance(qps := sample.get("qps"), Mapping)]
        blind = blind or len(states) < len(series)
        in_error += max((int(qps.get("ERR", 0)) for qps in states), default=0)
        if states:
            left += max(0, sum(states[-1].values()) - sum(states[0].values()))
        ports = [list(p.values()) for sample in series if isinstance(p := sample.get("ports"), Mapping)]
        most = max((len(values) for values in ports), default=0)
        down += max((most - values.count("ACTIVE") for values in ports), default=0)
    last = max(float(sample["seconds"]) for sample in samples)
    late = end is None or last >= end
    return {
        "qps_in_error": Measure(None if blind else in_error, origin),
        "qps_left": Measure(
            left if late and not blind else None, origin if late else "no sample after the workload's end"
        ),
        "ports_down": Measure(down, origin),
    }


def _of_injector(facts: Mapping[str, Any]) -> dict[str, Measure]:
    found = {"kernel_warnings": Measure(len(_list(facts, "kernel_warnings")), "run.json /kernel_warnings")}
    for entry in _list(facts, "faults"):
        if not isinstance(entry, Mapping):
            continue
        for proof in ("own", "other"):
            told = entry.get(proof)
            if not isinstance(told, Mapping):
                continue
            answer = told.get("answer")
            known = answer if answer in (YES, NO) else None
            found[f"fault.{entry.get('name')}.{proof}"] = Measure(known, str(told.get("text", "")))
            values = told.get("values")
            for name, value in values.items() if proof == "own" and isinstance(values, Mapping) else ():
                found[f"fault.{entry.get('name')}.{name}"] = Measure(_plain(value), str(told.get("text", "")))
    return found
