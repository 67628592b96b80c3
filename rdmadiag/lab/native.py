"""A lab on this machine's own kernel: links by pyroute2, rxe devices by RDMA netlink; root, and links of our own only.

Every link made here carries the alias `rdmadiag lab NAME`. Taking apart touches nothing without it, and setting up
refuses names and networks that exist. Until Linux 7.1 rxe lives in the first network namespace; so do the hosts' ends.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from rdmadiag.lab import places, topology
from rdmadiag.lab.client import NotStarted, Ran, connect
from rdmadiag.lab.options import Options
from rdmadiag.lab.places import LabError
from rdmadiag.netlink import NetlinkError, rdma
from rdmadiag.netlink.nldev import NETLINK_RDMA, NLDEV
from rdmadiag.netlink.wire import attribute, exchange

# uapi/rdma/rdma_netlink.h: RDMA_NLDEV_CMD_NEWLINK, DELLINK; RDMA_NLDEV_ATTR_DEV_INDEX, DEV_NAME, NDEV_NAME, LINK_TYPE
_NEWLINK, _DELLINK = 3, 4
_DEV_INDEX, _DEV_NAME, _NDEV_NAME, _LINK_TYPE = 1, 2, 51, 65
_NETNS = Path("/run/netns")
_MARK = "native"


def alias(name: str) -> str:
    """Return what marks a link as a lab's own."""
    return f"rdmadiag lab {name}"


def why_not() -> str:
    """Say why this kernel can hold no lab; empty when it can. Loads rdma_rxe."""
    if os.geteuid() != 0:
        return "it needs root"
    try:
        import pyroute2  # noqa: F401
    except ImportError:
        return "pyroute2 is missing: pip install 'rdmadiag[lab]'"
    if not os.path.isdir("/sys/module/rdma_rxe"):
        modprobe = shutil.which("modprobe", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if not modprobe:
            return "modprobe is missing: apt-get install kmod"
        result = subprocess.run([modprobe, "rdma_rxe"], capture_output=True, text=True, check=False)
        if result.returncode:
            return f"this kernel loads no rdma_rxe: {result.stderr.strip()}"
    for module in ("crc32_generic", "ib_uverbs", "rdma_ucm", "veth", "bridge", "sch_tbf"):
        subprocess.run(["modprobe", "-q", module], capture_output=True, check=False)  # built in, or not made
    return ""


def _new_device(device: str, netdev: str) -> None:
    words = ((_DEV_NAME, device), (_LINK_TYPE, "rxe"), (_NDEV_NAME, netdev))
    payload = b"".join(attribute(number, text.encode() + b"\0") for number, text in words)
    exchange(NETLINK_RDMA, NLDEV | _NEWLINK, payload, dump=False)


def _rdma_links() -> list[dict[str, Any]]:
    try:
        return rdma("link show")
    except NetlinkError as error:
        if error.errno == errno.EPROTONOSUPPORT:
            return []
        raise


def _refuse_foreign(options: Options, ip: Any) -> None:
    cables = topology.links(options)
    names = {link.get_attr("IFLA_IFNAME") for link in ip.get_links()}
    if taken := sorted(names & {c.netdev for c in cables}):
        raise LabError(f"link {taken[0]} exists and is not of this lab; rename it, or use --backend vm")
    if taken := sorted({link["ifname"] for link in _rdma_links()} & {c.device for c in cables}):
        raise LabError(f"RDMA device {taken[0]} exists and is not of this lab; rename it, or use --backend vm")
    if (_NETNS / topology.SWITCH).exists():
        raise LabError(f"network namespace {topology.SWITCH} exists and is not of this lab; or use --backend vm")
    ours = {ipaddress.ip_network(f"{c.address}/24", strict=False) for c in cables}
    for address in ip.get_addr(family=2):
        network = ipaddress.ip_network(f"{address.get_attr('IFA_ADDRESS')}/{address['prefixlen']}", strict=False)
        if any(network.overlaps(own) for own in ours):
            raise LabError(f"this machine has the address {network}, which the lab would use; use --backend vm")


def set_up(options: Options, folder: Path) -> None:
    """Make the lab's links, devices and switch. Raises LabError; nothing is left then.

    The file `native` in the lab's folder is written once names are known to be free, and before anything is made.
    """
    if reason := why_not():
        raise LabError(f"--backend native: {reason}")
    from pyroute2 import IPRoute, netns
    from pyroute2 import NetlinkError as RouteError

    with IPRoute() as ip:
        _refuse_foreign(options, ip)
        (folder / _MARK).touch()
        try:
            netns.create(topology.SWITCH)
            _make_links(options, folder.name, ip)
            for cable in topology.links(options):
                if cable.device:
                    _new_device(cable.device, cable.netdev)
        except (RouteError, OSError) as error:
            tear_down(options, folder)
            raise LabError(f"--backend native: {error}") from error
        except LabError:
            tear_down(options, folder)
            raise


def _make_links(options: Options, name: str, ip: Any) -> None:
    from pyroute2 import NetNS

    cables = topology.links(options)
    for c in cables:
        peer = {"ifname": c.port, "net_ns_fd": topology.SWITCH}
        ip.link("add", ifname=c.netdev, kind="veth", address=c.mac, peer=peer)
        index = ip.link_lookup(ifname=c.netdev)[0]
        ip.link("set", index=index, mtu=c.mtu, ifalias=alias(name))
        ip.addr("add", index=index, address=c.address, prefixlen=24)
    netdevs = [c.netdev for c in cables]
    for path, value in (topology.sysctls(netdevs) | topology.steering(netdevs)).items():
        if os.path.exists(path):
            Path(path).write_text(value)
    with NetNS(topology.SWITCH) as switch:
        bridges = {}
        for bridge, mtu in topology.bridges(options).items():
            switch.link("add", ifname=bridge, kind="bridge", br_mcast_snooping=0)
            bridges[bridge] = switch.link_lookup(ifname=bridge)[0]
            switch.link("set", index=bridges[bridge], mtu=mtu, state="up")
        for c in cables:
            switch.link(
                "set", index=switch.link_lookup(ifname=c.port)[0], mtu=c.mtu, master=bridges[c.bridge], state="up"
            )
    for c in cables:
        ip.link("set", index=ip.link_lookup(ifname=c.netdev)[0], state="up")
    # pyroute2 0.9 has no RED; tc's own words say both kinds of port.
    lines = [line for c in cables if c.device for line in topology.qdiscs(c.port, topology.shape(options))]
    _run(["tc", "-n", topology.SWITCH, "-batch", "-"], lines)
    _run(
        ["ip", "netns", "exec", topology.SWITCH, "sh", "-es"],
        topology.writing(topology.steering([c.port for c in cables])),
    )


def _run(words: list[str], lines: list[str]) -> None:
    result = subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, check=False)
    if result.returncode:
        raise LabError(f"{' '.join(words)}: {result.stderr.strip()}")


def tear_down(options: Options, folder: Path) -> None:
    """Take apart what this lab made; harmless when it made nothing, and may be called twice."""
    if os.geteuid() != 0 or not (folder / _MARK).exists():
        return
    from pyroute2 import IPRoute, netns

    names = {c.netdev for c in topology.links(options)}
    with IPRoute() as ip:
        own = {}
        for link in ip.get_links():
            marked = link.get_attr("IFLA_IFALIAS")
            if marked == alias(folder.name) or (not marked and link.get_attr("IFLA_IFNAME") in names):
                own[link.get_attr("IFLA_IFNAME")] = link["index"]
        for device in _rdma_links():
            if device.get("netdev") in own:
                index = attribute(_DEV_INDEX, device["ifindex"].to_bytes(4, "little"))
                exchange(NETLINK_RDMA, NLDEV | _DELLINK, index, dump=False)
        for index in own.values():
            ip.link("del", index=index)
        if (_NETNS / topology.SWITCH).exists():
            netns.remove(topology.SWITCH)
    (folder / _MARK).unlink(missing_ok=True)


def run(argv: list[str], at: str, environment: dict[str, str], stdin: bytes, timeout_seconds: float | None) -> Ran:
    """Run a command here. Raises NotStarted when there is no such command or folder, LabError when time ran out."""
    try:
        result = subprocess.run(
            argv, cwd=at, env=environment, input=stdin, capture_output=True, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{argv[0]} did not end within {timeout_seconds:g} s and was killed") from error
    except OSError as error:
        raise NotStarted(f"{argv[0]}: {error.strerror}", 127 if error.errno == errno.ENOENT else 126) from error
    return Ran(result.returncode if result.returncode >= 0 else 128 - result.returncode, result.stdout, result.stderr)


def become(folder: Path, argv: list[str], environment: dict[str, str]) -> NoReturn:
    """Become a command: in a native lab there is nothing between it and this machine. Raises NotStarted.

    It keeps a connection to the keeper open, by which the lab is known to be in use.
    """
    os.set_inheritable(connect(folder).detach(), True)
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        raise NotStarted(f"{argv[0]}: {error.strerror}", 127 if error.errno == errno.ENOENT else 126) from error


def main() -> int:
    """Set up or tear down the lab of a folder: `python -m rdmadiag.lab.native set-up FOLDER`, for its keeper."""
    what, folder = sys.argv[1], Path(sys.argv[2])
    options = Options.from_json(places.read_json(folder / "request.json"))
    try:
        (set_up if what == "set-up" else tear_down)(options, folder)
    except LabError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
