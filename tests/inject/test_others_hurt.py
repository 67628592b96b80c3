"""Which queue pairs in ERR are somebody else's: on other devices, and for a verbs fault those of other processes, on every host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rdmadiag import faults
from rdmadiag.errors import BadInput
from rdmadiag.faults import Plan
from rdmadiag.inject import proof
from rdmadiag.inject.injector import Injection
from rdmadiag.inject.target import Aim
from rdmadiag.lab import Ran
from tests.faults.test_faults import KERNELS, LAB

# As `rdma res show qp` (iproute2 6.1) prints them in a lab.
LISTED = """link rxe1/- lqpn 1 type GSI state RTS sq-psn 0 comm rdma_rxe
link rxe1/1 lqpn 17 rqpn 17 type RC state ERR rq-psn 0 sq-psn 2 path-mig-state MIGRATED pid 412 comm python3
link rxe2/1 lqpn 17 rqpn 17 type RC state ERR rq-psn 1 sq-psn 0 path-mig-state MIGRATED pid 412 comm python3
link rxe2/1 lqpn 18 rqpn 19 type RC state RTS rq-psn 1 sq-psn 0 path-mig-state MIGRATED pid 500 comm vllm
link rxe2/1 lqpn 19 rqpn 18 type RC state ERR rq-psn 1 sq-psn 0 path-mig-state MIGRATED pid 500 comm vllm
"""


class Listing:
    """A place whose queue pairs are listed."""

    instance = "1"

    def run(self, text: str, seconds: float = 1.0) -> Ran:
        """Print them, whatever is asked."""
        return Ran(0, LISTED.encode(), b"")


class Where(Aim):
    """A lab of which every place shows the same."""

    def node(self, place: str) -> Listing:  # type: ignore[override]
        """Return the place."""
        return Listing()


def hurt(plan: Plan, own: str, target: faults.Target = LAB) -> set[str]:
    """Return what an injection with a plan takes for hurt."""
    injection = object.__new__(Injection)
    injection.plan, injection.aim = plan, Where(target, {"lab": "x"})
    return injection._in_error(own)


def test_a_fault_of_the_path_may_hurt_its_devices_and_no_other() -> None:
    loss = faults.make_plan("loss", {}, LAB)
    assert hurt(loss, "") == set()
    assert hurt(replace(loss, devices=("rxe1",)), "") == {"rxe2 QP 17", "rxe2 QP 19"}


def test_a_verbs_fault_may_hurt_queue_pairs_of_its_own_process_only() -> None:
    plan = faults.make_plan("bad-rkey", {}, LAB)
    assert hurt(plan, "412") == {"rxe2 QP 19"}
    assert hurt(plan, "") == {"rxe1 QP 17", "rxe2 QP 17", "rxe2 QP 19"}


class Closing(Aim):
    """A lab in which two queue pairs are in ERR at the first look, and then closed."""

    def node(self, place: str) -> Closing:  # type: ignore[override]
        """Return the place."""
        return self

    def run(self, text: str, seconds: float = 1.0) -> Ran:
        """Print what the probe prints."""
        return Ran(0, f"probe qps_in_error {LOOKS.pop(0)}\n".encode(), b"")


LOOKS: list[int] = []


@pytest.mark.parametrize(("before", "looks", "answer"), [(0, [2, 0], "yes"), (0, [0, 0], "no"), (2, [0, 0], "no")])
def test_a_queue_pair_that_was_in_error_while_the_fault_held_proves_it_though_it_is_closed_since(
    before: int, looks: list[int], answer: str
) -> None:
    injection = object.__new__(Injection)
    injection.plan, injection.aim = faults.make_plan("forged-nak", {"victim": "h1"}, LAB), Closing(LAB, {"lab": "x"})
    injection._seen = proof.Seen(before={"probe qps_in_error": float(before)})
    LOOKS[:] = looks
    injection._observe()
    moves = injection.plan.moves
    assert proof.other_proof(moves, injection._seen, injection._observe(), True).answer == answer


def test_signs_of_life_that_the_lease_would_not_wait_for_are_refused_before_anything_is_changed() -> None:
    for lease, beat in ((20.0, 7.0), (3.0, 1.5), (20.0, 0.0)):
        with pytest.raises(BadInput, match="sign of life"):
            Injection("bad-rkey", {}, Where(LAB, {"lab": "x"}), 10.0, lease_seconds=lease, beat_seconds=beat)


def test_on_hosts_with_kernels_of_their_own_a_process_is_its_own_on_its_host_only() -> None:
    plan = faults.make_plan("bad-rkey", {}, KERNELS)
    assert hurt(plan, "412", KERNELS) == {"h1 rxe2 QP 19", "h2 rxe1 QP 17", "h2 rxe2 QP 17", "h2 rxe2 QP 19"}
