"""What a fault file is made of: parameters with units, the plan, and the signs that it must leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rdmadiag.errors import BadInput, RdmadiagError
from rdmadiag.faults._steps import Step

Values = Mapping[str, Any]


_TYPES: Mapping[type, Callable[[Any], Any]] = {int: int, float: float, str: str}


class Refused(RdmadiagError):
    """The fault cannot act there, or may not: says why, and what could."""


@dataclass(frozen=True)
class Parameter:
    """One parameter: its type is its default's; `unit` is %, ms, s, packets, bytes, bit/s, ... or empty.

    A site's staging mark caps what is a share (unit %) and a rate (packets/s).
    """

    name: str
    default: int | float | str | bool
    meaning: str
    unit: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()

    def check(self, value: object) -> Any:
        """Return a value (or text, from a command line or a file) as this parameter's type. Raises BadInput."""
        kind = type(self.default)
        try:
            if kind is bool:
                read: Any = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[
                    str(value).lower()
                ]
            elif kind is int and isinstance(value, float) and value != int(value):
                raise ValueError
            else:
                read = _TYPES[kind](value)
        except (ValueError, TypeError, KeyError, OverflowError):
            raise BadInput(f"{self.option} {value!r}; wanted {self.wanted()}") from None
        low = self.least is not None and not read >= self.least  # not: NaN is outside, too
        if low or (self.most is not None and not read <= self.most) or (self.choices and read not in self.choices):
            raise BadInput(f"{self.option} {value!r}; wanted {self.wanted()}")
        if kind is str and not self.choices and not all(c.isalnum() or c in " ,.:_-/%@+" for c in read):
            raise BadInput(f"{self.option} {value!r}; wanted letters, digits and , . : _ - / % @ +")
        return read

    @property
    def option(self) -> str:
        """Return the command line's name of it."""
        return f"--{self.name.replace('_', '-')}"

    def wanted(self) -> str:
        """Say what values it takes."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        kind = {int: "a whole number", float: "a number", str: "a text", bool: "yes or no"}[type(self.default)]
        unit = f" of {self.unit}" if self.unit and self.unit != "%" else self.unit and " in percent"
        if self.least is not None and self.most is not None:
            return f"{kind}{unit} from {self.least:g} to {self.most:g}"
        return f"{kind}{unit}{'' if self.least is None else f' of at least {self.least:g}'}"


class Reach(NamedTuple):
    """A data path that faults act on: which kinds of targets have it, and why the others do not."""

    meaning: str
    kinds: tuple[str, ...]
    why_not: Mapping[str, str]


_OFFLOADED = (
    "a hardware adapter's RoCE traffic does not pass the kernel, so no qdisc, nft rule or `ip link` setting of its netdev meets it "
    "(measured: netem without effect, traffic through a netdev that is down); what can: the switch, or a lab (--lab)"
)
_ONLY_SWITCH = "it needs the switch between the hosts; what has one that we may change: a lab (--lab)"
REACHES: Mapping[str, Reach] = {
    "switch": Reach(
        "packets in the lab's switch",
        ("lab",),
        {"software": _ONLY_SWITCH, "hardware": _ONLY_SWITCH},
    ),
    "path": Reach(
        "packets in the lab's switch, or in the kernel's path of a software RoCE device",
        ("lab", "software"),
        {"hardware": _OFFLOADED},
    ),
    "netdev": Reach(
        "the kernel's netdev under a software RoCE device",
        ("lab", "software"),
        {"hardware": _OFFLOADED},
    ),
    "wire": Reach("frames sent to the peer, as if from the wire", ("lab", "software", "hardware"), {}),
    "verbs": Reach("queue pairs and memory of our own, by the verbs API", ("lab", "software", "hardware"), {}),
    "host": Reach("processes, limits and memory of a host", ("lab", "software", "hardware"), {}),
}


class Diagnosis(NamedTuple):
    """Which rules name a fault rightly when `rdmadiag prove` puts it on, and why that is what an operator can know.

    `rules` are ids, any of which is right as the first cause. `parameters` are what it is put on with, `workload` parameters of
    the workload `paced` under it; `look_seconds` is how long it holds before it is looked at.
    """

    rules: tuple[str, ...]
    why: str
    parameters: Mapping[str, Any] = {}
    workload: Mapping[str, Any] = {}
    look_seconds: float = 3.0


@dataclass(frozen=True)
class Moves:
    """What else must have moved, seen by other means than the fault's own: the second proof that it fired.

    `kind` counter: one of the RDMA counters `names` of any host grew (those that move in health: faster than before), or with `silent`
    packets were sent and not received; rtt: an ICMP echo over the switch takes `at_least` ms more than
    before; rate: the bytes a second into the hosts stayed at or below `at_most`; file: a number changed that the shell
    text `probe` prints as `probe NAME N`, on any host (with `grows`: became larger); step: as file, but run where the
    steps are, in the injection's folder, and compared with what a step has put into the file `before`.
    """

    kind: str
    names: tuple[str, ...] = ()
    at_least: float = 0.0
    at_most: float = 0.0
    probe: str = ""
    silent: bool = False
    grows: bool = False


@dataclass(frozen=True)
class Plan:
    """What a fault does on one target: steps in order, each with its undoing; and how to see that it fired.

    `place` is where all steps run: a host, `switch`, or empty (the host of a device; all hosts of a one-kernel lab).
    """

    place: str
    netdevs: tuple[str, ...]  # of that place; each may carry one injection at a time
    steps: tuple[Step, ...]
    hits: tuple[str, ...]  # of what the steps count: one of these must have grown
    moves: Moves
    notes: tuple[str, ...] = ()  # what a reader of the plan should know
    packets_per_second: float = 0.0  # that the fault itself sends, at most
    drain_seconds: float = 0.0  # between the first undone step (the gate) and the others
    devices: tuple[str, ...] = ()  # RDMA devices meant to be hurt; others' queue pairs are watched
    own: bool = (
        False  # of those devices only queue pairs of its own process (file own.pid) are hurt; all others are watched
    )
    logs: tuple[str, ...] = ()  # files in the injection's folder: what its own program logged, as any program does
    values: Mapping[str, Any] = field(default_factory=dict)
