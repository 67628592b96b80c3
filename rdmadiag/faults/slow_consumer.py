"""A process takes what it gets too slowly: it runs, but only a part of the time."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Restore, Target, Values, Worker
from rdmadiag.faults import _host as host

TITLE = "A process runs only a part of the time"
REACH = "host"
PARAMETERS = (
    host.HOST,
    host.PROCESS,
    Parameter("stopped_ms", 200.0, "time that it is stopped", "ms", 10, 60000),
    Parameter("running_ms", 50.0, "time that it runs in between", "ms", 10, 60000),
)
EXAMPLE = {"process": "1"}
SIGNS = (
    "SENDs meet no receive: rnr_nak at the receiver (send_rnr_err on rxe), rcvd_rnr_err at the sender; throughput falls in steps",
    "one-sided work goes on; what waits is its acknowledgement by the process",
)
_LOOP = """. ./functions
n=0
while lives target.pid; do
  kill -STOP $pid; n=$((n+1)); echo "{\\"stops\\": $n}"; sleep $1
  kill -CONT $pid; sleep $2
done"""
_PROBE = """n=0; stopped=0
while [ $n -lt 10 ]; do
  lives target.pid && case $stat in *') T '*) stopped=$((stopped+1));; esac
  n=$((n+1)); sleep 0.05
done
echo probe stopped_samples $stopped"""
DIAGNOSIS = Diagnosis(
    ("process-is-stopped", "wire-receiver-not-ready", "rnr-naks-received"),
    "As with process-stopped: the receiver posts too late, and where one looks at the right moment its process is stopped",
    parameters={"process": "rdma-server", "stopped_ms": 3000.0, "running_ms": 300.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Stop it and let it go on in turns, by a process; in the end it goes on."""
    step = Restore(
        f"process {values['process']} runs in the end",
        check=host.find_process(values, _PROBE),
        restore="if [ -s target.pid ] && lives target.pid; then kill -CONT $pid || ! lives target.pid; fi",
    )
    words = (f"{values['stopped_ms'] / 1000:g}", f"{values['running_ms'] / 1000:g}")
    worker = Worker(f"stops {values['process']} in turns", argv=("sh", "-c", _LOOP, "slow", *words))
    return host.plan(target, values, (step, worker), Moves("step", ("stopped_samples",), probe=_PROBE), hits=("stops",))
