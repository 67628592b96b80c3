"""A host's processors are busy with other work: a neighbour container, a runaway job."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values, Worker
from rdmadiag.faults import _host as host

TITLE = "Other processes use a host's processors"
REACH = "host"
PARAMETERS = (host.HOST, Parameter("processes", 4, "busy processes", "", 1, 1024))
SIGNS = (
    "completions are polled late, throughput of small messages falls; on rxe, which needs the processor, everything is slower",
    "/proc/pressure/cpu and the load average rise; no counter of the adapter moves",
)
_LOOP = """n=0
while [ $n -lt $1 ]; do n=$((n+1)); sh -c 'while :; do :; done' & done
while :; do echo "{\\"busy\\": $n}"; sleep 2; done"""
DIAGNOSIS = Diagnosis(
    ("processors-overloaded",),
    "The kernel counts who waits for a processor",
    parameters={"processes": 8},
    look_seconds=25.0,  # the kernel's share of 10 s has come to nine tenths by then
)


def plan(target: Target, values: Values) -> Plan:
    """Run busy loops in the session of one process."""
    worker = Worker(f"{values['processes']} busy processes", argv=("sh", "-c", _LOOP, "busy", str(values["processes"])))
    probe = "read -r cpu user nice system rest < /proc/stat; echo probe busy_ticks $user"
    return host.plan(target, values, (worker,), Moves("file", ("busy_ticks",), probe=probe), hits=("busy",))
