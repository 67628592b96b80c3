"""Posting of work requests in batches: the extended QP of libibverbs (ibv_wr_*), and lists of ibv_send_wr where a provider lacks it."""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from rdmadiag.verbs import library
from rdmadiag.verbs.errors import VerbsError

OPCODES = {
    "RDMA_WRITE": 0, "RDMA_WRITE_WITH_IMM": 1, "SEND": 2, "SEND_WITH_IMM": 3, "RDMA_READ": 4, "ATOMIC_CMP_AND_SWP": 5,
    "ATOMIC_FETCH_AND_ADD": 6,
}  # fmt: skip
"""enum ibv_wr_opcode, without IBV_WR_."""
FENCE, SIGNALED, SOLICITED, INLINE = 1, 2, 4, 8
"""enum ibv_send_flags."""
_SEND_OPS = sum(1 << number for number in OPCODES.values())  # enum ibv_qp_create_send_ops_flags has the same bits
_MASK_PD, _MASK_SEND_OPS = 1 << 0, 1 << 6
_RC = 2

Part = tuple[int, int, int, int, int]
"""One READ or WRITE of a batch: wr_id, local address, remote address, length, flags."""


class Sge(NamedTuple):
    """A piece of registered memory."""

    address: int
    length: int
    lkey: int


class Wr(NamedTuple):
    """A work request for a send queue. `inline` data is copied when it is posted and needs no lkey. Atomics are on 8 bytes:

    ATOMIC_FETCH_AND_ADD adds `compare_add`; ATOMIC_CMP_AND_SWP writes `swap` where `compare_add` was found. `sges` get what was there.
    """

    wr_id: int
    opcode: str
    sges: Sequence[Sge]
    remote_address: int = 0
    rkey: int = 0
    imm: int = 0
    flags: int = SIGNALED
    inline: bytes | bytearray | None = None
    compare_add: int = 0
    swap: int = 0


class Poster(Protocol):
    """Posts to one QP with one doorbell. A batch that is refused is not posted; of a list of ibv_send_wr a part may be."""

    def post(self, wrs: Iterable[Wr]) -> None:
        """Post work requests. Raises VerbsError."""

    def post_rdma(self, opcode: str, lkey: int, rkey: int, parts: Iterable[Part]) -> None:
        """Post READs or WRITEs of one piece each. Raises VerbsError."""


def create(
    pd: Any, context: Any, send_cq: Any, recv_cq: Any, capacity: Any, extended: bool = True
) -> tuple[Any, Poster]:
    """Make an RC QP of pyverbs and what posts to it. Raises VerbsError."""
    module = library.module("qp")
    if extended:
        wanted = module.QPInitAttrEx(
            qp_type=_RC, scq=send_cq, rcq=recv_cq, cap=capacity, pd=pd, comp_mask=_MASK_PD | _MASK_SEND_OPS,
            send_ops_flags=_SEND_OPS,
        )  # fmt: skip
        try:
            with library.calling("ibv_create_qp_ex RC"):
                qp = module.QPEx(context, wanted)
            return qp, _Extended(qp)
        except VerbsError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise
    with library.calling("ibv_create_qp RC"):
        qp = module.QP(pd, module.QPInitAttr(qp_type=_RC, scq=send_cq, rcq=recv_cq, cap=capacity, sq_sig_all=0))
    return qp, _Listed(qp)


class _Extended:
    def __init__(self, qp: Any) -> None:
        self._qp = qp
        self._wr = library.module("wr")
        self._sge = self._wr.SGE(0, 0, 0)

    def post_rdma(self, opcode: str, lkey: int, rkey: int, parts: Iterable[Part]) -> None:
        qp, sge = self._qp, self._sge
        start = {"RDMA_WRITE": qp.wr_rdma_write, "RDMA_READ": qp.wr_rdma_read}[opcode]
        set_sge = qp.wr_set_sge
        sge.lkey = lkey
        qp.wr_start()
        for wr_id, local, remote, length, flags in parts:
            qp.wr_id = wr_id
            qp.wr_flags = flags
            start(rkey, remote)
            sge.addr = local
            sge.length = length
            set_sge(sge)
        self._complete()

    def post(self, wrs: Iterable[Wr]) -> None:
        qp = self._qp
        qp.wr_start()
        with contextlib.ExitStack() as unless_whole:
            unless_whole.callback(qp.wr_abort)
            for wr in wrs:
                self._one(wr)
            unless_whole.pop_all()
        self._complete()

    def _one(self, wr: Wr) -> None:
        qp = self._qp
        qp.wr_id = wr.wr_id
        qp.wr_flags = wr.flags & ~INLINE if wr.inline is None else wr.flags | INLINE  # rxe looks for the flag here too
        if wr.opcode == "RDMA_WRITE":
            qp.wr_rdma_write(wr.rkey, wr.remote_address)
        elif wr.opcode == "RDMA_READ":
            qp.wr_rdma_read(wr.rkey, wr.remote_address)
        elif wr.opcode == "RDMA_WRITE_WITH_IMM":
            qp.wr_rdma_write_imm(wr.rkey, wr.remote_address, wr.imm)
        elif wr.opcode == "SEND":
            qp.wr_send()
        elif wr.opcode == "SEND_WITH_IMM":
            qp.wr_send_imm(wr.imm)
        elif wr.opcode == "ATOMIC_CMP_AND_SWP":
            qp.wr_atomic_cmp_swp(wr.rkey, wr.remote_address, wr.compare_add, wr.swap)
        elif wr.opcode == "ATOMIC_FETCH_AND_ADD":
            qp.wr_atomic_fetch_add(wr.rkey, wr.remote_address, wr.compare_add)
        else:
            raise ValueError(f"no opcode {wr.opcode!r}; known: {', '.join(OPCODES)}")
        if wr.inline is not None:
            data = bytearray(wr.inline)  # copied into the queue before this returns
            qp.wr_set_inline_data(_address(data), len(data))
        else:
            sges = [self._wr.SGE(one.address, one.length, one.lkey) for one in wr.sges]
            qp.wr_set_sge_list(len(sges), sges)

    def _complete(self) -> None:
        with library.calling(f"ibv_wr_complete on QP {self._qp.qp_num}"):
            self._qp.wr_complete()


class _Listed:
    """For providers whose QPs have no ibv_wr_* (EOPNOTSUPP): one ibv_post_send of a linked list."""

    def __init__(self, qp: Any) -> None:
        self._qp = qp

    def post_rdma(self, opcode: str, lkey: int, rkey: int, parts: Iterable[Part]) -> None:
        self.post(
            Wr(wr_id, opcode, (Sge(local, length, lkey),), remote, rkey, 0, flags)
            for wr_id, local, remote, length, flags in parts
        )

    def post(self, wrs: Iterable[Wr]) -> None:
        Prepared(self._qp, wrs).post()


class Prepared:
    """A list of work requests that is made once and posted with one call, as often as wanted: posting costs Python nothing for each."""

    def __init__(self, qp: Any, wrs: Iterable[Wr]) -> None:
        self._qp = qp
        self._inline: list[bytearray] = []
        self._made = [self._one(library.module("wr"), wr) for wr in wrs]
        for one, after in itertools.pairwise(self._made):
            one.next_wr = after

    def __len__(self) -> int:
        return len(self._made)

    def _one(self, module: Any, wr: Wr) -> Any:
        sges, flags = list(wr.sges), wr.flags & ~INLINE
        if wr.inline is not None:
            data = bytearray(wr.inline)
            self._inline.append(data)
            sges, flags = [Sge(_address(data), len(data), 0)], flags | INLINE
        # pyverbs wants one piece at least; one of no bytes is the same request.
        parts = [module.SGE(one.address, one.length, one.lkey) for one in sges or [Sge(0, 0, 0)]]
        made = module.SendWR(wr.wr_id, OPCODES[wr.opcode], len(parts), socket.htonl(wr.imm), parts, flags)
        if wr.opcode.startswith("ATOMIC"):
            made.set_wr_atomic(wr.rkey, wr.remote_address, wr.compare_add, wr.swap)
        elif wr.opcode.startswith("RDMA"):
            made.set_wr_rdma(wr.rkey, wr.remote_address)
        return made

    def post(self) -> None:
        """Post them with one doorbell. Raises VerbsError; then a part of them may have been posted."""
        if self._made:
            with library.calling(f"ibv_post_send on QP {self._qp.qp_num}"):
                self._qp.post_send(self._made[0])


class Receives:
    """A list of receives (wr_id, memory; no memory takes immediates of WRITEs), made once and posted with one call, as often as wanted."""

    def __init__(self, qp: Any, receives: Iterable[tuple[int, Sequence[Sge]]]) -> None:
        self._qp = qp
        self._made: list[Any] = []
        module = library.module("wr")
        for wr_id, sges in reversed(list(receives)):
            parts = [module.SGE(one.address, one.length, one.lkey) for one in sges or (Sge(0, 0, 0),)]
            after = self._made[-1] if self._made else None
            self._made.append(module.RecvWR(wr_id, len(parts), parts, after))

    def __len__(self) -> int:
        return len(self._made)

    def post(self) -> int:
        """Post them; return how many. Raises VerbsError; then a part of them may have been posted."""
        if self._made:
            with library.calling(f"ibv_post_recv on QP {self._qp.qp_num}"):
                self._qp.post_recv(self._made[-1])
        return len(self._made)


def _address(data: bytearray) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(data)) if data else 0
