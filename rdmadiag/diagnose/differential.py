"""Tell causes from symptoms: for every symptom seen, the causes that are confirmed, ruled out, or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.diagnose.engine import KEYS, Answer, Result
from rdmadiag.diagnose.rulebook import PRIORS, SEVERITIES, Rule, Rulebook
from rdmadiag.diagnose.words import fill

UNKNOWN_CAUSES = 3
"""Unknown causes that are findings, for each symptom without a confirmed cause; more are in `also_possible`."""
WORTH_SETTLING = 3
"""Unknown causes that are findings though no symptom of them is seen: those that the evidence speaks for (lean from 0.5 on)."""
PLACES = frozenset(("device", "netdev", "bdf"))
"""Names of one adapter. Two subjects with different kinds of name may or may not be about one."""
SUBJECTS = 20
"""Findings of one rule and answer that are listed one by one; more are counted in the last one's message."""


class Judged(NamedTuple):
    """The differential of one run."""

    findings: list[dict[str, Any]]
    ruled_out: list[dict[str, Any]]


def compatible(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two subjects may be about one thing: every key that both have is equal, the node among them."""
    return all(one[key] == other[key] for key in one if key in other)


class _Node:
    """A finding in the making: one rule, one subject, one answer, and the findings it explains."""

    def __init__(self, answer: Answer, confirmed: bool) -> None:
        self.rule, self.subject, self.about, self.confirmed = answer.rule, answer.subject, answer.about, confirmed
        self.answers = [answer]
        self.effects: list[_Node] = []
        self.causes: list[_Node] = []
        self.also_possible: list[str] = []
        self.ties: list[bool] = []  # of each effect: whether it is surely about the same adapter

    @property
    def lean(self) -> float:
        """What the evidence at hand says for (above 0) or against an unknown cause."""
        leans = [answer.row["lean"] for answer in self.answers if isinstance(answer.row.get("lean"), (int, float))]
        return float(max(leans, default=0))

    def symptoms(self) -> set[int]:
        seen: set[int] = set()
        waiting = [*self.effects]
        found = set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if node.rule.kind == "symptom":
                found.add(id(node))
            waiting += node.effects
        return found


def judge(book: Rulebook, results: Mapping[str, Result]) -> Judged:
    """Join causes to the symptoms that they explain, on the subject keys that both have, and rank all findings."""
    confirmed = {name: _group(result.answers) for name, result in results.items()}
    for name, nodes in confirmed.items():
        for cause in nodes:
            for effect in book[name].explains:
                _tie(cause, confirmed.get(effect, ()))
    seen = [node for nodes in confirmed.values() for node in nodes]
    unknown: dict[tuple[str, tuple[Any, ...]], _Node] = {}
    ruled_out: dict[tuple[str, str], dict[str, Any]] = {}
    for node in seen:
        if node.rule.kind == "symptom" or (node.symptoms() and not node.causes):
            _differ(book, results, node, unknown, ruled_out)
    findings = _spread(sorted([*seen, *unknown.values(), *_worth_settling(results, unknown)], key=_rank))
    return Judged(_cap([_finding(node) for node in findings]), list(ruled_out.values()))


def _worth_settling(results: Mapping[str, Result], unknown: Mapping[tuple[str, Any], _Node]) -> list[_Node]:
    # Causes that nothing proves and no symptom asks for, but that the evidence speaks for.
    named = {name for name, _ in unknown}
    nodes = [
        _Node(answer, False)
        for result in results.values()
        if result.rule.kind == "cause" and result.rule.id not in named and result.rule.severity != "info"
        for answer in result.answers
        if answer.wrong is None and answer.row.get("origin") and (answer.row.get("lean") or 0) >= 0.5
    ]
    first = {node.rule.id: node for node in reversed(nodes)}
    return sorted(first.values(), key=_rank)[:WORTH_SETTLING]


def _spread(nodes: Sequence[_Node]) -> list[_Node]:
    # Of each rule the first subject before the second one of any: the first three causes are three different things.
    turns: dict[tuple[int, str, bool], int] = {}
    order = []
    for node in nodes:
        key = (_rank(node)[0], node.rule.id, node.confirmed)
        turns[key] = turns.get(key, 0) + 1
        order.append((key[0], turns[key], node))
    return [node for _, _, node in sorted(order, key=lambda entry: entry[:2])]


def _group(answers: Iterable[Answer]) -> list[_Node]:
    nodes: dict[tuple[Any, ...], _Node] = {}
    for answer in answers:
        if answer.wrong != 1:
            continue
        key = tuple(answer.subject.get(name) for name in KEYS)
        if key in nodes:
            nodes[key].answers.append(answer)
        else:
            nodes[key] = _Node(answer, True)
    return list(nodes.values())


def _tie(cause: _Node, effects: Iterable[_Node]) -> None:
    for effect in effects:
        if compatible(cause.about, effect.about) and effect is not cause:
            cause.effects.append(effect)
            cause.ties.append(_surely(cause.about, effect.about))
            effect.causes.append(cause)


def _surely(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    mine, its = PLACES & one.keys(), PLACES & other.keys()
    return not mine or not its or bool(mine & its)


def _differ(
    book: Rulebook,
    results: Mapping[str, Result],
    symptom: _Node,
    unknown: dict[tuple[str, tuple[Any, ...]], _Node],
    ruled_out: dict[tuple[str, str], dict[str, Any]],
) -> None:
    # Walk from the symptom to what may have caused it, and what may have caused that.
    candidates: list[_Node] = []
    visited = {symptom.rule.id}
    waiting = book.causes_of(symptom.rule.id)
    while waiting:
        rule = waiting.pop(0)
        if rule.id in visited:
            continue
        visited.add(rule.id)
        joined = [answer for answer in results[rule.id].answers if compatible(answer.about, symptom.about)]
        if any(answer.wrong == 1 for answer in joined):
            continue  # a confirmed cause: what lies behind it belongs to it
        open_answers = [answer for answer in joined if answer.wrong is None]
        if open_answers:
            node = _Node(open_answers[0], False)
            node.answers = open_answers
            candidates.append(node)
        elif joined:
            _rule_out(ruled_out, symptom, joined[0])
            continue  # ruled out: what would lie behind it is not followed
        waiting += book.causes_of(rule.id)
    candidates.sort(key=lambda node: (-node.lean, not node.answers[0].row, -PRIORS[node.rule.prior]))
    chosen = candidates[: 0 if symptom.causes else UNKNOWN_CAUSES]
    for node in chosen:
        key = (node.rule.id, tuple(node.subject.get(name) for name in KEYS))
        kept = unknown.setdefault(key, node)
        kept.effects.append(symptom)
        symptom.causes.append(kept)
    symptom.also_possible = [node.rule.id for node in candidates[len(chosen) :]]


def _rule_out(ruled_out: dict[tuple[str, str], dict[str, Any]], symptom: _Node, answer: Answer) -> None:
    entry = ruled_out.setdefault(
        (answer.rule.id, str(answer.subject.get("node"))),
        {
            "rule": answer.rule.id,
            "title": answer.rule.title,
            "subject": answer.subject,
            "reason": fill(answer.rule.fine, answer.row) if answer.rule.fine else _facts(answer.row),
            "evidence": [_evidence(answer.row)],
            "for": [],
        },
    )
    if symptom.rule.id not in entry["for"]:
        entry["for"].append(symptom.rule.id)


def _facts(row: Mapping[str, Any]) -> str:
    told = [
        f"{name} {value}"
        for name, value in row.items()
        if value is not None and name not in ("node", "origin", "lean", "text")
    ]
    return ", ".join(told[:6]) or "looked for and not there"


_NO_PROOF = ("lean", "hint", "why_not")


def _evidence(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None and name not in _NO_PROOF}


def _rank(node: _Node) -> tuple[Any, ...]:
    # Confirmed causes of symptoms (roots before their effects), then unknown causes, then risks, then symptoms.
    symptoms = len(node.symptoms()) if node.rule.kind == "cause" else 0
    if node.rule.kind == "symptom":
        place = 6
    elif node.confirmed and symptoms:
        place = 1 if any(cause.confirmed for cause in node.causes) or not any(node.ties) else 0
    elif not node.confirmed:
        place = 2 if symptoms else 5
    else:
        place = 4 if node.causes else 3
    severity = -SEVERITIES.index(node.rule.severity)
    prior = -PRIORS[node.rule.prior]
    if place in (2, 5):
        bare = not node.answers[0].row  # nothing at hand speaks of it
        return (place, -node.lean, bare, prior, -symptoms, severity, node.rule.id, str(node.subject))
    return (place, -symptoms if place < 2 else 0, severity, prior, node.rule.id, str(node.subject))


def _finding(node: _Node) -> dict[str, Any]:
    rule, answer = node.rule, node.answers[0]
    row = answer.row
    message = fill(rule.message, row) if node.confirmed else _unknown_message(rule, answer)
    if node.ties and not any(node.ties):
        message += ". Whether this is the adapter of the symptom cannot be told (ls -l /sys/class/infiniband/*/device)"
    return {
        "rule": rule.id,
        "kind": rule.kind,
        "layer": rule.layer,
        "answer": "confirmed" if node.confirmed else "unknown",
        "severity": rule.severity,
        "lies_in": rule.lies_in,
        "subject": node.subject,
        "title": rule.title,
        "message": message,
        "evidence": [_evidence(a.row) for a in node.answers[:SUBJECTS] if a.row],
        "fix": [fill(step, row, names=True) for step in rule.fix],
        "settle": "" if node.confirmed else _settle(rule, answer),
        "explains": _names(node.effects),
        "explained_by": _names(cause for cause in node.causes if cause.confirmed),
        "also_possible": node.also_possible,
        "refs": rule.refs,
    }


def _names(nodes: Iterable[_Node]) -> list[str]:
    return list(dict.fromkeys(node.rule.id for node in nodes))


def _unknown_message(rule: Rule, answer: Answer) -> str:
    hint = answer.row.get("hint")
    if hint:
        return str(hint)
    return f"Cannot be told: {answer.reason or 'the evidence at hand does not say'}"


def _settle(rule: Rule, answer: Answer) -> str:
    return fill(rule.settle, answer.row, names=True) if rule.settle else answer.how


def _cap(findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    counts: dict[tuple[str, str], int] = {}
    kept: list[dict[str, Any]] = []
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for finding in findings:
        key = (finding["rule"], finding["answer"])
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= SUBJECTS:
            kept.append(finding)
            last[key] = finding
    for key, finding in last.items():
        if (more := counts[key] - SUBJECTS) > 0:
            finding["message"] += f" (and {more} more like this)"
    return kept
