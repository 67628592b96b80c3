"""What to do after a completion that is not a success: one table, backoff, a budget, another device, TCP, or a clean failure.

What a status says of whom: IBA vol 1, 11.6.2 (`rdmadiag explain wc-status`). A path is blamed only by what a path can
cause; a key that the peer no longer knows is fetched again; a local error is a mistake of this program, and repeating it helps nobody.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from rdmadiag.explain import wc_status

DEADLINE = "SOFTWARE_DEADLINE"
"""No completion came in time: not a wc_status. A stalled peer, and a QP whose retries never end, look like this."""

RECONNECT, REFETCH, WAIT, LEAVE, STOP = "reconnect", "refetch", "wait", "leave", "stop"
_TABLE: dict[str, str] = {
    "RETRY_EXC_ERR": RECONNECT,
    "WR_FLUSH_ERR": RECONNECT,
    "RESP_TIMEOUT_ERR": RECONNECT,
    "REM_OP_ERR": RECONNECT,
    "REM_ABORT_ERR": RECONNECT,
    DEADLINE: RECONNECT,
    "REM_ACCESS_ERR": REFETCH,
    "RNR_RETRY_EXC_ERR": WAIT,
    "FATAL_ERR": LEAVE,
}
_BLAMES_PATH = ("RETRY_EXC_ERR", "RESP_TIMEOUT_ERR", DEADLINE, "FATAL_ERR")


def action(status: str) -> str:
    """Return what a status asks for; what is not in the table (local errors, invalid requests) is `stop`. Raises ValueError."""
    if status == "SUCCESS" or (status not in wc_status.NAMES and status != DEADLINE):
        raise ValueError(f"{status!r} is no status of a failed work request")
    return _TABLE.get(status, STOP)


def blames_path(status: str) -> bool:
    """Tell whether a status speaks against the path. A flush does not: it follows another error."""
    return status in _BLAMES_PATH


class Route(NamedTuple):
    """One way to the peer: `kind` rdma or tcp, and what its transport needs to connect (a device, an address)."""

    name: str
    kind: str
    address: str


class Limits(NamedTuple):
    """How long is tried: tries on one route, the backoff's first delay, growth and cap [s], and all in all [s]."""

    tries: int = 3
    first_seconds: float = 0.05
    factor: float = 2.0
    most_seconds: float = 2.0
    budget_seconds: float = 30.0
    tcp_allowed: bool = True


class Step(NamedTuple):
    """What to do now: wait `seconds`, then connect by `route`; with a fresh rkey when `refetch`. `route` None: fail the request."""

    route: Route | None
    seconds: float = 0.0
    refetch: bool = False
    moved: bool = False
    why: str = ""


class Recovery:
    """Decides for one request after each failed completion. `now` is any clock [s]; it must not go back."""

    def __init__(self, routes: Sequence[Route], limits: Limits, now: float, seed: int = 0) -> None:
        if not routes:
            raise ValueError("no route to the peer")
        self._routes = [route for n, route in enumerate(routes) if not n or limits.tcp_allowed or route.kind != "tcp"]
        self._limits, self._end = limits, now + limits.budget_seconds
        self._random = random.Random(seed)
        self._at = self._tries = self._others = 0

    @property
    def route(self) -> Route:
        """The route in use."""
        return self._routes[self._at]

    def start_at(self, route: Route) -> None:
        """Begin with another route than the first: the one that the session uses already."""
        self._at = self._routes.index(route) if route in self._routes else 0

    def after(self, status: str, now: float, leave: bool = False) -> Step:
        """Return what to do after a status. A route is left after `tries` failures in a row; keys and receivers have their own count.

        `leave`: the route is not healthy any more (rdmadiag.kv.health), so it is left now where there is another.
        """
        what = action(status)
        if what == STOP:
            return Step(None, why=f"{status}: a mistake of this side or of the settings; repeating does not help")
        if what in (REFETCH, WAIT):
            self._others += 1
            if self._others > self._limits.tries:
                return Step(
                    None, why=f"{status} again after {self._limits.tries} tries: no other path helps against it"
                )
            return self._in_time(self._others, now, status, refetch=what == REFETCH)
        self._tries += 1
        last = self._at + 1 == len(self._routes)
        if what == LEAVE or self._tries > self._limits.tries or (leave and not last):
            if last:
                return Step(None, why=f"{status}: every route was tried")
            self._at, self._tries = self._at + 1, 0
            return self._in_time(0, now, status, moved=True)
        return self._in_time(self._tries, now, status)

    def _in_time(self, nth: int, now: float, status: str, refetch: bool = False, moved: bool = False) -> Step:
        delay = 0.0
        if nth:
            limits = self._limits
            delay = min(limits.most_seconds, limits.first_seconds * limits.factor ** (nth - 1))
            delay *= self._random.uniform(0.75, 1.25)
        if now + delay > self._end:
            return Step(None, why=f"{status}: the budget of {self._limits.budget_seconds:g} s is used up")
        return Step(self.route, delay, refetch, moved, status)

    def progressed(self) -> None:
        """A block arrived: the route works, its count begins again. The budget does not."""
        self._tries = self._others = 0
