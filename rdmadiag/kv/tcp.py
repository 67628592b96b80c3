"""The TCP transport: one connection a QP, one-sided WRITE and READ served by threads of the peer, statuses of verbs.

A request is a header (op, imm, wr_id, rkey, offset, length; then the payload of a WRITE), an answer is (status, wr_id,
length; then the payload of a READ). A key that is not registered, or an access beyond the arena, is refused with
REM_ACCESS_ERR and the connection does nothing more, as an RC QP would. A lost connection is reported as
RETRY_EXC_ERR: the requester does not know what arrived.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rdmadiag.explain import wc_status
from rdmadiag.kv.transport import FLUSHED, OPS, READ, SUCCESS, WRITE_WITH_IMM, Completion, Work

REQUEST = struct.Struct("!B3xIQQQI")  # op, imm, wr_id (two's complement), rkey, offset, length
ANSWER = struct.Struct("!B3xQI")  # status, wr_id, length
GREETING = struct.Struct("!8sQ")  # magic, token of the session
MAGIC = b"rdmadKV1"
MOST_BYTES = 64 << 20
"""Longest work request [bytes]."""
_STATUS = {name: number for number, name in enumerate(wc_status.NAMES)}
_MASK = (1 << 64) - 1


def dial(address: tuple[str, int], seconds: float, bind: str = "") -> socket.socket:
    """Connect by a netdev (SO_BINDTODEVICE), or as the routes say. Raises OSError.

    Bound to the netdevs of two hosts of a lab's kernel, TCP crosses the switch; unbound it would go by loopback.
    """
    if not bind:
        return socket.create_connection(address, seconds)
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(seconds)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, bind.encode())
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


def listen(address: tuple[str, int], bind: str = "") -> socket.socket:
    """Listen on an address, for what comes by one netdev only where one is given. Raises OSError."""
    if not bind:
        return socket.create_server(address)
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, bind.encode())
        sock.bind(address)
        sock.listen()
    except OSError:
        sock.close()
        raise
    return sock


class _Qp:
    """The requester's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.out: deque[memoryview] = deque()
        self.waiting: deque[Work] = deque()
        self.head = bytearray()
        self.body = 0  # bytes of a READ's payload that are still to come
        self.failed = False


class TcpTransport:
    """Connected data channels of a session; keeps to Transport. `arena` is the memory that `local` offsets are in."""

    kind = "tcp"

    def __init__(
        self,
        address: tuple[str, int],
        token: int,
        rkey: int,
        arena: memoryview,
        qps: int = 2,
        depth: int = 256,
        seconds: float = 5.0,
        bind: str = "",
    ) -> None:
        self.qps, self.depth, self._rkey, self._arena = qps, depth, rkey, arena
        self._ends: list[_Qp] = []
        self._completions: list[Completion] = []
        self._selector = selectors.DefaultSelector()
        try:
            for index in range(qps):
                sock = dial(address, seconds, bind)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.sendall(GREETING.pack(MAGIC, token))
                sock.setblocking(False)
                self._ends.append(_Qp(sock))
                self._selector.register(sock, selectors.EVENT_READ, index)
        except OSError:
            self.close()
            raise

    def post(self, works: Sequence[Work]) -> int:
        """Queue works; what the socket takes at once goes out now."""
        for count, work in enumerate(works):
            end = self._ends[work.qp]
            if len(end.waiting) >= self.depth:
                return count
            if end.failed:
                self._completions.append(Completion(work.wr_id, FLUSHED, work.qp))
                continue
            end.waiting.append(work)
            head = REQUEST.pack(
                OPS.index(work.op), work.imm or 0, work.wr_id & _MASK, self._rkey, work.remote, work.length
            )
            end.out.append(memoryview(head))
            if work.op != READ and work.length:
                end.out.append(self._arena[work.local : work.local + work.length])
            self._send(work.qp)
        return len(works)

    def poll(self, seconds: float) -> list[Completion]:
        """Send and receive what the sockets take and have."""
        for key, events in self._selector.select(0 if self._completions else seconds):
            if events & selectors.EVENT_WRITE:
                self._send(key.data)
            if events & selectors.EVENT_READ:
                self._receive(key.data)
        found, self._completions = self._completions, []
        return found

    def error(self, qp: int) -> None:
        """Close the connection: what was not sent stays unsent, and everything outstanding is flushed."""
        self._fail(qp, FLUSHED)

    def close(self) -> None:
        """Close all connections."""
        for index in range(len(self._ends)):
            self._fail(index, FLUSHED)
        self._selector.close()

    def _fail(self, qp: int, status: str) -> None:
        end = self._ends[qp]
        if end.failed:
            return
        end.failed = True
        self._selector.unregister(end.sock)
        end.sock.close()
        for work in end.waiting:
            self._completions.append(Completion(work.wr_id, status, qp))
            status = FLUSHED
        end.waiting.clear()
        end.out.clear()

    def _send(self, qp: int) -> None:
        end = self._ends[qp]
        try:
            while end.out and not end.failed:
                sent = end.sock.sendmsg([end.out[n] for n in range(min(16, len(end.out)))])
                while sent:
                    first = end.out[0]
                    if sent < len(first):
                        end.out[0] = first[sent:]
                        break
                    sent -= len(first)
                    end.out.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._fail(qp, "RETRY_EXC_ERR")
            return
        if not end.failed:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if end.out else 0)
            if self._selector.get_key(end.sock).events != wanted:
                self._selector.modify(end.sock, wanted, qp)

    def _receive(self, qp: int) -> None:
        end = self._ends[qp]
        try:
            while not end.failed:
                if end.body:
                    work = end.waiting[0]
                    start = work.local + work.length - end.body
                    count = end.sock.recv_into(self._arena[start : start + end.body])
                    end.body -= count
                    if count and not end.body:
                        self._complete(qp)
                else:
                    part = end.sock.recv(ANSWER.size - len(end.head))
                    count = len(part)
                    end.head += part
                    if len(end.head) == ANSWER.size:
                        self._answered(qp)
                if not count:
                    self._fail(qp, "RETRY_EXC_ERR")
        except BlockingIOError:
            pass
        except OSError:
            self._fail(qp, "RETRY_EXC_ERR")

    def _answered(self, qp: int) -> None:
        end = self._ends[qp]
        status, wr_id, length = ANSWER.unpack(end.head)
        end.head.clear()
        work = end.waiting[0] if end.waiting else None
        wanted = work.length if work and work.op == READ and status == 0 else 0
        if work is None or wr_id != work.wr_id & _MASK or length != wanted or status >= len(wc_status.NAMES):
            self._fail(qp, "BAD_RESP_ERR")  # the peer does not keep to the protocol
        elif status:
            self._fail(qp, wc_status.NAMES[status])
        elif length:
            end.body = length
        else:
            self._complete(qp)

    def _complete(self, qp: int) -> None:
        work = self._ends[qp].waiting.popleft()
        if work.signaled:
            self._completions.append(Completion(work.wr_id, SUCCESS, qp))


class Access(NamedTuple):
    """What a registered key allows: a memory region of the responder."""

    memory: memoryview
    remote_write: bool = True


class Responder:
    """The other end: serves one connection after another of a session in threads, and ends them for good when it is fenced."""

    def __init__(self, key_of: Callable[[int], Access | None], receives: int = 64) -> None:
        self._key_of = key_of
        self._threads: list[threading.Thread] = []
        self._socks: list[socket.socket] = []
        self._lock = threading.Lock()
        self._fenced = False
        self._receives = receives
        self.arrived: deque[int] = deque()
        self.wake = threading.Event()
        self.written_bytes = self.read_bytes = 0

    def post_receives(self, count: int) -> None:
        """Post receives for immediates."""
        with self._lock:
            self._receives += count

    def serve(self, sock: socket.socket) -> bool:
        """Serve a connection in a thread of its own; False (and closed) when the session is fenced."""
        with self._lock:
            if self._fenced:
                sock.close()
                return False
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True, name="kv responder")
            self._socks.append(sock)
            self._threads.append(thread)
            thread.start()  # under the lock: a fence must find it started
        return True

    def fence(self, seconds: float = 5.0) -> bool:
        """Move all QPs to ERR: close the connections and wait for their threads. True when none can write any more."""
        with self._lock:
            self._fenced = True
            socks, threads = list(self._socks), list(self._threads)
        for sock in socks:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed already
        for thread in threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in threads)

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            sock.settimeout(None)
            try:
                while self._one(sock):
                    pass
                self._swallow(sock)
            except OSError:
                pass  # the requester went away, or this side was fenced

    def _one(self, sock: socket.socket) -> bool:
        """Serve one request; False after an error: the QP is in ERR and answers nothing more."""
        head = _read(sock, REQUEST.size)
        if head is None:
            return False
        op, imm, wr_id, rkey, offset, length = REQUEST.unpack(head)
        access = self._key_of(rkey)
        status = "SUCCESS"
        if op >= len(OPS) or length > MOST_BYTES:
            status = "REM_INV_REQ_ERR"
        elif (
            access is None
            or offset + length > len(access.memory)
            or (op != OPS.index(READ) and not access.remote_write)
        ):
            status = "REM_ACCESS_ERR"
        elif OPS[op] == WRITE_WITH_IMM and not self._take_receive():
            status = "RNR_RETRY_EXC_ERR"
        if status != "SUCCESS" or access is None:
            if op < len(OPS) and OPS[op] != READ and length <= MOST_BYTES:
                _discard(sock, length)
            sock.sendall(ANSWER.pack(_STATUS[status], wr_id, 0))
            return False
        if OPS[op] == READ:
            sock.sendall(ANSWER.pack(0, wr_id, length))
            sock.sendall(access.memory[offset : offset + length])
            self.read_bytes += length
            return True
        if not _into(sock, access.memory[offset : offset + length]):
            return False
        self.written_bytes += length
        if OPS[op] == WRITE_WITH_IMM:
            self.arrived.append(imm)
            self.wake.set()
        sock.sendall(ANSWER.pack(0, wr_id, 0))
        return True

    def _take_receive(self) -> bool:
        with self._lock:
            taken = self._receives > 0
            self._receives -= taken
        return taken

    @staticmethod
    def _swallow(sock: socket.socket) -> None:
        # Read on until the requester closes: closing first would reset the connection, and the answer with it.
        sock.settimeout(5.0)
        while sock.recv(1 << 16):
            pass


def _read(sock: socket.socket, length: int) -> bytes | None:
    data = bytearray(length)
    return bytes(data) if _into(sock, memoryview(data)) else None


def _into(sock: socket.socket, memory: memoryview) -> bool:
    while memory:
        count = sock.recv_into(memory)
        if not count:
            return False
        memory = memory[count:]
    return True


def _discard(sock: socket.socket, length: int) -> None:
    while length > 0 and (part := sock.recv(min(length, 1 << 16))):
        length -= len(part)
