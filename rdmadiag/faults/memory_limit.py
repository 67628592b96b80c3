"""A process may have little memory beyond what it has: a container's limit that makes the kernel reclaim all the time."""

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _cgroup as cgroup
from rdmadiag.faults import _host as host

TITLE = "A process is held below a memory limit (cgroup, memory.high)"
REACH = "host"
PARAMETERS = (
    host.HOST,
    host.PROCESS,
    Parameter("mib", 16.0, "memory that it may use before it is slowed", "MiB", 1, 1 << 20),
)
EXAMPLE = {"process": "1"}
SIGNS = (
    "the process is slowed at each allocation; pinned memory cannot be reclaimed, so registration becomes slow",
    "memory.events of its cgroup: high grows; /proc/pressure/memory rises",
)
DIAGNOSIS = Diagnosis(
    ("cgroup-slows-for-memory",),
    "The process's control group shows its limit, how often it was met, and that it waits for memory",
    parameters={"process": "rdma-server", "mib": 1.0},
    workload={"scratch": 4 << 20},
)


def plan(target: Target, values: Values) -> Plan:
    """Move it into a cgroup of ours with memory.high, and back. What it has already stays charged where it was (cgroup v2)."""
    high = f"memory.high={int(values['mib'] * (1 << 20))}"
    return cgroup.limited(target, values, "memory", high, ("memory.events", "high"), ("memory.current", ""))
