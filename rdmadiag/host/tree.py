"""A captured tree: what was read of a node, as one text or as a folder."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import NamedTuple

from rdmadiag.host import FILE_LIMIT_BYTES, refusal
from rdmadiag.patterns import late

PATH_CHARACTERS, PATH_LEVELS = 1024, 32
"""A longer or deeper path of a captured tree is not listed; those of sysfs are half as long."""
TREE_LINE_CHARACTERS = 64 << 10
"""A longer line of a captured tree is passed over."""
TREE_LINES = 500_000
"""Most lines taken of a captured tree; a node with 16 adapters has 5,000."""
LINKS = 40
"""Links followed for one path, as the kernel does."""

# A colon ends the path, unless it stands in a PCI address, or before one (/proc/irq/90/mlx5_comp0@pci:0000:18:00.0).
PATH = late(
    r"/[^:]*(?:(?:(?<=[0-9a-f]{4}):(?=[0-9a-f]{2}(?:[:./]|$))|(?<=:[0-9a-f]{2}):(?=[0-9a-f]{2}\.)|(?<=@pci):(?=[0-9a-f]{4}:))[^:]*)*"
)


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
        elif match := PATH.match(line):
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
        elif step in links and followed < LINKS:
            followed += 1
            left += links[step].split("/")[::-1]
            done = "" if links[step].startswith("/") else done
        elif part not in ("", "."):
            done = step
    return done
