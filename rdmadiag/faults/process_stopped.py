"""A peer's process hangs while its queue pairs live: a debugger, a stuck disk, a paused container."""

import shlex

from rdmadiag.faults import Change, Diagnosis, Moves, Plan, Target, Values
from rdmadiag.faults import _host as host

TITLE = "A process is stopped"
REACH = "host"
PARAMETERS = (host.HOST, host.PROCESS)
EXAMPLE = {"process": "1"}
SIGNS = (
    "one-sided WRITEs and READs to it still complete: verbs need no process at the target",
    "SENDs end in RNR once its receives are used up; answers over TCP do not come",
)
_STOPPED = "lives target.pid && case $stat in *') T '*) true;; *) false;; esac"
DIAGNOSIS = Diagnosis(
    ("process-is-stopped", "wire-receiver-not-ready", "rnr-naks-received"),
    "The state of the process that holds the queue pairs, in /proc",
    parameters={"process": "rdma-server"},
)


def plan(target: Target, values: Values) -> Plan:
    """Stop it by SIGSTOP, and let it go on by SIGCONT."""
    change = Change(
        f"process {values['process']} stopped",
        doing=f"{host.find_process(values, host.process_probe())}\nlives target.pid\nkill -STOP $pid\nwait_for {shlex.quote(_STOPPED)}",
        undoing="kill -CONT $pid || ! lives target.pid",
        test=f"[ -s target.pid ] && {_STOPPED}",
    )
    return host.plan(target, values, (change,), Moves("step", ("state",), probe=host.process_probe()))
