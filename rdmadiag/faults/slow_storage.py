"""The storage below a KV cache is slow: a drive that fails by degrees, a neighbour on the same array, a volume with a small budget."""

from rdmadiag.errors import BadInput
from rdmadiag.faults import Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _cgroup as cgroup
from rdmadiag.faults import _host as host

TITLE = "A process reads and writes one storage device slowly (cgroup, io.max)"
REACH = "host"
PARAMETERS = (
    host.HOST,
    host.PROCESS,
    Parameter("path", "", "a file or folder on the storage; it must lie on a block device"),
    Parameter("kib_per_second", 512.0, "that it may read, and write", "KiB/s", 1, 1 << 30),
    Parameter("per_second", 100, "requests that it may make, reading and writing each", "requests/s", 1, 1 << 30),
)
EXAMPLE = {"process": "1", "path": "/srv/kv"}
SIGNS = (
    "blocks that come from storage come late, those in memory and from peers as ever; nothing is lost, no RDMA counter moves",
    "io.stat of its cgroup grows at the limit's rate; /proc/pressure/io and io.pressure of the group rise",
    "what the page cache holds is not slow: direct I/O and cold reads are",
)
NOT_PROVEN = (
    "prove's work reads and writes no storage, and the kernel shows that a group is limited and waits, "
    "not whether the limit is what it waits for"
)
# io.max takes a whole device: a partition's numbers are refused (block/blk-cgroup.c).
_DEVICE = """device=$(stat -c %Hd:%Ld "{path}")
if [ -e /sys/dev/block/$device/partition ]; then read -r device < /sys/dev/block/$device/../dev; fi
[ -e /sys/dev/block/$device ] || {{ echo "{path} is on no block device (device $device), so nothing can slow it here" >&2; false; }}"""


def plan(target: Target, values: Values) -> Plan:
    """Move it into a cgroup of ours with io.max, and back."""
    if not values["path"].startswith("/") or " " in values["path"]:
        raise BadInput(f"--path {values['path']!r}; wanted the whole path of a file or folder, without spaces")
    bytes_, each = int(values["kib_per_second"] * 1024), values["per_second"]
    limit = f"io.max=$device rbps={bytes_} wbps={bytes_} riops={each} wiops={each}"
    steps = cgroup.steps(
        values,
        "io",
        limit,
        "io.stat",
        "",
        cgroup.pressure("io"),
        first=_DEVICE.format(path=values["path"]),
        pattern=r"(?P<name>rios|wios)=(?P<value>\d+)",
    )
    moves = Moves("step", ("stalled_usec",), probe=cgroup.pressure("io"))
    return host.plan(target, values, steps, moves, hits=("rios", "wios"))
