"""A byte changes where no checksum covers it: in an adapter's or switch's memory, so that the ICRC that arrives is right for wrong data."""

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _inflight as inflight

TITLE = "A byte of payload is another one when it arrives, with a valid ICRC"
REACH = "switch"
PARAMETERS = (
    inflight.NTH,
    inflight.TIMES,
    Parameter("offset", 0, "which byte of the packet's payload", "bytes", 0, 65536),
    Parameter("mask", 255, "which of its bits are turned", "", 1, 255),
    inflight.FROM,
    inflight.TO,
)
SIGNS = (
    "none in RDMA: the work request ends with WC 0, no counter moves, the ICRC is right",
    "only whoever compares contents finds it: a checksum of the application over its data, carried another way",
)
DIAGNOSIS = Diagnosis(
    ("wire-payload-changed",),
    "Captures at both ends: the bytes differ, and the ICRC is valid",
    parameters={"times": 20},
)


def plan(target: Target, values: Values) -> Plan:
    """Turn bits of the n-th packet that carries data, and make the ICRC valid again."""
    opcodes = [*inflight.SENDS, *inflight.WRITES, *inflight.READ_ANSWERS]
    match = {"opcode": opcodes, "occurrence": inflight.from_nth(values)}
    action = {"do": "corrupt", "offset": values["offset"], "mask": values["mask"], "icrc": "valid"}
    return inflight.plan(target, values, match, action, "turns bits of payload")
