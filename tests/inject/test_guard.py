"""The staging guard: outside a lab nothing happens without a mark, beyond its limits, or on netdevs that carry us."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rdmadiag import faults
from rdmadiag.errors import BadFile
from rdmadiag.faults import Refused
from rdmadiag.inject import guard
from rdmadiag.inject.target import Aim
from tests.faults.test_faults import LAB, SOFTWARE

MARK = {
    "schema": "rdmadiag.staging/1",
    "faults": ["loss", "delay", "forged-nak"],
    "netdevs": ["eth1"],
    "max_seconds": 60,
    "max_percent": 10,
    "max_packets_per_second": 1000,
}


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the guard a mark of root's that a test may change, and no netdevs that carry us."""
    path = tmp_path / "staging.json"
    path.write_text(json.dumps(MARK))
    path.chmod(0o644)
    real = os.lstat

    def as_root(name: Any, *args: Any, **options: Any) -> os.stat_result:
        found = real(name, *args, **options)
        return os.stat_result([*found[:4], 0, *found[5:]]) if str(name) == str(path) else found

    monkeypatch.setattr(os, "lstat", as_root)
    monkeypatch.setattr(guard, "MARK", str(path))
    monkeypatch.setattr(guard.read_mark, "__defaults__", (str(path),))
    monkeypatch.setattr(guard, "protected_netdevs", dict)
    return path


def check(fault: str = "loss", seconds: float = 30, **values: Any) -> None:
    """Ask the guard about a fault on this host's device."""
    plan = faults.make_plan(fault, values, SOFTWARE)
    module = faults.find(fault)
    whole = {p.name: p.check(values.get(p.name, p.default)) for p in module.PARAMETERS}
    guard.check(Aim(SOFTWARE, {"device": "rxe0"}), fault, module.PARAMETERS, whole, plan, seconds)


def test_what_the_mark_allows_passes(mark: Path) -> None:
    check(percent=5)


def test_without_a_mark_a_host_is_refused_and_told_how_one_looks(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r'not marked for fault injection: no .*/none.json.*"max_seconds".*or use a lab'):
        guard.read_mark(str(tmp_path / "none.json"))


def test_a_lab_needs_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "read_mark", lambda: pytest.fail("a mark was asked for"))
    plan = faults.make_plan("loss", {"percent": 100}, LAB)
    guard.check(Aim(LAB, {"lab": "x"}), "loss", faults.find("loss").PARAMETERS, {"percent": 100}, plan, 3000)


def test_each_limit_is_kept_and_named(mark: Path) -> None:
    with pytest.raises(Refused, match="does not allow the fault corrupt; it allows: loss, delay"):
        check("corrupt")
    with pytest.raises(Refused, match="61 s is more than the 60 s"):
        check(seconds=61)
    with pytest.raises(Refused, match="--percent 11 is more than the 10 %"):
        check(percent=11)
    mark.write_text(json.dumps({**MARK, "netdevs": ["eth7"]}))
    with pytest.raises(Refused, match="does not allow netdev eth1; it allows: eth7"):
        check()


def test_a_rate_above_the_mark_is_refused(mark: Path) -> None:
    plan = faults.make_plan("forged-nak", {"rate": 2000}, LAB)
    with pytest.raises(Refused, match="2000 packets/s are more than the 1000"):
        guard.check(Aim(SOFTWARE, {"device": "rxe0"}), "forged-nak", faults.find("forged-nak").PARAMETERS, {}, plan, 10)


@pytest.mark.parametrize("reason", ["it carries the default route", "it carries the SSH connection from 192.0.2.7"])
def test_a_netdev_that_carries_us_is_not_touched(mark: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.setattr(guard, "protected_netdevs", lambda: {"eth1": reason})
    with pytest.raises(Refused, match=f"netdev eth1 is not touched: {reason}"):
        check()


@pytest.mark.parametrize(
    "change",
    [
        {"max_seconds": "60"},
        {"max_seconds": True},
        {"faults": "loss"},
        {"schema": "rdmadiag.staging/2"},
        {"extra": 1},
        {"netdevs": None},
    ],
    ids=str,
)
def test_a_wrong_mark_is_refused_by_file_and_key(mark: Path, change: dict[str, Any]) -> None:
    mark.write_text(json.dumps({**MARK, **change}))
    with pytest.raises(BadFile, match=str(mark)):
        check()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"{", b"[" * 100000, b"null"])
def test_a_mark_that_is_none_is_refused(mark: Path, content: bytes) -> None:
    mark.write_bytes(content)
    with pytest.raises(BadFile):
        check()


def test_a_mark_that_others_may_write_is_refused(mark: Path) -> None:
    mark.chmod(0o666)
    with pytest.raises(BadFile, match="nobody else may write"):
        check()
    mark.unlink()
    mark.symlink_to("/etc/hostname")
    with pytest.raises(BadFile, match="nobody else may write"):
        check()
