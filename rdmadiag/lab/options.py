"""What a lab is made of: the options of `rdmadiag lab up`, checked."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from rdmadiag.errors import BadInput

BACKENDS = ("auto", "native", "vm")
MAX_HOSTS = 16
_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


@dataclass(frozen=True)
class Options:
    """One lab; `idle_seconds` and `folder` (shared, writable) are not part of what two `up` must agree on but for `folder`."""

    backend: str = "auto"
    hosts: int = 2
    rails: int = 1
    rate: str = "200mbit"
    queue_bytes: int = 1 << 20
    mtu: int = 4200
    ecn: bool = False
    kernel_per_host: bool = False
    namespaces: bool = False
    kernel: str = ""
    folder: str = ""
    idle_seconds: float = 7200.0

    def __post_init__(self) -> None:
        """Raise BadInput, naming the option, for values that no lab can have."""
        if self.backend not in BACKENDS:
            raise BadInput(f"--backend {self.backend!r}; wanted one of {', '.join(BACKENDS)}")
        if not 2 <= self.hosts <= MAX_HOSTS:
            raise BadInput(f"--hosts {self.hosts}; wanted 2 to {MAX_HOSTS}")
        if self.rails not in (1, 2):
            raise BadInput(f"--rails {self.rails}; wanted 1 or 2")
        if not 576 <= self.mtu <= 9000:
            raise BadInput(f"--mtu {self.mtu}; wanted 576 to 9000 bytes (4200 gives RoCE the path MTU 4096)")
        if not 64 << 10 <= self.queue_bytes <= 1 << 30:
            raise BadInput(f"--queue {self.queue_bytes}; wanted 65536 to 1073741824 bytes")
        if self.kernel and not re.fullmatch(r"\d[\w.+~-]{0,80}", self.kernel):
            raise BadInput(f"--kernel {self.kernel[:80]!r}; wanted a release, such as 6.12.43+deb13-amd64")
        if self.kernel and self.backend == "native":
            raise BadInput("--kernel needs a virtual machine; leave out --backend native")
        if self.kernel_per_host and self.backend == "native":
            raise BadInput("--kernel-per-host needs virtual machines; leave out --backend native")
        if self.namespaces and (self.kernel_per_host or self.backend == "native"):
            other = "--kernel-per-host" if self.kernel_per_host else "--backend native"
            raise BadInput(f"--namespaces with {other}; wanted one of the two")
        if self.kernel_per_host and self.hosts > 4:
            raise BadInput(f"--hosts {self.hosts} with --kernel-per-host; wanted 2 to 4 (each is a virtual machine)")
        bits_per_second(self.rate)

    @property
    def apart(self) -> bool:
        """Whether each host is a place of its own, with its own devices only: a kernel, or a network namespace."""
        return self.kernel_per_host or self.namespaces

    def as_json(self) -> dict[str, Any]:
        """Return all options by name."""
        return asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> Options:
        """Read what `as_json` gave; a name that this release does not know is left out."""
        known = {field.name for field in fields(Options)}
        return Options(**{name: value for name, value in values.items() if name in known})


def bits_per_second(rate: str) -> int:
    """Read a rate: 200mbit, 1gbit, 500kbit. Raises BadInput for other words and for rates outside 1 mbit to 100 gbit."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(kbit|mbit|gbit)", rate)
    value = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not 10**6 <= value <= 10**11:
        raise BadInput(f"--rate {rate!r}; wanted a rate from 1mbit to 100gbit, such as 200mbit")
    return value


def differences(running: Options, wanted: Options) -> list[str]:
    """Say in which options a running lab differs from a wanted one; `auto` takes whatever runs."""
    found = []
    for field in fields(Options):
        has, want = getattr(running, field.name), getattr(wanted, field.name)
        if has != want and field.name != "idle_seconds" and not (field.name == "backend" and want == "auto"):
            found.append(f"--{field.name.replace('_', '-')} is {has}, wanted {want}")
    return found
