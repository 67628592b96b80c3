"""The write-ahead journal: on disk before anything changes, its end written even on a full disk."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from rdmadiag.inject import journal


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a journal of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "rdmadiag" / "inject"


def begin(tag: str = "aa") -> journal.Entry:
    """Begin an injection."""
    return journal.begin({"tag": tag, "fault": "loss", "key": {"lab": "x"}, "undo": "true"})


def test_an_intent_is_there_for_the_next_reader_and_is_closed_by_clean() -> None:
    entry = begin()
    (found,) = journal.entries()
    assert found.open and found.intent["fault"] == "loss"
    entry.add(state="applied")
    entry.add(state="clean", why="over")
    (found,) = journal.entries()
    assert not found.open and [line["state"] for line in found.lines] == ["applied", "clean"]


def test_it_is_flushed_before_begin_returns(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), real(file))[1])
    begin("bb")
    assert synced == [str(state / "bb.json"), str(state)]


def test_a_full_disk_stops_an_injection_before_it_begins(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(journal.JournalError, match="No space left on device; nothing was changed"):
        begin()
    assert list(state.glob("*.json")) == []


def test_the_end_fits_into_the_room_reserved_with_the_intent() -> None:
    entry = begin()
    size = entry.path.stat().st_size
    for number in range(100):
        entry.add(state="left", why="x" * 500, problems=[str(number)])
    entry.add(state="clean")
    assert entry.path.stat().st_size <= size + 200, "it grew, so a full disk would have lost its end"
    assert not next(journal.entries()).open


def test_who_made_it_is_known_by_pid_and_start_time() -> None:
    entry = begin()
    assert entry.injector_lives
    entry.intent["injector"]["start_ticks"] += 1
    assert not entry.injector_lives
    entry.intent["injector"] = {"pid": 2**22 + 1, "start_ticks": 5, "boot_id": "x"}
    assert not entry.injector_lives


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"[1]\n", b'{"schema": "other"}\n', b'{"schema"', b"{}\n" * 9])
def test_a_file_that_is_no_journal_is_left_out(content: bytes, state: Path) -> None:
    begin("good")
    (state / "bad.json").write_bytes(content)
    assert [entry.tag for entry in journal.entries()] == ["good"]


def test_old_entries_go_and_open_ones_stay() -> None:
    for number in range(5):
        begin(f"c{number}").add(state="clean")
    begin("open")
    journal.drop_old(keep=2)
    assert [entry.tag for entry in journal.entries()] == ["c3", "c4", "open"]


def test_an_audit_line_says_who_what_when(state: Path) -> None:
    journal.audit("lab x: aa loss percent=5: begins")
    line = (state / "audit.log").read_text()
    assert line.endswith("lab x: aa loss percent=5: begins\n") and json.dumps(journal.who())[1:-1] in line
