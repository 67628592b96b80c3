"""What `--from` names: files, folders, archives and pipes, as texts and captured trees; nothing is written anywhere."""

from __future__ import annotations

import functools
import io
import math
import os
import posixpath
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rdmadiag.errors import BadFile
from rdmadiag.evidence import archive, bundle, foreign
from rdmadiag.host.tree import FolderTree, Noted, Tree, parse_tree
from rdmadiag.patterns import late

FILES = 10_000
"""Most files taken from one folder or archive."""
MEMBER_BYTES = 64 << 20
"""Longest member of an archive [bytes]."""
TREE_BYTES = 16 << 20
"""Longest captured tree in one text [bytes]; the rest is not read."""
ARCHIVE_BYTES = 256 << 20
"""Most bytes unpacked from one archive."""
_TREE_FOLDERS = ("sys", "proc", "dev")
_PASSED_OVER = ("tree.before.txt", "origin.md", "expected.json", "expect.json")


class GivenText(NamedTuple):
    """A text to be read once. `group` is the folder that it lies in: its texts are taken to be about one node."""

    node: str | None
    path: str
    group: str
    stream: archive.Stream
    command: str = ""
    """The command that printed it, where the archive tells."""


class GivenCapture(NamedTuple):
    """A packet capture to be read once."""

    node: str | None
    path: str
    group: str
    stream: archive.Stream


class GivenTree(NamedTuple):
    """A captured tree, with an earlier sample of its counters where there is one."""

    node: str | None
    path: str
    group: str
    tree: Tree | FolderTree
    seconds: float = 0.0
    before: Tree | None = None
    before_seconds: float = 0.0
    manifest: bundle.Manifest | None = None
    """Of a bundle, which answers as the node did."""


class TreeText(NamedTuple):
    """A captured tree in one text, with a way to what lies beside it; `parsed` when its turn comes."""

    node: str | None
    path: str
    group: str
    content: bytes
    beside: Callable[[str], bytes | str | None]

    def parsed(self) -> GivenTree:
        """Return the tree, with the one of an earlier sample of its counters."""
        tree, seconds = parse_tree(self.content[:TREE_BYTES].decode(errors="replace"))
        tree.whole = tree.whole and len(self.content) < TREE_BYTES
        earlier, earlier_seconds = None, 0.0
        before = self.beside("tree.before.txt")
        if isinstance(before, bytes):
            earlier, earlier_seconds = parse_tree(before[:TREE_BYTES].decode(errors="replace"))
        told = bundle.manifest(self.beside(bundle.MANIFEST)) if tree.noted else None
        if told and tree.noted:
            printed = {command: self.beside(f"{bundle.COMMANDS}/{name}") for command, name in told.commands.items()}
            texts = {
                command: text.decode(errors="replace") for command, text in printed.items() if isinstance(text, bytes)
            }
            tree.noted = tree.noted._replace(commands=texts)
        return GivenTree(self.node, self.path, self.group, tree, seconds, earlier, earlier_seconds, told)


class Refused(NamedTuple):
    """A part of what was given that cannot be read, and why."""

    path: str
    reason: str
    kind: str = "unreadable"


Part = GivenText | GivenTree | TreeText | GivenCapture | Refused


def expand(spec: str, deadline: float = math.inf) -> Iterator[Part]:
    """Yield the parts of one `--from` value: PATH, NAME=PATH, or `-`, until `deadline` [s, monotonic].

    Raises BadFile when it is nothing that can be read.
    """
    node, path = split(spec)
    held: Refused | None = None
    found = False
    for part in _folder(node, path, deadline) if os.path.isdir(path) else _one(node, path, deadline):
        if isinstance(part, Refused) and part.path == path and not found:
            held = part  # that may be all there is
            continue
        if held:
            yield _shown(held)
        held, found = None, True
        yield _shown(part)
    if held or not found:
        raise BadFile(
            shown(path), "", held.reason if held else "an empty folder or archive; wanted texts or a captured tree"
        )


def shown(path: str) -> str:
    """Return a path as text: a file's name may be bytes that are none."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


def _shown(part: Part) -> Part:
    if isinstance(part, Refused):
        return part._replace(path=shown(part.path))
    return part._replace(node=part.node and shown(part.node), path=shown(part.path), group=shown(part.group))


def split(spec: str) -> tuple[str | None, str]:
    """Return the node's name, if one is given, and the path of a `--from` value."""
    name, equals, path = spec.partition("=")
    if equals and name and "/" not in name and not os.path.exists(spec):
        return name, path
    return None, spec


def _one(node: str | None, path: str, deadline: float) -> Iterator[Part]:
    if path == "-":
        yield from _opened(node, "-", "-", _standard_input(deadline), deadline)
        return
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such name can be"
        raise BadFile(shown(path), "", f"cannot be read: {reason}; wanted a file, folder, archive or -") from error
    if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
        raise BadFile(shown(path), "", "a device or socket; wanted a file, folder, archive or -")
    yield from _file(node, path, os.path.dirname(path) or ".", deadline)


def _standard_input(deadline: float) -> archive.Incoming | archive.Bytes:
    try:
        return archive.Incoming(sys.stdin.fileno(), deadline, close=False)
    except (OSError, ValueError, AttributeError):  # replaced by something without a descriptor, or closed
        return archive.Bytes(sys.stdin.buffer.read(MEMBER_BYTES) if sys.stdin else b"")


def _file(node: str | None, path: str, group: str, deadline: float) -> Iterator[Part]:
    try:  # O_NONBLOCK: a pipe without a writer is waited for when it is read, and not for ever
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        yield Refused(path, f"cannot be read: {error.strerror}; wanted a text, a folder or an archive")
        return
    yield from _opened(node, path, group, archive.Incoming(descriptor, deadline), deadline)


def _opened(
    node: str | None,
    path: str,
    group: str,
    stream: archive.Incoming | archive.Bytes,
    deadline: float,
    inside: bool = False,
) -> Iterator[Part]:
    # Looks at the first bytes: an archive, a compressed file, a captured tree, or a text; closes all but a text's stream.
    closing: archive.Stream | None = stream
    try:
        head = stream.head()
        kind = archive.magic(head)
        inner: archive.Incoming | archive.Bytes | archive.Unpacked = stream
        if kind in archive.PACKED:
            inner = archive.Unpacked(stream, kind, deadline)
            head = inner.head()
            kind = archive.magic(head)
        if inside and kind in ("tar", "zip"):
            yield Refused(path, "an archive in an archive; unpack it first")
        elif kind == "tar":
            yield from _members(node, path, archive.tar(inner, MEMBER_BYTES))
        elif kind == "zip" and inner is stream:
            yield from _members(node, path, archive.zipped(_seekable(stream), MEMBER_BYTES, deadline))
        elif kind == "capture":
            closing = None
            yield GivenCapture(node, path, group, inner)
        elif kind:
            yield Refused(path, f"{kind}: not read as it is; unpack it first (it is packed twice)")
        elif os.path.basename(path) == "tree.txt" or head.startswith(b"# seconds "):
            folder = os.path.dirname(path) if os.path.basename(path) == "tree.txt" else None
            yield TreeText(node, path, group, inner.read(TREE_BYTES + 1), functools.partial(_beside, folder))
        else:
            closing = None
            yield GivenText(node, path, group, inner)
    except (OSError, archive.Damaged) as error:
        yield Refused(path, getattr(error, "strerror", None) or str(error))
    finally:
        if closing is not None:
            closing.close()


def _seekable(stream: archive.Incoming | archive.Bytes) -> io.BytesIO | io.FileIO:
    if isinstance(stream, archive.Incoming) and (file := stream.file()):
        return file
    content = stream.read(MEMBER_BYTES + 1)
    if len(content) > MEMBER_BYTES:
        raise archive.Damaged(f"a zip archive longer than {MEMBER_BYTES >> 20} MiB through a pipe; give its path")
    return io.BytesIO(content)


def _beside(folder: str | None, name: str) -> bytes | None:
    # A file beside tree.txt: tree.before.txt, an earlier sample of the counters, or a part of a bundle.
    if folder is None:
        return None
    try:
        path = os.path.join(folder, name)
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            return file.read(MEMBER_BYTES)
    except OSError:
        return None


def _member(members: Mapping[str, bytes | str], folder: str, name: str) -> bytes | str | None:
    # What an archive holds beside a captured tree.
    return members.get(posixpath.join(folder, name))


def _folder(node: str | None, folder: str, deadline: float) -> Iterator[Part]:
    count = 0
    refused: list[Refused] = []
    others: list[_Foreign] = []
    for place, folders, names in os.walk(folder, onerror=lambda error: refused.append(_unreadable(error))):
        folders.sort()
        inside = [name for name in _TREE_FOLDERS if name in folders]
        for kind in (foreign.SOS, foreign.SYSINFO):
            if kind in folders:
                name = os.path.basename(os.path.abspath(place))
                others.insert(
                    0, _Foreign(place, kind, foreign.node(name, kind, functools.partial(_below, place, name)))
                )
        of = _foreign_of(f"{place}/", others)
        whose = node or (of[0].node if of else None)
        if "sys" in inside or "proc" in inside:
            tree = FolderTree(place)
            tree.noted = Noted(live=False) if of else None
            yield GivenTree(whose, place, place, tree)
            folders[:] = [name for name in folders if name not in inside]
        of_bundle = bundle.manifest(_beside(place, bundle.MANIFEST)) if bundle.MANIFEST in names else None
        if of_bundle:
            folders[:] = [name for name in folders if name != bundle.COMMANDS]
            names = [name for name in names if name != bundle.MANIFEST]
        for name in sorted(names):
            path = os.path.join(place, name)
            below = foreign.inside(path, of[0].top) if of else None
            if of and (below is None or os.path.islink(path) or not foreign.wanted(below, of[0].kind)):
                continue
            count += 1
            if count > FILES or time.monotonic() > deadline:
                why = f"holds more than {FILES} files" if count > FILES else "was not read to its end in time"
                yield Refused(folder, f"{why}; the rest was not read", "truncated")
                return
            if name in _PASSED_OVER:
                continue
            if not os.path.isfile(path) or _outside(path, folder):
                yield Refused(path, "a link out of the folder, or not a file")
            else:
                command = foreign.command(below) if below else ""
                yield from _with_command(_file(whose, path, place, deadline), command)
    yield from refused


def _below(place: str, top: str, name: str) -> bytes | None:
    return _beside(place, name[len(top) + 1 :])


def _unreadable(error: OSError) -> Refused:
    return Refused(str(error.filename), f"cannot be read: {error.strerror}")


def _outside(path: str, folder: str) -> bool:
    return os.path.islink(path) and not os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)


def _members(node: str | None, path: str, members: Iterator[archive.Member]) -> Iterator[Part]:
    # All are taken before the first is read: files of one captured tree need not follow each other.
    taken: dict[str, bytes | str] = {}
    refused: dict[str, list[str]] = {}
    size = count = 0
    problem = ""
    try:
        for member in members:
            if _useless(member.name):
                continue
            count += 1
            size += member.size
            if size > ARCHIVE_BYTES or count > FILES:
                problem = f"unpacks to more than {ARCHIVE_BYTES >> 20} MiB or {FILES} files"
                break
            if member.name.startswith("/") or ".." in member.name.split("/"):
                refused.setdefault("a path out of the archive", []).append(member.name)
            elif member.content is None:
                refused.setdefault(f"longer than {MEMBER_BYTES >> 20} MiB: give it by itself", []).append(member.name)
            else:
                taken[posixpath.normpath(member.name)] = member.content
    except (OSError, archive.Damaged) as error:
        problem = str(error)
    yield from _sorted(node, path, taken)
    for reason, names in refused.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        yield Refused(f"{path}:{names[0]}{more}", f"{reason}; it was not taken", "truncated")
    if problem:
        partly = f"{problem}; the rest was not read"
        yield Refused(path, partly, "truncated") if taken else Refused(path, problem)


_SOS_TOP = late(r"(?:\./)?(sosreport-[^/]+)/(.+)")


def _useless(name: str) -> bool:
    # A sosreport has more files than are taken of an archive.
    match = _SOS_TOP.match(name)
    return match is not None and not foreign.wanted(match[2], foreign.SOS)


class _Foreign(NamedTuple):
    """An archive that another program made, or a folder of it."""

    top: str
    kind: str
    node: str | None


def _foreign_of(name: str, found: Sequence[_Foreign]) -> tuple[_Foreign, str] | None:
    for one in found:
        if (below := foreign.inside(name, one.top)) is not None:
            return one, below
    return None


def _made_by_others(members: dict[str, bytes | str]) -> list[_Foreign]:
    tops = foreign.tops(members)
    return [_Foreign(top, kind, foreign.node(top, kind, members.get)) for top, kind in tops.items()]


def _sorted(node: str | None, path: str, members: dict[str, bytes | str]) -> Iterator[Part]:
    others = _made_by_others(members)
    trees: dict[str | None, dict[str, bytes | str | None]] = {_base(name, ("sys", "proc")): {} for name in members}
    trees.pop(None, None)
    bundles = [
        posixpath.dirname(name)
        for name, content in members.items()
        if posixpath.basename(name) == bundle.MANIFEST and bundle.manifest(content)
    ]
    parts = {posixpath.join(folder, name) for folder in bundles for name in (bundle.MANIFEST, bundle.COMMANDS)}
    for name, content in members.items():
        if name in parts or posixpath.dirname(name) in parts:
            continue  # read with the bundle's tree
        whose, of = node, _foreign_of(name, others)
        if of:
            whose = node or of[0].node
            if not foreign.wanted(of[1], of[0].kind):
                continue
        base = _base(name, _TREE_FOLDERS)
        if base in trees:
            trees[base][name[len(base or "") :] if base else f"/{name}"] = _unpadded(content)
            continue
        folder, file = posixpath.split(name)
        place, group = f"{path}:{name}", f"{path}:{folder}".rstrip(":")
        if isinstance(content, str) or file in _PASSED_OVER:
            continue
        if file == "tree.txt":
            yield TreeText(node, place, group, content, functools.partial(_member, members, folder))
        else:
            command = foreign.command(of[1]) if of else ""
            yield from _with_command(
                _opened(whose, place, group, archive.Bytes(content), math.inf, inside=True), command
            )
    for base, entries in trees.items():
        place = f"{path}:{base}".rstrip(":")
        tree = Tree(entries)
        mine = next((one for one in others if one.top == (base or "")), None)
        if mine:  # parts of folders only, so nothing that is missing is absent
            tree.noted = Noted(live=False)
        yield GivenTree(node or (mine.node if mine else None), place, place, tree)


def _with_command(parts: Iterator[Part], command: str) -> Iterator[Part]:
    for part in parts:
        yield part._replace(command=command) if command and isinstance(part, GivenText) else part


def _base(name: str, folders: Sequence[str]) -> str | None:
    # The folder that a captured tree lies in, when this is a file of one: a/b for a/b/sys/class/x.
    elements = name.split("/")
    at = next((n for n, element in enumerate(elements[:4]) if element in folders), None)
    return None if at is None or len(elements) == at + 1 else "/".join(elements[:at])


def _unpadded(content: bytes | str) -> bytes | str:
    # sysfs says that every file is 4096 bytes long, and tar pads what it reads with zeros to that.
    if isinstance(content, bytes) and content.endswith(b"\0") and b"\0" not in (text := content.rstrip(b"\0")):
        return text
    return content
