"""kv: our own KV-cache transfer, `rdmadiag kv serve` and `rdmadiag kv send`, every byte checked at both ends."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator

from rdmadiag.errors import BadInput
from rdmadiag.workloads._contract import CLIENT, SERVER, End, Host, Note, Parameter, Setting
from rdmadiag.workloads._place import package_path
from rdmadiag.workloads.command import Reader

TITLE = "KV-cache transfer with recovery, leases and checks (rdmadiag kv)"
PROGRAMS: dict[str, str] = {}
EXAMPLE = {"mode": "pull", "requests": 2, "serve": "--device {device}", "send": "--device {device}"}
ENGINE = None
PARAMETERS = (
    Parameter(
        "mode",
        "push",
        "who moves the data, and how it is told; dual: blocks of a store by RDMA and TCP",
        ("push", "push_imm", "pull", "dual"),
    ),
    Parameter("shape", "llama-3-70b-tp8", "shape of a block by name"),
    Parameter("layers", 4, "layers; 0: the shape's own"),
    Parameter("store", "16,64", "mode dual: blocks of the peer's store in memory and in a file"),
    Parameter("slots", 128, "slots for blocks at each end"),
    Parameter("requests", 4, "requests, one after another"),
    Parameter("tokens", 512, "prompt length of each"),
    Parameter("seconds", 0.0, "requests for so long instead; 0: by number"),
    Parameter("window", 32, "work requests outstanding on a queue pair"),
    Parameter("qps", 2, "queue pairs"),
    Parameter("deadline", 5.0, "seconds that a work request may take"),
    Parameter("tcp_port", 7000, "TCP port on which the ends meet"),
    Parameter("serve", "", "more options of kv serve; {device}, {gid_index}, {address}, {peer_address} are filled in"),
    Parameter("send", "", "more options of kv send, in the same way"),
    Parameter(
        "beside", "", "options of a second sender beside it, in the same way, of which nothing is read; none: none"
    ),
)
MANY = 1_000_000
BESIDE = "/tmp/kv-beside.out"


class Serving:
    """Reads the listening end's output."""

    def __call__(self, stream: int, line: str) -> Iterator[Note]:
        """Return the notes of a line."""
        if stream == 1 and '"rdmadiag.kv_serve/1"' in line:
            try:
                json.loads(line)
            except (ValueError, RecursionError):
                return
            yield Note("ready", {})
        elif stream == 2 and line.startswith("rdmadiag: "):
            yield Note("error", {"words": line.removeprefix("rdmadiag: "), "status": None})


class Sending:
    """Reads the events that the connecting end prints."""

    def __init__(self) -> None:
        self._events = Reader(re.compile(r"(?!)"))

    def __call__(self, stream: int, line: str) -> Iterator[Note]:
        """Return the notes of a line."""
        if stream == 1:
            yield from self._events(stream, line)
        elif line.startswith("rdmadiag: "):
            yield Note("error", {"words": line.removeprefix("rdmadiag: "), "status": None})


def _more(name: str, text: str, own: Host, peer: Host) -> list[str]:
    known = {**own._asdict(), **{f"peer_{key}": value for key, value in peer._asdict().items()}}
    try:
        return [word.format(**known) for word in shlex.split(text)]
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        raise BadInput(f"{name} = {text[:80]!r}: {error}; known in braces: {', '.join(sorted(known))}") from error


def ends(setting: Setting) -> dict[str, End]:
    """Return how each end is started. Raises BadInput."""
    given, client, server = setting.parameters, setting.client, setting.server
    shape = ["--shape", given["shape"], "--slots", str(given["slots"])]
    shape += ["--layers", str(given["layers"])] if given["layers"] else []
    base = [sys.executable, "-m", "rdmadiag", "kv"]
    reach = f"{server.plain_address}:{given['tcp_port']}"
    serve = ["serve", *shape, "--format", "json", "--port", str(given["tcp_port"])]
    serve += ["--store", given["store"]] if given["mode"] == "dual" else []
    serve += _more("serve", given["serve"], server, client)
    if "--host" not in serve:
        serve += ["--host", server.plain_address]
    send = ["send", reach, *shape, "--events"]
    send += ["--requests", str(MANY if given["seconds"] else given["requests"])]
    for name in ("mode", "tokens", "window", "qps", "deadline"):
        send += [f"--{name}", str(given[name])]
    send += _more("send", given["send"], client, server)
    started = [*base, *send]
    if given["beside"]:
        other = [*base, "send", reach, *shape, "--requests", str(MANY), "--tokens", str(given["tokens"])]
        other += ["--first-request", str(MANY + 1)]
        other += _more("beside", given["beside"], client, server)
        text = f"{shlex.join(other)} --progress < /dev/null > {BESIDE} 2>&1 & beside=$!\n"
        started = ["sh", "-c", f"{text}{shlex.join(started)}\ncode=$?; kill $beside; exit $code"]
    return {
        SERVER: End([*base, *serve], Serving(), package_path(), ends_with_input=True),
        CLIENT: End(started, Sending(), package_path(), seconds=given["seconds"]),
    }
