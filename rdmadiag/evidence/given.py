"""What `--from` names: files, folders, archives and pipes, as texts and captured trees; nothing is written anywhere."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from rdmadiag.errors import BadFile
from rdmadiag.host import FolderTree, Tree, parse_tree

FILES = 10_000
"""Most files taken from one folder or archive."""
MEMBER_BYTES = 64 << 20
"""Longest member of an archive [bytes]."""
ARCHIVE_BYTES = 512 << 20
"""Most bytes unpacked from one archive."""
_TREE_FOLDERS = ("sys", "proc", "dev")


class GivenText(NamedTuple):
    """A text to be read once. `group` is the folder that it lies in: its texts are taken to be about one node."""

    node: str | None
    path: str
    group: str
    stream: IO[bytes]


class GivenTree(NamedTuple):
    """A captured tree, with an earlier sample of its counters where there is one."""

    node: str | None
    path: str
    group: str
    tree: Tree | FolderTree
    seconds: float
    before: Tree | None
    before_seconds: float


class Refused(NamedTuple):
    """A part of what was given that cannot be read, and why."""

    path: str
    reason: str
    kind: str = "unreadable"


Part = GivenText | GivenTree | Refused


def expand(spec: str) -> Iterator[Part]:
    """Yield the parts of one `--from` value: PATH, NAME=PATH, or `-`. Raises BadFile when it is nothing that can be read."""
    node, path = _split(spec)
    if path == "-":
        yield GivenText(node, "-", "-", sys.stdin.buffer)
        return
    try:
        status = os.stat(path)
    except OSError as error:
        raise BadFile(path, "", f"cannot be read: {error.strerror}; wanted a file, folder, archive or -") from error
    if stat.S_ISDIR(status.st_mode):
        yield from _folder(node, path)
    elif stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode):
        yield from _file(node, path, os.path.dirname(path) or ".", alone=True)
    else:
        raise BadFile(path, "", "a device or socket; wanted a file, folder, archive or -")


def _split(spec: str) -> tuple[str | None, str]:
    name, equals, path = spec.partition("=")
    if equals and name and "/" not in name and not os.path.exists(spec):
        return name, path
    return None, spec


def _file(node: str | None, path: str, group: str, alone: bool) -> Iterator[Part]:
    try:
        file = open(path, "rb")  # noqa: SIM115  # the text's reader closes it
        head = file.peek(512)[:512]
    except OSError as error:
        if alone:
            raise BadFile(
                path, "", f"cannot be read: {error.strerror}; wanted a text, a folder or an archive"
            ) from error
        yield Refused(path, error.strerror or str(error))
        return
    if head.startswith(b"PK\x03\x04"):
        yield from _zip(node, path, file)
    elif head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")):
        yield from _compressed(node, path, group, file, head)
    elif head[257:262] == b"ustar":
        yield from _tar(node, path, tarfile.open(fileobj=file, mode="r|"))
    elif head.startswith(b"\x28\xb5\x2f\xfd"):
        yield Refused(path, "zstd-compressed: unpack it first (zstd -d)")
    elif os.path.basename(path) == "tree.txt":
        yield _tree(node, path, group, file.read(MEMBER_BYTES), None)
    else:
        yield GivenText(node, path, group, file)


def _tree(node: str | None, path: str, group: str, content: bytes, before: bytes | None) -> GivenTree:
    tree, seconds = parse_tree(content.decode(errors="replace"))
    earlier, earlier_seconds = parse_tree(before.decode(errors="replace")) if before is not None else (None, 0.0)
    return GivenTree(node, path, group, tree, seconds, earlier, earlier_seconds)


def _folder(node: str | None, folder: str) -> Iterator[Part]:
    count = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        inside = [name for name in _TREE_FOLDERS if name in folders]
        if "sys" in inside or "proc" in inside:
            yield GivenTree(node, place, place, FolderTree(place), 0.0, None, 0.0)
            folders[:] = [name for name in folders if name not in inside]
        for name in sorted(names):
            path = os.path.join(place, name)
            count += 1
            if count > FILES:
                yield Refused(folder, f"holds more than {FILES} files; the rest was not read", "truncated")
                return
            if name in ("tree.before.txt", "origin.md", "expected.json", "expect.json"):
                continue
            if name == "tree.txt":
                before = os.path.join(place, "tree.before.txt")
                yield _tree(node, path, place, _content(path), _content(before) if os.path.isfile(before) else None)
            elif _outside(path, folder) or not os.path.isfile(path):
                yield Refused(path, "a link out of the folder, or not a file", "unreadable")
            else:
                yield from _file(node, path, place, alone=False)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(MEMBER_BYTES)


def _outside(path: str, folder: str) -> bool:
    return os.path.islink(path) and not os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)


def _compressed(node: str | None, path: str, group: str, file: IO[bytes], head: bytes) -> Iterator[Part]:
    opener: Any = gzip.open if head[:2] == b"\x1f\x8b" else bz2.open if head[:3] == b"BZh" else lzma.open
    stream = io.BufferedReader(opener(file, "rb"))
    try:
        inner = stream.peek(512)[:512]
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        yield Refused(path, f"damaged compressed file: {error}")
        return
    if inner[257:262] == b"ustar":
        yield from _tar(node, path, tarfile.open(fileobj=stream, mode="r|"))
    else:
        yield GivenText(node, path, group, stream)


class _Collector:
    """Members of an archive, sorted into texts and one captured tree a folder, within the limits."""

    def __init__(self, node: str | None, path: str) -> None:
        self.node, self.path = node, path
        self.size = self.count = 0
        self.refused: list[Refused] = []
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}

    def name(self, name: str) -> str | None:
        """Return a member's clean name; an absolute one, or one that climbs out, is refused."""
        if name.startswith("/") or ".." in name.split("/"):
            self.refused.append(Refused(f"{self.path}:{name}", "a path out of the archive was not taken"))
            return None
        return os.path.normpath(name)

    def room(self, name: str, size: int) -> bool:
        self.count += 1
        self.size += size
        if size > MEMBER_BYTES:
            self.refused.append(
                Refused(f"{self.path}:{name}", f"larger than {MEMBER_BYTES >> 20} MiB; give it by itself", "truncated")
            )
            self.size -= size
            return False
        return self.size <= ARCHIVE_BYTES and self.count <= FILES

    def full(self) -> bool:
        if self.size > ARCHIVE_BYTES or self.count > FILES:
            self.refused.append(
                Refused(
                    self.path,
                    f"unpacks to more than {ARCHIVE_BYTES >> 20} MiB or {FILES} files; the rest was not read",
                    "truncated",
                )
            )
            return True
        return False

    def parts(self) -> Iterator[Part]:
        trees: dict[str, dict[str, bytes | str | None]] = {}
        members: dict[str, bytes | str] = {**self.files, **self.links}
        for name, content in members.items():
            elements = name.split("/")
            at = next((n for n, element in enumerate(elements[:4]) if element in _TREE_FOLDERS), None)
            base = os.path.basename(name)
            group = f"{self.path}:{os.path.dirname(name)}"
            if at is not None:
                trees.setdefault("/".join(elements[:at]), {})["/" + "/".join(elements[at:])] = content
            elif isinstance(content, str) or base in ("tree.before.txt", "origin.md"):
                continue
            elif base == "tree.txt":
                yield _tree(
                    self.node,
                    f"{self.path}:{name}",
                    group,
                    content,
                    self.files.get(name[: -len("tree.txt")] + "tree.before.txt"),
                )
            else:
                yield GivenText(self.node, f"{self.path}:{name}", group, io.BytesIO(content))
        for folder, entries in trees.items():
            yield GivenTree(self.node, f"{self.path}:{folder}", f"{self.path}:{folder}", Tree(entries), 0.0, None, 0.0)
        yield from self.refused


def _tar(node: str | None, path: str, archive: tarfile.TarFile) -> Iterator[Part]:
    found = _Collector(node, path)
    try:
        for member in archive:
            name = found.name(member.name)
            if name is None:
                continue
            if member.issym():
                found.links[name] = member.linkname
            elif member.isfile():
                if found.room(name, member.size):
                    extracted = archive.extractfile(member)
                    found.files[name] = extracted.read(MEMBER_BYTES) if extracted else b""
                elif found.full():
                    break
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        found.refused.append(Refused(path, f"damaged archive: {error}", "truncated"))
    yield from found.parts()


def _zip(node: str | None, path: str, file: IO[bytes]) -> Iterator[Part]:
    found = _Collector(node, path)
    try:
        archive = zipfile.ZipFile(file)
        for member in archive.infolist():
            name = found.name(member.filename)
            if name is None or member.is_dir():
                continue
            with archive.open(member) as stream:
                content = stream.read(MEMBER_BYTES + 1)
            if found.room(name, len(content)):
                found.files[name] = content
            elif found.full():
                break
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, RuntimeError, NotImplementedError, ValueError) as error:
        found.refused.append(Refused(path, f"damaged archive: {error}", "truncated"))
    yield from found.parts()
