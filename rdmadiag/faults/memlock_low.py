"""A process may pin almost no memory: the limit that container runtimes and login shells set."""

from rdmadiag.faults import Change, Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _host as host

TITLE = "A process's limit of locked memory is low"
REACH = "host"
PARAMETERS = (host.HOST, host.PROCESS, Parameter("kib", 64, "limit", "KiB", 0, 1 << 30))
EXAMPLE = {"process": "1"}
SIGNS = (
    "ibv_reg_mr fails with ENOMEM, ibv_create_cq and ibv_create_qp too on some providers; what is registered stays",
    "/proc/PID/limits shows it: Max locked memory",
)
DIAGNOSIS = Diagnosis(
    ("memlock-too-low",),
    "The program logs that memory cannot be registered, and the limit of its process is there to be read",
    parameters={"process": "rdma-server"},
    workload={"register": 1 << 20},
)
_PROBE = """if lives target.pid; then
set -- $(prlimit --pid $pid --memlock --noheadings --raw --output SOFT)
case $1 in *[!0-9]*) set -- -1;; esac
echo probe memlock $1
fi"""


def plan(target: Target, values: Values) -> Plan:
    """Set the limit by prlimit; refused for a process with CAP_IPC_LOCK, which no limit holds."""
    change = Change(
        f"memlock of {values['process']} at {values['kib']} KiB",
        doing=f"""{host.find_process(values, _PROBE)}
lives target.pid
while read -r key value; do [ $key = CapEff: ] && caps=$value; done < /proc/$pid/status
[ $((0x$caps >> 14 & 1)) = 0 ] || {{ echo "process $pid has CAP_IPC_LOCK (as root's have), which no memlock limit holds" >&2; false; }}
prlimit --pid $pid --memlock --noheadings --raw --output SOFT,HARD > limits
prlimit --pid $pid --memlock={values["kib"] * 1024}:
: > limited""",
        undoing="""read -r soft hard < limits
if lives target.pid; then prlimit --pid $pid --memlock=$soft:$hard || ! lives target.pid; fi
rm limited""",
        test="[ -e limited ]",
    )
    return host.plan(target, values, (change,), Moves("step", ("memlock",), probe=_PROBE))
