"""--previous: counters since an earlier bundle, capture or report; a reset, a wrap and another boot are unknown, never a delta."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose import check
from rdmadiag.errors import BadFile

PORT = "/sys/class/infiniband/rxe0/ports/1"
Checked = Callable[..., dict[str, Any]]


def capture(folder: Path, uptime: float, counters: dict[str, int], boot: str = "b1", name: str = "node-a") -> Path:
    folder.mkdir(exist_ok=True)
    lines = [f"# seconds {uptime}", f"/proc/sys/kernel/hostname:{name}", f"/proc/uptime:{uptime} 1.0"]
    lines += [f"/proc/sys/kernel/random/boot_id:{boot}"] if boot else []
    lines += [f"{PORT}/state:4: ACTIVE", f"{PORT}/link_layer:Ethernet"]
    lines += [f"{PORT}/{name}:{value}" for name, value in counters.items()]
    (folder / "tree.txt").write_text("\n".join(lines) + "\n")
    return folder


SEND, RETRY, GONE = "hw_counters/sent_pkts", "hw_counters/retry_exceeded_err", "counters/link_downed"
BEFORE = {SEND: 100, RETRY: 1, GONE: 2}


def rows(folder: Path, previous: Path) -> dict[str, tuple[Any, ...]]:
    request = check.Request(given=(str(folder),), previous=str(previous), budget=60)
    sql = "SELECT counter, delta, seconds, per_second, state FROM counter"
    checked = check.check(request)
    return {row[0]: row[1:] for row in checked.evidence.db.execute(sql)}


def test_counters_count_from_an_earlier_capture(tmp_path: Path) -> None:
    before = capture(tmp_path / "a", 1000.0, BEFORE)
    found = rows(capture(tmp_path / "b", 1100.0, {SEND: 300, RETRY: 3, GONE: 2}), before)
    assert found["sent_pkts"] == (200, 100.0, 2.0, "two samples")
    assert found["retry_exceeded_err"] == (2, 100.0, 0.02, "two samples")


def test_a_rule_fires_on_what_moved_since_then_and_not_without_it(tmp_path: Path, checked: Checked) -> None:
    before = capture(tmp_path / "a", 1000.0, BEFORE)
    now = capture(tmp_path / "b", 1100.0, {SEND: 300, RETRY: 3, GONE: 2})
    only = ("transport-retries-exceeded",)
    assert checked(now, only=only)["summary"]["exit_code"] == 0
    report = checked(now, only=only, previous=str(before))
    assert report["findings"][0]["answer"] == "confirmed" and report["summary"]["exit_code"] == 1


def test_counters_count_from_an_earlier_report_as_from_its_capture(tmp_path: Path, checked: Checked) -> None:
    before = capture(tmp_path / "a", 1000.0, BEFORE)
    (tmp_path / "r.json").write_text(json.dumps(checked(before)))
    now = capture(tmp_path / "b", 1100.0, {SEND: 300, RETRY: 3, GONE: 2})
    assert rows(now, tmp_path / "r.json") == rows(now, before)


def moved(folder: Path, uptime: float, index: int, boot: str = "b1") -> Path:
    tree = capture(folder, uptime, BEFORE, boot) / "tree.txt"
    gid = "0000:0000:0000:0000:0000:ffff:0a00:0001"
    tree.write_text(
        f"{tree.read_text()}{PORT}/gids/{index}:{gid}\n{PORT}/gid_attrs/types/{index}:RoCE v2\n{PORT}/gid_attrs/ndevs/{index}:eth0\n"
    )
    return folder


@pytest.mark.parametrize(
    ("index", "boot", "answers"),
    [(3, "b1", ["confirmed"]), (1, "b1", []), (3, "b2", [])],
    ids=["moved", "stayed", "other boot"],
)
def test_a_gid_that_got_another_index_in_the_same_boot_is_named(
    tmp_path: Path, checked: Checked, index: int, boot: str, answers: list[str]
) -> None:
    before, now = moved(tmp_path / "a", 1000.0, 1), moved(tmp_path / "b", 1100.0, index, boot)
    report = checked(now, only=("gid-moved-since",), previous=str(before))
    assert [finding["answer"] for finding in report["findings"]] == answers
    request = check.Request(given=(str(now),), previous=str(before), budget=60)
    seen = check.check(request)
    known = seen.evidence.db.execute("SELECT index_before FROM gid WHERE kind = 'ipv4'").fetchall()
    assert known == [(1 if boot == "b1" else None,)]


def test_another_boot_is_unknown_though_the_values_grew(tmp_path: Path) -> None:
    before = capture(tmp_path / "a", 1000.0, BEFORE)
    found = rows(capture(tmp_path / "b", 1100.0, {SEND: 300, RETRY: 3, GONE: 2}, boot="b2"), before)
    assert set(found.values()) == {(None, None, None, "other boot")}


def test_where_no_boot_is_known_nothing_is_counted(tmp_path: Path) -> None:
    before = capture(tmp_path / "a", 1000.0, BEFORE, boot="")
    found = rows(capture(tmp_path / "b", 1100.0, {SEND: 300, RETRY: 3, GONE: 2}), before)
    assert set(found.values()) == {(None, None, None, "boot unknown")}


def test_one_counter_that_went_back_makes_all_of_its_kind_and_port_unknown(tmp_path: Path) -> None:
    before = capture(tmp_path / "a", 1000.0, BEFORE)
    found = rows(capture(tmp_path / "b", 1100.0, {SEND: 7, RETRY: 3, GONE: 2}), before)
    assert found["sent_pkts"][0] is found["retry_exceeded_err"][0] is None
    assert found["retry_exceeded_err"][3] == "reset"
    assert found["link_downed"][0] == 0, "of another folder"


def test_a_counter_of_32_bits_that_wrapped_is_unknown_and_the_others_are_not(tmp_path: Path) -> None:
    before = capture(tmp_path / "a", 1000.0, {SEND: (1 << 32) - 5, RETRY: 1})
    found = rows(capture(tmp_path / "b", 1100.0, {SEND: 7, RETRY: 3}), before)
    assert found["sent_pkts"][0] is None and found["sent_pkts"][3] == "wrapped"
    assert found["retry_exceeded_err"][0] == 2


def test_a_counter_that_is_new_and_one_that_is_saturated_have_no_delta(tmp_path: Path) -> None:
    before = capture(tmp_path / "a", 1000.0, {GONE: 1})
    found = rows(capture(tmp_path / "b", 1100.0, {GONE: 255, SEND: 5}), before)
    assert (found["link_downed"][0], found["link_downed"][3]) == (None, "saturated")
    assert (found["sent_pkts"][0], found["sent_pkts"][3]) == (None, "one sample")


def test_another_node_a_later_time_and_what_has_no_counters_are_refused(tmp_path: Path) -> None:
    now = capture(tmp_path / "b", 1100.0, BEFORE)
    with pytest.raises(BadFile, match="is about node-z, not about node-a"):
        rows(now, capture(tmp_path / "a", 1000.0, BEFORE, name="node-z"))
    with pytest.raises(BadFile, match="at or after"):
        rows(now, capture(tmp_path / "c", 1200.0, BEFORE))
    (tmp_path / "x.txt").write_text("$ ulimit -l\n64\n")
    with pytest.raises(BadFile, match="has no counters"):
        rows(now, tmp_path / "x.txt")
    (tmp_path / "r.json").write_text('{"schema": "rdmadiag.report/1", "nodes": [], "findings": [], "counters": [5]}')
    with pytest.raises(BadFile, match="/counters/0"):
        rows(now, tmp_path / "r.json")
