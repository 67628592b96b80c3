"""A node as it was captured."""

from __future__ import annotations

import json
import os
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.host.tree import LINKS, FolderTree, Noted, Tree

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
        if depth > LINKS:
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

        try:
            value = json.loads(self.run(command))
        except (ValueError, RecursionError) as error:
            raise HostRefused(command, f"what the recording has of it is no JSON: {error}") from error
        return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []

    def clock(self) -> float:
        """Return when the tree was captured [s], from its first comment line."""
        return self.seconds
