"""RC queue pairs: their life cycle, every transition checked by the QP state machine of rdmadiag.explain.qp_states; posting; drain."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.explain import qp_states
from rdmadiag.verbs import library, posting
from rdmadiag.verbs.attributes import RcAttributes
from rdmadiag.verbs.cq import Completion, Cq
from rdmadiag.verbs.device import Pd
from rdmadiag.verbs.errors import NotFinished, VerbsError, WrongTransition
from rdmadiag.verbs.mr import ALL_ACCESS, access_mask
from rdmadiag.verbs.posting import Sge, Wr

_FIELDS = {
    "CUR_STATE": "cur_qp_state", "EN_SQD_ASYNC_NOTIFY": "en_sqd_async_notify", "ACCESS_FLAGS": "qp_access_flags",
    "PKEY_INDEX": "pkey_index", "PORT": "port_num", "QKEY": "qkey", "AV": "ah_attr", "PATH_MTU": "path_mtu",
    "TIMEOUT": "timeout", "RETRY_CNT": "retry_cnt", "RNR_RETRY": "rnr_retry", "RQ_PSN": "rq_psn", "SQ_PSN": "sq_psn",
    "MAX_QP_RD_ATOMIC": "max_rd_atomic", "MAX_DEST_RD_ATOMIC": "max_dest_rd_atomic", "MIN_RNR_TIMER": "min_rnr_timer",
    "ALT_PATH": "alt_ah_attr", "PATH_MIG_STATE": "path_mig_state", "CAP": "cap", "DEST_QPN": "dest_qp_num",
}  # fmt: skip
"""Field of pyverbs' QPAttr for each attribute."""
MARK = (1 << 64) - 0xD7A1
"""wr_id of the requests that `drain` posts."""


class Peer(NamedTuple):
    """What one end must know of the other's QP: `gid` as an IPv6 address in full, `mtu` its active MTU [bytes]."""

    qpn: int
    psn: int
    gid: str
    mtu: int = 4096
    lid: int = 0
    rd_atomic: int = 16


class Qp:
    """An RC queue pair, made in RESET. A context manager. Raises VerbsError when it cannot be made."""

    def __init__(
        self,
        pd: Pd,
        send_cq: Cq,
        recv_cq: Cq | None = None,
        send_depth: int = 256,
        recv_depth: int = 256,
        sges: int = 4,
        inline_bytes: int = 0,
    ) -> None:
        self.device, self.pd = pd.device, pd
        self.send_cq, self.recv_cq = send_cq, recv_cq or send_cq
        self.send_depth = send_depth
        # One more each: for the marks of `drain`.
        capacity = library.module("qp").QPCap(
            max_send_wr=send_depth + 1, max_recv_wr=recv_depth + 1, max_send_sge=sges, max_recv_sge=sges,
            max_inline_data=inline_bytes,
        )  # fmt: skip
        self.qp, self._poster = posting.create(pd.pd, self.device.context, send_cq.cq, self.recv_cq.cq, capacity)
        self.qpn = int(self.qp.qp_num)
        self._drained = False

    def __enter__(self) -> Qp:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Destroy it; may be called twice. What it had in its completion queues is gone from them."""
        with library.calling(f"ibv_destroy_qp {self.qpn}"):
            self.qp.close()

    # --- states ---

    @property
    def state(self) -> str:
        """Its state, asked of the kernel: it may have gone to ERR by itself."""
        return qp_states.STATES[self.attributes().qp_state]

    def attributes(self) -> Any:
        """Return all attributes (pyverbs' QPAttr) as the kernel has them."""
        with library.calling(f"ibv_query_qp {self.qpn}"):
            return self.qp.query(sum(qp_states.BITS.values()) & 0x1FFFFF)[0]

    def modify(self, new: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Go to a state with attributes by their names in qp_states.BITS. Raises WrongTransition before the kernel is asked.

        VerbsError says that the kernel refused it all the same: then a value is wrong, not the mask.
        """
        given = dict(attributes or {})
        unknown = [name for name in given if name not in _FIELDS]
        if unknown:
            raise ValueError(f"no attributes {unknown}; known: {', '.join(_FIELDS)}")
        old = self.state
        mask = qp_states.BITS["STATE"] | sum(qp_states.BITS[name] for name in given)
        wanted = library.module("qp").QPAttr()
        wanted.qp_state = qp_states.STATES.index(new)
        for name, value in given.items():
            setattr(wanted, _FIELDS[name], value)
        self._modify(old, new, wanted, mask)

    def modify_as_told(self, new: str, wanted: Any, mask: int) -> None:
        """Go to a state with attributes and mask from elsewhere: rdma_init_qp_attr. Raises WrongTransition, VerbsError."""
        self._modify(self.state, new, wanted, mask | qp_states.BITS["STATE"])

    def _modify(self, old: str, new: str, wanted: Any, mask: int) -> None:
        verdict = qp_states.check(old, new, "RC", mask)
        if not verdict.ok:
            raise WrongTransition(self.qpn, old, new, mask, verdict)
        with library.calling(f"ibv_modify_qp {self.qpn} {old} to {new} with mask {mask:#x}"):
            self.qp.modify(wanted, mask)
        self._drained = False

    def to_init(self, access: tuple[str, ...] = ALL_ACCESS) -> None:
        """RESET to INIT: what the peer may do. Receives can be posted from here on."""
        port = self.device.port_number
        self.modify("INIT", {"PKEY_INDEX": 0, "PORT": port, "ACCESS_FLAGS": access_mask(access)})

    def to_rtr(self, peer: Peer, attributes: RcAttributes, gid_index: int) -> None:
        """INIT to RTR: the path to the peer. The path MTU is never above either end's."""
        mtu = attributes.path_mtu or min(self.device.port().active_mtu, peer.mtu)
        addr = library.module("addr")
        route = addr.GlobalRoute(
            dgid=addr.GID(peer.gid),
            sgid_index=gid_index,
            hop_limit=attributes.hop_limit,
            traffic_class=attributes.traffic_class,
        )
        port = self.device.port_number
        vector = addr.AHAttr(gr=route, is_global=1, dlid=peer.lid, sl=attributes.sl, port_num=port)
        self.modify("RTR", {
            "AV": vector, "PATH_MTU": mtu.bit_length() - 8, "DEST_QPN": peer.qpn, "RQ_PSN": peer.psn,
            "MAX_DEST_RD_ATOMIC": self.rd_atomic(attributes), "MIN_RNR_TIMER": attributes.min_rnr_timer,
        })  # fmt: skip

    def to_rts(self, psn: int, attributes: RcAttributes, peer_rd_atomic: int = 255) -> None:
        """RTR to RTS: timers, and the PSN that the peer was told."""
        self.modify("RTS", {
            "TIMEOUT": attributes.timeout, "RETRY_CNT": attributes.retry_cnt, "RNR_RETRY": attributes.rnr_retry,
            "SQ_PSN": psn, "MAX_QP_RD_ATOMIC": min(self.rd_atomic(attributes), peer_rd_atomic),
        })  # fmt: skip

    def connect(
        self, psn: int, peer: Peer, attributes: RcAttributes, gid_index: int, access: tuple[str, ...] = ALL_ACCESS
    ) -> None:
        """Go from RESET to RTS with a peer; `psn` is what the peer was told."""
        self.to_init(access)
        self.to_rtr(peer, attributes, gid_index)
        self.to_rts(psn, attributes, peer.rd_atomic)

    def rd_atomic(self, attributes: RcAttributes) -> int:
        """Return how many READs and atomics of the peer this QP accepts at once."""
        most = self.device.limits()["max_qp_rd_atom"]
        return min(attributes.max_rd_atomic, most) if attributes.max_rd_atomic else most

    def error(self) -> None:
        """Go to ERR: what is outstanding completes with WR_FLUSH_ERR. Nothing happens when it is there already."""
        if self.state != "ERR":
            self.modify("ERR")

    def reset(self) -> None:
        """Go to RESET: outstanding requests are lost without a completion, so drain first."""
        self.modify("RESET")

    # --- work ---

    def post(self, wrs: Iterable[Wr]) -> None:
        """Post work requests as one batch, with one doorbell: all of them, or none and VerbsError (ENOMEM: the queue is full)."""
        self._poster.post(wrs)

    def post_rdma(self, opcode: str, lkey: int, rkey: int, parts: Iterable[posting.Part]) -> None:
        """Post many READs or WRITEs between two regions as one batch: the fast way, nothing is made for each."""
        self._poster.post_rdma(opcode, lkey, rkey, parts)

    def prepared(self, wrs: Iterable[Wr]) -> posting.Prepared:
        """Make work requests that are posted later, or again and again: the fastest way where they are known before."""
        return posting.Prepared(self.qp, wrs)

    def post_receives(self, receives: Iterable[tuple[int, Sequence[Sge]]]) -> int:
        """Post receives (wr_id, memory; no memory takes immediates of WRITEs) with one call; return how many. Raises VerbsError."""
        return self.prepared_receives(receives).post()

    def prepared_receives(self, receives: Iterable[tuple[int, Sequence[Sge]]]) -> posting.Receives:
        """Make receives that are posted later, or again and again."""
        return posting.Receives(self.qp, receives)

    def drain(self, seconds: float = 5.0) -> list[Completion]:
        """Go to ERR and return all completions of its queues: nothing of this QP is under way afterwards.

        A request posted behind all others on each queue shows when they are through (flushed in order). Raises NotFinished.
        """
        if self._drained or self.state == "RESET":
            return []
        deadline = time.monotonic() + seconds
        found: list[Completion] = []
        marks = 0
        # Before ERR, and to ERR even from ERR: posting a receive tells rxe nothing, the transition makes it look.
        self.post_receives([(MARK, ())])
        self.modify("ERR")
        while True:
            try:
                self.post([Wr(MARK, "RDMA_WRITE", (), 0, 0)])
                break
            except VerbsError:  # full: its requests are being flushed
                found += self._left(deadline, found)
        while marks < 2:
            marks = sum(one.wr_id == MARK and one.qpn == self.qpn for one in found)
            if marks < 2:
                found += self._left(deadline, found)
        self._drained = True
        return [one for one in found if one.wr_id != MARK or one.qpn != self.qpn]

    def _left(self, deadline: float, found: Sequence[Completion]) -> list[Completion]:
        more = self.send_cq.poll()
        if self.recv_cq is not self.send_cq:
            more += self.recv_cq.poll()
        if not more:
            if time.monotonic() > deadline:
                raise NotFinished(
                    f"QP {self.qpn} of {self.device.name}: not drained in time; {len(found)} completions came"
                )
            time.sleep(0.0005)
        return more
