"""Archives that other programs make of a node: what in them is of use here, whose node it is, and which command printed a file.

sosreport (sos/report/plugins/__init__.py of github.com/sosreport/sos): files of the node below its paths, and
`sos_commands/PLUGIN/COMMAND`, the command with spaces and the like as `_`. sysinfo-snapshot (sysinfo-snapshot.py of
github.com/Mellanox/linux-sysinfo-snapshot): `commands_txt_output/COMMAND.txt`, whose first line is
`Invoked Command: COMMAND` (which the reader of texts knows as a prompt), and the same again in one large HTML page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rdmadiag.patterns import late

SOS, SYSINFO = "sos_commands", "commands_txt_output"
_PLUGINS = {
    "infiniband",
    "networking",
    "kernel",
    "pci",
    "host",
    "hardware",
    "nvidia",
    "numa",
    "logs",
    "ebpf",
    "openshift",
}
_LOGS = {"messages", "syslog", "kern.log", "dmesg"}
_ETC = ("etc/hostname", "etc/modprobe.d/", "etc/rdma/", "etc/infiniband/", "etc/security/limits")
_SOS_NAME = late(r"(?:.*/)?sosreport-(.+?)-\d{4}-\d\d-\d\d-\w+$")
_SYSINFO_NAME = late(r"(?:.*/)?sysinfo-snapshot-v[\d.]+-(.+?)-\d{8}-\d{4}\w*$")


def tops(names: Iterable[str]) -> dict[str, str]:
    """Return the folders, among those that the names lie in, that such a program made: folder to SOS or SYSINFO."""
    found: dict[str, str] = {}
    for name in names:
        parts = name.split("/")[:-1]
        for kind in (SOS, SYSINFO):
            if kind in parts[:3]:
                found["/".join(parts[: parts.index(kind)])] = kind
    return found


def inside(name: str, top: str) -> str | None:
    """Return the path below a folder; None for one that lies elsewhere."""
    return name if not top else name[len(top) + 1 :] if name.startswith(f"{top}/") else None


def wanted(path: str, kind: str) -> bool:
    """Tell whether a file (path below the folder) is of use: the rest of such an archive is thousands of files."""
    parts = path.split("/")
    if kind == SYSINFO:
        return not path.endswith((".html", ".json", ".csv"))
    if parts[0] == SOS:
        return len(parts) == 3 and parts[1] in _PLUGINS
    return parts[0] in ("proc", "sys") or path.startswith(_ETC) or (path.startswith("var/log/") and parts[-1] in _LOGS)


def node(top: str, kind: str, read: Callable[[str], bytes | str | None]) -> str | None:
    """Return whose node it is, by its `hostname`, or by the folder's name; None when neither tells."""
    for name in (f"{SOS}/host/hostname", "etc/hostname") if kind == SOS else ():
        content = read(f"{top}/{name}" if top else name)
        word = content.decode(errors="replace").strip() if isinstance(content, bytes) else ""
        if late(r"[A-Za-z0-9][\w.-]{0,252}").fullmatch(word):
            return word
    match = (_SOS_NAME if kind == SOS else _SYSINFO_NAME).match(top)
    return match[1] if match else None


def command(path: str) -> str:
    """Return the command whose output a file of sos_commands is, as far as its name tells; '' for another file."""
    parts = path.split("/")
    if parts[0] != SOS or len(parts) != 3:
        return ""
    return parts[2].replace("_", " ")
