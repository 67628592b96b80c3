"""A peer's process dies at once: out of memory, a crash, `kill -9`."""

from rdmadiag.faults import Change, Diagnosis, Moves, Plan, Target, Values
from rdmadiag.faults import _host as host

TITLE = "A process is killed"
REACH = "host"
PARAMETERS = (host.HOST, host.PROCESS)
EXAMPLE = {"process": "1"}
SIGNS = (
    "the peer: WC 12 after its retries where the QP went first, WC 10 where the memory did; TCP to it: reset",
    "on its host: the QPs of its pid are gone",
)
DIAGNOSIS = Diagnosis(
    ("peer-process-gone",),
    "The other end's own log: the peer's connection ended in mid-work",
    parameters={"process": "rdma-server"},
)


def plan(target: Target, values: Values) -> Plan:
    """Kill it by SIGKILL. There is nothing to undo: whoever started it starts it again."""
    change = Change(
        f"process {values['process']} killed",
        doing=f"{host.find_process(values, host.process_probe())}\nlives target.pid\nkill -9 $pid\ngone 'lives target.pid'",
        undoing=": > let-go",
        test="[ -s target.pid ] && [ ! -e let-go ] && ! lives target.pid",
    )
    moves = Moves("step", ("state",), probe=host.process_probe())
    notes = ("a process that was killed is not brought back: process-restarted does that",)
    return host.plan(target, values, (change,), moves, notes=notes)
