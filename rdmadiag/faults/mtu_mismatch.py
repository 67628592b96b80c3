"""One port on the way passes only small packets, while both hosts believe in large ones: jumbo frames forgotten on a switch port."""

from rdmadiag.errors import BadInput
from rdmadiag.faults import Change, Diagnosis, Moves, Parameter, Plan, Refused, Target, Values
from rdmadiag.faults import _host as host

TITLE = "A port's MTU is smaller than its peers'"
REACH = "netdev"
PARAMETERS = (
    host.HOST,
    Parameter("mtu", 1500, "MTU that is set", "bytes", 576, 9000),
    Parameter("at", "switch", "where: the switch's port to the host, or the host's netdev", choices=("switch", "host")),
)
SIGNS = (
    "switch: small messages pass, packets of a full path MTU never arrive: completer_retry_err, then WC 12; no NAK",
    "host: its port's active_mtu falls; new queue pairs agree on it, old ones fail or go on with too large packets",
)
_LEAST_OF_IPV6 = 1280  # RFC 8200, 5
DIAGNOSIS = Diagnosis(
    ("wire-large-packets-lost",), "Captures at both ends: all large packets are lost, small ones pass"
)


def plan(target: Target, values: Values) -> Plan:
    """Set the MTU of one netdev; it must be smaller than what it is."""
    cable = host.cable(target, values)
    at_switch = values["at"] == "switch"
    if at_switch and target.kind != "lab":
        raise Refused(f"{target.title} has no switch that we may change; --at host")
    name = cable.port if at_switch else cable.netdev
    if values["mtu"] >= cable.mtu:
        raise BadInput(f"--mtu {values['mtu']}; {name} has {cable.mtu}, wanted less")
    if not at_switch and values["mtu"] < _LEAST_OF_IPV6:
        raise BadInput(
            f"--mtu {values['mtu']}; wanted at least {_LEAST_OF_IPV6} on a host's netdev: below it the kernel takes its IPv6 away"
        )
    change = Change(
        f"MTU of {name} from {cable.mtu} to {values['mtu']}",
        doing=f"{{ ip -o link show dev {name} | grep -v ' mtu {cable.mtu} ' >&2; }} && false\nip link set {name} mtu {values['mtu']}",
        undoing=f"ip link set {name} mtu {cable.mtu}",
        test=f"ip -o link show dev {name} | grep -q ' mtu {values['mtu']} '",
    )
    moves = Moves("counter", ("completer_retry_err", "retry_exceeded_err", "send_err", "rcvd_seq_err"), silent=True)
    made = host.plan(target, values, (change,), moves, (name,))
    return (
        made if not at_switch else Plan("switch", made.netdevs, made.steps, made.hits, made.moves, devices=made.devices)
    )
