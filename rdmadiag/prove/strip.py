"""Evidence without what gives the game away: marks that the injector and the lab leave, which no operator would have.

Taken out: lines of the kernel log that name us, files of processes that came after the first bundle and hold no RDMA object,
what is about the switch's netdevs, and our names of nft tables; names of the lab and ours elsewhere become neutral ones.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from rdmadiag.scenario.record import BEFORE, CAPTURES, DURING, Folder

_OURS = re.compile(r"(?i)rdmadiag")
_TABLE = re.compile(r"rdmadiag_[0-9a-f]+")
_PROCESS = re.compile(r"/proc/(\d+)/")
NODE = "node"
MANIFEST = "manifest.json"


class Stripper:
    """Strips the texts of one run. `counts` says how much of what was taken out."""

    def __init__(self, lab: str, tags: Collection[str], switch: Collection[str]) -> None:
        self.lab, self.tags, self.counts = lab, tags, Counter[str]()
        names = "|".join(re.escape(name) for name in sorted(switch, key=len, reverse=True)) or "(?!)"
        places = "sys/class/net|proc/sys/net/ipv[46]/(?:conf|neigh)"
        self._switch = re.compile(rf"^(?:# absent: |# refused: )?/(?:{places})/(?:{names})(?:[/:]|$)")
        self._switch_names = frozenset(switch)
        self.known: set[str] = set()
        """Processes of the first bundle."""

    def text(self, text: str) -> str:
        """Return any text with neutral names."""
        for tag in self.tags:
            text = text.replace(f"rdmadiag_{tag}", "filter")
        text = _OURS.sub("app", _TABLE.sub("filter", text))
        return text.replace(self.lab, NODE) if self.lab else text

    def kernel_log(self, text: str) -> str:
        """Return a kernel log without lines about us."""
        lines = text.splitlines(keepends=True)
        kept = [line for line in lines if not _OURS.search(line) and not any(tag in line for tag in self.tags)]
        self.counts["lines of the kernel log"] += len(lines) - len(kept)
        return self.text("".join(kept))

    def tree(self, text: str, owners: Collection[str]) -> str:
        """Return a captured tree (`path:content` lines) without the switch, and without processes that are not the work's."""
        kept = []
        for line in text.splitlines(keepends=True):
            match = _PROCESS.match(line)
            if match and match[1] not in self.known and match[1] not in owners:
                self.counts["lines about processes"] += 1
            elif self._switch.match(line):
                self.counts["lines about the switch"] += 1
            else:
                kept.append(line)
        return self.text("".join(kept))

    def printed(self, text: str) -> str:
        """Return a command's JSON without entries about the switch's netdevs."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text)
        if isinstance(data, list):
            kept = [entry for entry in data if not self._about_switch(entry)]
            self.counts["entries about the switch"] += len(data) - len(kept)
            data = kept
        return self.text(json.dumps(data, indent=0))

    def _about_switch(self, entry: Any) -> bool:
        return isinstance(entry, dict) and any(
            entry.get(key) in self._switch_names for key in ("ifname", "dev", "netdev")
        )


def of_run(folder: Folder) -> Stripper:
    """Return the stripper of a run. Raises BadFile."""
    facts = folder.read("run.json")
    lab = facts.get("lab")
    lab = lab if isinstance(lab, dict) else {}
    links = [link for link in lab.get("links", []) if isinstance(link, dict)]
    switch = {str(link[key]) for link in links for key in ("port", "bridge") if link.get(key)}
    tags = {str(fault["tag"]) for fault in facts.get("faults", []) if isinstance(fault, dict) and fault.get("tag")}
    return Stripper(str(lab.get("name") or ""), tags, switch)


def copy(folder: Folder, to: Path) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Write stripped evidence below `to`; return paths by kind (before, during, captures, texts) and counts of what was taken out."""
    stripper = of_run(folder)
    found: dict[str, list[str]] = {}
    for phase in (BEFORE, DURING):
        found[phase] = [_bundle(stripper, path, to / phase, phase) for path in folder.bundles(phase)]
    found[CAPTURES] = folder.captures()  # packets only; files are named for the hosts' netdevs
    found["texts"] = []
    for path in folder.texts():
        place = to / "texts" / Path(path).name
        place.parent.mkdir(exist_ok=True)
        place.write_text(stripper.text(Path(path).read_text(encoding="utf-8", errors="replace")), encoding="utf-8")
        found["texts"].append(str(place))
    return found, dict(stripper.counts)


def _bundle(stripper: Stripper, path: str, to: Path, phase: str) -> str:
    to.mkdir(parents=True, exist_ok=True)
    made = to / f"{NODE}-{len(list(to.iterdir()))}.tar.gz"
    with tarfile.open(path) as archive:
        texts = dict(_members(archive))
    trees = [text for name, text in texts.items() if name.startswith("tree")]
    if phase == BEFORE:
        stripper.known = {match[1] for text in trees for match in re.finditer(r"(?m)^/proc/(\d+)/", text)}
    owners = set(
        re.findall(r'"pid":\s*(\d+)', "".join(t for n, t in texts.items() if n.startswith("commands/rdma-res")))
    )
    for name, text in texts.items():
        if name == MANIFEST:
            continue
        if name.startswith("tree"):
            texts[name] = stripper.tree(text, owners)
        elif "dmesg" in name:
            texts[name] = stripper.kernel_log(text)
        else:
            texts[name] = stripper.printed(text)
    manifest = json.loads(texts[MANIFEST])
    manifest["node"] = NODE
    manifest["gaps"] = json.loads(stripper.text(json.dumps(manifest.get("gaps", []))))
    manifest["files"] = {
        name: len(text.encode(errors="surrogateescape")) for name, text in texts.items() if name != MANIFEST
    }
    texts[MANIFEST] = json.dumps(manifest, indent=1)
    with tarfile.open(made, "w:gz", compresslevel=1) as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"{NODE}/{name}")
            member.size = len(data := text.encode(errors="surrogateescape"))
            archive.addfile(member, io.BytesIO(data))
    return str(made)


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, str]]:
    for member in archive:
        file = archive.extractfile(member) if member.isfile() else None
        if file is not None:
            yield member.name.partition("/")[2], file.read().decode(errors="surrogateescape")
