"""What is quicker to load than to work out again, in the user's cache folder; all works without it."""

from __future__ import annotations

import os
import zlib

KEPT = 8
"""Files kept of one kind; each release has its own two or three."""


def _file(kind: str, key: bytes) -> str:
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(folder, "rdmadiag", f"{kind}-{zlib.crc32(key):08x}")


def load(kind: str, key: bytes) -> bytes | None:
    """Return what was kept of this kind under this key, which says all that it depends on; None where there is nothing.

    A file that somebody else may have written is not loaded: what is kept here is code as good as any.
    """
    try:
        descriptor = os.open(_file(kind, key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None
            if file.read(len(key)) != key:
                return None
            content = file.read(max(0, status.st_size - len(key) - 4))
            whole = zlib.crc32(content, zlib.crc32(key)) == int.from_bytes(file.read(4), "little")
    except OSError:
        return None
    return content if whole else None


def save(kind: str, key: bytes, content: bytes) -> None:
    """Keep something. Where there is no home, a full disk or a read-only one, the next run works it out again."""
    path = _file(kind, key)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        part = f"{path}.{os.getpid()}"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(key + content)
            file.write(zlib.crc32(content, zlib.crc32(key)).to_bytes(4, "little"))
        os.replace(part, path)
        _remove_old(os.path.dirname(path), kind)
    except OSError:
        return


def _remove_old(folder: str, kind: str) -> None:
    kept = [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith(f"{kind}-")]
    for path in sorted(kept, key=os.path.getmtime)[:-KEPT]:
        os.unlink(path)
