"""The RDMA device goes away: a hot unplug, a driver that was unbound, a VF that was taken."""

from rdmadiag.faults import Change, Moves, Plan, Target, Values
from rdmadiag.faults import _host as host

TITLE = "The host's RDMA device is removed"
REACH = "netdev"
PARAMETERS = (host.HOST,)
SIGNS = (
    "ibv_devices does not list it; a program that opens it by name fails; its GIDs are gone, netdev and address stay",
    "the peer: completer_retry_err, then WC 12, for queue pairs that were connected to it",
)
NOT_PROVEN = "prove's work has both devices open, and rxe cannot take a device from a program: it is refused there"


def plan(target: Target, values: Values) -> Plan:
    """Delete the rxe link, and make it anew on the same netdev.

    Refused while a program has it open: rxe has no way to take a device from its users, so the removal would wait for
    them to the end of time (drivers/infiniband/core/uverbs_main.c, ib_uverbs_remove_one), and could not be undone.
    """
    cable = host.cable(target, values)
    here = f"/sys/class/infiniband/{cable.device}"
    change = Change(
        f"rxe device {cable.device} removed",
        doing=f"""[ -e {here} ]
for u in /sys/class/infiniband_verbs/*/ibdev; do
read -r d < $u; u=${{u%/ibdev}}
if [ $d = {cable.device} ]; then node=/dev/infiniband/${{u##*/}}; fi
done
held=$(find /proc/[0-9]*/fd -lname "$node" -print -quit 2>/dev/null || true)
if [ -n "$held" ]; then
held=${{held#/proc/}}
echo "process ${{held%%/*}} has {cable.device} open, and rxe cannot take it from its users; end it first" >&2
false
fi
echo {cable.device} > removed
rdma link delete {cable.device}""",
        undoing=f"rdma link add {cable.device} type rxe netdev {cable.netdev}\nrm removed",
        test=f"[ -e removed ] && [ ! -e {here} ]",
    )
    probe = "n=0; for d in /sys/class/infiniband/*/ports; do [ -e $d ] && n=$((n+1)); done; echo probe devices $n"
    return host.plan(target, values, (change,), Moves("file", ("devices",), probe=probe), (cable.netdev,))
