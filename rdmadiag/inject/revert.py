"""Takes injections off: the last step of each, and what the next start does for one whose injector is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from rdmadiag.errors import RdmadiagError
from rdmadiag.inject import _shell, journal
from rdmadiag.inject.journal import Entry, JournalError
from rdmadiag.inject.node import Node, NodeGone
from rdmadiag.inject.target import door
from rdmadiag.lab import LabError

SETTLE_TRIES = 8


class Reverted(NamedTuple):
    """Whether the node was seen clean, and else what is left."""

    tag: str
    title: str
    clean: bool
    problems: tuple[str, ...] = ()


def title(entry: Entry) -> str:
    """Return one line that names an injection of the journal."""
    told = " ".join(f"{name}={value}" for name, value in entry.intent.get("values", {}).items())
    return f"{entry.tag} {entry.intent.get('fault', '?')} {told}".strip()


def one(entry: Entry, why: str, as_is: bool = False) -> Reverted:
    """Take one injection off and verify; may be called again, and for one that is off already.

    `as_is`: what differs from before, though every step is undone, is somebody else's doing and stays.
    """
    name = title(entry)
    try:
        node = door(entry.intent["key"], entry.intent.get("place", ""))
    except LabError as error:
        return _close(entry, name, f"its node is gone ({error})", [])
    if node.instance != entry.intent.get("instance"):
        # The kernel that was changed is no more, and nothing of ours is written anywhere else.
        return _close(entry, name, "its node was restarted since", _still_there(node, entry))
    try:
        problems = _undo(node, entry, name, why, as_is)
    except NodeGone as error:
        return Reverted(entry.tag, name, False, (f"the node does not answer: {error}",))
    return _close(entry, name, why, problems)


def _undo(node: Node, entry: Entry, name: str, why: str, as_is: bool) -> list[str]:
    before = str(entry.intent.get("state", ""))
    ran = node.run(_shell.revert_text(entry.tag, str(entry.intent.get("undo", "")), name, why))
    lines = ran.text.splitlines()
    problems = [f"step {line[7:]}" for line in lines if line.startswith("failed ")]
    if not any(line.startswith("end ") for line in lines):
        said = ran.err.decode(errors="replace").strip()[-300:]
        problems.append(f"the undoing did not come to its end: {said or f'exit code {ran.code}'}")
    state = _shell.state_text(entry.tag, entry.intent.get("netdevs", []))
    differences: list[str] = []
    for _try in range(0 if as_is else SETTLE_TRIES):  # a link that comes up again takes a moment
        differences = _differences(before, node.run(state).text)
        if not differences:
            break
        time.sleep(0.5)
    problems += differences
    if not problems:
        node.run(_shell.remove_text(entry.tag))
    return problems


def _differences(before: str, now: str) -> list[str]:
    was, is_ = set(before.splitlines()), set(now.splitlines())
    gone = [f"no longer there: {line.strip()}" for line in sorted(was - is_)]
    return gone + [f"new: {line.strip()}" for line in sorted(is_ - was)]


def _still_there(node: Node, entry: Entry) -> list[str]:
    tests = entry.intent.get("holds", [])
    text = "\n".join(
        [_shell.FUNCTIONS, *(f"{{ {test}\n}} 2>/dev/null && echo there {n}" for n, test in enumerate(tests))]
    )
    try:
        lines = node.run(text).text.splitlines()
    except NodeGone as error:
        return [str(error)]
    return [f"step {line[6:]} is in force after a restart" for line in lines if line.startswith("there ")]


def _close(entry: Entry, name: str, why: str, problems: list[str]) -> Reverted:
    try:
        entry.add(state="left" if problems else "clean", why=why, problems=problems)
    except JournalError as error:
        problems = [*problems, str(error)]
    return Reverted(entry.tag, name, not problems, tuple(problems))


def stale() -> Iterator[Entry]:
    """Yield the injections whose injector is gone and that were not seen clean since."""
    for entry in journal.entries():
        if entry.open and not entry.injector_lives:
            yield entry


def heal() -> list[Reverted]:
    """Take off what injectors that are gone have left; every start of an injector does this first."""
    results = []
    for entry in stale():
        result = one(entry, "its injector was gone")
        journal.audit(
            f"{entry.intent.get('target', '')}: {result.title}: {'clean' if result.clean else 'NOT CLEAN'} (its injector was gone)"
        )
        results.append(result)
    return results


def everything(tags: tuple[str, ...] = (), as_is: bool = False) -> list[Reverted]:
    """Take off all injections in the journal, or those named; the living ones, too. Raises RdmadiagError for an unknown name."""
    entries = {entry.tag: entry for entry in journal.entries()}
    for tag in tags:
        if tag not in entries:
            raise RdmadiagError(f"no injection {tag!r} in {journal.folder()}; `rdmadiag inject status` shows them")
    results = []
    for entry in entries.values():
        if entry.tag in tags or (not tags and entry.open):
            if not entry.open:
                results.append(Reverted(entry.tag, title(entry), True))
                continue
            results.append(one(entry, "it was reverted by hand", as_is))
            journal.audit(
                f"{entry.intent.get('target', '')}: {title(entry)}: reverted by hand, {'clean' if results[-1].clean else 'NOT CLEAN'}"
            )
    return results


def status() -> list[dict[str, Any]]:
    """Return the injections that are not known to be off; changes nothing."""
    found = []
    for entry in journal.entries():
        if not entry.open:
            continue
        intent = entry.intent
        state, problem = "in force", ""
        try:
            node = door(intent["key"], intent.get("place", ""))
            if node.instance != intent.get("instance"):
                state = "restarted"
            else:
                text = f"cd {_shell.ROOT}/{entry.tag} 2>/dev/null && [ -s over ] && cat over"
                over = node.run(text, 60.0).text.strip()
                state = "off" if over else state
                problem = over
        except (LabError, NodeGone) as error:
            state, problem = "node gone", str(error)
        if state == "in force" and not entry.injector_lives:
            state = "left behind"
        found.append(
            {
                "tag": entry.tag,
                "fault": intent.get("fault"),
                "values": intent.get("values"),
                "target": intent.get("target"),
                "netdevs": intent.get("netdevs"),
                "state": state,
                "since": intent.get("at"),
                "for_seconds": intent.get("for_seconds"),
                "who": intent.get("injector", {}).get("who"),
                "pid": intent.get("injector", {}).get("pid"),
                "note": problem,
            }
        )
    return found
