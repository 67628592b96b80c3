"""NIXL with its UCX back end on memory of the host, without a GPU and without torch.

The wheel brings a libibverbs of its own, under a name of its own, which looks for drivers where distributions do not put
them: it sees no rxe device. In the installed copy that name is made to lead to the system's library.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rdmadiag.workloads import _engine, _engine_end
from rdmadiag.workloads._contract import RDMA, TCP, End, Host, Parameter, Setting, WorkloadError
from rdmadiag.workloads._engine_end import EngineError, Memory
from rdmadiag.workloads._install import Engine

TITLE = "NIXL (UCX) on host memory, layer by layer, every block checked"
PROGRAMS: dict[str, str] = {}
EXAMPLE = {"mode": "pull", "requests": 3}
PARAMETERS = (
    *_engine.PARAMETERS,
    Parameter("tls", "rc_verbs,ud_verbs", "UCX's transports; tcp: no RDMA"),
    Parameter(
        "ucx_timeout", "250ms", "UCX_RC_VERBS_TIMEOUT (UCX's own default is 1 s: a dead peer is found after 8.6 s)"
    ),
    Parameter(
        "deadline", 30.0, "seconds after which a transfer that is still under way is given up: NIXL has no limit"
    ),
)

_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_LIBRARIES = ("libibverbs", "libmlx5")


def use_system_verbs(engine: Path) -> None:
    """Make the wheel's private names of libibverbs and libmlx5 lead to the system's libraries. Raises WorkloadError."""
    for name in _LIBRARIES:
        system = next((path for at in _SYSTEM if (path := Path(at, f"{name}.so.1")).exists()), None)
        found = (engine / "nixl_cu12.libs").glob(f"{name}-*.so*")
        private = sorted(path for path in found if path.suffix != ".wheel")
        if not private:
            raise WorkloadError(
                f"this wheel has no {name} of its own in nixl_cu12.libs; the version that was tried is {ENGINE.version}"
            )
        if system is None:
            raise WorkloadError(f"{name}.so.1 is not on this machine: apt-get install libibverbs1 ibverbs-providers")
        for path in private:
            path.rename(path.with_name(f"{path.name}.wheel"))
            path.symlink_to(system)


ENGINE = Engine("nixl-cu12", "1.5.1", "nixl_cu12._api", use_system_verbs)


def ends(setting: Setting) -> dict[str, End]:
    """Return how each end is started. Raises BadInput."""
    given = setting.parameters
    tcp = given["tls"] == "tcp"

    def variables(host: Host) -> Mapping[str, str]:
        return {
            "UCX_TLS": given["tls"],
            "UCX_NET_DEVICES": "all" if tcp else f"{host.device}:{host.port}",
            "UCX_IB_GID_INDEX": str(host.gid_index),
            "UCX_RC_VERBS_TIMEOUT": given["ucx_timeout"],
            "UCX_RC_TIMEOUT": given["ucx_timeout"],
            "UCX_KEEPALIVE_INTERVAL": "2s",
            "UCX_WARN_UNUSED_ENV_VARS": "n",
        }

    return _engine.ends("nixl", ENGINE, setting, TCP if tcp else RDMA, variables)


def _errors() -> tuple[type[Exception], ...]:
    # NIXL's errors have no class in common but Exception.
    from nixl_cu12 import _bindings

    found = vars(_bindings).items()
    return tuple(value for name, value in found if name.startswith("nixl") and name.endswith("Error"))


class Nixl:
    """One end's agent; agents of one role have different names, so that a restarted one is another peer."""

    def __init__(self, memory: Memory, given: Mapping[str, Any]) -> None:
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self._memory, self._deadline = memory, given["deadline"]
        settings = nixl_agent_config(enable_prog_thread=True, backends=[], capture_telemetry=True)
        try:
            self._agent = nixl_agent(f"rdmadiag-{secrets.token_hex(4)}", settings)
            self._agent.create_backend("UCX", {"ucx_error_handling_mode": "peer"})
            self._agent.register_memory([(memory.address, memory.size, 0, "kv")], "DRAM")
        except Exception as error:
            raise EngineError(f"{type(error).__name__}: {error}", type(error).__name__) from error
        self._peer, self._base = "", 0
        self._transfers = self._post_us = self._transfer_us = 0

    def describe(self) -> dict[str, Any]:
        """Return the agent's metadata, which holds its addresses and keys, and where the memory is."""
        return {
            "metadata": base64.b64encode(self._agent.get_agent_metadata()).decode(),
            "address": self._memory.address,
        }

    def connect(self, peer: Mapping[str, Any]) -> None:
        """Take the peer's metadata; an earlier peer is forgotten. Raises EngineError."""
        if self._peer:
            with contextlib.suppress(*_errors()):  # the agent drops a failed peer by itself
                self._agent.remove_remote_agent(self._peer)
        self._peer = self._agent.add_remote_agent(base64.b64decode(peer["metadata"]))
        self._base = peer["address"]

    def move(self, pull: bool, layer: int, ours: list[int], theirs: list[int], size: int) -> None:
        """Move blocks by one transfer and wait until it is done. Raises EngineError."""
        begun, state = time.monotonic(), "PROC"
        try:
            own = self._agent.get_xfer_descs([(self._memory.address + at, size, 0) for at in ours], "DRAM")
            other = self._agent.get_xfer_descs([(self._base + at, size, 0) for at in theirs], "DRAM")
            handle = self._agent.initialize_xfer("READ" if pull else "WRITE", own, other, self._peer)
            state = self._agent.transfer(handle)
            while state == "PROC" and time.monotonic() - begun < self._deadline:
                time.sleep(0.0005)
                state = self._agent.check_xfer_state(handle)
            if state == "DONE":
                told = self._agent.get_xfer_telemetry(handle)
                self._transfers += 1
                self._post_us += told.postDuration
                self._transfer_us += told.xferDuration
            self._agent.release_xfer_handle(handle)
        except Exception as error:
            raise EngineError(f"{type(error).__name__}: {error}", type(error).__name__) from error
        if state != "DONE":
            raise EngineError(f"transfer is {state} after {time.monotonic() - begun:.2f} s", state)

    def facts(self) -> dict[str, Any]:
        """Return what the engine's telemetry counted."""
        return {"transfers": self._transfers, "post_us": self._post_us, "transfer_us": self._transfer_us}


if __name__ == "__main__":
    _engine_end.main(Nixl)
