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


def no_foreign_routes(netdev: str) -> str:
    """Return shell that fails where somebody has made routes over a netdev, in any table: they would go with what is changed."""
    return (
        f"for f in 4 6; do if ip -$f route show table all dev {netdev} | grep -v ' proto kernel ' >&2; "
        f"then echo 'foreign routes over {netdev}, left alone' >&2; false; fi; done"
    )


def write_address_down(netdev: str, address: str) -> str:
    """Return shell that writes the only IPv4 address of a netdev, and its routes, into the files `address` and `routes4`.

    It fails where there are others, or routes of somebody's, and for one that was lent (DHCP): it could not be given back as it was.
    """
    here = f"ip -o -4 addr show dev {netdev}"
    return f"""[ $({here} | wc -l) = 1 ] || {{ echo 'wanted exactly one IPv4 address on {netdev}:' >&2; {here} >&2; false; }}
{no_foreign_routes(netdev)}
{here} | grep -m1 ' inet {address}/' > address
if grep ' dynamic ' address >&2; then echo 'an address with a lifetime, left alone' >&2; false; fi
ip -4 route show dev {netdev} > routes4"""


def add_address_again(netdev: str) -> str:
    """Return shell that adds the address in the file `address` again, and then those of `routes4` that did not come back with it."""
    return f"""read -r index netdev family address word broadcast rest < address
if [ "$word" = brd ]; then word="brd $broadcast"; else rest="$word $broadcast $rest"; word=; fi
case " $rest " in *' noprefixroute '*) word="$word noprefixroute";; esac
ip addr add $address $word dev {netdev}
while read -r route; do ip -4 route append ${{route% linkdown}} dev {netdev} 2>/dev/null || true; done < routes4"""


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
