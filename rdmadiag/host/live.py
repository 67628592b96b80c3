"""This machine, as the kernel shows it to this process."""

from __future__ import annotations

import errno
import os
import time
from typing import Any

from rdmadiag.errors import HostRefused, NotPresent
from rdmadiag.host import FILE_LIMIT_BYTES, refusal

PROGRAMS = frozenset(("nft -j list ruleset", "iptables-save", "ip6tables-save"))
"""Programs that the door runs: they print what has no netlink form that is read here, and change nothing."""
PROGRAM_SECONDS = 1.5
"""Longest time that one of them may take [s]."""

_MOUNTED = {"/sys/": "/sys/class", "/proc/": "/proc/self", "/dev/": "/dev/null"}


def _live_refusal(path: str, error: OSError) -> NotPresent | HostRefused:
    # Where sysfs or procfs is not mounted (a chroot, a bare container) nothing in it is absent: it cannot be seen.
    found = refusal(path, error)
    for start, sign in _MOUNTED.items():
        if isinstance(found, NotPresent) and path.startswith(start) and not os.path.exists(sign):
            return HostRefused(path, f"{start[:-1]} is not mounted here", f"run where {start[:-1]} is mounted")
    return found


class LiveHost:
    """This machine, as the kernel shows it to this process."""

    live = True

    def __init__(self) -> None:
        self.name = os.uname().nodename
        self.root: bool | None = os.geteuid() == 0

    def read_bytes(self, path: str) -> bytes:
        """Read at most FILE_LIMIT_BYTES; never blocks on a FIFO or a terminal."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            try:
                parts, size = [], 0
                while size < FILE_LIMIT_BYTES and (part := os.read(descriptor, 1 << 16)):
                    parts.append(part)
                    size += len(part)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _live_refusal(path, error) from error
        return b"".join(parts)

    def read(self, path: str) -> str:
        """See Host.read."""
        return self.read_bytes(path).decode(errors="replace").rstrip()

    def ls(self, path: str) -> list[str]:
        """See Host.ls."""
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise _live_refusal(path, error) from error

    def link(self, path: str) -> str:
        """See Host.link."""
        try:
            return os.path.realpath(path, strict=True)
        except OSError as error:
            raise _live_refusal(path, error) from error

    def exists(self, path: str) -> bool:
        """See Host.exists."""
        return os.path.exists(path)

    def usable(self, path: str) -> bool | None:
        """Ask the kernel by access(2): opening a uverbs file would make a context."""
        return os.access(path, os.R_OK | os.W_OK)

    def run(self, command: str) -> str:
        """See Host.run."""
        if command == "uname -m":
            return os.uname().machine
        if command == "dmesg":
            return _kernel_log()
        if command == "date +%s":
            return str(int(time.time()))
        if command in PROGRAMS:
            return _program(command)
        raise NotPresent(f"{command}: not a command of this door")

    def objects(self, command: str) -> list[dict[str, Any]]:
        """Read by netlink; a kernel without the family or a refused request raises NotPresent or HostRefused."""
        from rdmadiag import netlink

        tool, _, words = command.partition(" ")
        ask = {"rdma": netlink.rdma, "ip": netlink.ip, "ethtool": netlink.ethtool, "dcb": netlink.dcb}[tool]
        try:
            return ask(words)
        except OSError as error:
            if error.errno in (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EOPNOTSUPP):
                raise NotPresent(f"{command}: this kernel has no such netlink family") from error
            raise refusal(command, error) from error

    def clock(self) -> float:
        """See Host.clock."""
        return time.monotonic()


def _program(command: str) -> str:
    # One of PROGRAMS, found in the folders of the system alone (we may be root), with nothing of our environment but those.
    import subprocess

    words = command.split()
    folders = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
    path = next((found for folder in folders if os.access(found := f"{folder}/{words[0]}", os.X_OK)), None)
    if path is None:
        raise NotPresent(f"{words[0]}: not installed")
    try:
        done = subprocess.run(
            [path, *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROGRAM_SECONDS,
            env={"PATH": ":".join(folders), "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HostRefused(command, f"it did not end within {PROGRAM_SECONDS:g} s") from error
    except OSError as error:
        raise refusal(command, error) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0][:200]
        raise HostRefused(command, said or f"it ended with {done.returncode}", "run as root")
    return done.stdout[:FILE_LIMIT_BYTES].decode(errors="replace")


def _kernel_log() -> str:
    # /dev/kmsg gives one record a read ("priority,sequence,microseconds,flags;text" and continuation lines); made into dmesg's form.
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise refusal("/dev/kmsg", error) from error
    lines: list[str] = []
    try:
        while True:
            try:
                record = os.read(descriptor, 8192)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten while we read: the next read goes on
                    continue
                raise refusal("/dev/kmsg", error) from error
            if not record:
                break
            head, _, text = record.decode(errors="replace").partition(";")
            fields = head.split(",")
            micro = int(fields[2]) if len(fields) > 2 and fields[2].isdecimal() else 0
            message = text.partition("\n")[0]
            lines.append(f"[{micro // 1000000:5d}.{micro % 1000000:06d}] {message}")
    finally:
        os.close(descriptor)
    return "\n".join(lines)
