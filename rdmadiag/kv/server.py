"""The side that listens: accepts sessions on a control port, and their data channels on one port an address."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Sequence

from rdmadiag.kv import frames, wire
from rdmadiag.kv.arena import Arena
from rdmadiag.kv.layout import Shape, geometry
from rdmadiag.kv.session import U64, Options, Session, State
from rdmadiag.kv.store import Store
from rdmadiag.kv.tcp import GREETING, MAGIC, listen

PROTOCOL = 1
IDLE_SECONDS = 600.0
MOST_SESSIONS = 64


class Server:
    """An arena that peers may write (push) or read (pull), by TCP and by RDMA `devices`.

    TCP only by the netdev `bind`, where one is given. Blocks of a `store` are lent to peers that ask for them
    (rdmadiag.kv.dualpath). A context manager: leaving it ends all sessions and threads.
    """

    def __init__(
        self,
        shape: Shape,
        options: Options,
        hosts: Sequence[str] = ("127.0.0.1",),
        port: int = 0,
        devices: Sequence[str] = (),
        bind: str = "",
        store: Store | None = None,
    ) -> None:
        self.arena = Arena(geometry(shape, options.slots), secrets.randbits(62))
        self.state = State(self.arena, options, devices)
        if store is not None and (shape.planes != 1 or shape.piece_bytes != store.block_bytes):
            raise ValueError(
                f"a store of {store.block_bytes} bytes a block; wanted a shape of one plane of such pieces"
            )
        self.state.store = store
        self._sessions: dict[int, Session] = {}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._control = listen((hosts[0], port), bind)
        self._data = [listen((host, 0), bind) for host in hosts]
        self.address: tuple[str, int] = self._control.getsockname()[:2]
        self.data = ["{}:{}".format(*sock.getsockname()[:2]) for sock in self._data]
        self._start(self._accept, self._control, self._control_channel)
        for sock in self._data:
            self._start(self._accept, sock, self._data_channel)
        self._start(self._tick)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all sessions, then give the memory back."""
        self._stop.set()
        for sock in (self._control, *self._data, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for sock in (self._control, *self._data):
            sock.close()
        for thread in self._threads:
            thread.join(10.0)
        for session in list(self._sessions.values()):
            session.end()
        self.state.devices.close()
        self.arena.close()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the server is closed by another thread, or so long [s]."""
        self._stop.wait(seconds)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads = [each for each in self._threads if each.is_alive()]
        thread.start()
        self._threads.append(thread)

    def _tick(self) -> None:
        while not self._stop.wait(0.02):
            self.state.tick()
            for session in list(self._sessions.values()):
                session.arrived()

    def _accept(self, listener: socket.socket, serve: object) -> None:
        while not self._stop.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return  # closed
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._stop.is_set():
                sock.close()
                return
            self._start(serve, sock)

    def _data_channel(self, sock: socket.socket) -> None:
        sock.settimeout(5.0)
        try:
            head = sock.recv(GREETING.size, socket.MSG_WAITALL)
        except OSError:
            head = b""
        if len(head) == GREETING.size:
            magic, token = GREETING.unpack(head)
            for session in list(self._sessions.values()):
                if magic == MAGIC and token == session.token:
                    session.responder.serve(sock)
                    return
        sock.close()  # not one of ours

    def _control_channel(self, sock: socket.socket) -> None:
        session = None
        self._open.add(sock)
        try:
            session = self._hello(sock)
            while not self._stop.is_set():
                message = frames.receive(sock, IDLE_SECONDS)
                if message["type"] == "bye":
                    return
                session.arrived()
                answer = session.answer(message)
                if (
                    message["type"] != "plane" or "crcs" not in message
                ):  # CRCs that were told need no answer; `done` has it
                    frames.send(sock, answer)
        except frames.ProtocolError as error:
            with contextlib.suppress(frames.PeerGone):
                frames.send(sock, {"type": "refused", "why": str(error)}, 1.0)
        except frames.PeerGone:
            pass
        finally:
            self._open.discard(sock)
            sock.close()
            if session is not None:
                session.end()
                self._sessions.pop(session.number, None)

    def _hello(self, sock: socket.socket) -> Session:
        hello = frames.receive(sock, 10.0)
        shape = self.arena.geometry.shape
        if hello["type"] != "hello" or frames.number(hello, "protocol") != PROTOCOL:
            raise frames.ProtocolError(f"{hello['type'][:40]!r}: wanted hello of protocol {PROTOCOL}")
        theirs = frames.numbers(hello, "shape", 4)
        if theirs != list(shape):
            raise frames.ProtocolError(
                f"shape {theirs}: this side has {list(shape)}; give both the same model and blocks, and a side that is to "
                "serve --mode dual a --store"
            )
        if len(self._sessions) >= MOST_SESSIONS:
            raise frames.ProtocolError(f"{MOST_SESSIONS} sessions are open; no more are taken")
        session = Session(self.state, secrets.randbits(62), frames.number(hello, "incarnation", 0, U64))
        self._sessions[session.number] = session
        answer = {"type": "welcome", "incarnation": self.arena.incarnation, "slots": self.arena.geometry.slots}
        frames.send(
            sock,
            {
                **answer,
                "token": session.token,
                "rkey": session.rkey,
                "data": self.data,
                "devices": self.state.devices.names,
                "machine": wire.machine(),
            },
        )
        return session
