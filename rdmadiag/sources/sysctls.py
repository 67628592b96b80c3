"""Network settings of the kernel that matter to RDMA and its bootstrap: /proc/sys/net; texts are parsed by tuning."""

from __future__ import annotations

from collections.abc import Iterator

from rdmadiag.errors import NotGiven
from rdmadiag.evidence.row import Gap, Row
from rdmadiag.host import Host, names_in, text_of

TABLES = ("sysctl",)
ROOT = "/proc/sys/net"
EACH = {  # of every netdev and of `all` and `default`
    "ipv4": ("rp_filter", "arp_ignore", "arp_announce", "arp_filter", "accept_local"),
    "ipv6": ("disable_ipv6", "addr_gen_mode"),
}
SINGLE = (
    *(f"{family}.neigh.default.gc_thresh{level}" for family in ("ipv4", "ipv6") for level in (1, 2, 3)),
    *("ipv4.ip_forward", "ipv4.fib_multipath_hash_policy", "ipv4.tcp_ecn", "ipv4.ip_local_port_range"),
    *("ipv4.tcp_rmem", "ipv4.tcp_wmem", "core.rmem_max", "core.wmem_max", "core.netdev_max_backlog", "core.somaxconn"),
)


def read(host: Host) -> Iterator[Row | Gap]:
    """Read them from /proc/sys/net; what this kernel does not have is left out."""
    try:
        for name in SINGLE:
            yield from _one(host, name)
        for family, names in EACH.items():
            for netdev in names_in(host, f"{ROOT}/{family}/conf"):
                for name in names:
                    yield from _one(host, f"{family}.conf.{netdev}", name)
    except NotGiven as error:
        yield Gap(("sysctl",), error.reason, "not_given", "add the output of sysctl -a", ROOT)


def _one(host: Host, name: str, last: str = "") -> Iterator[Row]:
    # Of a VLAN the name has dots of its own.
    if last:
        family, _, netdev = name.partition(".conf.")
        path, shown = f"{ROOT}/{family}/conf/{netdev}/{last}", f"net.{family}.conf.{netdev}.{last}"
    else:
        path, shown = f"{ROOT}/{name.replace('.', '/')}", f"net.{name}"
    if text := text_of(host, path):
        yield Row("sysctl", {"name": shown, "value": " ".join(text.split())}, path)
