"""RDMA character devices: /dev/infiniband, and what /sys/class says should be there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host, names_in, text_of
from rdmadiag.patterns import late

TABLES = ("chardev", "device")
FOLDER = "/dev/infiniband"
_CLASSES = ("/sys/class/infiniband_verbs", "/sys/class/infiniband_mad")
_NAME = r"(?:rdma_cm|(?:uverbs|umad|issm|ucm)[0-9]{1,4})"


def read(host: Host) -> Iterable[Row | Gap]:
    """Read the folder; each device's uverbs file and rdma_cm have a row though they are missing."""
    try:
        there = host.ls(FOLDER)
    except NotPresent:
        there = []
    except HostRefused as error:
        kind = "not_given" if isinstance(error, NotGiven) else "not_permitted"
        yield Gap(("chardev",), error.reason, kind, error.how, FOLDER)
        return
    owners = _owners(host)
    expected = [name for name in owners if name.startswith("uverbs")]
    for name in sorted({*there, *expected, "rdma_cm"}):
        if late(_NAME).fullmatch(name):
            yield Row("chardev", _values(host, name, name in there, owners.get(name)), f"{FOLDER}/{name}")


def _values(host: Host, name: str, present: bool, device: str | None) -> dict[str, Any]:
    path = f"{FOLDER}/{name}"
    usable = host.usable(path) if present else None
    values = {
        "path": path,
        "device": device,
        "present": int(present),
        "accessible": None if usable is None else int(usable),
    }
    return {key: value for key, value in values.items() if value is not None}


def _owners(host: Host) -> dict[str, str]:
    # uverbsN and umadN to the device's name; the numbers need not be those of the device
    owners: dict[str, str] = {}
    for folder in _CLASSES:
        for name in names_in(host, folder):
            device = text_of(host, f"{folder}/{name}/ibdev")
            if device:
                owners[name] = device
    return owners


_LISTED = late(rf"(?:^|[\s/'])({_NAME})(?=['\s]|$)")
_ONLY_NAMES = late(rf"\s*(?:(?:{FOLDER}/)?(?:{_NAME}|by-ibdev|by-path|hfi1_\d+)\s*)+$")
_MISSING = late(
    rf"ls: (?:cannot access|cannot open directory) '?({FOLDER}(?:/{_NAME})?)/?'?: (No such file|Permission)"
)
_CLASS_LISTING = late(r"ls (?:-\S+ )*/sys/class/infiniband/?\s*$")
_DEVICE_NAMES = late(r"\s*[a-z]\w*\d(?:\s+[a-z]\w*\d)*\s*$")


def parse_listing(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ls /dev/infiniband`, long or short; a whole listing without rdma_cm says that it is missing."""
    whole, asked, seen, last = False, "", set[str](), 0
    for number, text in lines:
        if (command := prompt_command(text)) is not None:
            asked = command
            whole = bool(late(rf"(?:sudo )?ls (?:-\S+ )*{FOLDER}/?\s*$").match(command))
        elif match := _MISSING.match(text):
            whole = False
            yield from _missing(match, number)
        elif text.startswith("c") or _ONLY_NAMES.match(text):
            for name in _LISTED.findall(text):
                seen.add(name)
                yield Row("chardev", {"path": f"{FOLDER}/{name}", "present": 1}, number)
            last = number
        elif _CLASS_LISTING.match(asked) and _DEVICE_NAMES.match(text):
            yield from (Row("device", {"device": name}, number) for name in text.split())
    if whole and seen and "rdma_cm" not in seen:
        yield Row("chardev", {"path": f"{FOLDER}/rdma_cm", "present": 0}, last)


def _missing(match: re.Match[str], number: int) -> Iterator[Row]:
    if match[2] == "Permission":
        yield Row("chardev", {"path": match[1], "accessible": 0}, number)
        return
    yield Row("chardev", {"path": match[1], "present": 0}, number)
    if match[1] == FOLDER:
        yield Row("chardev", {"path": f"{FOLDER}/rdma_cm", "present": 0}, number)


TEXTS = (
    Text(
        "ls /dev/infiniband",
        (
            r"^c[rwxsStT-]{9}[.+@]? .* (rdma_cm|(uverbs|umad|issm|ucm)[0-9]+)[ \t\r]*$",
            r"^[ \t]*(/dev/infiniband/)?(rdma_cm|(uverbs|umad|issm|ucm)[0-9]+)([ \t]+[/a-z0-9_-]+)*[ \t\r]*$",
            r"^ls: cannot (access|open directory) '?/dev/infiniband",
        ),
        parse_listing,
        ("ls",),
    ),
)
