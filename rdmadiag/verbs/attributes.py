"""The attributes of an RC connection, explicit, and the sets that known engines use."""

from __future__ import annotations

import os
from typing import NamedTuple

from rdmadiag.errors import BadInput

PSN_MASK = (1 << 24) - 1
MTUS = (256, 512, 1024, 2048, 4096)


class RcAttributes(NamedTuple):
    """What is set on the way from INIT to RTS. `timeout` and `min_rnr_timer` are codes (rdmadiag explain ack-timeout, rnr-timer).

    `psn` None is a random one for each QP. `path_mtu` [bytes] 0 is the smaller active MTU of the two ends. `max_rd_atomic` is both
    what this end sends and what it accepts at once; 0 is the device's most.
    """

    timeout: int = 18
    retry_cnt: int = 6
    rnr_retry: int = 6
    min_rnr_timer: int = 12
    max_rd_atomic: int = 16
    psn: int | None = None
    path_mtu: int = 0
    traffic_class: int = 0
    hop_limit: int = 64
    sl: int = 0

    def checked(self) -> RcAttributes:
        """Return it. Raises BadInput, naming the attribute, its bounds and what was given."""
        bounds = {"timeout": 31, "retry_cnt": 7, "rnr_retry": 7, "min_rnr_timer": 31, "max_rd_atomic": 255,
                  "traffic_class": 255, "hop_limit": 255, "sl": 15}  # fmt: skip
        for name, most in bounds.items():
            if not 0 <= getattr(self, name) <= most:
                raise BadInput(f"{name} {getattr(self, name)}: wanted 0 to {most}")
        if self.psn is not None and not 0 <= self.psn <= PSN_MASK:
            raise BadInput(f"psn {self.psn}: wanted 0 to {PSN_MASK:#x}")
        if self.path_mtu and self.path_mtu not in MTUS:
            raise BadInput(f"path_mtu {self.path_mtu}: wanted one of {', '.join(map(str, MTUS))}")
        return self

    def first_psn(self) -> int:
        """Return the PSN that a QP starts with."""
        return int.from_bytes(os.urandom(3), "big") if self.psn is None else self.psn

    @property
    def ack_timeout_seconds(self) -> float | None:
        """The local ACK timeout, 4.096 us x 2^timeout (IBA vol 1, 9.7.6.1.3) [s]; None: it waits for ever."""
        return 4.096e-6 * 2**self.timeout if self.timeout else None

    @property
    def detection_seconds(self) -> float | None:
        """Nominal time until a dead path is reported: (retry_cnt + 1) timeouts. None: never. rxe also never reports with retry_cnt 7."""
        return (self.retry_cnt + 1) * self.ack_timeout_seconds if self.ack_timeout_seconds else None


PRESETS = {
    "mooncake": RcAttributes(14, 7, 7, 12, 16, psn=0),
    "ucx": RcAttributes(18, 7, 7, 13, 0, psn=0),
    "nccl": RcAttributes(20, 7, 7, 12, 1, psn=0),
    "3fs": RcAttributes(14, 7, 0, 1, 16, psn=0),
    "fast": RcAttributes(10, 6, 6, 12, 16),
    "rnr": RcAttributes(14, 6, 2, 12, 16),
}
"""What engines set: Mooncake 3b5a594, UCX 9466d10, NCCL 5067397, 3FS e2cef82 (from their sources); `fast` reports a dead path soon,
`rnr` gives up on a receiver that has no receive posted. Those two have retry_cnt 6, since rxe takes 7 for "without end"."""


def parse(words: str) -> RcAttributes:
    """Return what a command line says: a preset, values (timeout=14,retry_cnt=3), or a preset and values behind it. Raises BadInput."""
    found = RcAttributes()
    for nth, word in enumerate(words.split(",")):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals:
            if nth:
                raise BadInput(f"RC attributes {words!r}: a preset comes first; then name=value, as in fast,timeout=12")
            found = preset(name)
        elif name not in RcAttributes._fields:
            raise BadInput(f"no RC attribute named {name!r}; known: {', '.join(RcAttributes._fields)}")
        elif name == "psn" and value == "random":
            found = found._replace(psn=None)
        elif not (value.isascii() and value.isdecimal()) or len(value) > 8:
            raise BadInput(f"{name} {value!r}: wanted an integer")
        else:
            found = found._replace(**{name: int(value)})
    return found.checked()


def preset(name: str) -> RcAttributes:
    """Return a set by name. Raises BadInput, listing the known names."""
    if name not in PRESETS:
        raise BadInput(f"no RC attributes named {name!r}; known: {', '.join(PRESETS)}")
    return PRESETS[name]
