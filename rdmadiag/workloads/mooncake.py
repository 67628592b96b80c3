"""Mooncake's Transfer Engine on memory of the host, without a GPU and without a metadata service.

Its protocol "rdma" becomes TCP, with return code 0, where it finds no adapter, unless MC_FORCE_HCA is set: `force_hca=false`
shows that, and the devices' counters find it out. MC_GID_INDEX pins the GID; without it the engine ranks them by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rdmadiag.workloads import _engine, _engine_end
from rdmadiag.workloads._contract import End, Host, Parameter, Setting
from rdmadiag.workloads._engine_end import EngineError, Memory
from rdmadiag.workloads._install import Engine

TITLE = "Mooncake Transfer Engine on host memory, layer by layer, every block checked"
PROGRAMS: dict[str, str] = {}
EXAMPLE = {"mode": "push", "requests": 3}
ENGINE = Engine("mooncake-transfer-engine-non-cuda", "0.3.13.post1", "mooncake.engine")
PARAMETERS = (
    *_engine.PARAMETERS,
    Parameter("protocol", "rdma", "what the engine is asked for", ("rdma", "tcp")),
    Parameter("force_hca", True, "fail where no adapter is found, instead of using TCP"),
    Parameter("devices", "", "adapters that it is told to use, instead of the host's device"),
)


def ends(setting: Setting) -> dict[str, End]:
    """Return how each end is started. Raises BadInput."""
    given = setting.parameters

    def variables(host: Host) -> Mapping[str, str]:
        made = {"MC_GID_INDEX": str(host.gid_index), "GLOG_logtostderr": "1"}
        return {**made, "MC_FORCE_HCA": "1"} if given["force_hca"] and given["protocol"] == "rdma" else made

    return _engine.ends("mooncake", ENGINE, setting, given["protocol"], variables)


class Mooncake:
    """One end's engine."""

    def __init__(self, memory: Memory, given: Mapping[str, Any]) -> None:
        from mooncake.engine import TransferEngine

        self._engine, self._memory = TransferEngine(), memory
        device = (given["devices"] or given["device"]) if given["protocol"] == "rdma" else ""
        self._called("initialize", given["control"], "P2PHANDSHAKE", given["protocol"], device)
        self._called("register_memory", memory.address, memory.size)
        self._session = f"{given['control']}:{self._engine.get_rpc_port()}"
        self._peer, self._base = "", 0

    def _called(self, name: str, *arguments: Any) -> None:
        code = getattr(self._engine, name)(*arguments)
        if code:
            raise EngineError(f"TransferEngine.{name} returned {code}", code)

    def describe(self) -> dict[str, Any]:
        """Return the session's name and where the memory is."""
        return {"session": self._session, "address": self._memory.address}

    def connect(self, peer: Mapping[str, Any]) -> None:
        """Take the peer's session; the engine connects with the first transfer."""
        self._peer, self._base = peer["session"], peer["address"]

    def move(self, pull: bool, layer: int, ours: list[int], theirs: list[int], size: int) -> None:
        """Move blocks by one batch call, which waits. Raises EngineError."""
        own = [self._memory.address + offset for offset in ours]
        other = [self._base + offset for offset in theirs]
        name = "batch_transfer_sync_read" if pull else "batch_transfer_sync_write"
        self._called(name, self._peer, own, other, [size] * len(own))

    def facts(self) -> dict[str, Any]:
        """Return nothing: the engine counts nothing that it tells."""
        return {}


if __name__ == "__main__":
    _engine_end.main(Mooncake)
