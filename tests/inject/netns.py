"""A switch with two ports and the hosts' netdevs, in namespaces of this machine's own kernel: for what needs no RDMA device.

`python -m tests.inject.netns FAULT STATE PID LEASE [name=value ...]` is an injector to be killed: it puts a fault on and prints `on: TAG`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rdmadiag.faults import Cable, Target
from rdmadiag.inject import injector, revert, target
from rdmadiag.inject.node import NodeGone, ThisNode, _whole
from rdmadiag.inject.target import Aim, new_tag
from rdmadiag.lab import Ran

MAKE = """mount -t tmpfs none /run
ip link set lo up
for n in 1 2; do
  ip link add v$n address 02:00:00:00:00:0$n mtu 4200 type veth peer name p$n mtu 4200
  ip link add e$n address 02:00:00:00:64:0$n type veth peer name q$n
  for d in p$n q$n e$n v$n; do ip link set $d up; done
  ip addr add 10.0.0.$n/24 dev v$n
done
until [ $(ip -o link | grep -c 'state UP') = 8 ]; do sleep 0.05; done
echo ready
exec sleep 100000"""


class NetnsNode:
    """The door to a namespace, by the pid of a process in it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.instance = pid, str(pid)

    def run(self, text: str, seconds: float = 60.0) -> Ran:
        """Run a shell text there."""
        words = ["nsenter", "-t", str(self.pid), "-U", "--preserve-credentials", "-n", "-m", "sh"]
        if not Path(f"/proc/{self.pid}/ns/net").exists():
            raise NodeGone("the namespace is gone")
        ran = subprocess.run(words, input=_whole(text), capture_output=True, check=False, timeout=seconds)
        return Ran(ran.returncode, ran.stdout, ran.stderr)


def start() -> subprocess.Popen[str]:
    """Make the namespaces; they live as long as the process that is returned."""
    made = subprocess.Popen(
        ["unshare", "-rnm", "sh", "-c", MAKE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert made.stdout and made.stderr
    line = made.stdout.readline()
    assert line == "ready\n", made.stderr.read()
    return made


def aim_at(pid: int) -> Aim:
    """Return the aim at such a namespace, as at a lab of two hosts; doors found from the journal lead there, too."""

    def door(key: dict[str, str], place: str) -> NetnsNode:
        return NetnsNode(int(key["netns"]))

    target.door = door  # type: ignore[assignment]
    revert.door = door  # type: ignore[assignment]
    cables = tuple(
        Cable(f"h{n}", f"v{n}", f"rxe{n}", f"10.0.0.{n}", f"02:00:00:00:00:0{n}", 4200, f"p{n}", "br1") for n in (1, 2)
    )
    plain = tuple(
        Cable(f"h{n}", f"e{n}", "", f"10.0.100.{n}", f"02:00:00:00:64:0{n}", 1500, f"q{n}", "br0") for n in (1, 2)
    )
    found = Target(
        "lab",
        "netns",
        new_tag(),
        cables,
        plain,
        queue="qdisc replace dev {port} parent 1:1 handle 10: bfifo limit 1048576",
    )
    return Aim(found, {"netns": str(pid)})


def main() -> None:
    """Put a fault on, and hold it until it is over."""
    fault, state, pid, lease, *words = sys.argv[1:]
    os.environ["XDG_STATE_HOME"] = state
    values = dict(word.split("=", 1) for word in words)
    with injector.Injection(fault, values, aim_at(int(pid)), 600, lease_seconds=float(lease)) as injection:
        print(f"on: {injection.tag}", flush=True)
        injection.wait()
    print(f"{injection.outcome.verdict}: {injection.outcome.why}", flush=True)


if __name__ == "__main__":
    main()


__all__ = ["NetnsNode", "ThisNode", "aim_at", "start"]
