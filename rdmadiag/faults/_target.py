"""What a fault can be aimed at: a lab, or one RDMA device of this host. Plain data; looked up by rdmadiag/inject."""

from __future__ import annotations

from dataclasses import dataclass

from rdmadiag.errors import BadInput


@dataclass(frozen=True)
class Cable:
    """One RDMA port: a host's netdev and device, and in a lab the switch's port at the other end (else empty)."""

    host: str
    netdev: str
    device: str
    address: str
    mac: str
    mtu: int
    port: str = ""
    bridge: str = ""


@dataclass(frozen=True)
class Target:
    """`kind` is lab, software (a device like rxe on a kernel netdev) or hardware.

    `tag` is the name of this injection on the node; `queue` are the lines by which a lab's switch port was given its queue
    below the shaper, `{port}` to be filled in.
    """

    kind: str
    title: str
    tag: str
    cables: tuple[Cable, ...]
    plain: tuple[Cable, ...] = ()  # a lab's other network
    one_kernel: bool = True  # of a lab's hosts
    namespaces: bool = False  # each of a lab's hosts has one
    queue: str = ""
    rate: int = 0  # bit/s of each port, 0: not known
    root_qdisc: str = ""  # of a device's netdev
    peers: tuple[str, ...] = ()

    @property
    def apart(self) -> bool:
        """Whether each of a lab's hosts is a place of its own, with its own devices: a kernel, or a namespace."""
        return self.kind == "lab" and (self.namespaces or not self.one_kernel)

    @property
    def table(self) -> str:
        """Return the name of our nft table."""
        return f"rdmadiag_{self.tag}"

    def hosts(self, word: str) -> list[str]:
        """Return the hosts that a parameter names: `any`, or names with commas. Raises BadInput."""
        known = list(dict.fromkeys(cable.host for cable in self.cables))
        wanted = known if word == "any" else [part.strip() for part in word.split(",")]
        for host in wanted:
            if host not in known:
                raise BadInput(f"no host {host!r} in {self.title}; there are {', '.join(known)}")
        return wanted

    def cables_of(self, word: str) -> list[Cable]:
        """Return the cables of the hosts that a parameter names. Raises BadInput."""
        wanted = self.hosts(word)
        return [cable for cable in self.cables if cable.host in wanted]
