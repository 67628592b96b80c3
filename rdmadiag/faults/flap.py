"""A link goes down and comes up again, several times: a bad cable or transceiver."""

from rdmadiag.errors import BadInput
from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Restore, Target, Values, Worker

TITLE = "The link of a host goes down and up again"
REACH = "switch"
PARAMETERS = (
    Parameter("host", "h2", "host whose link flaps"),
    Parameter("down_ms", 500.0, "time that it is down", "ms", 50, 600000),
    Parameter("up_ms", 2000.0, "time that it is up in between", "ms", 50, 600000),
    Parameter("times", 0, "how often; 0: as long as it holds", "", 0, 100000),
)
SIGNS = (
    "the port's state goes to DOWN and back to ACTIVE: events PORT_ERR and PORT_ACTIVE, link_downed on rxe",
    "packets meanwhile are lost: completer_retry_err; longer than the retry budget: WC 12",
    "the kernel log of the host: Link is Down, or `lost carrier`",
)
_LOOP = r"""n=0
while [ $4 = 0 ] || [ $n -lt $4 ]; do
  for p in $1; do ip link set $p down; done
  n=$((n+1)); echo "{\"flaps\": $n}"
  sleep $2
  for p in $1; do ip link set $p up; done
  sleep $3
done
sleep 100000"""
DIAGNOSIS = Diagnosis(("port-goes-up-and-down",), "The port counts that its link went down, several times")


def plan(target: Target, values: Values) -> Plan:
    """Take the switch's end of the host's links down: the host sees its carrier go, as with a pulled cable."""
    if len(target.hosts(values["host"])) != 1:
        raise BadInput(f"--host {values['host']}; wanted one host")
    ports = tuple(cable.port for cable in target.cables_of(values["host"]))
    every = f"for p in {' '.join(ports)}; do"
    up = Restore(
        f"{', '.join(ports)} up in the end",
        check=f"{every} ip -o link show dev $p | grep -q ',UP' || {{ echo \"$p is down already\" >&2; false; }}; done",
        restore=f"{every} ip link set $p up; done",
    )
    words = (" ".join(ports), f"{values['down_ms'] / 1000:g}", f"{values['up_ms'] / 1000:g}", str(values["times"]))
    worker = Worker(f"a process that flaps {', '.join(ports)}", argv=("sh", "-c", _LOOP, "flap", *words))
    moves = Moves("counter", ("link_downed", "completer_retry_err"))
    return Plan(
        place="switch",
        netdevs=ports,
        steps=(up, worker),
        hits=("flaps",),
        moves=moves,
        devices=tuple(cable.device for cable in target.cables),
    )
