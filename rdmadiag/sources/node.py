"""What the node is: names and kernel (/proc), hypervisor (/sys/class/dmi/id), container (what its runtime leaves)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotPresent
from rdmadiag.evidence.log_line import prompt_command, strip_prefix
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host, text_of
from rdmadiag.patterns import late

TABLES = ("node",)


def read(host: Host) -> Iterable[Row | Gap]:
    """Read all columns of `node`; a part that cannot be read stays unknown."""
    values: dict[str, Any] = {}
    for column, look in _COLUMNS.items():
        try:
            value = look(host)
        except (NotPresent, HostRefused):
            continue
        if value is not None:
            values[column] = value
    if values:
        yield Row("node", values, "/proc")


def _hostname(host: Host) -> str:
    return host.read("/proc/sys/kernel/hostname")


def _kernel(host: Host) -> str:
    return host.read("/proc/sys/kernel/osrelease")


def _arch(host: Host) -> str:
    try:
        return host.read("/proc/sys/kernel/arch")  # since Linux 6.1
    except (NotPresent, HostRefused):
        return host.run("uname -m")


def _uptime(host: Host) -> float:
    return _number(host.read("/proc/uptime").split(" ")[0])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise NotPresent(f"{text!r}: not a number") from None


def _root(host: Host) -> int | None:
    # /proc/self of a captured tree is the process that captured it.
    match = late(r"^Uid:\s+\d+\s+(\d+)", re.M).search(host.read("/proc/self/status"))
    return int(match[1] == "0") if match else None


def _modules_supported(host: Host) -> int:
    return int(host.exists("/proc/modules"))


def _cmdline(host: Host) -> str:
    return host.read("/proc/cmdline")


def _tainted(host: Host) -> int | None:
    text = host.read("/proc/sys/kernel/tainted").strip()
    return int(text) if late(r"\d{1,10}").fullmatch(text) else None


def _boot_id(host: Host) -> str | None:
    return host.read("/proc/sys/kernel/random/boot_id") or None


_CONTAINER_FILES = (
    ("/.dockerenv", "docker"),
    ("/run/.containerenv", "podman"),
    ("/var/run/secrets/kubernetes.io", "kubernetes"),
)
_CONTAINER_GROUP = late(r"(docker|libpod|crio|containerd|kubepods|lxc|garden|machine\.slice)")
_RUNTIMES = {"libpod": "podman", "crio": "cri-o", "kubepods": "kubernetes", "machine.slice": "systemd-nspawn"}


def _container(host: Host) -> str | None:
    there = {runtime: _there(host, path) for path, runtime in _CONTAINER_FILES}
    if named := next((runtime for runtime, seen in there.items() if seen), None):
        return named
    for look in (_container_of_manager, _container_of_group, _container_of_root):
        if runtime := look(host):
            return runtime
    return None if None in there.values() and host.read("/proc/1/cgroup") in ("", "0::/") else ""


def _there(host: Host, path: str) -> bool | None:
    try:
        return host.exists(path)
    except HostRefused:
        return None


def _container_of_manager(host: Host) -> str:
    # systemd and its like leave the word that the runtime gave them in $container.
    return text_of(host, "/run/systemd/container")


def _container_of_group(host: Host) -> str:
    # With a cgroup namespace the path is "/", which tells nothing.
    match = _CONTAINER_GROUP.search(host.read("/proc/1/cgroup"))
    return _RUNTIMES.get(match[1], match[1]) if match else ""


def _container_of_root(host: Host) -> str:
    mounts = text_of(host, "/proc/1/mountinfo")
    root = late(r"^\d+ \d+ \S+ \S+ / .* - overlay .*?(containerd|docker|containers/storage)", re.M).search(mounts)
    return {"containers/storage": "podman"}.get(root[1], root[1]) if root else ""


_HYPERVISORS = (
    ("amazon ec2", "kvm"),
    ("google compute engine", "kvm"),
    ("alibaba cloud", "kvm"),
    ("openstack", "kvm"),
    ("qemu", "kvm"),
    ("kvm", "kvm"),
    ("vmware", "vmware"),
    ("virtualbox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("xen", "xen"),
    ("bochs", "bochs"),
    ("nutanix ahv", "kvm"),
    ("virtual machine", "hyper-v"),
)


def _virtual(host: Host) -> str | None:
    board = " ".join(text_of(host, f"/sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")).lower()
    if ".metal" in board:
        return ""
    named = next((kind for word, kind in _HYPERVISORS if word in board), "")
    return named or _virtual_of_processor(host, bool(board.strip()))


def _virtual_of_processor(host: Host, board_known: bool) -> str | None:
    flags = late(r"^flags\s*:(.*)$", re.M).search(text_of(host, "/proc/cpuinfo"))
    if flags:
        return "unknown" if " hypervisor" in flags[1] else ""
    return "" if board_known else None  # other processors do not tell


_COLUMNS: dict[str, Callable[[Host], str | int | float | None]] = {
    "hostname": _hostname,
    "kernel": _kernel,
    "arch": _arch,
    "uptime_seconds": _uptime,
    "container": _container,
    "virtual": _virtual,
    "root": _root,
    "boot_id": _boot_id,
    "modules_supported": _modules_supported,
    "cmdline": _cmdline,
    "tainted": _tainted,
}

_UNAME = late(r"Linux (\S+) (\d+\.\d+\S*) #.*?(?: (\S+))? GNU/Linux\s*$|Linux (\S+) (\d+\.\d+\S*) #")


def parse_uname(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `uname -a`, and `uname -r` after its prompt line."""
    asked = ""
    for number, text in lines:
        if match := _UNAME.search(text[:500]):
            hostname, kernel = match[1] or match[4], match[2] or match[5]
            values = {"hostname": hostname, "kernel": kernel, "arch": _machine(match[3])}
            yield Row("node", {name: value for name, value in values.items() if value}, number)
        elif asked == "uname -r" and late(r"\d+\.\d+\S*").fullmatch(text.strip()):
            yield Row("node", {"kernel": text.strip()}, number)
        asked = prompt_command(text) or ""


def _machine(word: str | None) -> str | None:
    return word if word and late(r"[a-z]\w+").fullmatch(word) else None


def parse_hostname(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse the answer of `hostname` after its prompt line."""
    asked = False
    for number, text in lines:
        if asked and late(r"[A-Za-z0-9][\w.-]{0,252}").fullmatch(text.strip()):
            yield Row("node", {"hostname": text.strip()}, number)
        asked = (prompt_command(text) or "") in (
            "hostname",
            "hostname -s",
            "hostname -f",
            "cat /proc/sys/kernel/hostname",
        )


def parse_cmdline(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse /proc/cmdline as a boot loader leaves it."""
    for number, text in lines:
        if text.startswith("BOOT_IMAGE="):
            yield Row("node", {"cmdline": text.strip()}, number)


def parse_tainted(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `kernel.tainted = N` of sysctl, and /proc/sys/kernel/tainted behind `FILE:` of grep."""
    for number, text in lines:
        if match := _TAINTED.match(text[:200]):
            yield Row("node", {"tainted": int(match[1])}, number)


_TAINTED = late(r"(?:kernel\.tainted = |/proc/sys/kernel/tainted:)(\d{1,10})\s*$")


_BOOT_LINES: tuple[tuple[re.Pattern[str], dict[str, str]], ...] = (
    (late(r"(?:Kernel )?[Cc]ommand line: (?P<cmdline>.+)"), {}),
    (late(r"Linux version (?P<kernel>\d+\.\d+\S*) "), {}),
    (late(r"Hypervisor detected: (?P<virtual>\w+)"), {}),
    (late(r"Booting paravirtualized kernel on bare hardware"), {"virtual": ""}),
)


def parse_boot(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse what the kernel says of itself when it boots (dmesg)."""
    for number, text in lines:
        message = strip_prefix(text)
        for pattern, known in _BOOT_LINES:
            if match := pattern.match(message):
                yield Row(
                    "node",
                    {**known, **{name: _lower(name, value) for name, value in match.groupdict().items()}},
                    number,
                )


def _lower(name: str, value: str) -> str:
    return value.lower() if name == "virtual" else value.strip()


TEXTS = (
    Text("uname", (r"\bLinux [\w.-]+ \d+\.\d+\S* #",), parse_uname, ("uname",)),
    Text("hostname", (), parse_hostname, ("hostname",)),
    Text("/proc/cmdline", (r"^BOOT_IMAGE=",), parse_cmdline),
    Text("kernel.tainted", (r"^(kernel\.tainted = |/proc/sys/kernel/tainted:)[0-9]",), parse_tainted, by_line=True),
    Text(
        "dmesg (boot)",
        (
            r"\b[Cc]ommand line: \S",
            r"\bLinux version \d+\.\d+",
            r"Hypervisor detected: ",
            r"paravirtualized kernel on bare",
        ),
        parse_boot,
        by_line=True,
    ),
)
