"""What faults of a host share: which host, where its commands run, and the processes that a parameter names."""

from __future__ import annotations

from rdmadiag.errors import BadInput
from rdmadiag.faults._contract import Moves, Parameter, Plan, Refused, Values
from rdmadiag.faults._steps import Step
from rdmadiag.faults._target import Cable, Target

HOST = Parameter("host", "h2", "host that is hit (with --dev: this host)")
PROCESS = Parameter("process", "", "name of the process (as in /proc/PID/comm), or its pid; there must be exactly one")
SILENCE = Moves(
    "counter",
    ("completer_retry_err", "retry_exceeded_err", "local_ack_timeout_err", "link_downed", "send_err"),
    silent=True,
)


def cable(target: Target, values: Values) -> Cable:
    """Return the first cable of the host that is hit. Raises BadInput, Refused."""
    if target.kind != "lab":
        found = target.cables[0]
    else:
        if len(target.hosts(values["host"])) != 1:
            raise BadInput(f"--host {values['host']}; wanted one host")
        found = target.cables_of(values["host"])[0]
    if not found.netdev:
        raise Refused(f"{target.title} has no netdev")
    return found


def place(target: Target, values: Values) -> str:
    """Return where the commands of a host run."""
    if not target.apart:
        return ""
    return target.hosts(values["host"])[0]


def plan(
    target: Target,
    values: Values,
    steps: tuple[Step, ...],
    moves: Moves,
    netdevs: tuple[str, ...] = (),
    hits: tuple[str, ...] = ("in_force",),
    notes: tuple[str, ...] = (),
) -> Plan:
    """Return the plan of a fault of one host."""
    return Plan(
        place=place(target, values),
        netdevs=netdevs,
        steps=steps,
        hits=hits,
        moves=moves,
        notes=notes,
        devices=tuple(one.device for one in target.cables),
    )


def find_process(values: Values, probe: str) -> str:
    """Return shell that writes the pid and start time of the process into the file `target.pid`, what a probe prints into `before`.

    Raises BadInput.
    """
    name = values["process"].strip()
    if not name or " " in name or name.startswith("-"):
        raise BadInput(f"--process {name!r}; wanted the name of one process (as in /proc/PID/comm), or its pid")
    if name.isdecimal():
        return f"remember {name} target.pid || {{ echo 'no process {name}' >&2; false; }}\n{{ {probe}\n}} > before"
    return (
        f"found=$(pgrep -x -- {name} || true)\n"
        f"case $found in ''|*[!0-9]*) echo \"processes named {name}: ${{found:-none}}; wanted exactly one\" >&2; false;; esac\n"
        f"remember $found target.pid\n{{ {probe}\n}} > before"
    )


def process_probe() -> str:
    """Return shell that prints the state of the process in `target.pid`, as the second proof reads it: 0 gone, 1 stopped, 2 lives."""
    return "state=0\nif lives target.pid; then case $stat in *') T '*) state=1;; *) state=2;; esac; fi\necho probe state $state"
