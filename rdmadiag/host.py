"""The only door through which a node is read: live, captured (a tree that was handed over), or recording.

All kinds answer the same questions and raise the same errors: NotPresent (the node has no such thing), HostRefused
(it is there but may not or cannot be read), NotGiven (the captured tree does not hold that part of the node).
Looking never changes the node: nothing here writes, loads a module, mounts, or talks to firmware.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.patterns import late

FILE_LIMIT_BYTES = 4 << 20
"""Longest file read through the door [bytes]; sysfs and procfs files that matter are far shorter."""

PROGRAMS = frozenset(("nft -j list ruleset", "iptables-save", "ip6tables-save"))
"""Programs that the door runs: they print what has no netlink form that is read here, and change nothing."""
PROGRAM_SECONDS = 1.5
"""Longest time that one of them may take [s]."""

PATH_CHARACTERS, PATH_LEVELS = 1024, 32
"""A longer or deeper path of a captured tree is not listed; those of sysfs are half as long."""

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


class Noted(NamedTuple):
    """What a recording notes beside files, links and folders, so that it answers as the node did.

    By path or command as it was asked: why it was refused (reason, how to get it), what a command printed (JSON for
    objects), whether a file may be opened; `listed`: names that are there, of which no more is known.
    """

    refused: Mapping[str, tuple[str, str]] = {}
    commands: Mapping[str, str] = {}
    usable: Mapping[str, bool] = {}
    listed: frozenset[str] = frozenset()
    live: bool = True
    root: bool | None = None


class Tree:
    """A captured tree in memory: paths to bytes (a file), str (a link's target) or None (a folder)."""

    noted: Noted | None = None
    """For a recording: then what is not in it was not asked, and nothing that is missing is absent."""

    def __init__(self, entries: Mapping[str, bytes | str | None], absent: frozenset[str] = frozenset()) -> None:
        self.entries: dict[str, bytes | str | None] = dict(entries)
        self.absent = absent
        self.whole = True  # False for a capture that is cut off: then nothing that is missing is absent
        self.folders: dict[str, set[str]] = {"/": set()}
        for path in self.entries:
            if len(path) <= PATH_CHARACTERS and path.count("/") <= PATH_LEVELS:
                self._add(path)

    def _add(self, path: str) -> None:
        # A folder that has names is in those above it already.
        while path != "/":
            parent, _, name = path.rpartition("/")
            names = self.folders.get(parent or "/")
            if names is not None:
                names.add(name)
                return
            path = parent or "/"
            self.folders[path] = {name}

    def entry(self, path: str) -> bytes | str | bool | None:
        """Return bytes (file), str (link target), None (folder), or False (not there)."""
        found = self.entries.get(path, False)
        return found if found is not False else None if path in self.folders else False

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder."""
        return sorted(self.folders.get(path, ()))


class FolderTree:
    """A captured tree on disk (`/sys`, `/proc` ... below a folder); nothing outside of the folder is ever opened."""

    absent: frozenset[str] = frozenset()
    whole = True
    noted: Noted | None = None

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def entry(self, path: str) -> bytes | str | bool | None:
        """See Tree.entry; links are given as written and resolved by CapturedHost inside of the tree."""
        real = self.folder + path
        try:
            if os.path.islink(real):
                return os.readlink(real)
            if os.path.isdir(real):
                return None
            if not os.path.isfile(real):
                return False
            with open(real, "rb") as file:
                return file.read(FILE_LIMIT_BYTES)
        except OSError as error:
            raise refusal(path, error) from error

    def names(self, path: str) -> list[str]:
        """See Tree.names."""
        try:
            return sorted(os.listdir(self.folder + path))
        except OSError as error:
            raise refusal(path, error) from error


_WHOLE_OR_NOT = ("/sys/bus/pci/devices", "/proc/sys/kernel/hostname", "/proc/sys/kernel/osrelease", "/proc/self/limits")


class CapturedHost:
    """A node as it was captured: the same answers, and NotGiven for the parts that the capture leaves out.

    A tree holds a part of a node whole or not at all. So a path missing below a captured part is NotPresent, and a
    whole part that is missing (`/sys/class/infiniband`, `/proc/modules`) is NotGiven, unless the capture says absent.
    """

    live = False
    root: bool | None = None

    def __init__(self, tree: Tree | FolderTree, name: str = "", seconds: float = 0.0) -> None:
        self.tree, self.name, self.seconds = tree, name, seconds
        self.noted = tree.noted or Noted()
        self.live, self.root = (
            tree.noted is not None and self.noted.live,
            self.noted.root,
        )  # a recording answers as the node did
        self._folders: dict[str, str] = {}

    def _resolve(self, path: str) -> str:
        if path in self.noted.refused:
            raise HostRefused(path, *self.noted.refused[path])
        if self.tree.noted and path in self.tree.absent:
            raise NotPresent(f"{path}: not there")
        folder, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            return self._walk(path)
        real = self._folders.get(folder)
        if real is None:
            try:
                real = self._folder(folder)
            except NotGiven:
                return self._walk(path)  # what is absent may be named as a whole
        return self._step(real, name)

    def _folder(self, path: str) -> str:
        # The real path of a folder, '' of the root: kept, for a tree does not change and thousands of files share a folder.
        known = self._folders.get(path)
        if known is None:
            folder, _, name = path.rpartition("/")
            found = self._walk(path) if name in ("", ".", "..") else self._step(self._folder(folder), name)
            known = self._folders[path] = found.rstrip("/")
        return known

    def _step(self, folder: str, name: str) -> str:
        path = f"{folder}/{name}"
        entry = self.tree.entry(path)
        if entry is None or isinstance(entry, bytes):
            return path
        if entry is False:
            raise self._gone(path, path)
        if path not in self._folders:
            self._folders[path] = self._walk(f"/{name}", folder).rstrip("/")
        return self._folders[path] or "/"

    def _walk(self, path: str, done: str = "", depth: int = 0) -> str:
        if depth > _LINKS:
            raise HostRefused(path, "too many links")
        parts = [part for part in path.split("/") if part and part != "."]
        for number, part in enumerate(parts):
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            step = f"{done}/{part}"
            entry = self.tree.entry(step)
            if entry is False:
                raise self._gone(step, "/".join([step, *parts[number + 1 :]]))
            if isinstance(entry, str):
                target = entry if entry.startswith("/") else f"{done}/{entry}"
                return self._walk("/".join([target, *parts[number + 1 :]]), "", depth + 1)
            done = step
        return done or "/"

    def _gone(self, missing: str, path: str) -> NotPresent | NotGiven:
        # Of a path, `missing` is the first part that the capture does not hold.
        return NotPresent(f"{path}: not there") if self._absent(path) else self._missing(missing)

    def _absent(self, path: str) -> bool:
        # The capture says of the path, or of a folder above it, that it is not there.
        if not self.tree.absent:
            return False
        while path and path not in self.tree.absent:
            path = path.rpartition("/")[0]
        return bool(path)

    def _missing(self, path: str) -> NotPresent | NotGiven:
        if self.tree.noted or not self.tree.whole or path.count("/") <= 3 or path in _WHOLE_OR_NOT:
            return NotGiven(path, "the captured tree does not hold it", f"capture {path} too")
        return NotPresent(f"{path}: not there")

    def read_bytes(self, path: str) -> bytes:
        """See Host.read_bytes."""
        folder, _, name = path.rpartition("/")
        if folder in self._folders and path not in self.noted.refused:  # nearly all that is read
            entry = self.tree.entry(f"{self._folders[folder]}/{name}")
            if isinstance(entry, bytes):
                return entry
        real = self._resolve(path)
        entry = self.tree.entry(real)
        if isinstance(entry, bytes):
            return entry
        if real in self.noted.listed:
            raise NotGiven(path, "the recording does not hold it", "record the node again")
        raise HostRefused(path, "a folder, not a file")

    def read(self, path: str) -> str:
        """See Host.read."""
        return self.read_bytes(path).decode(errors="replace").rstrip()

    def ls(self, path: str) -> list[str]:
        """See Host.ls."""
        real = self._resolve(path)
        if real in self.noted.listed:
            raise NotGiven(path, "the recording does not hold it", "record the node again")
        if self.tree.entry(real) is not None:
            raise HostRefused(path, "not a folder")
        return self.tree.names(real)

    def link(self, path: str) -> str:
        """See Host.link; a link that points at a part which was not captured gives its target as written."""
        try:
            return self._resolve(path)
        except (NotPresent, NotGiven):
            parent, _, name = path.rpartition("/")
            folder = self._resolve(parent or "/")
            entry = self.tree.entry(f"{folder}/{name}")
            if isinstance(entry, str):
                return os.path.normpath(entry if entry.startswith("/") else f"{folder}/{entry}")
            raise

    def exists(self, path: str) -> bool:
        """See Host.exists."""
        try:
            self._resolve(path)
        except NotPresent:
            return False
        return True

    def usable(self, path: str) -> bool | None:
        """A captured tree cannot tell who may open a file; a recording can."""
        return self.noted.usable.get(path)

    def run(self, command: str) -> str:
        """A captured node's commands are texts beside the tree, read as pasted texts; a recording has them."""
        if command in self.noted.commands:
            return self.noted.commands[command]
        if command in self.noted.refused:
            raise HostRefused(command, *self.noted.refused[command])
        if self.tree.noted and command in self.tree.absent:
            raise NotPresent(f"{command}: not there")
        raise NotGiven(command, "a captured tree runs nothing", f"add the output of {command} to what you give")

    def objects(self, command: str) -> list[dict[str, Any]]:
        """See `run`."""
        import json

        try:
            value = json.loads(self.run(command))
        except (ValueError, RecursionError) as error:
            raise HostRefused(command, f"what the recording has of it is no JSON: {error}") from error
        return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []

    def clock(self) -> float:
        """Return when the tree was captured [s], from its first comment line."""
        return self.seconds


class RecordingHost:
    """Another door that notes all that is read through it: what a capture of the node has to hold.

    `noted` has what it noted: by kind ('files', 'links', 'folders', 'absent', 'seen', 'refused', 'usable', 'commands') and by
    path or command. It is plain data, so that it can go through a pipe as JSON; bytes of files are in it as Latin-1 text.
    """

    def __init__(self, host: Host, noted: dict[str, dict[str, Any]] | None = None) -> None:
        self.host, self.name, self.live, self.root = host, host.name, host.live, host.root
        kinds = ("files", "links", "folders", "absent", "seen", "refused", "usable", "commands")
        self.noted: dict[str, dict[str, Any]] = noted if noted is not None else {kind: {} for kind in kinds}

    def _note(self, path: str, call: Callable[[str], Any]) -> Any:
        try:
            value = call(path)
        except NotPresent:
            self.noted["absent"][path] = True
            raise
        except NotGiven:
            raise
        except HostRefused as refused:
            self.noted["refused"][path] = [refused.reason, refused.how]
            raise
        self.noted["seen"][path] = True
        return value

    def read_bytes(self, path: str) -> bytes:
        """See Host.read_bytes."""
        content = bytes(self._note(path, self.host.read_bytes))
        self.noted["files"][path] = content.decode("latin-1")
        return content

    def read(self, path: str) -> str:
        """See Host.read."""
        return self.read_bytes(path).decode(errors="replace").rstrip()

    def ls(self, path: str) -> list[str]:
        """See Host.ls."""
        self.noted["folders"][path] = names = self._note(path, self.host.ls)
        return list(names)

    def link(self, path: str) -> str:
        """See Host.link."""
        self.noted["links"][path] = target = self._note(path, self.host.link)
        return str(target)

    def exists(self, path: str) -> bool:
        """See Host.exists."""
        there = self.host.exists(path)
        self.noted["seen" if there else "absent"][path] = True
        return there

    def usable(self, path: str) -> bool | None:
        """See Host.usable."""
        told = self.host.usable(path)
        if told is not None:
            self.noted["usable"][path] = told
        return told

    def run(self, command: str) -> str:
        """See Host.run."""
        self.noted["commands"][command] = text = str(self._note(command, self.host.run))
        return text

    def objects(self, command: str) -> list[dict[str, Any]]:
        """See Host.objects."""
        import json

        found: list[dict[str, Any]] = self._note(command, self.host.objects)
        self.noted["commands"][command] = json.dumps(found, indent=0)
        return found

    def clock(self) -> float:
        """See Host.clock."""
        return self.host.clock()

    def tree_text(self) -> str:
        """Return what was read as the text of a captured tree (`tree.txt`), which CapturedHost reads back."""
        return recorded_tree(self.noted, self.host.clock(), self.live, self.root)


def recorded_tree(noted: Mapping[str, Mapping[str, Any]], seconds: float, live: bool, root: bool | None) -> str:
    """Return what a RecordingHost noted, all but what commands printed, as the text of a captured tree (see parse_tree)."""
    lines = [f"# seconds {seconds:.6f}", f"# recorded {'live' if live else 'captured'} {'root' if root else 'user'}"]
    lines += [f"# absent: {path}" for path in sorted(noted["absent"])]
    lines += [f"# refused: {path}\t{reason}\t{how}" for path, (reason, how) in sorted(noted["refused"].items())]
    lines += [f"# usable: {path}\t{int(told)}" for path, told in sorted(noted["usable"].items())]
    for path, target in sorted(noted["links"].items()):
        if path != target:
            lines.append(f"{path} -> {target}" if _plain(path) else f"# link: {path}\t{target}")
    lines += [f"{path}/" if _plain(path) else f"# folder: {path}" for path in sorted(noted["folders"])]
    for path, content in sorted(noted["files"].items()):
        text = content.encode("latin-1").decode(errors="replace").rstrip()
        parts = text.split("\n")
        if "\ufffd" in text or "\0" in text or "\r" in text or not _plain(path) or max(map(len, parts)) > _LINE_PART:
            lines.append(f"# bytes: {path}\t{content.encode('latin-1').hex()}")
        else:
            lines += [f"{path}:{line}" for line in parts]
    lines += [f"# listed: {path}" for path in _names_alone(noted)]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"


_LINE_PART = 60_000


def _plain(path: str) -> bool:
    match = _PATH.match(f"{path}:")
    return match is not None and match[0] == path and " -> " not in path


def _names_alone(noted: Mapping[str, Mapping[str, Any]]) -> list[str]:
    # Names that were listed or found to exist, of which no more is known.
    names = {f"{folder}/{name}" for folder, found in noted["folders"].items() for name in found}
    known = {*noted["files"], *noted["links"], *noted["folders"], *noted["commands"]}
    above = {path[:end] for path in known for end in range(len(path)) if path[end] == "/"}
    return sorted((names | noted["seen"].keys()) - known - above)


TREE_LINE_CHARACTERS = 64 << 10
"""A longer line of a captured tree is passed over."""
TREE_LINES = 500_000
"""Most lines taken of a captured tree; a node with 16 adapters has 5,000."""
_LINKS = 40
"""Links followed for one path, as the kernel does."""

# A colon ends the path, unless it stands in a PCI address, or before one (/proc/irq/90/mlx5_comp0@pci:0000:18:00.0).
_PATH = late(
    r"/[^:]*(?:(?:(?<=[0-9a-f]{4}):(?=[0-9a-f]{2}(?:[:./]|$))|(?<=:[0-9a-f]{2}):(?=[0-9a-f]{2}\.)|(?<=@pci):(?=[0-9a-f]{4}:))[^:]*)*"
)


def parse_tree(text: str) -> tuple[Tree, float]:
    """Parse a captured tree: lines `path:content` (as `grep -r "" PATH` prints), `path -> target`, `path/`, and comments.

    A colon inside of a PCI address belongs to the path. Comments: `# seconds N`, when it was captured (monotonic, 0
    without); `# absent: PATH`, looked for and not there. A recording says `# recorded live root` (or captured, user) and has more of
    them, with tabs between the fields: refused, usable, listed, and link, folder and bytes (hexadecimal) for what no plain
    line can hold. Lines that are none of these are passed over. Returns the tree and its time [s].
    """
    entries: dict[str, bytes | str | None] = {}
    contents: dict[str, list[str]] = {}
    absent: set[str] = set()
    seconds = 0.0
    notes: dict[str, list[list[str]]] = {}
    for line in text.split("\n", TREE_LINES)[:TREE_LINES]:
        if len(line) > TREE_LINE_CHARACTERS and not line.startswith("# bytes: "):
            continue
        line = line.rstrip("\r")
        if line.startswith("#"):
            word, _, rest = line[1:].strip(" ").partition(" ")
            if word == "absent:":
                absent.add(rest.strip())
            elif word == "seconds":
                seconds = _finite(rest, seconds)
            elif word in _NOTES:
                notes.setdefault(word, []).append([*rest.split("\t"), "", ""])
        elif match := _PATH.match(line):
            path, end = match[0], match.end()
            link, arrow, target = path.partition(" -> ")
            if arrow and " " not in target:
                entries[link] = target + line[end:]
            elif end < len(line):
                contents.setdefault(path, []).append(line[end + 1 :])
            elif path.endswith("/"):
                entries.setdefault(path[:-1], None)
    for path, lines in contents.items():
        entries[path] = "\n".join(lines).encode(errors="replace")
    recorded = "recorded" in notes
    tree = _recording(entries, absent, notes) if recorded else Tree(_canonical(entries), frozenset(absent))
    tree.whole = text.endswith("\n") or not text
    return tree, seconds


_NOTES = ("recorded", "refused:", "usable:", "listed:", "link:", "folder:", "bytes:")


def _recording(entries: dict[str, bytes | str | None], absent: set[str], notes: Mapping[str, list[list[str]]]) -> Tree:
    for path, target, *_ in notes.get("link:", ()):
        entries[path] = target
    for path, *_ in notes.get("folder:", ()):
        entries.setdefault(path, None)
    for path, digits, *_ in notes.get("bytes:", ()):
        try:
            entries[path] = bytes.fromhex(digits)
        except ValueError:
            continue
    listed = {path for path, *_ in notes.get("listed:", ()) if path.startswith("/")}
    for path in listed:
        entries.setdefault(path, None)
    links = _links(entries)
    tree = Tree(_canonical(entries), frozenset(absent))
    tree.noted = Noted(
        {path: (reason, how) for path, reason, how, *_ in notes.get("refused:", ())},
        {},
        {path: told == "1" for path, told, *_ in notes.get("usable:", ())},
        frozenset(_at_home(path, links) for path in listed),
        "live" in notes["recorded"][0][0],
        "root" in notes["recorded"][0][0],
    )
    return tree


def _finite(text: str, default: float) -> float:
    try:
        value = float(text)
    except ValueError:
        return default
    return value if math.isfinite(value) else default


def _canonical(entries: Mapping[str, bytes | str | None]) -> dict[str, bytes | str | None]:
    # A capture may name one file by its link path or by its real one: move all below the real folders.
    links = _links(entries)
    result: dict[str, bytes | str | None] = dict(links)
    folders: dict[str, str] = {}
    for path, entry in entries.items():
        if not isinstance(entry, str):
            parent, _, name = path.rpartition("/")
            if parent not in folders:
                folders[parent] = _followed(parent, links)
            result[f"{folders[parent]}/{name}"] = entry
    return result


def _links(entries: Mapping[str, bytes | str | None]) -> dict[str, str]:
    links: dict[str, str] = {}
    for path in sorted((path for path, entry in entries.items() if isinstance(entry, str)), key=_depth):
        links[_at_home(path, links)] = str(entries[path])
    return links


def _at_home(path: str, links: Mapping[str, str]) -> str:
    parent, _, name = path.rpartition("/")
    return f"{_followed(parent, links)}/{name}"


def _depth(path: str) -> int:
    return path.count("/")


def _followed(path: str, links: Mapping[str, str]) -> str:
    # The path with the links in it followed; one that goes in a circle is left as it is after so many.
    done, followed = "", 0
    left = path.split("/")[::-1]
    while left:
        part = left.pop()
        step = f"{done}/{part}"
        if part == "..":
            done = done.rpartition("/")[0]
        elif step in links and followed < _LINKS:
            followed += 1
            left += links[step].split("/")[::-1]
            done = "" if links[step].startswith("/") else done
        elif part not in ("", "."):
            done = step
    return done
