"""Every parser survives 100,000 made-up inputs: pieces of real texts, mixed, cut and spoiled, and what hypothesis thinks up.

`make test` runs a sample of each; `make test-all` (marker long) all of them, and prints how many.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import lzma
import random
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from rdmadiag import sources
from rdmadiag.errors import BadFile, HostRefused, NotPresent
from rdmadiag.evidence import assign, given, log_line, paste
from rdmadiag.evidence.given import GivenText, GivenTree
from rdmadiag.evidence.row import Json, Line, Row, Rows, Text
from rdmadiag.evidence.store import Evidence
from rdmadiag.evidence.texts import Library
from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import parse_tree

INPUTS, SAMPLE = 100_000, 300
BATCH = 100
"""Inputs made of one example of hypothesis: one is its own, the others come from its seed."""

DATA = Path(__file__).parent / "data"
TEXTS = [text for module in sources.load().values() for text in getattr(module, "TEXTS", ())]
LINE_PARSERS = {text.tool: text for text in TEXTS if isinstance(text, Text)}
JSON_PARSERS = {text.tool: text for text in TEXTS if isinstance(text, Json)}
Tell = Callable[[str, str], None]


def real_texts() -> list[list[str]]:
    files = [path for path in sorted(DATA.rglob("*")) if path.suffix in (".txt", "", ".log") and path.is_file()]
    return [lines for path in files if (lines := path.read_text(errors="replace").splitlines())]


REAL = real_texts()
JUNK = (
    "", " ", "\t", "\0", "\x1b[31m", "\u20ac", "\ud7ff", "\U0001f600", "9" * 30, "-1", "0x", "0xffffffffffffffffffff", "1e999", "nan",
    "[", "]", "{", "}", "(", ")", ":", "::", "/", "=", ",", "'", '"', "\\", "%", "$", "#", "-> ", "mlx5_0", "0000:18:00.0", "unlimited",
    "\u0661\u0662", "\u00b2", "\r", "\x85", "a" * 300,
)  # fmt: skip


def spoiled(rng: random.Random, text: str) -> str:
    """Return a text with a few characters lost, doubled, moved, or junk in between."""
    for _ in range(rng.randrange(4)):
        at, to = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:at] + rng.choice(JUNK) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + rng.randrange(1, 9) :]
        elif kind == 2:
            text = text[:at] + rng.choice(JUNK) + text[to:]
        else:
            text = text[:to] + text[at:to] + text[to:]
    return text


def some_lines(rng: random.Random, known: list[list[str]]) -> list[str]:
    """Return a few lines that follow each other in a real text, some of them spoiled."""
    text = rng.choice(known)
    at = rng.randrange(len(text))
    lines = text[at : at + rng.randrange(1, 15)]
    if rng.random() < 0.2:
        rng.shuffle(lines)
    if rng.random() < 0.2:
        lines += rng.choice(rng.choice(known)).splitlines()
    return [spoiled(rng, line) if rng.random() < 0.5 else line for line in lines]


def fuzz(
    tell: Tell,
    name: str,
    inputs: int,
    make: Callable[[random.Random], Any],
    own: st.SearchStrategy[Any],
    run: Callable[[Any], None],
) -> None:
    """Run a parser on `inputs` inputs, and note how many it survived."""
    done = 0

    @settings(
        max_examples=max(1, inputs // BATCH),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @drawn(seed=st.integers(0, 2**64 - 1), first=own)
    def survives(seed: int, first: Any) -> None:
        nonlocal done
        if done % (20 * BATCH) == 0:
            new_evidence()
        rng = random.Random(seed)
        for number in range(BATCH):
            value = make(rng) if number else first
            try:
                run(value)
            except Exception as error:
                raise AssertionError(f"{name} fails on {value!r}") from error
            done += 1

    survives()
    assert done >= min(inputs, BATCH)
    tell("fuzzed inputs survived", f"{name} {done}")


def stored(items: Any) -> None:
    """Put what a parser yields into a database, as a run does."""
    for item in items:
        EVIDENCE.add_item("n", "s", item, "file")


EVIDENCE = Evidence()


def new_evidence() -> None:
    global EVIDENCE
    EVIDENCE = Evidence()


SIZES = [
    pytest.param(SAMPLE, id="sample"),
    pytest.param(INPUTS, id="all", marks=[pytest.mark.long, pytest.mark.slow]),
]
OWN_LINES = st.lists(st.text(max_size=60), max_size=12)


@pytest.mark.parametrize("inputs", SIZES)
@pytest.mark.parametrize("tool", LINE_PARSERS)
def test_a_parser_of_lines_survives(tool: str, inputs: int, tell: Tell) -> None:
    text = LINE_PARSERS[tool]
    known = [
        lines for lines in REAL if any(word in "\n".join(lines) for word in (tool.split()[0], *text.commands))
    ] or REAL

    def run(lines: list[str]) -> None:
        stored(text.parse([Line(number, line.replace("\n", " ")) for number, line in enumerate(lines, 1)]))

    fuzz(tell, tool, inputs, lambda rng: some_lines(rng, known if rng.random() < 0.7 else REAL), OWN_LINES, run)


SCALARS: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    10**40,
    1.5,
    float("inf"),
    float("nan"),
    "",
    "x",
    "0x1f",
    "9" * 30,
)


def some_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(10)
    if kind == 0 and depth < 3:
        return [some_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 1 and depth < 3:
        return {rng.choice(JUNK): some_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return rng.choice(JUNK if kind < 4 else SCALARS)


OWN_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8, alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5, alphabet="abcxyz_-"), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("inputs", SIZES)
@pytest.mark.parametrize("tool", JSON_PARSERS)
def test_a_parser_of_json_survives(tool: str, inputs: int, tell: Tell) -> None:
    text = JSON_PARSERS[tool]
    keys = sorted({key for form in text.keys for key in form}) + [
        "x",
        "pid",
        "comm",
        "port",
        "ifname",
        "flags",
        "addr_info",
    ]

    def make(rng: random.Random) -> list[dict[str, Any]]:
        return [{key: some_value(rng) for key in keys if rng.random() < 0.8} for _ in range(rng.randrange(1, 4))]

    own = st.lists(st.dictionaries(st.sampled_from(keys), OWN_VALUES, max_size=6), max_size=4)
    fuzz(tell, f"{tool} (JSON)", inputs, make, own, lambda objects: stored(text.parse(objects)))


@pytest.mark.parametrize("inputs", SIZES)
def test_the_parser_of_prefixes_and_prompts_survives(inputs: int, tell: Tell) -> None:
    def run(line: str) -> None:
        found = log_line.split_prefix(line)
        assert found.seconds is None or found.seconds == found.seconds
        log_line.host_of(line)
        log_line.prompt_command(line)

    def make(rng: random.Random) -> str:
        return spoiled(rng, rng.choice(rng.choice(REAL)))

    fuzz(tell, "prefixes and prompts", inputs, make, st.text(max_size=80), run)


TREES = [lines for lines in REAL if lines[0].startswith("# seconds")]


@pytest.mark.parametrize("inputs", SIZES)
def test_the_parser_of_captured_trees_survives(inputs: int, tell: Tell) -> None:
    def run(lines: list[str]) -> None:
        tree, _ = parse_tree("\n".join(lines))
        host = CapturedHost(tree)
        for path in list(tree.entries)[:3]:
            for call in (host.read, host.ls, host.link, host.exists):
                with contextlib.suppress(NotPresent, HostRefused):
                    call(path)

    fuzz(
        tell,
        "captured trees",
        inputs,
        lambda rng: some_lines(rng, TREES),
        st.lists(st.text("/ab.:-> 0#", max_size=30), max_size=9),
        run,
    )


def some_archives() -> list[bytes]:
    found = []
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w", format=form) as tar:
            for name in ("sys/class/x", "n" * 120, "\u20ac.txt", "tree.txt"):
                info = tarfile.TarInfo(name)
                info.size = 30
                tar.addfile(info, io.BytesIO(b"# seconds 1\n/sys/a:1\n/sys/b -> a"[:30]))
            link = tarfile.TarInfo("sys/l")
            link.type, link.linkname = tarfile.SYMTYPE, "../" * 40
            tar.addfile(link)
        found += [content.getvalue(), gzip.compress(content.getvalue()), lzma.compress(content.getvalue())]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("sys/class/x", "1")
        archive.writestr("a/dmesg.txt", "[    1.0] x\n" * 20)
    return [*found, content.getvalue(), gzip.compress(b"hello\n" * 50)]


@pytest.mark.parametrize("inputs", SIZES)
def test_the_readers_of_archives_survive(inputs: int, tell: Tell, tmp_path: Path) -> None:
    archives = some_archives()
    path = tmp_path / "archive"

    def make(rng: random.Random) -> bytes:
        content = bytearray(rng.choice(archives))
        for _ in range(rng.randrange(1, 8)):
            at = rng.randrange(min(len(content), 700) if rng.random() < 0.5 else len(content))
            content[at] = rng.randrange(256)
        return bytes(content[: rng.randrange(len(content))] if rng.random() < 0.2 else content)

    def run(content: bytes) -> None:
        path.write_bytes(content)
        try:
            for part in given.expand(str(path), time.monotonic() + 10):
                part = part.parsed() if isinstance(part, given.TreeText) else part
                if isinstance(part, GivenText):
                    with contextlib.suppress(OSError, given.archive.Damaged):
                        part.stream.read(1 << 20)
                    part.stream.close()
                elif isinstance(part, GivenTree):
                    with contextlib.suppress(HostRefused):
                        CapturedHost(part.tree).exists("/sys/class/x")
        except BadFile:
            return

    fuzz(tell, "archives", inputs, make, st.binary(max_size=600), run)


@pytest.mark.parametrize("inputs", SIZES)
def test_the_reading_of_a_whole_text_survives(inputs: int, tell: Tell, library: Library) -> None:
    objects = [
        json.dumps([{"ifname": "mlx5_0", "lqpn": 1, "type": "RC", "state": "RTS", "comm": "\ud800"}]),
        "[{",
        '{"log": "x", "time": "2026-01-01T00:00:00\\ud800", "_HOSTNAME": "\\udfff"}',
        "[" * 2000,
    ]
    prefixes = ("", "", "", "2026-02-02T09:56:04Z ", "[pod/a/b] ", "0: ", "$ ", "root@node-a:~# ")

    def make(rng: random.Random) -> bytes:
        lines = []
        for _ in range(rng.randrange(1, 4)):
            prefix = rng.choice(prefixes)
            lines += [prefix + line for line in some_lines(rng, REAL)]
            if rng.random() < 0.2:
                lines.append(spoiled(rng, rng.choice(objects)))
        content = rng.choice(("\n", "\n", "\r\n")).join(lines)
        return content.encode(rng.choice(("utf-8", "utf-8", "utf-16")), errors="replace")

    def run(content: bytes) -> None:
        try:
            read = paste.read_text(
                library, GivenText(None, "f", "g", io.BytesIO(content)), time.monotonic() + 60, 86400.0
            )
        except BadFile:
            return
        for node, source, place, item in assign.assign([read]):
            assert isinstance(item, (Row, Rows)) or item.tables
            EVIDENCE.add_item(node, source, item, place)

    fuzz(tell, "whole texts", inputs, make, st.binary(max_size=300), run)
