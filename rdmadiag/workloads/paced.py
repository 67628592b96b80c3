"""paced: a WRITE, a READ and a SEND over one RC connection, again and again, with sleep in between: work that leaves a host its processor.

The ends are this file run as a program (`python -m rdmadiag.workloads.paced client '{...}'`). They meet over TCP; after a failed
completion both make new queue pairs and meet again. Each end is called as its process name says (rdma-client, rdma-server).
"""

from __future__ import annotations

import contextlib
import json
import mmap
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rdmadiag.errors import RdmadiagError
from rdmadiag.explain import wc_status
from rdmadiag.verbs.exchange import BadOffer
from rdmadiag.workloads._contract import CLIENT, RDMA, SERVER, End, Parameter, Setting, line
from rdmadiag.workloads._place import package_path
from rdmadiag.workloads.command import Reader

TITLE = "a WRITE, a READ and a SEND at a steady pace over one RC connection"
PROGRAMS: dict[str, str] = {}
EXAMPLE = {"seconds": 3.0}
ENGINE = None
PARAMETERS = (
    Parameter("size", 16384, "bytes of each WRITE"),
    Parameter("read", 4096, "bytes of each READ"),
    Parameter("pause", 0.1, "seconds from one round to the next, at least"),
    Parameter("receives", 16, "receives that the server keeps posted"),
    Parameter("rc", "timeout=17,retry_cnt=4,rnr_retry=7,min_rnr_timer=12", "RC attributes, as of rdmadiag kv"),
    Parameter("scratch", 0, "bytes that the server takes from the kernel and gives back at each message"),
    Parameter(
        "register", 0, "bytes that the server, which is nobody then and not root, registers anew at each message"
    ),
    Parameter("deadline", 8.0, "seconds after which a round without completions is given up"),
    Parameter("seconds", 0.0, "stop so long after READY; 0: never"),
    Parameter("tcp_port", 7471, "TCP port on which the ends meet"),
)
MESSAGE = 64
"""Bytes of each SEND."""
_NOBODY = (
    "setpriv",
    "--reuid",
    "65534",
    "--regid",
    "65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
)
"""root and CAP_IPC_LOCK are not bound by a limit of locked memory."""
_MEET_SECONDS = 5.0
_AGAIN_SECONDS = 0.2
_TOLD_SECONDS = 0.25


def ends(setting: Setting) -> dict[str, End]:
    """Return how each end is started."""
    given = setting.parameters
    made = {}
    for role, host in ((SERVER, setting.server), (CLIENT, setting.client)):
        order = {
            **{
                name: given[name]
                for name in ("size", "read", "pause", "receives", "rc", "scratch", "register", "deadline", "tcp_port")
            },
            "device": host.device,
            "gid_index": host.gid_index,
            "meet": setting.server.plain_address,
        }
        argv = [sys.executable, "-m", "rdmadiag.workloads.paced", role, json.dumps(order)]
        if role == SERVER and given["register"]:
            argv = [*_NOBODY, *argv]
        seconds = given["seconds"] if role == CLIENT else 0.0
        made[role] = End(argv, Reader(re.compile(r"(?!)"), carrier=RDMA), package_path(), seconds=seconds)
    return made


def main(role: str, order: Mapping[str, Any]) -> None:
    """Be one end, until it is killed."""
    with open("/proc/self/comm", "w", encoding="ascii") as name:
        name.write(f"rdma-{role}")
    from rdmadiag.verbs.attributes import parse
    from rdmadiag.verbs.endpoint import Endpoint

    size = max(order["size"], order["read"]) + MESSAGE
    with Endpoint(
        order["device"], size, parse(order["rc"]), depth=16, gid_index=order["gid_index"], channel=True
    ) as here:
        (_serve if role == SERVER else _drive)(here, order)


def _say(event: str, **values: Any) -> None:
    sys.stdout.write(line({"event": event, **values}) + "\n")
    sys.stdout.flush()


def _failed(one: Any) -> None:
    # Said as the examples of rdma-core say it, for people and for `rdmadiag check`.
    number = wc_status.number(one.status)
    known = wc_status.lookup(number) if number is not None else None
    text = known["text"] if known else one.status
    words = f"Failed status {text} ({number}) for wr_id {one.wr_id}"
    sys.stderr.write(f"{words}, QPN {one.qpn}\n")
    sys.stderr.flush()
    _say("error", words=words, status=one.status)


def _serve(here: Any, order: Mapping[str, Any]) -> None:
    from rdmadiag.verbs import exchange

    listener = socket.create_server((order["meet"], order["tcp_port"]))
    _say("ready", carrier=RDMA)
    while True:
        link, _ = listener.accept()
        with link:
            try:
                theirs = exchange.swap(link, here.offer(), _MEET_SECONDS)
                here.connect(theirs)
                place = here.sge(here.mr.length - MESSAGE, MESSAGE)
                here.qp.post_receives((number, [place]) for number in range(order["receives"]))
                link.sendall(b"go\n")
                _consume(here, link, place, order)
                link.sendall(b"bye\n")
            except (RdmadiagError, OSError) as error:
                _say("error", words=f"the connection is gone: {error}", status=None)
        _anew(here)


def _consume(here: Any, link: socket.socket, place: Any, order: Mapping[str, Any]) -> None:
    """Post a receive for each that came, until the peer goes or a completion failed."""
    link.setblocking(False)
    while True:
        for one in here.cq.wait(0.5):
            if not one.ok:
                _failed(one)
                return
            here.qp.post_receives([(one.wr_id, [place])])
            if order["scratch"]:
                _touch(order["scratch"])
            if order["register"]:
                _register(here, order["register"])
        with contextlib.suppress(BlockingIOError):
            if not link.recv(1):
                return


def _touch(length: int) -> None:
    # Not by malloc, which keeps what was given back to it.
    with mmap.mmap(-1, length) as memory:
        memory[::4096] = bytes(len(range(0, length, 4096)))


def _register(here: Any, length: int) -> None:
    from rdmadiag.verbs.mr import Mr

    try:
        with Mr(here.pd, length):
            pass
    except RdmadiagError as error:
        _say("error", words=str(error), status=None)


def _anew(here: Any) -> None:
    # Where the GID is gone, it cannot be had back yet: again until it can.
    while True:
        try:
            here.anew()
            return
        except RdmadiagError as error:
            _say("error", words=str(error), status=None)
            time.sleep(1.0)


def _drive(here: Any, order: Mapping[str, Any]) -> None:
    """Do rounds; after a failure connect again, until it works."""
    told, moved, failed_at = False, 0, 0.0
    while True:
        try:
            with _met(here, order) as (link, theirs):
                if not told:
                    _say("ready", carrier=RDMA)
                    told = True
                else:
                    _say("reconnect", why="a request failed")
                for nbytes in _rounds(here, link, theirs.memory, order):
                    moved += nbytes
                    if failed_at:
                        _say("recovered", seconds=round(time.monotonic() - failed_at, 3))
                        failed_at = 0.0
                    _progress(moved)
        except (RdmadiagError, OSError) as error:
            _say("error", words=f"no connection: {error}", status=None)
            time.sleep(1.0)
        failed_at = failed_at or time.monotonic()
        time.sleep(_AGAIN_SECONDS)
        _anew(here)


@contextlib.contextmanager
def _met(here: Any, order: Mapping[str, Any]) -> Iterator[Any]:
    from rdmadiag.verbs import exchange

    with socket.create_connection((order["meet"], order["tcp_port"]), _MEET_SECONDS) as link:
        theirs = exchange.swap(link, here.offer(), _MEET_SECONDS)
        here.connect(theirs)
        if link.recv(3) != b"go\n":
            raise BadOffer("the peer closed the connection")
        link.setblocking(False)
        yield link, theirs


_last_told = 0.0


def _progress(moved: int) -> None:
    global _last_told
    if time.monotonic() - _last_told >= _TOLD_SECONDS:
        _last_told = time.monotonic()
        _say("progress", bytes=moved)


def _rounds(here: Any, link: socket.socket, theirs: Any, order: Mapping[str, Any]) -> Iterator[int]:
    """Yield the bytes of each round that is done; ends when one failed."""
    size, read = order["size"], order["read"]
    requests = [
        here.wr(theirs, 1, "RDMA_WRITE", size),
        here.wr(theirs, 2, "RDMA_READ", read),
        here.wr(theirs, 3, "SEND", MESSAGE, size),
    ]
    while True:
        start = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            said = link.recv(4)
            raise BadOffer("the peer gave the connection up" if said else "the peer's connection ended without a word")
        here.qp.post(requests)
        done = 0
        while done < len(requests):
            found = here.cq.wait(max(0.0, start + order["deadline"] - time.monotonic()))
            if not found:
                _say("error", words=f"no completion within {order['deadline']:g} s", status=None)
                return
            for one in found:
                if not one.ok:
                    _failed(one)
                    return
            done += len(found)
        yield size + read + MESSAGE
        time.sleep(max(0.0, start + order["pause"] - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
