"""What an errno means when a given verbs or rdma_cm call returns it.

From the kernel: drivers/infiniband/core (umem.c, verbs.c, addr.c, cache.c, uverbs_cmd.c, cma.c), hw/mlx5; from
rdma-core: libibverbs (device.c, verbs.c), librdmacm (cma.c). Calls that return int give the number itself, some with
a minus sign.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from rdmadiag.explain._words import name as folded
from rdmadiag.explain._words import number, refuse, value_of

HELP = "errno of a verbs call: ENOMEM ibv_reg_mr, 110 ibv_modify_qp, or a call alone"
EXAMPLES = (
    ("ENOMEM", "ibv_reg_mr"),
    ("12",),
    ("110", "ibv_modify_qp"),
    ("ibv_create_qp",),
    ("-14", "ibv_reg_mr"),
    ("ECONNREFUSED", "rdma_connect"),
)

_LOCAL, _PEER = "local", "path or remote"

# call: errno, side, meaning, causes, next
_Row = tuple[str, str, str, tuple[str, ...], tuple[str, ...]]
CALLS: dict[str, tuple[_Row, ...]] = {
    "ibv_get_device_list": (
        (
            "ENOSYS",
            _LOCAL,
            "the kernel has no RDMA character devices",
            ("ib_uverbs is not loaded",),
            ("modprobe ib_uverbs",),
        ),
        (
            "EPERM",
            _LOCAL,
            "the kernel's verbs ABI may not be read",
            ("container without the device nodes",),
            ("pass /dev/infiniband and sysfs into the container",),
        ),
    ),
    "ibv_open_device": (
        (
            "ENOENT",
            _LOCAL,
            "no /dev/infiniband/uverbsN for this device",
            ("container: sysfs shows the device but the node was not passed in", "udev did not make it"),
            ("docker: --device=/dev/infiniband; Kubernetes: the RDMA device plugin; ls -l /dev/infiniband",),
        ),
        (
            "EACCES",
            _LOCAL,
            "the device node may not be opened",
            ("file mode or group", "device cgroup"),
            ("ls -l /dev/infiniband; allow the device in the container",),
        ),
        (
            "EPERM",
            _LOCAL,
            "the device cgroup or a security module refuses the device node",
            ("device cgroup of the container",),
            ("allow the character device in the container's device list",),
        ),
        (
            "ENODEV",
            _LOCAL,
            "the device has gone",
            ("driver unloaded, device reset, VF removed",),
            ("dmesg; ls /sys/class/infiniband",),
        ),
        (
            "ENOMEM",
            _LOCAL,
            "the device or the process has no room for one more context",
            ("mlx5: UAR pages used up (dmesg: ALLOC_UAR(0x802) limits exceeded)", "RLIMIT_MEMLOCK"),
            ("dmesg at that time", "fewer processes on the device, or mlxconfig PF_LOG_BAR_SIZE", "ulimit -l"),
        ),
        ("EIO", _LOCAL, "the device is in an error state", ("firmware hung or in recovery",), ("dmesg: mlx5 health",)),
        (
            "EPROTONOSUPPORT",
            _LOCAL,
            "library and kernel driver do not speak the same ABI",
            ("rdma-core of the container and driver of the host differ",),
            ("use rdma-core that fits the host's driver",),
        ),
    ),
    "ibv_alloc_pd": (
        ("ENOMEM", _LOCAL, "no memory or no protection domain left", ("objects leaked",), ("rdma res show pd",)),
    ),
    "ibv_reg_mr": (
        (
            "ENOMEM",
            _LOCAL,
            "pinning the pages would go over the locked-memory limit, or the device has no key left",
            (
                "RLIMIT_MEMLOCK (ulimit -l) smaller than the buffers",
                "memory keys used up: dmesg CREATE_MKEY no resources",
                "the cgroup or the node has no memory",
            ),
            (
                "grep locked /proc/PID/limits; set memlock unlimited in the service, limits.conf or container; new session",
                "rdma res show mr: count the keys of each process",
            ),
        ),
        (
            "EFAULT",
            _LOCAL,
            "the address cannot be pinned as user memory",
            (
                "not mapped, or freed",
                "GPU address without a working peer-memory path (nvidia-peermem not loaded or built "
                "against another ib_core)",
                "CUDA VMM memory (PyTorch expandable_segments:True) through peer memory",
                "memory of /dev/shm or a device that cannot be pinned",
            ),
            (
                "GPU memory: lsmod | grep peermem, or register with dma-buf",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
            ),
        ),
        (
            "EINVAL",
            _LOCAL,
            "length, alignment or access flags are not accepted",
            (
                "length 0, or address + length wraps",
                "REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE",
                "larger than the device's max_mr_size",
            ),
            ("ibv_devinfo -v: max_mr_size; check the access flags",),
        ),
        (
            "EPERM",
            _LOCAL,
            "the process may not pin memory",
            ("RLIMIT_MEMLOCK is 0 and no CAP_IPC_LOCK",),
            ("ulimit -l",),
        ),
        (
            "EACCES",
            _LOCAL,
            "write access asked on read-only memory",
            ("mapping is read-only",),
            ("map it writable, or drop LOCAL_WRITE",),
        ),
        (
            "EOPNOTSUPP",
            _LOCAL,
            "the device cannot do this kind of registration",
            ("on-demand paging not supported", "relaxed ordering or dma-buf not supported"),
            ("ibv_devinfo -v: odp_caps; drop the flag",),
        ),
        ("EAGAIN", _LOCAL, "the firmware has no resource left now", ("memory keys used up",), ("rdma res show mr",)),
    ),
    "ibv_reg_dmabuf_mr": (
        (
            "EOPNOTSUPP",
            _LOCAL,
            "kernel or driver has no dma-buf registration",
            ("kernel before 5.12, or driver without it",),
            ("load nvidia-peermem, or upgrade the kernel or driver",),
        ),
        (
            "EPROTONOSUPPORT",
            _LOCAL,
            "library and kernel do not both know the call",
            ("rdma-core or kernel too old",),
            ("load nvidia-peermem, or upgrade",),
        ),
        (
            "EBADF",
            _LOCAL,
            "the file descriptor is no dma-buf; as answer to a probe with -1 it means supported",
            ("descriptor closed, or a probe",),
            ("nothing to do for a probe",),
        ),
        ("ENOMEM", _LOCAL, "the exporter could not map the pages", ("GPU BAR1 used up",), ("nvidia-smi -q: BAR1",)),
    ),
    "ibv_create_cq": (
        (
            "ENOMEM",
            _LOCAL,
            "no locked memory or device memory for the CQ",
            ("RLIMIT_MEMLOCK, 64 KiB by default", "CQs leaked"),
            ("grep locked /proc/PID/limits; set memlock unlimited; rdma res show cq",),
        ),
        (
            "EINVAL",
            _LOCAL,
            "size or completion vector out of range",
            ("cqe above max_cqe", "comp_vector not below num_comp_vectors"),
            ("ibv_devinfo -v: max_cqe, num_comp_vectors",),
        ),
    ),
    "ibv_create_qp": (
        (
            "EINVAL",
            _LOCAL,
            "a size or type is not accepted",
            (
                "max_send_wr, max_recv_wr or SGEs above the device's limit",
                "inline data too large",
                "QP type not supported (UC or XRC on some devices, only UD and SRD on EFA)",
            ),
            ("ibv_devinfo -v: max_qp_wr, max_sge; halve the sizes until it works",),
        ),
        (
            "ENOMEM",
            _LOCAL,
            "no locked memory, or no QP left",
            ("RLIMIT_MEMLOCK", "QPs leaked, max_qp reached", "queue depth times QPs larger than the device's memory"),
            ("grep locked /proc/PID/limits; rdma res show: count QPs against ibv_devinfo max_qp",),
        ),
        (
            "EOPNOTSUPP",
            _LOCAL,
            "QP type or create flag not supported",
            ("XRC or UC on this driver",),
            ("ibv_devinfo -v",),
        ),
        (
            "EPERM",
            _LOCAL,
            "this QP type needs privilege",
            ("raw packet QP without CAP_NET_RAW",),
            ("grant CAP_NET_RAW",),
        ),
        ("EAGAIN", _LOCAL, "the firmware has no resource left now", ("QPs leaked",), ("rdma res show qp",)),
    ),
    "ibv_modify_qp": (
        (
            "EINVAL",
            _LOCAL,
            "the transition, its mask or a value is refused",
            (
                "attribute missing or not allowed: rdmadiag explain qp-transition",
                "sgid_index outside the GID table",
                "value out of range: retry_cnt above 7, MTU above active_mtu",
                "the QP is in another state, often ERR",
            ),
            ("query the QP's state; dmesg for a firmware command with status bad parameter",),
        ),
        (
            "ETIMEDOUT",
            _PEER,
            "no neighbour entry for the destination GID within 1 s (ARP or ND got no answer)",
            (
                "peer's address wrong, peer's netdev down, other VLAN or subnet",
                "GID kinds of the two ends differ",
                "wrong rail: that peer cannot be reached from this NIC",
            ),
            ("ping -I <netdev> <peer address>; ip neigh show dev <netdev>; compare both ends' GIDs",),
        ),
        (
            "ENODATA",
            _LOCAL,
            "the sgid_index names an empty GID entry",
            ("address was removed, or never configured", "index of another node used here"),
            ("list the GIDs; choose by content, not by number",),
        ),
        (
            "ENETUNREACH",
            _LOCAL,
            "no route to the destination GID's address",
            ("no route from this netdev's address",),
            ("ip route get <peer> from <own address>",),
        ),
        (
            "EHOSTUNREACH",
            _PEER,
            "the route to the destination GID's address is unreachable",
            ("route of kind unreachable", "peer on another subnet with no gateway"),
            ("ip route get <peer>; ip neigh",),
        ),
        (
            "EADDRNOTAVAIL",
            _LOCAL,
            "the source GID's address is not on any netdev",
            ("stale GID entry", "netdev in another network namespace"),
            ("ip addr; list the GIDs again",),
        ),
        (
            "ENODEV",
            _LOCAL,
            "the netdev behind the GID is gone or down",
            ("link set down, VF moved away",),
            ("ip link",),
        ),
        ("ENOMEM", _LOCAL, "no memory", ("node out of memory",), ("dmesg",)),
        (
            "EPERM",
            _LOCAL,
            "privileged Q_Key",
            ("Q_Key with the top bit set without CAP_NET_RAW",),
            ("choose a Q_Key below 0x80000000",),
        ),
    ),
    "ibv_create_ah": (
        ("EINVAL", _LOCAL, "port, GRH or sgid_index not accepted", ("RoCE needs is_global = 1",), ("check ah_attr",)),
        (
            "ETIMEDOUT",
            _PEER,
            "no neighbour entry for the destination GID within 1 s",
            ("peer's address wrong or its netdev down",),
            ("ping and ip neigh on that netdev",),
        ),
    ),
    "ibv_post_send": (
        (
            "ENOMEM",
            _LOCAL,
            "the send queue is full",
            ("more work requests posted than completed; CQ not polled", "all unsignaled: nothing frees the queue"),
            ("poll the CQ; signal at least one in queue depth",),
        ),
        (
            "EINVAL",
            _LOCAL,
            "opcode, SGE count, inline size or QP state not accepted",
            ("QP not in RTS",),
            ("query the QP's state; compare with its capabilities",),
        ),
        ("EOPNOTSUPP", _LOCAL, "opcode not supported on this QP", (), ("ibv_devinfo -v",)),
    ),
    "ibv_post_recv": (
        ("ENOMEM", _LOCAL, "the receive queue is full", ("more receives posted than max_recv_wr",), ("poll the CQ",)),
        ("EINVAL", _LOCAL, "SGE count or QP state not accepted", ("QP in RESET",), ("move the QP to INIT first",)),
    ),
    "rdma_resolve_addr": (
        (
            "ENODEV",
            _LOCAL,
            "no RDMA device has the route's address",
            ("the address is on a netdev without RDMA",),
            ("rdma link; ip route get <peer>",),
        ),
        ("EADDRNOTAVAIL", _LOCAL, "the source address is not on this node", (), ("ip addr",)),
        ("ENETUNREACH", _LOCAL, "no route to the peer", (), ("ip route get <peer>",)),
        ("ETIMEDOUT", _PEER, "no ARP or ND answer in time", ("peer down or wrong address",), ("ping; ip neigh",)),
        ("EHOSTUNREACH", _PEER, "peer unreachable", (), ("ip route get <peer>; ip neigh",)),
    ),
    "rdma_connect": (
        (
            "ECONNREFUSED",
            "remote",
            "the peer rejected the connection",
            (
                "nobody listens on that port (CM reject reason 8: invalid service id)",
                "the peer's application refused (reason 28)",
                "peer out of QPs or CQ room",
            ),
            ("check the listener; read the reject reason in the event's status",),
        ),
        (
            "ETIMEDOUT",
            _PEER,
            "no answer to the connection request (15 tries of about 4.3 s)",
            ("peer gone, or management packets lost", "RoCE mode of the two ends differs (v1 against v2)"),
            ("ping; compare default_roce_mode of both ends",),
        ),
        (
            "EINVAL",
            _LOCAL,
            "parameter not accepted, or the id is not resolved",
            ("initiator_depth or responder_resources above the device's limit",),
            ("resolve address and route first; check conn_param",),
        ),
        ("ENOMEM", _LOCAL, "no memory", (), ("dmesg",)),
    ),
    "rdma_bind_addr": (
        ("EADDRINUSE", _LOCAL, "the port is taken", ("an earlier process still listens",), ("rdma res show cm_id",)),
        ("EADDRNOTAVAIL", _LOCAL, "the address is not on this node", (), ("ip addr",)),
        ("ENODEV", _LOCAL, "the address is not on an RDMA netdev", (), ("rdma link",)),
    ),
    "rdma_create_event_channel": (
        (
            "ENODEV",
            _LOCAL,
            "no RDMA connection manager",
            ("rdma_ucm not loaded", "/dev/infiniband/rdma_cm not in the container"),
            ("modprobe rdma_ucm; pass /dev/infiniband/rdma_cm into the container",),
        ),
    ),
}
_SAME = {
    "ibv_reg_mr_iova": "ibv_reg_mr",
    "ibv_reg_mr_iova2": "ibv_reg_mr",
    "mlx5dv_create_cq": "ibv_create_cq",
    "ibv_create_cq_ex": "ibv_create_cq",
    "ibv_create_qp_ex": "ibv_create_qp",
    "rdma_create_qp": "ibv_create_qp",
    "mlx5dv_create_qp": "ibv_create_qp",
    "ibv_create_srq": "ibv_create_qp",
    "rdma_reg_msgs": "ibv_reg_mr",
}
_SOURCES = (
    "kernel drivers/infiniband/core (umem.c, verbs.c, addr.c, cache.c, uverbs_cmd.c, cma.c)",
    "rdma-core libibverbs (device.c, verbs.c), librdmacm (cma.c)",
)


def _code(word: str) -> str | None:
    # The name of an errno given as name, number, -number or strerror text.
    text = word.strip().strip("[](),")
    read = number(text.removeprefix("-"))
    if read and text.removeprefix("-")[:1].isdecimal():
        return errno.errorcode.get(read[0])
    upper = {"ENOTSUP": "EOPNOTSUPP", "EWOULDBLOCK": "EAGAIN"}.get(text.upper(), text.upper())
    if upper.startswith("E") and isinstance(getattr(errno, upper, None), int):
        return upper
    low = text.lower()
    return next((known for value, known in errno.errorcode.items() if low and os.strerror(value).lower() == low), None)


def _call(word: str) -> str | None:
    low = folded(word.strip().removesuffix("()")).lower()
    low = _SAME.get(low, low)
    if low in CALLS:
        return low
    return next((call for call in CALLS if call.partition("_")[2] == low), None)


def _entry(call: str, row: _Row) -> dict[str, Any]:
    name, side, meaning, causes, steps = row
    return {
        "call": call,
        "name": name,
        "number": getattr(errno, name),
        "meaning": meaning,
        "side": side,
        "causes": list(causes),
        "next": list(steps),
    }


def decode(*words: str) -> dict[str, Any]:
    """Decode an errno, a call, or both in any order. Raises BadInput, with the known calls, for anything else."""
    call: str | None = None
    rest: list[str] = []
    for word in (value_of(part) for part in " ".join(words).split()):
        found = _call(word)
        if found and call is None:
            call = found
        elif word.lower() not in ("errno", "error"):
            rest.append(word)
    name = _code(" ".join(rest)) if rest else None
    if (rest and name is None) or not (rest or call):
        raise refuse("errno or verbs call", " ".join(rest), "an errno such as ENOMEM or 12, and a call", CALLS)
    hits = [
        _entry(each, row)
        for each, rows in CALLS.items()
        if call in (None, each)
        for row in rows
        if name in (None, row[0])
    ]
    sources = {"sources": list(_SOURCES)}
    if name is None:
        return {
            "name": call,
            "meaning": f"{len(hits)} errors of {call} are known",
            "errors": hits,
            "next": [f"rdmadiag explain errno NAME {call}"],
            **sources,
        }
    value = getattr(errno, name)
    if call and hits:
        return {**hits[0], "text": os.strerror(value), **sources}
    meaning = os.strerror(value)
    told = f"{meaning}: nothing special is known of it for {call}" if call else f"{meaning}: depends on the call"
    hits = hits or [_entry(each, row) for each, rows in CALLS.items() for row in rows if row[0] == name]
    return {
        "name": name,
        "number": value,
        "meaning": told,
        "side": "depends on the call",
        "next": ["name the call that failed", "dmesg at that time"],
        "by_call": hits,
        **sources,
    }
