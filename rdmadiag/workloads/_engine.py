"""What the adapters of engines share on our side: parameters, how the two ends are started, and what engines print beside events."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.workloads._contract import CLIENT, SERVER, End, Host, Note, Parameter, Setting
from rdmadiag.workloads._install import Engine, folder, installed
from rdmadiag.workloads._place import package_path
from rdmadiag.workloads.command import Reader

PARAMETERS = (
    Parameter("mode", "push", "the client writes, or reads", ("push", "pull")),
    Parameter("layers", 4, "layers of a request: one call of the engine each"),
    Parameter("blocks", 16, "blocks of a layer; the page tables of the ends differ"),
    Parameter("block_bytes", 65536, "bytes of a block"),
    Parameter("requests", 2, "requests, one after another"),
    Parameter("seconds", 0.0, "requests for so long instead; 0: by number"),
    Parameter("retries", 8, "errors in a row after which the client gives up (backoff from 0.1 to 2 s)"),
    Parameter("tcp_port", 18600, "TCP port on which the ends meet"),
    Parameter("environment", "", "more of the engine's variables: NAME=value ..."),
)

_LOGS = (
    # glog and Abseil: E1130 09:45:25.123456  1234 worker_pool.cpp:277] words
    re.compile(
        r"(?P<level>[EFW])\d{4} \d\d:\d\d:\d\d\.\d{1,9}\s+\d{1,10} (?P<at>[\w./-]{1,120}:\d{1,6})\] (?P<words>.*)"
    ),
    # UCX: [1764496000.123456] [host:1234 :0]      ucp_ep.c:1234 UCX  ERROR words
    re.compile(
        r"\[\d{5,12}\.\d{1,9}\] \[[^\]]{1,120}\]\s+(?P<at>\S{1,80}:\d{1,6})\s+UCX\s+(?P<level>ERROR|WARN|FATAL)\s+(?P<words>.*)"
    ),
)
LOGS_MOST = 200
"""Lines of an engine's log, errors and warnings, that become notes; the last ones are kept as text anyway."""


class EngineReader:
    """Reads events on standard output, and errors and warnings of the engine's log on both streams."""

    def __init__(self) -> None:
        self._events, self._logs = Reader(re.compile(r"(?!)")), 0

    def __call__(self, stream: int, line: str) -> Iterator[Note]:
        """Return the notes of a line."""
        match = next((found for pattern in _LOGS if (found := pattern.match(line))), None)
        if match is None:
            if stream == 1:
                yield from self._events(stream, line)
        elif self._logs < LOGS_MOST:
            self._logs += 1
            yield Note("log", {"level": match["level"][0], "at": match["at"], "words": match["words"].strip()[:500]})


def variables(text: str) -> dict[str, str]:
    """Read NAME=value words. Raises BadInput."""
    pairs = [word.partition("=") for word in text.split()]
    if wrong := [name for name, found, _ in pairs if not found or not re.fullmatch(r"[A-Z][A-Z0-9_]*", name)]:
        raise BadInput(f"environment: {wrong[0]!r}; wanted NAME=value, the name in capitals")
    return {name: value for name, _, value in pairs}


def ends(
    name: str,
    engine: Engine,
    setting: Setting,
    carrier: str,
    of: Callable[[Host], Mapping[str, str]],
) -> dict[str, End]:
    """Return how each end is started; `of` gives the engine's variables for a host. Raises BadInput."""
    given, made = setting.parameters, {}
    own = variables(given["environment"])
    for role, host, peer in ((SERVER, setting.server, setting.client), (CLIENT, setting.client, setting.server)):
        settings: dict[str, Any] = {
            **{key: value for key, value in given.items() if key != "environment"},
            "device": host.device,
            "control": host.plain_address,
            "peer_control": peer.plain_address,
            "carrier": carrier,
            "version": f"{engine.package} {installed(name)}",
        }
        path = f"{package_path()['PYTHONPATH']}:{folder(name) or ''}".rstrip(":")
        environment = {**package_path(), "PYTHONPATH": path, **of(host), **own}
        argv = [sys.executable, "-m", f"rdmadiag.workloads.{name}", role, json.dumps(settings)]
        made[role] = End(argv, EngineReader(), environment, ends_with_input=role == SERVER, at_once=True)
    return made
