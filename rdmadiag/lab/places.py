"""Where labs and what they are made from are kept: one folder a lab, and a cache of kernels and saved states.

A lab's folder is $XDG_RUNTIME_DIR/rdmadiag (else /run/rdmadiag for root, /tmp/rdmadiag-UID for others) / NAME. Its
keeper holds a lock on the file `lock` in it for as long as it lives, so a lab is up when the lock is held, whatever
happened to process numbers. The cache is $XDG_CACHE_HOME/rdmadiag (else ~/.cache/rdmadiag).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

from rdmadiag.errors import BadInput, RdmadiagError

DEFAULT_NAME = "lab"


class LabError(RdmadiagError):
    """A lab could not be made, found or used: says which, why, and what to do next."""


def check_name(name: str) -> str:
    """Return a lab's name. Raises BadInput for one that would not fit into a path of a socket."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,23}", name):
        raise BadInput(f"lab name {name!r}; wanted up to 24 letters, digits, - and _, a letter or digit first")
    return name


def _private(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise LabError(f"{path}: wanted a folder of your own that others may not write; remove it and try again")
    return path


def labs_folder() -> Path:
    """Return the folder of all labs of this user, made when missing."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.isdir(runtime) and os.stat(runtime).st_uid == os.getuid():
        return _private(Path(runtime, "rdmadiag"))
    return _private(Path("/run/rdmadiag") if os.getuid() == 0 else Path(f"/tmp/rdmadiag-{os.getuid()}"))


def cache_folder(*parts: str) -> Path:
    """Return a folder in the cache, made when missing."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(cache, "rdmadiag", *parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder}: {error.strerror}; set XDG_CACHE_HOME to a folder that you may write") from error
    return folder


def lock(folder: Path) -> int | None:
    """Take a lab's lock, making its folder; return the open file, or None when somebody holds it."""
    while True:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # somebody took the folder away between the two
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        try:
            same = os.stat(folder / "lock").st_ino == os.fstat(file).st_ino
        except FileNotFoundError:
            same = False
        if same:
            return file
        os.close(file)


def is_locked(folder: Path) -> bool:
    """Tell whether a lab's keeper (or the command that makes it) lives; changes nothing."""
    try:
        file = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def remove(folder: Path) -> None:
    """Take a lab's folder away; the lock file last, so that nobody makes a lab in a half-removed folder."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name != "lock":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
    (folder / "lock").unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        pass  # somebody makes a new lab of this name


def write_json(path: Path, value: Any) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=1))
    part.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """Return an object from a file of ours; empty when it is missing or is not one."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
