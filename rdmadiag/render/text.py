"""The report for a tired person: the verdict, then each symptom with its causes, then risks, gaps, and what to run next."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rdmadiag.diagnose.words import WORDS

STYLES = {
    "critical": "bold red",
    "error": "red",
    "warning": "yellow",
    "info": "cyan",
    "fine": "bold green",
    "unknown": "bold yellow",
    "dim": "dim",
    "head": "bold",
}
EVIDENCE_ROWS = 3
RULED_OUT = 12
ALSO_POSSIBLE = 8
ELSEWHERE = ("library", "job", "peer", "network")
UNSHOWN = ("origin", "node", "text", "hint", "what", "who", "why")

Line = tuple[str, str, str]  # style, indented first prefix, text


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the report as text, wrapped to `width` [columns]; with colours for a terminal."""
    lines = list(_report(report))
    if terminal:
        return _rich(lines, width)
    return "\n".join(_wrap(prefix, text, width) for _, prefix, text in lines)


def _wrap(prefix: str, text: str, width: int) -> str:
    text = printable(text)
    return (
        textwrap.fill(
            text,
            max(width, 40),
            initial_indent=prefix,
            subsequent_indent=" " * len(prefix),
            break_on_hyphens=False,
            break_long_words=False,
        )
        or prefix.rstrip()
    )


def _rich(lines: Sequence[Line], width: int) -> str:
    from rich.console import Console
    from rich.text import Text

    console = Console(width=width, force_terminal=True, highlight=False)
    with console.capture() as capture:
        for style, prefix, text in lines:
            console.print(Text(_wrap(prefix, text, width), style=STYLES.get(style, "")), soft_wrap=True)
    return capture.get().rstrip("\n")


def printable(text: str) -> str:
    """Return a text in which nothing is left that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text.replace("\t", " "))


def _report(report: Mapping[str, Any]) -> Iterator[Line]:
    findings: list[dict[str, Any]] = report["findings"]
    many = len(report["nodes"]) > 1
    yield _verdict(report)
    told: set[int] = set()
    symptoms = [f for f in findings if f["kind"] == "symptom"]
    for group in _grouped(symptoms):
        yield "", "", ""
        yield from _symptom(group, findings, report["ruled_out"], told, many)
    rest = [f for f in findings if f["kind"] == "cause" and id(f) not in told and not f["explained_by"]]
    sure = [f for f in rest if f["answer"] == "confirmed"]
    for title, causes in (
        ("Wrong, though no symptom of it is seen", [f for f in sure if f["severity"] != "info"]),
        ("Worth settling: nothing proves it, but what was seen speaks for it", [f for f in rest if f not in sure]),
        ("Worth knowing", [f for f in sure if f["severity"] == "info"]),
    ):
        left = [f for f in causes if id(f) not in told]
        if left:
            yield "", "", ""
            yield "head", "", title
            for group in _grouped(left):
                yield from _cause(group, "  ", findings, told, many)
    yield from _gaps(report)
    yield from _next(report)


def _verdict(report: Mapping[str, Any]) -> Line:
    names = ", ".join(str(node["node"]) for node in report["nodes"][:4]) or "nothing"
    names += f" and {len(report['nodes']) - 4} more" if len(report["nodes"]) > 4 else ""
    summary = report["summary"]
    confirmed = [f for f in report["findings"] if f["answer"] == "confirmed"]
    causes = [f for f in confirmed if f["kind"] == "cause" and not f["explained_by"]]
    if summary["verdict"] == "wrong":
        confirmed = [f for f in confirmed if not f["known"]]
        causes = [f for f in causes if not f["known"]]
        first = (causes or confirmed)[0]
        where = f" (it lies in the {first['lies_in']}, not in the node)" if first["lies_in"] in ELSEWHERE else ""
        more = len({f["rule"] for f in (causes or confirmed)}) - 1
        tail = f", and {more} more" if more > 0 else ""
        kind = "" if causes else "; its cause is not proven"
        return first["severity"], "", f"{names}: WRONG: {first['title']}{where}{kind}{tail}"
    counts = summary["rules"]
    if summary["verdict"] == "unknown":
        judged = counts["fine"] + counts["wrong"]
        why = (
            f"{counts['unknown']} of {counts['all']} rules could not judge"
            if judged
            else "nothing in it let any rule judge"
        )
        return "unknown", "", f"{names}: UNKNOWN: nothing is proven wrong, but not all could be seen ({why})"
    judged = f"{counts['fine'] + counts['wrong']} of {counts['all']} rules judged"
    judged += f"; {counts['unknown']} could not judge" if counts["unknown"] else ""
    if summary["known"]:
        return "fine", "", f"{names}: nothing new at {summary['fail_on']} or above; {summary['known']} known ({judged})"
    return "fine", "", f"{names}: nothing wrong at {summary['fail_on']} or above in what was seen ({judged})"


def _grouped(findings: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for finding in findings:
        groups.setdefault((finding["rule"], finding["answer"]), []).append(finding)
    return list(groups.values())


def _where(subject: Mapping[str, Any], many: bool) -> str:
    parts = [str(subject["node"])] if many and "node" in subject else []
    if "device" in subject:
        parts.append(f"{subject['device']}/{subject['port']}" if "port" in subject else str(subject["device"]))
    parts += [f"{key} {subject[key]}" for key in ("netdev", "bdf", "qpn", "pid", "peer") if key in subject]
    return " ".join(parts)


def _messages(group: Sequence[dict[str, Any]], indent: str, many: bool, proof: bool) -> Iterator[Line]:
    # What the findings of one rule say, said once where several say the same.
    said: dict[str, list[dict[str, Any]]] = {}
    for finding in group:
        said.setdefault(finding["message"], []).append(finding)
    for message, same in list(said.items())[:EVIDENCE_ROWS]:
        nodes = ", ".join(dict.fromkeys(str(f["subject"].get("node", "?")) for f in same)) if many else ""
        yield "", indent, f"{nodes}: {message}" if nodes else message
        for names in (_adapter(same[0]), _owner(same[0])):
            if names:
                yield "dim", f"{indent}  ", names
        cabled = [f["cabled_to"] for f in same if "cabled_to" in f]
        if cabled:
            yield "", f"{indent}  cabled to: ", _some(list(dict.fromkeys(cabled)))
        if proof:
            yield from _proof([row for finding in same for row in finding["evidence"]], indent + "  ")
    rest = [finding for same in list(said.values())[EVIDENCE_ROWS:] for finding in same]
    if rest:
        places = list(dict.fromkeys(_where(finding["subject"], many) for finding in rest))
        yield "", indent, f"and {len(rest)} more: {_some(places)}"


def _adapter(finding: Mapping[str, Any]) -> str:
    # The names of the adapter, and the GPU that it serves.
    adapter = finding.get("adapter")
    if not adapter:
        return ""
    names = [str(adapter[key]) for key in ("device", "bdf", "netdev") if key in adapter]
    rail = [f"rail {adapter['rail']}"] if "rail" in adapter else []
    where = ", ".join(str(adapter[key]) for key in ("gpu_bdf", "path") if key in adapter)
    gpu = f"GPU {adapter['gpu']}" + (f" ({where})" if where else "")
    return f"adapter: {', '.join([*names, *rail, gpu])}"


def _owner(finding: Mapping[str, Any]) -> str:
    # The process, and its container, pod or job; on the bare node a process has none.
    owner = finding.get("owner", {})
    if not owner.get("container"):
        return ""
    identity = f", container {owner['container_id']}" if "container_id" in owner and "pod" in owner else ""
    return f"process: {owner.get('comm', '?')} (pid {owner['pid']}), {owner['container']}{identity}"


def _known(group: Sequence[Mapping[str, Any]]) -> str:
    known = sum(1 for finding in group if finding["known"])
    return "" if not known else " (known)" if known == len(group) else f" ({known} of {len(group)} known)"


def _symptom(
    group: Sequence[dict[str, Any]],
    findings: Sequence[dict[str, Any]],
    ruled_out: Sequence[dict[str, Any]],
    told: set[int],
    many: bool,
) -> Iterator[Line]:
    first = group[0]
    yield first["severity"], f"{first['severity'].upper()}: ", f"{first['title']}  [{first['rule']}]{_known(group)}"
    yield from _messages(group, "  ", many, True)
    causes = _roots([f for f in findings if f["kind"] == "cause" and first["rule"] in f["explains"]], findings)
    if not causes and not first["also_possible"]:
        yield "dim", "  ", "no cause of it is known or can be judged from what was given"
    if not causes and "cannot_show" in first:
        yield "dim", "  this capture cannot show: ", first["cannot_show"]
    for cause_group in _grouped(causes):
        if any(id(f) in told for f in cause_group):
            yield "dim", "  ", f"cause: {cause_group[0]['title']}  [{cause_group[0]['rule']}]: see above"
        else:
            yield from _cause(cause_group, "  ", findings, told, many)
    out = [entry for entry in ruled_out if first["rule"] in entry["for"]]
    for entry in out[:RULED_OUT]:
        yield "dim", "  ruled out: ", f"{entry['title']}  [{entry['rule']}]: {entry['reason']}"
    if len(out) > RULED_OUT:
        yield "dim", "  ruled out: ", f"{len(out) - RULED_OUT} more: {', '.join(e['rule'] for e in out[RULED_OUT:])}"
    if first["also_possible"]:
        yield "dim", "  also possible: ", _some(first["also_possible"])


def _roots(causes: Sequence[dict[str, Any]], findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    # Instead of a confirmed cause that another confirmed one produced, that one: the effect is shown below it.
    found: dict[int, dict[str, Any]] = {}
    waiting = list(reversed(causes))
    seen: set[int] = set()
    while waiting:
        cause = waiting.pop()
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        above = [f for f in findings if f["rule"] in cause["explained_by"] and f["answer"] == "confirmed"]
        if above:
            waiting += reversed(above)
        else:
            found[id(cause)] = cause
    return list(found.values())


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - ALSO_POSSIBLE} more (--format json)" if len(names) > ALSO_POSSIBLE else ""
    return ", ".join(names[:ALSO_POSSIBLE]) + more


def _cause(
    group: Sequence[dict[str, Any]], indent: str, findings: Sequence[dict[str, Any]], told: set[int], many: bool
) -> Iterator[Line]:
    first = group[0]
    told.update(id(f) for f in group)
    sure = first["answer"] == "confirmed"
    plain = " " * (len(indent) - len(indent.lstrip()))
    place = f" Lies in the {first['lies_in']}; the node is fine." if first["lies_in"] in ELSEWHERE and sure else ""
    yield (
        (first["severity"] if sure else "unknown"),
        f"{indent}{'CAUSE' if sure else 'unknown cause'}: ",
        f"{first['title']}  [{first['rule']}]{_known(group)}{place}",
    )
    deeper = plain + "  "
    yield from _messages(group, deeper, many, sure)
    if not sure and first["settle"]:
        yield "head", f"{deeper}settle it: ", first["settle"]
    for number, step in enumerate(first["fix"] if sure else first["fix"][:1], 1):
        yield "", f"{deeper}{'fix' if sure else 'fix, if so'} {number}. ", step
    if "cannot_show" in first:
        yield "dim", f"{deeper}this capture cannot show: ", first["cannot_show"]
    effects = [f for f in findings if f["kind"] == "cause" and first["rule"] in f["explained_by"] and id(f) not in told]
    for effect in _grouped(effects):
        told.update(id(f) for f in effect)
        yield "dim", f"{deeper}which made: ", f"{effect[0]['title']}  [{effect[0]['rule']}]: {effect[0]['message']}"
    behind = [f for f in findings if f["answer"] == "unknown" and first["rule"] in f["explains"] and id(f) not in told]
    for unknown in _grouped(behind if sure else ()):
        yield from _cause(unknown, deeper + "behind it, ", findings, told, many)


def _proof(rows: Sequence[Mapping[str, Any]], indent: str) -> Iterator[Line]:
    for row in rows[:EVIDENCE_ROWS]:
        origin = row.get("origin")
        shown = row.get("text") or ", ".join(
            f"{name} {value}" for name, value in row.items() if name not in UNSHOWN and value != ""
        )
        yield "dim", f"{indent}proof: ", f"{origin}: {shown}" if origin else shown
    if len(rows) > EVIDENCE_ROWS:
        yield "dim", f"{indent}proof: ", f"and {len(rows) - EVIDENCE_ROWS} more rows (--format json)"


def _gaps(report: Mapping[str, Any]) -> Iterator[Line]:
    shown = [gap for gap in report["gaps"] if gap["kind"] not in ("not_given",)]
    given = sorted({table for gap in report["gaps"] if gap["kind"] == "not_given" for table in gap["tables"]})
    unread = report["summary"]["unrecognised"]
    if shown or given or unread:
        yield "", "", ""
        yield "head", "", "Not seen"
    for gap in shown[:20]:
        subject = f" ({gap['subject']})" if gap.get("subject") and gap["subject"] not in gap["reason"] else ""
        how = f" To see it: {gap['how']}." if gap.get("how") else ""
        what = "; ".join(dict.fromkeys(WORDS.get(name, name) for name in gap["tables"]))
        yield "dim", "  ", f"{what}: {gap['reason']}{subject}.{how}"
    if len(shown) > 20:
        yield "dim", "  ", f"and {len(shown) - 20} more; --format json lists all"
    if given:
        words = list(dict.fromkeys(WORDS.get(name, name) for name in given))
        more = (
            f"; and {len(words) - _GIVEN} more (rdmadiag collect takes all into one file)"
            if len(words) > _GIVEN
            else ""
        )
        yield "dim", "  not given: ", "; ".join(words[:_GIVEN]) + more
    if unread:
        shown_paths = ", ".join(unread[:10]) + (f" and {len(unread) - 10} more" if len(unread) > 10 else "")
        yield "dim", "  ", f"nothing known was recognised in: {shown_paths}"
    if left := report["summary"]["log_lines_left_out"]:
        yield "dim", "  ", f"{left} matching log lines are older than --since and were left out"


_GIVEN = 8
"""Parts named that were not given: those that most rules miss come first."""


def _next(report: Mapping[str, Any]) -> Iterator[Line]:
    steps = list(dict.fromkeys(f["settle"] for f in report["findings"] if f["answer"] == "unknown" and f["settle"]))
    causes = [
        f for f in report["findings"] if f["answer"] == "confirmed" and f["kind"] == "cause" and not f["explained_by"]
    ]
    if causes:
        given = "".join(f"--from {shlex.quote(spec)} " for spec in report["summary"]["given"][:3])
        steps.append(f"rdmadiag check {given}--explain {causes[0]['rule']}  (why it says so)")
    if steps:
        yield "", "", ""
        yield "head", "", "Next"
        for number, step in enumerate(steps[:5], 1):
            yield "", f"  {number}. ", step
