"""In-flight changes as data: which packets in the switch, and what is done to them; read from JSON and checked.

    {"name": "bad-rkey", "match": {"from": "h1", "to": "h2", "opcode": ["RDMA_WRITE_FIRST", "RDMA_WRITE_ONLY"], "budget": 1},
     "action": {"do": "rewrite", "set": {"rkey": "0x1234"}}}

Standard library only: the program in the switch reads the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain import opcode as opcodes
from rdmadiag.lab import pattern
from rdmadiag.roce import forge, packet

ACTIONS = ("drop", "mark_ce", "delay", "duplicate", "reorder", "hold", "corrupt", "rewrite")
REWRITES = ("rkey", "va", "length", "psn", "syndrome", "opcode", "pkey", "dest_qp")
MOST = 64
"""Most changes of one program."""
_FIRST_HEADER = {"rkey": ("RETH", "AtomicETH"), "syndrome": ("AETH",)}


@dataclass(frozen=True)
class Match:
    """Which packets: all that is given must hold; `occurrence`, `probability` or `bursts`, and `budget` last, in this order.

    `psn_relative` counts from the first PSN of the QP that the switch saw since the program started; `retransmission` 0 is
    the first time that a PSN comes, 1 the first time that it comes again. Ranges are (first, last). `bursts` are the chances of the
    Gilbert-Elliott model: to enter and to leave the bad state, and to be hit in the bad and in the good one.
    """

    source: str = ""
    target: str = ""
    opcodes: frozenset[int] = frozenset()
    qp: int | None = None
    nth_qp: int | None = None
    psn: tuple[int, int] | None = None
    psn_relative: tuple[int, int] | None = None
    rkey: int | None = None
    syndrome: tuple[int, int] | None = None
    retransmission: tuple[int, int] | None = None
    occurrence: tuple[int, int] | None = None
    probability: float | None = None
    bursts: tuple[float, float, float, float] | None = None
    seed: int | None = None
    budget: int | None = None

    def chosen(self) -> tuple[int, list[int]] | None:
        """Return the period and the numbers of the packets that the seed chooses; None where chance or nothing does."""
        if self.bursts:
            return pattern.in_bursts(*self.bursts, self.seed or 0)
        if self.probability is None or self.seed is None:
            return None
        return pattern.randomly(self.probability, self.seed)


@dataclass(frozen=True)
class Action:
    """What is done. `seconds`: how long delay waits, and how long reorder and hold wait at most."""

    do: str
    seconds: float = 0.0
    copies: int = 1
    by: int = 1
    offset: int = 0
    mask: int = 0xFF
    valid_icrc: bool = True
    values: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Change:
    """One change; `name` is what its counts are called."""

    name: str
    match: Match
    action: Action

    @property
    def in_kernel(self) -> bool:
        """Say whether the kernel can do all of it: a packet that it drops or marks never visits the program."""
        m = self.match
        return self.action.do in ("drop", "mark_ce") and not (m.nth_qp or m.psn_relative or m.retransmission)


def read(values: Any, accept: Sequence[str] = ()) -> list[Change]:
    """Read changes from JSON values. Raises BadInput with the place and what is wanted; `accept` names forge.DANGERS that may be made."""
    if not isinstance(values, list) or not 1 <= len(values) <= MOST:
        raise BadInput(f"in-flight changes: wanted a list of 1 to {MOST}, got {type(values).__name__}")
    found: list[Change] = []
    for n, value in enumerate(values):
        place = f"in-flight change {n + 1}"
        entry = _object(value, place, ("name", "match", "action"))
        name = entry.get("name", f"change-{n + 1}")
        if not isinstance(name, str) or not name or name in [other.name for other in found]:
            raise BadInput(f"{place}: wanted a name of its own, got {name!r}")
        place = f"in-flight change {name!r}"
        match, action = _match(entry.get("match", {}), place), _action(entry.get("action", {}), place)
        syndrome = dict(action.values).get("syndrome")
        if syndrome is not None and not forge.is_safe(syndrome):
            forge.refuse(frozenset(("reserved-aeth",)), accept)
        found.append(Change(name, match, action))
    return found


def as_json(change: Change) -> dict[str, Any]:
    """Return a change as JSON values that `read` takes."""
    m, a = change.match, change.action
    match: dict[str, Any] = {
        "from": m.source, "to": m.target, "opcode": sorted(m.opcodes), "qp": {"nth": m.nth_qp} if m.nth_qp else m.qp,
        "psn": {"relative": list(m.psn_relative)} if m.psn_relative else m.psn and list(m.psn), "rkey": m.rkey,
        "syndrome": m.syndrome and list(m.syndrome), "retransmission": m.retransmission and list(m.retransmission),
        "occurrence": m.occurrence and list(m.occurrence), "probability": m.probability,
        "bursts": m.bursts and dict(zip(_BURSTS, m.bursts, strict=True)), "seed": m.seed, "budget": m.budget,
    }  # fmt: skip
    wanted = {key: getattr(a, key) for key in _ACTION_KEYS[a.do] if key not in ("set", "icrc")}
    if a.do == "rewrite":
        wanted["set"] = dict(a.values)
    if a.do == "corrupt":
        wanted["icrc"] = "valid" if a.valid_icrc else "invalid"
    return {
        "name": change.name,
        "match": {key: value for key, value in match.items() if value not in (None, "", [])},
        "action": {"do": a.do, **wanted},
    }


_MATCH_KEYS = (
    "from", "to", "opcode", "qp", "psn", "rkey", "syndrome", "retransmission", "occurrence", "probability", "bursts", "seed", "budget",
)  # fmt: skip
_BURSTS = {"enter": 0.005, "leave": 0.2, "bad": 1.0, "good": 0.0}
"""Chances of the Gilbert-Elliott model, and what they are when not given: as those of fault burst-loss."""
_ACTION_KEYS: dict[str, tuple[str, ...]] = {
    "drop": (),
    "mark_ce": (),
    "delay": ("seconds",),
    "duplicate": ("copies",),
    "reorder": ("by", "seconds"),
    "hold": ("seconds",),
    "corrupt": ("offset", "mask", "icrc"),
    "rewrite": ("set",),
}
_HIGHEST_SECONDS = 3600.0


def _match(value: Any, place: str) -> Match:
    place += ", match"
    entry = _object(value, place, _MATCH_KEYS)
    qp, psn = entry.get("qp"), entry.get("psn")
    nth = _number(_object(qp, f"{place}, qp", ("nth",)).get("nth"), place, 1, 1 << 24) if isinstance(qp, dict) else None
    relative = None
    if isinstance(psn, dict):
        relative = _range(_object(psn, f"{place}, psn", ("relative",)).get("relative"), f"{place}, psn", (1 << 24) - 1)
        psn = None
    seed = _number(entry.get("seed"), f"{place}, seed", 0, (1 << 63) - 1)
    bursts, probability = _bursts(entry.get("bursts"), f"{place}, bursts"), entry.get("probability")
    if probability is not None and not _chance(probability, f"{place}, probability"):
        raise BadInput(f"{place}, probability: wanted a number above 0, got 0")
    if bursts and probability is not None:
        raise BadInput(f"{place}: probability or bursts, not both")
    if seed is not None and probability is None and not bursts:
        raise BadInput(f"{place}: a seed wants a probability or bursts")
    if seed is not None and probability is not None and probability < pattern.LEAST:
        raise BadInput(f"{place}: probability: with a seed wanted at least {pattern.LEAST:.6f}, got {probability!r}")
    for key in ("from", "to"):
        if not isinstance(entry.get(key, ""), str):
            raise BadInput(f"{place}: {key}: wanted the name of a host, got {entry[key]!r}")
    match = Match(
        source=entry.get("from", ""),
        target=entry.get("to", ""),
        opcodes=_opcodes(entry.get("opcode"), place),
        qp=None if isinstance(qp, dict) else _number(qp, f"{place}, qp", 0, (1 << 24) - 1),
        nth_qp=nth,
        psn=_range(psn, f"{place}, psn", (1 << 24) - 1),
        psn_relative=relative,
        rkey=_number(entry.get("rkey"), f"{place}, rkey", 0, (1 << 32) - 1),
        syndrome=_range(entry.get("syndrome"), f"{place}, syndrome", 255),
        retransmission=_range(entry.get("retransmission"), f"{place}, retransmission", 1 << 30),
        occurrence=_range(entry.get("occurrence"), f"{place}, occurrence", 1 << 30, 1),
        probability=probability,
        bursts=bursts,
        seed=1 if bursts and seed is None else seed,
        budget=_number(entry.get("budget"), f"{place}, budget", 1, 1 << 30),
    )
    return _with_opcodes(match, place)


def _chance(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadInput(f"{place}: wanted a number from 0 to 1, got {value!r}")
    return float(value)


def _bursts(value: Any, place: str) -> tuple[float, float, float, float] | None:
    if value is None:
        return None
    given = _object(value, place, tuple(_BURSTS))
    enter, leave, bad, good = (_chance(given.get(name, _BURSTS[name]), f"{place}, {name}") for name in _BURSTS)
    if not enter or not leave or not bad:
        raise BadInput(f"{place}: enter, leave and bad: wanted numbers above 0, got {enter:g}, {leave:g} and {bad:g}")
    return enter, leave, bad, good


def _with_opcodes(match: Match, place: str) -> Match:
    # A packet has an rkey or a syndrome by its opcode: those that have one first behind the BTH, RC's own.
    for name, wanted in _FIRST_HEADER.items():
        if getattr(match, name) is None:
            continue
        having = frozenset(code for code in range(256) if (opcodes.headers(code) or ("",))[0] in wanted)
        left = match.opcodes & having if match.opcodes else having
        if not left:
            raise BadInput(f"{place}: no packet of the opcodes wanted carries a {name}")
        values = {field.name: getattr(match, field.name) for field in fields(match)}
        match = Match(**{**values, "opcodes": left})
    return match


def _action(value: Any, place: str) -> Action:
    place += ", action"
    do = value.get("do") if isinstance(value, dict) else None
    if do not in ACTIONS:
        raise BadInput(f"{place}: do: wanted one of {', '.join(ACTIONS)}, got {do!r}")
    entry = _object(value, place, ("do", *_ACTION_KEYS[do]))
    default = {"reorder": 1.0, "hold": 60.0}.get(do)
    seconds = entry.get("seconds", default)
    if "seconds" in _ACTION_KEYS[do] and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _HIGHEST_SECONDS
    ):
        raise BadInput(f"{place}: seconds: wanted a number above 0 up to {_HIGHEST_SECONDS:g}, got {seconds!r}")
    wanted = entry.get("set", {})
    if do == "rewrite":
        wanted = _object(wanted, f"{place}, set", REWRITES)
        if not wanted:
            raise BadInput(f"{place}: set: wanted values for some of {', '.join(REWRITES)}")
    values = tuple(
        (key, _required(number, f"{place}, set, {key}", 0, (1 << 8 * packet.FIELDS[key][2]) - 1))
        for key, number in wanted.items()
    )
    if entry.get("icrc", "valid") not in ("valid", "invalid"):
        raise BadInput(f"{place}: icrc: wanted valid or invalid, got {entry['icrc']!r}")
    return Action(
        do=do,
        seconds=float(seconds or 0.0),
        copies=_required(entry.get("copies", 1), f"{place}, copies", 1, 16),
        by=_required(entry.get("by", 1), f"{place}, by", 1, 1024),
        offset=_required(entry.get("offset", 0), f"{place}, offset", 0, 1 << 16),
        mask=_required(entry.get("mask", 0xFF), f"{place}, mask", 1, 0xFF),
        valid_icrc=entry.get("icrc", "valid") == "valid",
        values=values,
    )


def _object(value: Any, place: str, known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{place}: wanted an object with some of {', '.join(known)}, got {value!r}")
    for key in value:
        if key not in known:
            raise BadInput(f"{place}: no {key!r}; known: {', '.join(known)}")
    return value


def _required(value: Any, place: str, low: int, high: int) -> int:
    found = _number(value, place, low, high)
    if found is None:
        raise BadInput(f"{place}: wanted a number from {low} to {high}, got none")
    return found


def _number(value: Any, place: str, low: int, high: int) -> int | None:
    if value is None:
        return None
    try:
        number = int(value, 0) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise BadInput(f"{place}: wanted a number (or '0x...') from {low} to {high}, got {value!r}")
    return number


def _range(value: Any, place: str, high: int, low: int = 0) -> tuple[int, int] | None:
    if value is None:
        return None
    if isinstance(value, list):
        if len(value) != 2:
            raise BadInput(f"{place}: wanted one number or [first, last], got {value!r}")
        first, last = (_required(part, place, low, high) for part in value)
    else:
        first = last = _required(value, place, low, high)
    if first > last:
        raise BadInput(f"{place}: wanted [first, last], got {value!r}")
    return first, last


def _opcodes(value: Any, place: str) -> frozenset[int]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    found = set()
    for word in values:
        if isinstance(word, bool) or not isinstance(word, int | str):
            raise BadInput(f"{place}, opcode: wanted numbers or names, got {word!r}")
        found.add(int(opcodes.decode(str(word))["number"]))
    return frozenset(found)
