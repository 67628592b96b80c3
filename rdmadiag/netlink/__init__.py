"""Netlink dumps of the kernel as the JSON objects that `rdma -d -j`, `ip -d -j`, `ethtool --json` and `dcb -j` print, without the tools.

`read_*` asks the kernel and returns raw reply bytes; `parse_*` turns bytes into objects and touches no socket. So a
recorded dump, a live one and a tool's own print give one shape.
"""

from rdmadiag.netlink.dcbnl import dcb, parse_dcb
from rdmadiag.netlink.ethnl import ethtool, parse_ethtool
from rdmadiag.netlink.nldev import parse_rdma, rdma, read_rdma
from rdmadiag.netlink.route import ip, parse_ip, read_ip
from rdmadiag.netlink.wire import NetlinkError, interrupted

__all__ = [
    "NetlinkError",
    "dcb",
    "ethtool",
    "interrupted",
    "ip",
    "parse_dcb",
    "parse_ethtool",
    "parse_ip",
    "parse_rdma",
    "rdma",
    "read_ip",
    "read_rdma",
]
