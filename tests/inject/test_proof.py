"""The second proof: what moves in health proves nothing by moving, and what nothing but a fault does proves it alone."""

from __future__ import annotations

from typing import NamedTuple

from rdmadiag.faults import Moves
from rdmadiag.inject.proof import Seen, observe, other_proof
from rdmadiag.inject.target import Aim
from rdmadiag.lab import Ran
from tests.faults.test_faults import KERNELS

RETRIES = Moves("counter", ("completer_retry_err", "retry_exceeded_err"))
SILENCE = Moves("counter", ("completer_retry_err", "retry_exceeded_err"), silent=True)


def at(seconds: float, retries: int, exceeded: int = 0, sent: int = 0, received: int = 0) -> dict[str, float]:
    values = {"completer_retry_err": retries, "retry_exceeded_err": exceeded, "sent_pkts": sent, "rcvd_pkts": received}
    return {"seconds": seconds, **{f"rxe1 {name}": float(value) for name, value in values.items()}}


def answer(
    moves: Moves, earlier: dict[str, float], before: dict[str, float], now: dict[str, float], both_ends: bool = True
) -> str:
    return other_proof(moves, Seen(earlier, before, before), now, both_ends).answer


def test_resends_at_the_rate_of_health_prove_nothing() -> None:
    # rxe with timeout 14 in an emulated guest: 12 to 36 resends in 4 s, nothing wrong (measured).
    assert answer(RETRIES, at(0, 100), at(4, 112), at(14, 160)) == "unknown"
    assert answer(RETRIES, at(0, 100), at(4, 112), at(8, 124)) == "unknown"


def test_a_resend_in_a_quiet_time_may_be_chance_and_many_are_not() -> None:
    assert answer(RETRIES, at(0, 0), at(5, 0), at(10, 2)) == "unknown"
    assert answer(RETRIES, at(0, 0), at(5, 0), at(10, 20)) == "yes"


def test_much_faster_than_before_proves_it() -> None:
    assert answer(RETRIES, at(0, 100), at(4, 112), at(8, 200)) == "yes"


def test_a_counter_that_never_moves_in_health_proves_it_by_one() -> None:
    assert answer(RETRIES, at(0, 0), at(4, 0), at(8, 5, exceeded=1)) == "yes"


def test_nothing_that_moved_is_a_no_and_nothing_that_was_read_is_unknown() -> None:
    assert answer(RETRIES, at(0, 5), at(4, 5), at(8, 5)) == "no"
    assert answer(RETRIES, {}, {}, {"seconds": 8.0}) == "unknown"


def test_packets_sent_and_none_received_prove_silence_however_many_resends_there_are_in_health() -> None:
    health, on = at(0, 100, sent=1000, received=1000), at(4, 112, sent=2000, received=2000)
    assert answer(SILENCE, health, on, at(8, 120, sent=2012, received=2000)) == "yes"
    assert answer(SILENCE, health, on, at(8, 120, sent=3000, received=2900)) == "unknown"
    assert answer(RETRIES, health, on, at(8, 120, sent=2012, received=2000)) == "unknown"


def test_of_one_end_alone_nothing_at_all_may_have_come() -> None:
    # In health one ACK answers many packets: few received is no silence where the other end is not seen.
    health, on = at(0, 100, sent=1000, received=100), at(4, 112, sent=2000, received=200)
    few = at(8, 120, sent=3000, received=300)
    assert answer(SILENCE, health, on, few) == "yes"
    assert answer(SILENCE, health, on, few, both_ends=False) == "unknown"
    assert answer(SILENCE, health, on, at(8, 120, sent=2012, received=200), both_ends=False) == "yes"


def test_an_idle_device_is_not_silent() -> None:
    assert answer(SILENCE, at(0, 0), at(4, 0), at(8, 0)) == "no"


STATE = Moves("step", ("memlock",))


def state(now: dict[str, float], on: dict[str, float]) -> str:
    return other_proof(STATE, Seen({}, {}, on), now, True).answer


def test_a_state_that_was_another_while_the_fault_was_on_proves_it_though_the_last_look_came_too_late() -> None:
    written = {"was memlock": 8388608.0}
    assert state({**written, "probe memlock": 65536.0}, {}) == "yes"
    assert state({**written, "probe memlock": 8388608.0}, {"probe memlock": 65536.0}) == "yes"
    assert state({**written, "probe memlock": 8388608.0}, {"probe memlock": 8388608.0}) == "no"
    assert state(written, {}) == "unknown"


class Place(NamedTuple):
    """A host on which a probe prints a number."""

    devices: int
    instance: str = "1"

    def run(self, text: str, seconds: float = 1.0) -> Ran:
        """Print it."""
        return Ran(0, f"up 1.5 2.5\nprobe devices {self.devices}\n".encode(), b"")


class Hosts(Aim):
    """A lab of two kernels; h1 has none of its devices."""

    def node(self, place: str) -> Place:  # type: ignore[override]
        """Return a host."""
        return Place({"h1": 0, "h2": 1}[place])


def test_of_hosts_with_kernels_of_their_own_each_has_its_own_number() -> None:
    moves = Moves("file", ("devices",), probe="echo probe devices 1")
    now = observe(Hosts(KERNELS, {"lab": "x"}), moves, "")
    before = {"probe devices of h1": 1.0, "probe devices of h2": 1.0}
    assert other_proof(moves, Seen({}, before), now, True).text == "what else changed: devices of h1 -1"
