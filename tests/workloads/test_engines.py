"""Engines: what their logs say (tests/data/workloads), and our ends around them with an engine that copies memory."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.errors import BadInput
from rdmadiag.workloads import OnThisMachine, Setting, WorkloadError, _install, load, nixl, start
from rdmadiag.workloads._contract import checked
from rdmadiag.workloads._engine import EngineReader
from rdmadiag.workloads._engine_end import Client, EngineError, Memory, serve
from tests.workloads import DATA, HOSTS, notes


def test_errors_of_mooncakes_log_are_kept_in_its_own_words() -> None:
    found = notes(EngineReader(), (DATA / "mooncake_no_adapter.server.txt").read_text(), stream=2)
    assert [note.values["words"] for note in found] == [
        "RdmaTransport: No available RNIC",
        "RdmaTransport: cannot initialize RDMA resources",
        "Failed to install transport, type=rdma",
    ]
    assert found[0].values["at"] == "rdma_transport.cpp:1139" and found[0].values["level"] == "E"


def test_events_of_our_end_are_read_beside_the_engines_log() -> None:
    found = notes(EngineReader(), (DATA / "mooncake_no_adapter.server.txt").read_text(), stream=1)
    assert found[-1].kind == "error" and found[-1].values["status"] == -1


def test_errors_and_warnings_of_ucx_and_nixl_are_kept() -> None:
    found = notes(EngineReader(), (DATA / "nixl_no_device.server.txt").read_text())
    assert [note.values["level"] for note in found] == ["W", "W", "W", "E", "E", "E"]
    assert found[3].values["words"].startswith("no usable transports/devices (asked rc_verbs,ud_verbs")


def test_a_log_that_never_ends_does_not_become_endless_events() -> None:
    line = "E1130 10:50:07.499993   377 rdma_transport.cpp:1139] RdmaTransport: No available RNIC\n"
    assert len(notes(EngineReader(), line * 1000, stream=2)) == 200


@pytest.mark.parametrize("name", ["mooncake", "nixl"])
def test_an_engines_variables_can_be_set_and_win(name: str) -> None:
    module = load(name)
    values = checked(module.PARAMETERS, {"environment": "MC_RETRY_CNT=3 UCX_IB_GID_INDEX=5"})
    end = module.ends(Setting(values, *HOSTS))["client"]
    assert end.environment["MC_RETRY_CNT"] == "3" and end.environment["UCX_IB_GID_INDEX"] == "5"
    with pytest.raises(BadInput, match="'lower'; wanted NAME=value"):
        module.ends(Setting({**values, "environment": "lower=1"}, *HOSTS))


def test_mooncake_must_find_an_adapter_unless_it_is_told_otherwise() -> None:
    module = load("mooncake")
    forced = module.ends(Setting(checked(module.PARAMETERS, {}), *HOSTS))["server"].environment
    free = module.ends(Setting(checked(module.PARAMETERS, {"force_hca": False}), *HOSTS))["server"].environment
    assert forced["MC_FORCE_HCA"] == "1" and "MC_FORCE_HCA" not in free and forced["MC_GID_INDEX"] == "1"


def test_an_engine_that_is_not_installed_is_named_with_what_installs_it() -> None:
    with pytest.raises(WorkloadError, match="rdmadiag workload install mooncake"):
        start("mooncake", OnThisMachine(list(HOSTS)))


# --- the install: a package made here, by the pip that is here ---


def wheel(folder: Path, code: str = "") -> Path:
    import zipfile

    path = folder / "rdmadiag_toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("rdmadiag_toy.py", code)
        packed.writestr(
            "rdmadiag_toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: rdmadiag-toy\nVersion: 1.0\n"
        )
        packed.writestr(
            "rdmadiag_toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr("rdmadiag_toy-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def test_an_engine_is_installed_prepared_tried_and_taken_away(cache: Path) -> None:
    wheel(cache)
    engine = _install.Engine("rdmadiag-toy", "1.0", "rdmadiag_toy", lambda part: (part / "prepared").touch())
    assert _install.installed("toy") == ""
    assert _install.install("toy", engine) == "1.0" == _install.installed("toy")
    where = _install.folder("toy")
    assert where is not None and (where / "prepared").exists()
    _install.install("toy", engine)
    assert _install.folder("toy") == where  # it was there
    _install.remove("toy")
    assert _install.folder("toy") is None and not list((cache / "cache/rdmadiag/engines").iterdir())


def test_an_engine_that_cannot_be_imported_is_not_installed(cache: Path) -> None:
    wheel(cache, "import nosuchlibrary")
    with pytest.raises(WorkloadError, match=r"cannot be imported: .*nosuchlibrary"):
        _install.install("toy", _install.Engine("rdmadiag-toy", "1.0", "rdmadiag_toy"))
    assert _install.installed("toy") == "" and not list((cache / "cache/rdmadiag/engines").iterdir())


def test_a_package_that_cannot_be_had_is_named(cache: Path) -> None:
    with pytest.raises(WorkloadError, match=r"rdmadiag-nosuch 1\.0 could not be installed"):
        _install.install("toy", _install.Engine("rdmadiag-nosuch", "1.0", "x"))


def test_the_private_verbs_of_nixl_lead_to_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, private = tmp_path / "system", tmp_path / "engine/nixl_cu12.libs"
    for folder in (system, private):
        folder.mkdir(parents=True)
    for name in ("libibverbs", "libmlx5"):
        (system / f"{name}.so.1").write_text("system")
        (private / f"{name}-1de1263b.so.1.14.48.0").write_text("wheel")
    monkeypatch.setattr(nixl, "_SYSTEM", (str(system),))
    nixl.use_system_verbs(tmp_path / "engine")
    assert (private / "libibverbs-1de1263b.so.1.14.48.0").read_text() == "system"
    assert (private / "libmlx5-1de1263b.so.1.14.48.0.wheel").read_text() == "wheel"
    (private / "libmlx5-1de1263b.so.1.14.48.0").unlink()
    with pytest.raises(WorkloadError, match="has no libmlx5 of its own"):
        nixl.use_system_verbs(tmp_path / "engine")


# --- the two ends, with an engine that copies from memory to memory ---

GIVEN: dict[str, Any] = {
    "mode": "push",
    "layers": 2,
    "blocks": 4,
    "block_bytes": 4096,
    "requests": 2,
    "seconds": 0.0,
    "retries": 2,
    "control": "127.0.0.1",
    "peer_control": "127.0.0.1",
    "carrier": "rdma",
    "version": "copy 1.0",
}
SIZE = 2 * 4 * 4096


class Copying:
    """An engine whose peer's memory is in this process; `fails` answers before each move whether it fails."""

    def __init__(
        self, own: Memory, other: Memory, fails: Callable[[int], bool] = lambda nth: False, skip: int = -1
    ) -> None:
        self.own, self.other, self.fails, self.skip, self.calls = own, other, fails, skip, 0

    def describe(self) -> dict[str, Any]:
        return {}

    def connect(self, peer: Mapping[str, Any]) -> None:
        pass

    def move(self, pull: bool, layer: int, ours: list[int], theirs: list[int], size: int) -> None:
        self.calls += 1
        if self.fails(self.calls):
            raise EngineError("the copier broke", 12)
        for one, other in zip(ours, theirs, strict=True):
            if other == self.skip:
                continue
            if pull:
                self.own.view[one : one + size] = self.other.view[other : other + size]
            else:
                self.other.view[other : other + size] = self.own.view[one : one + size]

    def facts(self) -> dict[str, Any]:
        return {"calls": self.calls}


def transfer(capsys: pytest.CaptureFixture[str], **options: Any) -> tuple[int, list[dict[str, Any]]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = {**GIVEN, "tcp_port": port, **options.pop("given", {})}
    here, there = Memory(SIZE), Memory(SIZE)
    threading.Thread(target=serve, args=(Copying(there, here), there, given), daemon=True).start()
    code = Client(Copying(here, there, **options), here, given).run()
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_every_block_is_compared_where_it_arrives(capsys: pytest.CaptureFixture[str], mode: str) -> None:
    code, said = transfer(capsys, given={"mode": mode})
    assert code == 0
    verified = [event for event in said if event["event"] == "verified"]
    assert [(event["blocks"], event["wrong"]) for event in verified] == [(8, 0), (8, 0)]
    assert said[-1]["bytes"] == 2 * SIZE and said[-1]["calls"] == 4


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_a_block_that_the_engine_left_out_is_found(capsys: pytest.CaptureFixture[str], mode: str) -> None:
    _, said = transfer(capsys, given={"mode": mode}, skip=4096)
    assert {event["wrong"] for event in said if event["event"] == "verified"} == {1}


def test_a_failed_layer_is_told_and_moved_again(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = transfer(capsys, fails=lambda nth: nth in (2, 3))
    kinds = [event["event"] for event in said if event["event"] not in ("progress", "layer")]
    assert code == 0
    assert kinds[kinds.index("error") :][:6] == ["error", "reconnect", "error", "reconnect", "recovered", "verified"]
    error = next(event for event in said if event["event"] == "error")
    assert error["words"] == "the copier broke" and error["status"] == 12 and error["seconds"] >= 0


def test_after_too_many_errors_in_a_row_the_client_gives_up(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = transfer(capsys, fails=lambda nth: nth > 1)
    assert code == 1 and said[-1]["failed_requests"] == 1 and said[-1]["bytes"] == SIZE // 2
    assert sum(event["event"] == "error" for event in said) == 3


def test_an_engines_end_is_a_program_that_says_what_is_missing() -> None:
    import subprocess

    ran = subprocess.run(
        [sys.executable, "-m", "rdmadiag.workloads.mooncake", "server", json.dumps({**GIVEN, "tcp_port": 1, "protocol": "tcp"})],
        capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "No module named 'mooncake'" in ran.stderr
