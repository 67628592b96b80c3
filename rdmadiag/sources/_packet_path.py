"""The way of one packet through chains of filter rules, where some matches cannot be judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

JUMPS = 16
"""More than these in a row is a loop; the kernel allows 16."""
END = "continue"
"""The end of a chain was reached, or `return`: the chain above goes on."""

Found = tuple[str | None, str]
"""A verdict (None: it depends on more than protocol and port) and the rule that decides."""


class Rule(NamedTuple):
    """One rule: whether a RoCE packet matches (None: it depends), what then happens, and how the rule reads."""

    matches: bool | None
    action: str
    """accept, drop, reject, return, 'jump CHAIN', 'goto CHAIN', '' (goes on), or '?' (what it does is not known)."""
    text: str


Chains = Mapping[str, Sequence[Rule]]


def verdict(chains: Chains, name: str, policy: str, depth: int = 0) -> Found:
    """Follow a RoCE packet through a chain; returns the verdict and the rule that decides. Loops end as unknown."""
    if depth > JUMPS:
        return None, "more jumps than the kernel allows"
    found: Found = (policy, "policy")
    for rule in reversed(chains.get(name, ())):  # what comes after a rule is known when the rule is looked at
        if rule.matches is False:
            continue
        then = _then(chains, rule, found, depth)
        if rule.matches:
            found = then
        elif then[0] != found[0]:
            found = (None, rule.text)
    return found


def _then(chains: Chains, rule: Rule, after: Found, depth: int) -> Found:
    word, _, target = rule.action.partition(" ")
    if word in ("accept", "drop", "reject"):
        return word, rule.text
    if word == "return":
        return END, rule.text
    if word in ("jump", "goto"):
        found = verdict(chains, target, END, depth + 1)
        return after if found[0] == END and word == "jump" else found
    return after if not word else (None, rule.text)


def all_of(matches: Iterable[bool | None]) -> bool | None:
    found = list(matches)
    return False if False in found else None if None in found else True
