"""A process may use only a part of a processor: a container's CPU limit that throttles it."""

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _cgroup as cgroup
from rdmadiag.faults import _host as host

TITLE = "A process is throttled to a share of a processor (cgroup)"
REACH = "host"
PARAMETERS = (host.HOST, host.PROCESS, Parameter("share", 20.0, "of one processor", "percent of a processor", 1, 10000))
EXAMPLE = {"process": "1"}
SIGNS = (
    "the process polls late: latency has steps of the period (100 ms), throughput falls",
    "cpu.stat of its cgroup: nr_throttled and throttled_usec grow",
)
DIAGNOSIS = Diagnosis(
    ("cgroup-throttles-processor",),
    "The process's control group shows its limit, that it is throttled, and that it waits",
    parameters={"process": "rdma-server", "share": 2.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Move it into a cgroup of ours with cpu.max, and back."""
    setting = f"cpu.max={int(values['share'] * 1000)} 100000"
    return cgroup.limited(target, values, "cpu", setting, ("cpu.stat", "nr_throttled"), ("cpu.stat", "throttled_usec"))
