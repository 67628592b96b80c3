"""What a scenario can ask about a run: the names that `steady`, `fired`, `expect` and `requires.measured` take."""

from __future__ import annotations

import difflib
from typing import NamedTuple


class Quantity(NamedTuple):
    """A name (or a family, NAME.*), its unit, what it is, and of which kind of witness: two proofs must be of two kinds."""

    name: str
    unit: str
    meaning: str
    witness: str


_WORKLOAD = "workload"
_COUNTERS = "counters"
_INJECTOR = "injector"
_STATES = "states"
_OTHER = "injector, by other means"

_ALL = (
    Quantity("ok", "", "yes, no or unknown: what the workload says came of it", _WORKLOAD),
    Quantity("claimed_bytes", "bytes", "payload that the workload says it moved", _WORKLOAD),
    Quantity("carrier", "", "what the workload says carried it: rdma, tcp", _WORKLOAD),
    Quantity("carried", "", "yes, no or unknown: whether the devices' counters agree that RDMA carried it", _COUNTERS),
    Quantity("errors", "count", "errors that the workload's programs printed", _WORKLOAD),
    Quantity("verified_blocks", "count", "blocks whose content was compared at the receiving end", _WORKLOAD),
    Quantity("wrong_blocks", "count", "blocks that arrived with wrong content, by checksum", _WORKLOAD),
    Quantity("requests", "count", "requests that the workload moved or tried to move", _WORKLOAD),
    Quantity("failed", "count", "requests that ended without success", _WORKLOAD),
    Quantity("published", "count", "publications at the consumer", _WORKLOAD),
    Quantity("duplicates", "count", "dones that came again and were dropped", _WORKLOAD),
    Quantity("late_dones", "count", "dones that came too late and were dropped", _WORKLOAD),
    Quantity("late_written", "count", "pieces written after their lease had ended", _WORKLOAD),
    Quantity("canaries_damaged", "count", "pieces between requests that were written over", _WORKLOAD),
    Quantity("leases_expired", "count", "leases that ran out", _WORKLOAD),
    Quantity("unfenced_reuses", "count", "slots lent again without a fence", _WORKLOAD),
    Quantity("corrupt", "count", "pieces with bytes of nobody in published requests", _WORKLOAD),
    Quantity("stale", "count", "pieces of an older version or incarnation in published requests", _WORKLOAD),
    Quantity("missing", "count", "pieces that nothing was written to in published requests", _WORKLOAD),
    Quantity("torn", "count", "pieces made of several owners' cells in published requests", _WORKLOAD),
    Quantity("misplaced", "count", "pieces of another block or request in published requests", _WORKLOAD),
    Quantity("early_pieces", "count", "pieces that were not there when their request was published", _WORKLOAD),
    Quantity("damaged_on_arrival", "count", "pieces that were acknowledged and not right at first", _WORKLOAD),
    Quantity("retries", "count", "times that a request was tried again", _WORKLOAD),
    Quantity("reconnects", "count", "times that QPs or connections were replaced", _WORKLOAD),
    Quantity("resent_bytes", "bytes", "payload posted again", _WORKLOAD),
    Quantity("useful_bytes", "bytes", "payload of requests that succeeded", _WORKLOAD),
    Quantity("detect_seconds", "s", "from when nothing of a fault was on yet to the first failed status that the workload saw", _WORKLOAD),
    Quantity("recovery_seconds", "s", "from the last fault seen to be off to at least 80 % of the goodput before, for 0.5 s", _WORKLOAD),
    Quantity("first_byte_seconds", "s", "from the last fault seen to be off to the first 100 ms with payload", _WORKLOAD),
    Quantity("goodput_before", "bytes/s", "payload that arrived per second before the first fault", _WORKLOAD),
    Quantity("goodput_during", "bytes/s", "the same while a fault was held", _WORKLOAD),
    Quantity("goodput_after", "bytes/s", "the same after the last fault, from the recovery on and once evidence is there", _WORKLOAD),
    Quantity("goodput_during_share", "1", "goodput_during / goodput_before", _WORKLOAD),
    Quantity("goodput_after_share", "1", "goodput_after / goodput_before", _WORKLOAD),
    Quantity("stall_seconds", "s", "the longest time without payload from the first fault's begin on", _WORKLOAD),
    Quantity("status.*", "count", "work requests that ended with an ibv_wc_status, without IBV_WC_: status.RETRY_EXC_ERR", _WORKLOAD),
    Quantity("event.*", "count", "events of the workload: event.reconnect; of these fallback (to another kind), back, session", _WORKLOAD),
    Quantity("fact.*", "", "what the workload says of itself: fact.rnr_retry", _WORKLOAD),
    Quantity("signal.*", "count", "growth of all counters of one meaning (rdmadiag explain counter) over the run, all devices", _COUNTERS),
    Quantity("qps_in_error", "count", "most RC queue pairs seen in state ERR at once", _STATES),
    Quantity("qps_left", "count", "RC queue pairs still there at the end, beyond those before the workload", _STATES),
    Quantity("ports_down", "count", "most RDMA ports seen not ACTIVE at once", _STATES),
    Quantity("kernel_warnings", "count", "warnings, oopses and lockups that the kernel printed during the run", _STATES),
    Quantity("fault.*.own", "", "yes, no or unknown: the fault's own means counted something", _INJECTOR),
    Quantity("fault.*.other", "", "yes, no or unknown: what else must have moved moved, read by the injector", _OTHER),
    Quantity("fault.*.*", "", "what the fault's own means counted, by name: fault.loss.dropped", _INJECTOR),
)  # fmt: skip

QUANTITIES = {quantity.name: quantity for quantity in _ALL}
"""Every quantity by name; families end in .* (`fault.*.*` has two parts to fill in)."""


def of(name: str) -> Quantity | None:
    """Return the quantity that a name is, or is of the family of; None for no quantity."""
    parts = name.split(".")
    if not all(parts) or "*" in name:
        return None
    if parts[0] == "fault" and len(parts) == 3:
        return QUANTITIES.get(f"fault.*.{parts[2]}") or QUANTITIES["fault.*.*"]
    return QUANTITIES.get(name if len(parts) == 1 else f"{parts[0]}.*" if len(parts) == 2 else "")


def unit(name: str) -> str:
    """Return what to write behind a value, with a space before it; nothing for counts and shares."""
    quantity = of(name)
    return f" {quantity.unit}" if quantity and quantity.unit not in ("", "1", "count") else ""


def near(name: str) -> list[str]:
    """Return names that look like a wrong one."""
    return difflib.get_close_matches(name, list(QUANTITIES), 3, 0.5)
