"""A node that is recorded while it is read, so that it can be looked at again elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.host import Host
from rdmadiag.host.tree import PATH


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
    match = PATH.match(f"{path}:")
    return match is not None and match[0] == path and " -> " not in path


def _names_alone(noted: Mapping[str, Mapping[str, Any]]) -> list[str]:
    # Names that were listed or found to exist, of which no more is known.
    names = {f"{folder}/{name}" for folder, found in noted["folders"].items() for name in found}
    known = {*noted["files"], *noted["links"], *noted["folders"], *noted["commands"]}
    above = {path[:end] for path in known for end in range(len(path)) if path[end] == "/"}
    return sorted((names | noted["seen"].keys()) - known - above)
