"""Bytes of files, pipes and archives, read in order: bounded in memory and time whatever they hold; nothing is written.

The standard library's readers of tar keep what a header asks them to keep, and so can be made to take all memory;
these readers keep at most what their caller takes. Each `read` raises TimeoutError when the run's time is up.
"""

from __future__ import annotations

import io
import math
import os
import select
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

HEAD_BYTES = 512
"""As much as tells what a file is [bytes]."""
EXTENDED_BYTES = 1 << 20
"""Longest name, or block of extended fields, of a tar member [bytes]."""
XZ_BYTES = 128 << 20
"""Memory that unpacking xz may take [bytes]."""
ZIP_DIRECTORY_BYTES = 8 << 20
"""Longest directory of a zip archive [bytes]."""
_PIECE = 1 << 20


class Damaged(Exception):
    """An archive or compressed file that does not go on as its kind must."""


class Stream(Protocol):
    """What all readers here take and are: `read` returns fewer bytes than asked only at the end."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes. Raises OSError, Damaged, TimeoutError."""

    def close(self) -> None:
        """Give back what is held."""


_LOOK_SECONDS = 0.25
"""A pipe that says nothing is waited for in turns, so that `end` is seen [s]."""


class Incoming:
    """A file or pipe, read in order; one that nobody writes to is waited for until `deadline` [s, monotonic]."""

    def __init__(self, descriptor: int, deadline: float, *, close: bool = True) -> None:
        self._descriptor, self._deadline, self._close = descriptor, deadline, close
        self._ahead = b""
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLIN)
        self._end = math.inf
        self._most = max(self.length(), _PIECE)  # a file at once; a pipe never has more

    def head(self) -> bytes:
        """Return the first bytes, and leave them to be read."""
        if self.length():
            return os.pread(self._descriptor, HEAD_BYTES, os.lseek(self._descriptor, 0, os.SEEK_CUR))
        if not self._ahead:
            self._ahead = self.read(HEAD_BYTES)
        return self._ahead

    def length(self) -> int:
        """Return how long a regular file is [bytes]; 0 for a pipe."""
        status = os.fstat(self._descriptor)
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def read(self, size: int, /) -> bytes:
        """See Stream. What came before time was up is returned; the next call raises TimeoutError."""
        parts = [self._ahead[:size]] if self._ahead else []
        self._ahead = self._ahead[size:]
        size -= sum(map(len, parts))
        while size > 0:
            try:
                part = self._some(size)
            except OSError:
                if parts:
                    break
                raise
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def end(self, seconds: float) -> None:
        """Let it end with what comes within so many seconds, for a pipe that is read live; may be called by a signal handler."""
        self._end = time.monotonic() + seconds

    def _some(self, size: int) -> bytes:
        while (now := time.monotonic()) < self._end:
            wait = self._deadline - now
            if wait <= 0:
                raise TimeoutError("it was not read to its end in time")
            if self._ready.poll(min(wait, _LOOK_SECONDS) * 1000):
                return os.read(self._descriptor, min(size, self._most))
        return b""

    def file(self) -> io.FileIO | None:
        """Return it as a file to seek in; None for a pipe."""
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            return None
        return io.FileIO(self._descriptor, closefd=False)

    def close(self) -> None:
        """Close the descriptor, unless it is somebody else's."""
        if self._close:
            self._close = False
            os.close(self._descriptor)


class Bytes(io.BytesIO):
    """Bytes in memory, as a stream."""

    def head(self) -> bytes:
        """Return the first bytes, and leave them to be read."""
        return bytes(self.getbuffer()[:HEAD_BYTES])


def magic(head: bytes) -> str:
    """Return what a file is by its first bytes: 'gzip', 'bzip2', 'xz', 'zstd', 'zip', 'tar', 'capture', or '' for none of them."""
    for start, kind in (
        (b"\xd4\xc3\xb2\xa1", "capture"),
        (b"\xa1\xb2\xc3\xd4", "capture"),
        (b"\x4d\x3c\xb2\xa1", "capture"),
        (b"\xa1\xb2\x3c\x4d", "capture"),
        (b"\x1f\x8b", "gzip"),
        (b"BZh", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"PK\3\4", "zip"),
        (b"PK\5\6", "zip"),
    ):
        if head.startswith(start):
            return kind
    if head.startswith(b"\n\r\r\n") and head[8:12] in (b"\x1a\x2b\x3c\x4d", b"\x4d\x3c\x2b\x1a"):
        return "capture"
    return "tar" if head[257:262] == b"ustar" else ""


def _gzip() -> Any:
    return zlib.decompressobj(31)


def _bzip2() -> Any:
    import bz2

    return bz2.BZ2Decompressor()


def _xz() -> Any:
    import lzma

    return lzma.LZMADecompressor(memlimit=XZ_BYTES)


class _Zstd:
    """A zstd frame through the package `zstandard`, in the shape of the standard library's unpackers."""

    def __init__(self) -> None:
        try:
            import zstandard
        except ImportError:
            raise Damaged(
                "zstd: the package zstandard is not here; pip install 'rdmadiag[pcap]', or zstd -d first"
            ) from None
        self._machine = zstandard.ZstdDecompressor(max_window_size=XZ_BYTES).decompressobj()
        self._held = b""
        self.unconsumed_tail = b""

    @property
    def eof(self) -> bool:
        return bool(self._machine.eof) and not self._held

    @property
    def unused_data(self) -> bytes:
        return bytes(self._machine.unused_data) + self.unconsumed_tail

    @property
    def needs_input(self) -> bool:
        return not self._held

    def decompress(self, data: bytes, size: int) -> bytes:
        # Fed by little, so that a small input cannot become much at once; what is beyond `size` is held for the next call.
        self.unconsumed_tail = data
        while not self._held and self.unconsumed_tail and not self._machine.eof:
            part, self.unconsumed_tail = self.unconsumed_tail[:_ZSTD_PIECE], self.unconsumed_tail[_ZSTD_PIECE:]
            self._held = self._machine.decompress(part)
        out, self._held = self._held[:size], self._held[size:]
        return out


_ZSTD_PIECE = 512
"""A block of zstd can be 32,768 times as long unpacked [bytes]."""
_UNPACKERS: dict[str, Callable[[], Any]] = {"gzip": _gzip, "bzip2": _bzip2, "xz": _xz, "zstd": _Zstd}
PACKED = frozenset(_UNPACKERS)
"""Kinds of `magic` that Unpacked takes."""


class Unpacked:
    """The unpacked bytes of a compressed stream of a kind in PACKED."""

    def __init__(self, packed: Stream, kind: str, deadline: float) -> None:
        self._packed, self._kind, self._deadline = packed, kind, deadline
        self._machine = _UNPACKERS[kind]()
        self._rest = self._ahead = b""
        self._end = False

    def head(self) -> bytes:
        """Return the first bytes, and leave them to be read."""
        self._ahead = self.read(HEAD_BYTES)
        return self._ahead

    def read(self, size: int, /) -> bytes:
        """See Stream; what comes before the damage is returned first."""
        parts = [self._ahead[:size]]
        self._ahead = self._ahead[size:]
        size -= len(parts[0])
        while size > 0 and not self._end:
            try:
                part = self._some(size)
            except (Damaged, OSError):
                if any(parts):
                    break
                raise
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _some(self, size: int) -> bytes:
        if time.monotonic() > self._deadline:
            raise TimeoutError("it was not unpacked to its end in time")
        if self._machine.eof:  # another stream may follow, as `cat a.gz b.gz` makes; anything else is left
            self._rest = (self._machine.unused_data or self._packed.read(_PIECE)).lstrip(b"\0")
            self._end = magic(self._rest) != self._kind
            if self._end:
                return b""
            self._machine = _UNPACKERS[self._kind]()
        ended = False
        if not self._rest and getattr(self._machine, "needs_input", True):
            self._rest = self._packed.read(1 << 16)
            ended = not self._rest
        try:
            part: bytes = self._machine.decompress(self._rest, min(size, _PIECE))
        except Exception as error:  # zlib.error, OSError (bz2) or lzma.LZMAError, none of it imported here
            raise Damaged(f"damaged {self._kind} file: {error}") from error
        self._rest = getattr(self._machine, "unconsumed_tail", b"")
        if ended and not part and not self._machine.eof:
            raise Damaged(f"{self._kind} file that is cut off")
        return part

    def close(self) -> None:
        """Close what is unpacked."""
        self._packed.close()


class Member(NamedTuple):
    """A file of an archive. `content`: bytes, str (a link's target), or None when it is longer than was wanted."""

    name: str
    content: bytes | str | None
    size: int


def tar(stream: Stream, member_bytes: int) -> Iterator[Member]:
    """Yield the files and links of a tar archive. Raises Damaged, OSError, TimeoutError."""
    extended: dict[str, str] = {}
    files: dict[str, bytes] = {}
    while (block := stream.read(512)) and block.strip(b"\0"):
        name, size, kind, link = _header(block)
        if kind in "LKx":
            extended.update(_extended(_exactly(stream, size, EXTENDED_BYTES), kind))
            continue
        name, link = extended.get("path", name), extended.get("linkpath", link)
        size = _whole(extended.get("size", str(size)))
        extended = {}
        if kind == "S":
            raise Damaged("tar archive with a sparse file, which is not read")
        if kind in "07\0" and not name.endswith("/"):
            content = _exactly(stream, size, member_bytes) if size <= member_bytes else None
            if content is None:
                _pass_over(stream, size)
            else:
                files[name] = content
            yield Member(name, content, size)
        elif kind == "1":
            yield Member(name, files.get(link), 0)
        elif kind == "2":
            yield Member(name, link, 0)
        elif kind not in "3456":  # devices, folders and pipes have nothing behind their header
            _pass_over(stream, size)


def _header(block: bytes) -> tuple[str, int, str, str]:
    # Fields of 512 bytes: name 100, mode 8, uid 8, gid 8, size 12, mtime 12, checksum 8, kind 1, link 100, magic 8, ..., prefix 155.
    if len(block) < 512:
        raise Damaged("tar archive that is cut off")
    if _octal(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * 32:
        raise Damaged("damaged tar archive: a header's checksum is wrong")
    name, link = _text(block[:100]), _text(block[157:257])
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        name = f"{prefix}/{name}"
    return name, _octal(block[124:136]), chr(block[156]), link


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")


def _octal(field: bytes) -> int:
    if field[0] & 0x80:  # GNU: a number that eight octal digits do not hold
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        raise Damaged("damaged tar archive: a header's number is none") from None


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise Damaged("damaged tar archive: a header's size is none")
    return int(text)


def _extended(block: bytes, kind: str) -> dict[str, str]:
    if kind != "x":
        return {"path" if kind == "L" else "linkpath": _text(block)}
    found: dict[str, str] = {}
    while block:  # "length key=value\n", the length counting all of it
        digits, _, _ = block[:20].partition(b" ")
        length = _whole(digits.decode(errors="replace"))
        if length < len(digits) + 3:
            raise Damaged("damaged tar archive: an extended field has no length")
        key, _, value = block[len(digits) + 1 : length - 1].partition(b"=")
        found[key.decode(errors="replace")] = value.decode(errors="replace")
        block = block[length:]
    return found


def _exactly(stream: Stream, size: int, limit: int) -> bytes:
    if size > limit:
        raise Damaged("tar archive with a name that is too long")
    content = stream.read(size + -size % 512)
    if len(content) < size:
        raise Damaged("tar archive that is cut off")
    return content[:size]


def _pass_over(stream: Stream, size: int) -> None:
    left = size + -size % 512
    while left > 0:
        part = stream.read(min(left, _PIECE))
        if not part:
            raise Damaged("tar archive that is cut off")
        left -= len(part)


def zipped(file: io.BytesIO | io.FileIO, member_bytes: int, deadline: float) -> Iterator[Member]:
    """Yield the files and links of a zip archive. Raises Damaged, OSError, TimeoutError."""
    import zipfile

    _check_directory(file)
    try:
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                if entry.is_dir():
                    continue
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise Damaged("zip archive packed in a way that is not read; pack it with deflate")
                content, size = _inflate(archive, entry, member_bytes, deadline)
                link = content is not None and (entry.external_attr >> 16) & 0o170000 == 0o120000
                yield Member(entry.filename, content.decode(errors="replace") if content and link else content, size)
    except (Damaged, OSError):
        raise
    except Exception as error:  # the module lets IndexError, struct.error and others out of a damaged directory
        raise Damaged(f"damaged zip archive: {error}") from error


def _check_directory(file: io.BytesIO | io.FileIO) -> None:
    # The module keeps an object an entry: the directory's size is looked at first, in its end mark, before at most 64 KiB of comment.
    length = file.seek(0, io.SEEK_END)
    file.seek(max(0, length - 22 - 65536))
    tail = file.read(22 + 65536)
    mark = tail.rfind(b"PK\5\6")
    if mark < 0 or len(tail) < mark + 22:
        raise Damaged("zip archive that is cut off")
    if b"PK\6\7" in tail or int.from_bytes(tail[mark + 12 : mark + 16], "little") > ZIP_DIRECTORY_BYTES:
        raise Damaged("zip archive with too many files")


def _inflate(archive: Any, entry: Any, member_bytes: int, deadline: float) -> tuple[bytes | None, int]:
    parts, size = [], 0
    with archive.open(entry) as stream:
        while size <= member_bytes and (part := stream.read(_PIECE)):
            if time.monotonic() > deadline:
                raise TimeoutError("it was not unpacked to its end in time")
            parts.append(part)
            size += len(part)
    return (b"".join(parts) if size <= member_bytes else None), size
