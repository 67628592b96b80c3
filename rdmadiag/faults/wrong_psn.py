"""The ends start with different PSNs: connection data of an earlier connection, a PSN read at the wrong place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "The sender starts with another PSN than its peer was told"
REACH = "verbs"
PARAMETERS = (
    *verbs.PARAMETERS,
    Parameter("by", 1000, "by how many the sender's PSN is ahead; negative: behind", "", -(2**22), 2**22),
)
SIGNS = (
    "ahead: NAK 0x60 for each try (out_of_seq_request at the peer, rcvd_seq_err here), then WC 12 RETRY_EXC_ERR: alive and not reachable",
    "behind: the peer takes requests for duplicates (duplicate_request) and acknowledges them undone: WC 0 for data that never arrived",
    "behind, and no such ACK counted (rxe 6.1 does now the one, now the other): WC 12 RETRY_EXC_ERR",
)
DIAGNOSIS = Diagnosis(
    ("wire-psn-starts-differ",),
    "A capture shows NAKs that ask for PSNs which the sender never sent and does not have",
)


def plan(target: Target, values: Values) -> Plan:
    """Tell the peer another PSN."""
    if values["by"] < 0:
        return verbs.plan(
            target, values, "wrong_psn", ("RETRY_EXC_ERR", "not_written"), Moves("counter", ("duplicate_request",))
        )
    names = ("out_of_seq_request", "rcvd_seq_err", "out_of_sequence", "packet_seq_err")
    return verbs.plan(target, values, "wrong_psn", ("RETRY_EXC_ERR",), Moves("counter", names))


def act(pair: Pair, values: Values) -> None:
    """WRITE a word, and look whether it is there."""
    from rdmadiag.faults._pair import SOON

    one, two = pair.ends(SOON)
    mine = one.offer()
    two.connect(mine._replace(qps=((one.qp.qpn, (one.psns[0] - values["by"]) % (1 << 24)),)))
    one.connect(two.offer())
    assert one.mr.view is not None and two.mr.view is not None
    one.mr.view[:8] = b"by a PSN"
    one.qp.post([one.wr(two.offer().memory, 1, "RDMA_WRITE", 8)])
    done = pair.take(one, 1, 10.0)
    if done and done[0].ok and bytes(two.mr.view[:8]) != b"by a PSN":
        pair.counts["not_written"] += 1
        pair.log(
            f"{one.device.name}: QP {one.qp.qpn}: work request 1 succeeded, and the peer's memory does not have its data"
        )
