"""How long after a death nothing of a fault is in force, with the lease that users get: mechanism by way of dying, for docs/performance.md.

In namespaces of this machine's own kernel, as tests/inject/test_comes_off.py. Not a ratio: it prints a table of its own.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rdmadiag.faults._steps import LEASE_SECONDS
from rdmadiag.inject import everything, heal
from tests.inject.test_comes_off import MECHANISMS, Place

ALONE_SECONDS = 5.0
"""What is in force so long after all that watched it was killed stays so until the next start."""


def _signal(number: signal.Signals) -> Callable[[Place, str], None]:
    def send(place: Place, tag: str) -> None:
        assert place.injector
        place.injector.send_signal(number)

    return send


def _both(place: Place, tag: str) -> None:
    assert place.injector
    place.injector.kill()
    place.kill_watchdog(tag)


WAYS: dict[str, Callable[[Place, str], None]] = {
    "injector, kill -9": _signal(signal.SIGKILL),
    "injector, SIGSTOP": _signal(signal.SIGSTOP),
    "injector, SIGHUP": _signal(signal.SIGHUP),
    "watchdog, kill -9": lambda place, tag: place.kill_watchdog(tag),
    "both, kill -9": _both,
}


def _dies(mechanism: str, way: str, state: Path) -> str:
    os.environ["XDG_STATE_HOME"] = str(state)
    place = Place(state, LEASE_SECONDS)
    try:
        tag = place.on(mechanism)
        WAYS[way](place, tag)
        died = time.monotonic()
        while not place.is_as_before():
            if way == "both, kill -9" and time.monotonic() > died + ALONE_SECONDS:
                begun = time.monotonic()
                assert all(one.clean for one in heal()) and place.is_as_before()
                return f"at the next start, {time.monotonic() - begun:.1f} s"
            assert time.monotonic() < died + LEASE_SECONDS + 60, "it did not come off"
            time.sleep(0.1)
        return f"{time.monotonic() - died:.1f} s"
    finally:
        if place.injector and place.injector.poll() is None:
            place.injector.send_signal(signal.SIGCONT)
            place.injector.communicate(timeout=60)
        everything()
        place.node.run("pkill -9 --ns $$ --nslist net -f .")
        place.space.communicate()


def measure() -> list[object]:
    """Print the table."""
    print(f"| died | {' | '.join(MECHANISMS)} |\n|---{'|---' * len(MECHANISMS)}|")
    with tempfile.TemporaryDirectory() as folder:
        for nth, way in enumerate(WAYS):
            cells = [_dies(name, way, Path(folder, f"{nth}-{name}")) for name in MECHANISMS]
            print(f"| {way} | {' | '.join(cells)} |", flush=True)
    return []
