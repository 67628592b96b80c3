"""A long log is read in a child beside the rest; what it held is the same, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from rdmadiag.diagnose import check, rulebook
from rdmadiag.errors import BadFile, HostRefused
from rdmadiag.evidence import aside, collect


@pytest.fixture(autouse=True)
def _no_child_of_earlier_tests() -> None:
    # One that was killed while the machine was busy may still be on its way.
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def test_a_result_comes_back_and_the_child_is_gone() -> None:
    assert aside.Aside(lambda: {"pid": os.getpid()}).result()["pid"] != os.getpid()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_child_that_dies_is_said() -> None:
    with pytest.raises(HostRefused, match="the process that read it died"):
        aside.Aside(lambda: os._exit(9)).result()


def long_log(folder: Path) -> Path:
    lines = [f"[{n:12.6f}] systemd[1]: Started Session {n} of user operator." for n in range(30_000)]
    lines[0] = "[    0.000000] Linux version 6.8.0"
    lines.append(
        "[30000.500000] mlx5_core 0000:1a:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count"
    )
    path = folder / "dmesg.txt"
    path.write_text("\n".join(lines) + "\n")
    assert path.stat().st_size > collect.LONG_BYTES
    return path


@pytest.mark.parametrize("spare", [True, False])
def test_a_long_log_says_the_same_in_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: bool) -> None:
    monkeypatch.setattr(aside, "spare_processor", lambda: spare)
    long_log(tmp_path)
    (tmp_path / "ulimit.txt").write_text("$ ulimit -l\nunlimited\n")
    report = check.check(check.Request(given=(str(tmp_path),))).report
    assert [f["rule"] for f in report["findings"] if f["answer"] == "confirmed"] == ["firmware-fatal"]
    (row,) = report["findings"][0]["evidence"]
    assert row["origin"].endswith("dmesg.txt:30001")


def test_a_long_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "core"
    path.write_bytes(b"\x7fELF" + bytes(2 << 20))
    with pytest.raises(BadFile, match="core: .*binary"):
        check.check(check.Request(given=(str(path),)))


def test_a_child_that_nobody_waits_for_is_ended(tmp_path: Path) -> None:
    long_log(tmp_path)
    before = os.listdir("/proc/self/fd")
    (tmp_path / "bad").write_bytes(b"\0")
    with pytest.raises(BadFile):
        check.check(check.Request(given=(str(tmp_path / "dmesg.txt"), str(tmp_path / "bad"))))
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("spare", [True, False])
def test_texts_shared_with_a_child_are_each_read_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: bool
) -> None:
    monkeypatch.setattr(aside, "spare_processor", lambda: spare)
    long_log(tmp_path)
    names = [f"gpu-{n:02}-limits.txt" for n in range(40)]  # more than are held open together
    for name in names:
        (tmp_path / name).write_text("$ ulimit -l\nunlimited\n")
    evidence = check.check(check.Request(given=(str(tmp_path),))).evidence
    origins = [row[0] for row in evidence.db.execute("SELECT origin FROM process_limit ORDER BY rowid")]
    assert [os.path.basename(origin.partition(":")[0]) for origin in origins] == names


def test_a_query_that_names_queue_pairs_gets_them_however_it_is_written() -> None:
    assert check._names_qp("SELECT 1 FROM qp")
    assert check._names_qp('SELECT 1 FROM "qp"')
    assert check._names_qp("SELECT 'it''s' FROM device, QP")
    assert check._names_qp("SELECT 1 -- don't\nFROM qp WHERE x = 'a'")
    assert not check._names_qp("SELECT qps FROM qp_group WHERE comm = 'qp' OR text LIKE '%a qp''s%'")
    assert not check._names_qp(
        "SELECT 1 FROM command WHERE line LIKE '%--odp%' OR line LIKE '%mr_per_qp%' -- no qp's row\n"
    )
    assert not check._names_qp("SELECT /* of the qp */ 1 FROM device")


def test_no_shipped_rule_needs_a_row_for_each_queue_pair() -> None:
    assert [rule.id for rule in rulebook.load() if check._names_qp(rule.query)] == []


def test_a_child_that_takes_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError):
        aside.Aside(lambda: time.sleep(60), 0.05).result()


def test_pieces_that_two_processes_share_are_each_done_once() -> None:
    before = os.listdir("/proc/self/fd")
    shared = aside.Shared(40, lambda piece: (piece * piece, os.getpid()))
    time.sleep(0.05)  # the child begins at once
    done, why = shared.results()
    shared.close()
    assert {piece: value for piece, (value, _) in done.items()} == {piece: piece * piece for piece in range(40)}
    assert os.getpid() not in {done[0][1]}
    assert not why
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_pieces_that_a_killed_child_had_begun_are_missing_and_it_is_said() -> None:
    here = os.getpid()
    shared = aside.Shared(3, lambda piece: piece if os.getpid() == here else os.kill(os.getpid(), 9))
    time.sleep(0.2)
    done, why = shared.results()
    shared.close()
    assert done == {1: 1, 2: 2}
    assert "died" in why


def test_shared_work_that_nobody_waits_for_is_ended() -> None:
    before = os.listdir("/proc/self/fd")
    aside.Shared(2, lambda piece: time.sleep(60)).close()
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
