"""The only door through which a node is read: live, captured (a tree that was handed over), or recording.

All kinds answer the same questions and raise the same errors: NotPresent (the node has no such thing), HostRefused
(it is there but may not or cannot be read), NotGiven (the captured tree does not hold that part of the node).
Looking never changes the node: nothing here writes, loads a module, mounts, or talks to firmware.
"""

from __future__ import annotations

import errno
from typing import Any, Protocol

from rdmadiag.errors import HostRefused, NotPresent

FILE_LIMIT_BYTES = 4 << 20
"""Longest file read through the door [bytes]; sysfs and procfs files that matter are far shorter."""

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO}
_DENIED = {errno.EACCES, errno.EPERM}


class Host(Protocol):
    """What every door offers; paths are absolute paths of the node."""

    name: str
    live: bool
    root: bool | None

    def read(self, path: str) -> str:
        """Return a file's text without trailing white space. Raises NotPresent, HostRefused, NotGiven."""

    def read_bytes(self, path: str) -> bytes:
        """Return a file's bytes. Raises as `read`."""

    def ls(self, path: str) -> list[str]:
        """Return the sorted names in a folder. Raises as `read`."""

    def link(self, path: str) -> str:
        """Return the absolute path that a path stands for when all links are followed. Raises as `read`."""

    def exists(self, path: str) -> bool:
        """Tell whether a path is there. Raises NotGiven where the captured tree cannot tell."""

    def usable(self, path: str) -> bool | None:
        """Tell whether we may open a file for reading and writing; None where that cannot be told."""

    def run(self, command: str) -> str:
        """Return the text that a command prints: `dmesg`, `uname -m`, `date +%s` (no process is run), and those of PROGRAMS.

        A program runs only where what it asks is loaded already, at most PROGRAM_SECONDS. Raises as `read`.
        """

    def objects(self, command: str) -> list[dict[str, Any]]:
        """Return what `rdma -d -j`, `ip -d -j`, `ethtool --json` or `dcb -j` prints, as objects.

        Commands: `rdma WORDS`, `ip WORDS`, `ethtool OPTION` of every netdev (`-S`, `-i`, `-m`: of the netdevs behind it),
        `dcb`, all of DCB of every netdev.
        """

    def clock(self) -> float:
        """Return the monotonic time of the node [s]."""


def refusal(path: str, error: OSError) -> NotPresent | HostRefused:
    """Turn an OSError into the door's own error."""
    if error.errno in _ABSENT:
        return NotPresent(f"{path}: not there")
    if error.errno in _DENIED:
        return HostRefused(path, f"not permitted ({errno.errorcode.get(error.errno or 0, '?')})", "run as root")
    return HostRefused(path, f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, '?')})")


def text_of(host: Host, path: str) -> str:
    """Return a file's text without white space around it; empty where it is absent or refused. Raises NotGiven."""
    try:
        return host.read(path).strip()
    except (NotPresent, HostRefused):
        return ""


def names_in(host: Host, path: str) -> list[str]:
    """Return the sorted names in a folder; none where it is absent or refused. Raises NotGiven."""
    try:
        return host.ls(path)
    except (NotPresent, HostRefused):
        return []


def link_of(host: Host, path: str) -> str:
    """Return the absolute path that a path stands for; empty where it is absent or refused. Raises NotGiven."""
    try:
        return host.link(path)
    except (NotPresent, HostRefused):
        return ""
