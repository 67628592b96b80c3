"""The driver's module is not loaded: a kernel update without it, a blacklist."""

from rdmadiag.faults import Change, Moves, Plan, Refused, Target, Values
from rdmadiag.faults import _host as host

TITLE = "The host's rdma_rxe module is unloaded"
REACH = "netdev"
PARAMETERS = (host.HOST,)
SIGNS = (
    "no RDMA device of the driver is left on the host, and lsmod does not show it; netdevs and addresses stay",
    "the peer: completer_retry_err, then WC 12, for queue pairs that were connected to it",
)
NOT_PROVEN = "it needs a kernel for each host, and prove has one lab of one kernel for all trials"
# Of software devices only RoCE ones are rxe; siw's are RNICs.
_LIST = """for d in /sys/class/infiniband/*; do
case $(readlink $d) in */virtual/*) read -r kind < $d/node_type; case $kind in *RNIC*) ;; *)
read -r netdev < $d/ports/1/gid_attrs/ndevs/0; echo ${d##*/} $netdev;; esac;; esac
done > links"""


def plan(target: Target, values: Values) -> Plan:
    """Remove all of its devices and unload the module; needs a kernel a host, for all hosts of one kernel would lose it."""
    if target.kind == "lab" and target.one_kernel:
        raise Refused(
            f"module-gone would take the devices of all hosts of {target.title}, which share a kernel; "
            "it needs one a host: rdmadiag lab up NAME --kernel-per-host"
        )
    cables = [host.cable(target, values)]
    if target.kind == "lab":
        cables = target.cables_of(target.hosts(values["host"])[0])
    first = cables[0].device
    most = len(cables)  # on a host of somebody's others may be there that the mark does not name
    change = Change(
        f"module rdma_rxe unloaded, and {', '.join(cable.device for cable in cables)} gone with it",
        doing=f"""[ -d /sys/module/rdma_rxe ]
{_LIST}
grep -q '^{first} ' links
[ $(wc -l < links) -le {most} ] || {{ echo 'there are other rxe devices, which would go too:' >&2; cat links >&2; false; }}
held=$(find /proc/[0-9]*/fd -lname '/dev/infiniband/uverbs*' -print -quit 2>/dev/null || true)
[ -z "$held" ] || {{ held=${{held#/proc/}}; echo "process ${{held%%/*}} has an RDMA device open; end it first" >&2; false; }}
while read -r name netdev; do rdma link delete $name; done < links
rmmod rdma_rxe""",
        undoing="""modprobe rdma_rxe
{ sed 1d links; head -n 1 links; } | while read -r name netdev; do
[ -e /sys/class/infiniband/$name ] || rdma link add $name type rxe netdev $netdev
done""",
        test="[ -s links ] && read -r name netdev < links && [ ! -e /sys/class/infiniband/$name ]",
    )
    probe = "n=0; for d in /sys/class/infiniband/*; do [ -e $d ] && n=$((n+1)); done; echo probe devices $n"
    return host.plan(
        target, values, (change,), Moves("file", ("devices",), probe=probe), tuple(c.netdev for c in cables)
    )
