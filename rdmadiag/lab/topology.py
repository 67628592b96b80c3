"""The hosts, links and switch of a lab as data, and the shell script that makes them in a guest.

One kernel (rxe routes in the first network namespace only, until Linux 7.1): all hosts' netdevs live there, the switch
in a namespace `switch` with one bridge a network. A namespace a host (from Linux 7.1 on): netdevs and rxe devices live in
it. A kernel a host: the netdevs are the guests' own virtio NICs.

    rxe1/v1 10.0.0.1 ---- p1 [ netns switch: bridge br1 ] p2 ---- v2/rxe2 10.0.0.2     rail 1; rail 2: v1b, p1b, br2
         e1 10.0.100.1 -- q1 [               bridge br0 ] q2 -- e2 10.0.100.2          the plain network, for TCP

Faults go to the switch's ports (p1, p2, ...): what is dropped there is lost on the wire, as it would be in a switch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rdmadiag.lab.options import Options, bits_per_second

SWITCH = "switch"
PLAIN_MTU = 1500
GID_INDEX = 1  # of the RoCE v2 GID made from the IPv4 address; 0 is the one made from the MAC address
_RAILS = ("", "b")


@dataclass(frozen=True)
class Link:
    """One cable from a host's netdev to its port on the switch; `device` is empty on the plain network."""

    host: str
    netdev: str
    port: str
    bridge: str
    address: str
    mac: str
    mtu: int
    device: str = ""


class Shape(NamedTuple):
    """What a switch port does to what leaves it: rate in bit/s, queue and burst in bytes, RED marks or nothing."""

    rate: int
    queue_bytes: int
    burst_bytes: int
    red_min_bytes: int = 0
    red_max_bytes: int = 0


def host_names(options: Options) -> list[str]:
    """Return the names of the hosts."""
    return [f"h{n}" for n in range(1, options.hosts + 1)]


def links(options: Options) -> list[Link]:
    """Return every cable, rails first."""
    found = []
    for rail in range(options.rails):
        for n in range(1, options.hosts + 1):
            end = f"{n}{_RAILS[rail]}"
            found.append(
                Link(
                    host=f"h{n}",
                    netdev=f"v{end}",
                    port=f"p{end}",
                    bridge=f"br{rail + 1}",
                    address=f"10.0.{rail}.{n}",
                    mac=f"02:00:00:00:{rail:02x}:{n:02x}",
                    mtu=options.mtu,
                    device=f"rxe{end}",
                )
            )
    for n in range(1, options.hosts + 1):
        found.append(Link(f"h{n}", f"e{n}", f"q{n}", "br0", f"10.0.100.{n}", f"02:00:00:00:64:{n:02x}", PLAIN_MTU))
    return found


def bridges(options: Options) -> dict[str, int]:
    """Return the switch's bridges with their MTUs."""
    return {link.bridge: link.mtu for link in links(options)}


def shape(options: Options) -> Shape:
    """Return what each port of a rail does; the plain network is not shaped."""
    rate = bits_per_second(options.rate)
    burst = max(rate // 8 // 1000 * 2, 4 * options.mtu)  # 2 ms: the guest's timers come late
    if not options.ecn:
        return Shape(rate, options.queue_bytes, burst)
    # Marks begin at 1.6 ms of queue and are at their most at 8 ms, as in the run that DCQCN was tuned on.
    lowest = max(rate // 8 * 16 // 10000, 3 * options.mtu)
    return Shape(rate, max(options.queue_bytes, 8 * lowest), burst, lowest, 5 * lowest)


def qdiscs(port: str, port_shape: Shape) -> list[str]:
    """Return the lines of `tc -batch` that shape one port."""
    rate, queue, burst, low, high = port_shape
    lines = [f"qdisc add dev {port} root handle 1: tbf rate {rate}bit burst {burst} limit {queue}"]
    if low:
        packets = max((2 * low + high) // (3 * 1000), 4)
        lines.append(
            f"qdisc add dev {port} parent 1:1 handle 10: red limit {queue} min {low} max {high} avpkt 1000 "
            f"burst {packets} probability 0.2 bandwidth {rate}bit ecn"
        )
    else:
        lines.append(f"qdisc add dev {port} parent 1:1 handle 10: bfifo limit {queue}")
    return lines


def sysctls(netdevs: list[str]) -> dict[str, str]:
    """Return the files and values that let two hosts of one kernel talk over the switch instead of over lo."""
    # Only of our own netdevs: `all` would change how a native lab's machine treats its other links.
    values = {"accept_local": "1", "rp_filter": "2", "arp_ignore": "1"}
    folders = [f"/proc/sys/net/ipv4/conf/{name}" for name in netdevs]
    quiet = {f"/proc/sys/net/ipv6/conf/{name}/accept_dad": "0" for name in netdevs}
    return {f"{folder}/{name}": value for folder in folders for name, value in values.items()} | quiet


def steering(names: list[str]) -> dict[str, str]:
    """Return the files and values by which one processor, the first, takes in all that netdevs and ports receive.

    A veth hands a packet to the processor that sent it (net/core/dev.c, netif_rx), and a queue pair sends from any: two
    processors would take its packets in side by side, and they would overtake each other, as on no cable.
    Receive packet steering (Documentation/networking/scaling.rst) to one processor keeps their order.
    """
    return {f"/sys/class/net/{name}/queues/rx-0/rps_cpus": "1" for name in names}


def writing(values: dict[str, str]) -> list[str]:
    """Return the lines of shell that write values to files."""
    return [f"echo {value} > {path}" for path, value in values.items()]


class _Script:
    # Few processes: each costs 30 ms in an emulated guest.
    def __init__(self) -> None:
        self.lines = ["set -e", "ip link set lo up"]

    def batch(self, tool: str, lines: list[str]) -> None:
        if lines:
            self.lines += [f"{tool} - <<'END'", *lines, "END"]

    def write(self, values: dict[str, str]) -> None:
        self.lines += writing(values)

    def inside(self, namespace: str, values: dict[str, str]) -> None:
        # /sys shows the netdevs of the namespace in which it was mounted; `ip netns exec` mounts it anew.
        self.lines += [f"ip netns exec {namespace} sh -es <<'END'", *writing(values), "END"]

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def _bridge_lines(options: Options, members: list[Link]) -> list[str]:
    lines = [f"link add {name} mtu {mtu} type bridge mcast_snooping 0" for name, mtu in bridges(options).items()]
    lines += [f"link set {link.port} mtu {link.mtu} master {link.bridge} up" for link in members]
    return [*lines, *(f"link set {name} up" for name in bridges(options))]


def one_kernel_script(options: Options) -> str:
    """Return the shell script that makes all hosts and the switch in one guest."""
    cables, script = links(options), _Script()
    script.lines.append(f"ip netns add {SWITCH}")
    script.batch(
        "ip -batch",
        [
            line
            for link in cables
            for line in (
                f"link add {link.netdev} address {link.mac} mtu {link.mtu} type veth "
                f"peer name {link.port} mtu {link.mtu} netns {SWITCH}",
                f"addr add {link.address}/24 dev {link.netdev}",
            )
        ],
    )
    script.write(sysctls([link.netdev for link in cables]))
    script.batch(f"ip -n {SWITCH} -batch", _bridge_lines(options, cables))
    script.write(steering([link.netdev for link in cables]))
    script.inside(SWITCH, steering([link.port for link in cables]))
    script.batch("ip -batch", [f"link set {link.netdev} up" for link in cables])
    ports = [line for link in cables if link.device for line in qdiscs(link.port, shape(options))]
    script.batch(f"tc -n {SWITCH} -batch", ports)
    script.batch("rdma -b", [f"link add {c.device} type rxe netdev {c.netdev}" for c in cables if c.device])
    return script.text()


_HAS_PORT = """found=
while read -r _ at _; do case $at in *:12B7) found=yes; esac; done < /proc/net/udp
[ "$found" ] || { echo "this kernel ($(uname -r)) does not let rxe live in a network namespace: {device} opened no UDP port \
4791 in that of {host} (Linux 7.1 and newer do); leave out --namespaces, or take --kernel-per-host"; exit 1; }"""


def namespaces_script(options: Options) -> str:
    """Return the shell script that makes each host in a namespace of one guest. It fails where the kernel's rxe cannot live there.

    What tells is tried, not looked up by release: a device in a namespace has its UDP socket there (12B7 is port 4791).
    """
    cables, script = links(options), _Script()
    script.lines.append("rdma system set netns exclusive")  # refused once there is another namespace
    script.lines += [f"ip netns add {name}" for name in (SWITCH, *host_names(options))]
    script.batch(
        "ip -batch",
        [
            f"link add {c.netdev} netns {c.host} address {c.mac} mtu {c.mtu} type veth peer name {c.port} mtu {c.mtu} netns {SWITCH}"
            for c in cables
        ],
    )
    script.batch(f"ip -n {SWITCH} -batch", _bridge_lines(options, cables))
    ports = [line for link in cables if link.device for line in qdiscs(link.port, shape(options))]
    script.batch(f"tc -n {SWITCH} -batch", ports)
    script.inside(SWITCH, steering([link.port for link in cables]))
    for host in host_names(options):
        own = [link for link in cables if link.host == host]
        inside = _Script()
        inside.write({f"/proc/sys/net/ipv6/conf/{link.netdev}/accept_dad": "0" for link in own})
        inside.write(steering([link.netdev for link in own]))
        _host_lines(inside, own)
        inside.lines.append(_HAS_PORT.replace("{device}", own[0].device).replace("{host}", host))
        script.lines += [f"ip netns exec {host} sh -s <<'HOST'", inside.text() + "HOST"]
        # A device that is seen here is in the first namespace, wherever its netdev is.
        devices = [link.device for link in own if link.device]
        script.lines += [
            f"[ ! -e /sys/class/infiniband/{name} ] || rdma dev set {name} netns {host}" for name in devices
        ]
    return script.text()


def _host_lines(script: _Script, cables: list[Link]) -> None:
    script.batch(
        "ip -batch",
        [
            line
            for c in cables
            for line in (f"addr add {c.address}/24 dev {c.netdev}", f"link set {c.netdev} mtu {c.mtu} up")
        ],
    )
    script.batch("rdma -b", [f"link add {c.device} type rxe netdev {c.netdev}" for c in cables if c.device])


def _names(cables: list[Link], name_of: dict[str, str]) -> list[str]:
    # The kernel named the NICs in its own order; the MAC address says which is which. Two passes: a name may be taken.
    lines = ["for at in /sys/class/net/*/address; do d=${at%/address}; d=${d##*/}; read -r mac < $at; case $mac in"]
    lines += [f"{link.mac}) ip link set $d name {name_of[link.mac]} ;;" for link in cables]
    return [*lines, "esac; done"]


def host_script(options: Options, host: str) -> str:
    """Return the script of one host's own guest (`kernel_per_host`)."""
    cables, script = [link for link in links(options) if link.host == host], _Script()
    script.lines += _names(cables, {link.mac: link.netdev for link in cables})
    _host_lines(script, cables)
    return script.text()


def switch_mac(link: Link) -> str:
    """Return the MAC address of the switch's end of a cable, for `kernel_per_host`."""
    return link.mac.replace("02:", "06:", 1)


def switch_script(options: Options) -> str:
    """Return the script of the switch's own guest (`kernel_per_host`); its ports are in the first namespace there."""
    cables, script = links(options), _Script()
    ends = [Link(c.host, c.netdev, c.port, c.bridge, c.address, switch_mac(c), c.mtu) for c in cables]
    script.lines += _names(ends, {end.mac: end.port for end in ends})
    script.batch("ip -batch", _bridge_lines(options, cables))
    script.batch("tc -batch", [line for c in cables if c.device for line in qdiscs(c.port, shape(options))])
    return script.text()


def active_mtu(mtu: int) -> int:
    """Return the RoCE MTU of an rxe device on a netdev: the largest that leaves room for headers.

    Kernel: drivers/infiniband/sw/rxe/rxe_param.h, RXE_MAX_HDR_LENGTH (80) and eth_mtu_int_to_enum.
    """
    return max((size for size in (256, 512, 1024, 2048, 4096) if size <= mtu - 80), default=0)
