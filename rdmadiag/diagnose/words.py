"""What is said of rows and gaps, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rdmadiag.patterns import late

WORDS = {
    "addr": "addresses (ip addr)",
    "app_event": "a log of the application",
    "cgroup_use": "what control groups may use and wait for (cgroup v2)",
    "cgroup_rdma": "limits of RDMA objects (rdma.max of the control group)",
    "benchmark": "results of a test (perftest, nccl-tests, fio)",
    "chardev": "device files (ls -l /dev/infiniband)",
    "cm_id": "objects that processes hold (rdma resource show)",
    "command": "the command line of the program",
    "completion": "completion errors in a log",
    "counter": "counters (rdma statistic, /sys/class/infiniband)",
    "context": "objects that processes hold (rdma resource show)",
    "cpu_governor": "processor frequency settings (cpupower frequency-info)",
    "cq": "completion queues (rdma resource show cq)",
    "device": "RDMA devices (ibv_devinfo)",
    "env": "the program's environment",
    "firewall": "the packet filter's rules (sudo nft -j list ruleset)",
    "fabric_provider": "what libfabric offers (fi_info)",
    "fw_image": "firmware images (mstflint -d BDF query)",
    "fw_setting": "firmware settings (sudo mlxconfig -d BDF -e query)",
    "gid": "GID tables (show_gids)",
    "gpu": "GPUs (nvidia-smi -q)",
    "gpu_path": "ways between GPUs and adapters (nvidia-smi topo -m)",
    "hugepage": "huge pages (grep Huge /proc/meminfo)",
    "idle_state": "idle states of processors",
    "irq": "interrupts of adapters (/proc/interrupts)",
    "kernel_event": "the kernel log (dmesg -T)",
    "link": "the physical link (sudo mlxlink -d DEVICE -m -c)",
    **dict.fromkeys(
        ("kv_transfer", "kv_request", "kv_operation", "kv_goodput", "kv_event", "kv_route", "kv_path", "kv_job"),
        "KV-cache transfers (rdmadiag kv run --output FILE)",
    ),
    "kv_cache": "a KV block store",
    "module": "kernel modules (lsmod)",
    "module_parameter": "module parameters (/etc/modprobe.d, /sys/module)",
    "mst": "names of adapters in the firmware tools (mst status -v)",
    "mr": "memory regions (rdma resource show mr)",
    "neighbour": "neighbours and policy rules (ip neigh, ip rule)",
    "netdev": "network devices (ip -d link)",
    "netdev_setting": "settings of network devices (ethtool -a, -g, --show-fec)",
    "optics": "modules and their light (sudo ethtool -m)",
    "pd": "objects that processes hold (rdma resource show)",
    "package": "packages (dpkg -l, rpm -qa, ofed_info -s)",
    "pci": "PCI functions (sudo lspci -vvv)",
    "peering": "the other end (--peer)",
    "pkey": "partition keys (/sys/class/infiniband/*/ports/*/pkeys)",
    "port": "RDMA ports (ibstat)",
    "process": "processes that use RDMA",
    "process_limit": "limits (ulimit -a in the job)",
    "policy_rule": "neighbours and policy rules (ip neigh, ip rule)",
    "qos": "PFC, trust and ECN of network devices (mlnx_qos -i, dcb)",
    "qos_buffer": "PFC, trust and ECN of network devices (mlnx_qos -i, dcb)",
    "qos_dscp": "PFC, trust and ECN of network devices (mlnx_qos -i, dcb)",
    "qos_priority": "PFC, trust and ECN of network devices (mlnx_qos -i, dcb)",
    "qos_tc": "PFC, trust and ECN of network devices (mlnx_qos -i, dcb)",
    "qp": "queue pairs (rdma -d resource show qp)",
    "register": "registers of an adapter (mlxreg --get)",
    "resource": "counts of objects (rdma resource show)",
    "roce_setting": "what marks RoCE traffic (cma_roce_tos, tc/1/traffic_class)",
    "route": "routes (ip route)",
    "service": "services that run (systemctl)",
    "sysctl": "kernel settings (sysctl -a)",
    "verbs_list": "what libibverbs lists (ibv_devices)",
}
"""What a table holds, in the words of somebody who is to give it."""


def reason(gap: Mapping[str, Any]) -> str:
    """Return why something is unknown: what was not given, or could not be seen."""
    if gap["kind"] == "not_given":
        return f"{WORDS.get(gap['table'], gap['table'])} not given"
    subject = f" ({gap['subject']})" if gap["subject"] else ""
    return f"{WORDS.get(gap['table'], gap['table'])}: {gap['reason']}{subject}"


_FIELD = late(r"\{(\w+)\}")


def fill(template: str, row: Mapping[str, Any], names: bool = False) -> str:
    """Fill {column} places of a message from a row. No other syntax has a meaning.

    A NULL or absent one reads '?', or with `names` as the name in capitals, as manuals write what is to be put in (`ethtool NETDEV`).
    """
    return _FIELD.sub(lambda match: _word(row.get(match[1]), match[1].upper() if names else "?"), template)


def _word(value: Any, missing: str) -> str:
    if value is None:
        return missing
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
