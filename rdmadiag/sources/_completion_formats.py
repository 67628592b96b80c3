"""How programs print a failed completion: one entry a format and generation, most specific first.

Looked up in the sources of each program (releases by their tags). A name such as `nccl<2.18` says that releases from
2.18 on print something else; releases older than that print one of the entries above it, so a name bounds the age.
The bases matter: NCCL, Open MPI, 3FS and libfabric print the vendor code in decimal, all others in hex.

| program | release | line changed to |
| NCCL | 2.10.3 | `from peer ADDRESS` comes in (src/transport/net_ib.cc) |
| NCCL | 2.18.1 | `(Send)`, localGid, remoteGids come in |
| NCCL | 2.20.3 | `with error N, opcode N` becomes `with status=N opcode=N`; GIDs are chosen by NCCL itself from 2.21 on |
| NCCL | 2.22.3 | `NET/IB :` becomes `NET/IB:`, `hca DEVICE` comes in |
| NCCL | 2.28.7 | `status=NAME(N)`, `reqSize=`, `vendor_err=`, `req_type=`; NET/IB/GIN keeps the older form |
| NCCL | 2.29.2 | reqSize and req_type go |
| NCCL | 2.30.3 | port failover logs `Got completion with error (devIndex=...` at INFO |
| RCCL | ROCm 5.0, 6.0, 6.2 | follow NCCL 2.10, 2.18, 2.20; the line is the same |
| UCX | 1.5, 1.6 | `Error on QP` gets the device; then `TEXT on DEVICE:PORT/IB` and a second line with the QP |
| UCX | 1.7, 1.11 | rc_verbs: qpn, wrid, vendor_err come in; then in brackets, with a line of the peer's address |
| perftest | 25.10, 26.01 | `qp_num` comes in; then `Failed status-TEXT (N)` |
| Mooncake | 0.3.12 | `max_retry_cnt` comes in |
| SPDK | 20.04, 21.10 | target: `CQ error on CQ` becomes `Error on CQ`; initiator: `CQ error on Queue Pair` becomes `WC error` |
| aws-ofi-nccl | 1.10, 1.21 | the provider's number comes in; then `prov_errno:` |
| mlx5_ib | - | `dump error cqe` got a line `WC error: N` before it; then that line alone, and rows with `cqe_dump:` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Fields = dict[str, Any]


class Format(NamedTuple):
    """One way to print a failed completion.

    A line has the format when one of `literals` (lower case) is in it and `pattern` (any case) matches. Groups of the
    pattern: pid, device, port, qpn, peer, peer_device, opcode, local_gid, remote_gid, completed fill their columns;
    `status` is a number, `word` a name or text of a status, `synd` an mlx5 CQE syndrome, `vendor` the vendor code, each hex with 0x
    and decimal without; `vendorx` and `syndx` are hex without 0x. `fix` may change the
    fields, or refuse the line; it gets the groups, and what stands `before` the match.
    `tail` matches one of the lines that follow, and fills what is still unknown. `signs` are for Hyperscan.
    """

    program: str
    name: str
    literals: tuple[str, ...]
    pattern: str
    signs: tuple[str, ...]
    driver: str = ""
    fix: Callable[[Fields, Mapping[str, str | None]], bool] | None = None
    tail: str = ""
    dump: bool = False


# perftest's next line counts the requests of its run: posted and completed at the sender, only received at the receiver.
_PERFTEST_COUNTS = r"[sr]cnt=[0-9]{1,15}"
_PERFTEST_TAIL = r"\bscnt=\d+, ccnt=(?P<completed>\d{1,15})\b|\brcnt=\d|Failed status"

# Status texts of libibverbs (ibv_wc_status_str) that are found in other programs' logs as they stand.
STATUS_TEXTS: tuple[tuple[str, int], ...] = (
    ("local length error", 1),
    ("local qp operation error", 2),
    ("local ee context operation error", 3),
    ("local protection error", 4),
    ("work request flushed error", 5),
    ("memory management operation error", 6),
    ("memory bind operation error", 6),
    ("bad response error", 7),
    ("local access error", 8),
    ("remote invalid request error", 9),
    ("remote access error", 10),
    ("remote operation error", 11),
    ("transport retry counter exceeded", 12),
    ("rnr retry counter exceeded", 13),
    ("local rdd violation error", 14),
    ("remote invalid rd request", 15),
    ("invalid ee context number", 17),
    ("invalid ee context state", 18),
)
# Texts that mean a completion only when the line speaks of one.
LOOSE_TEXTS: tuple[tuple[str, int], ...] = (
    ("aborted error", 16),
    ("operation aborted", 16),
    ("response timeout error", 20),
    ("general error", 21),
    ("tm error", 22),
    ("wr flushed", 5),
)
# libibverbs texts, kernel texts where they differ, and the words of UCX (ib_mlx5_log.c) and Open MPI (btl openib).
WORDS: dict[str, int] = {
    **dict(STATUS_TEXTS),
    **dict(LOOSE_TEXTS),
    "retry exceeded error": 12,
    "receiver not ready retry exceeded error": 13,
    "local protocol error": 4,
    "fatal error": 19,
    "memory window bind error": 6,
    "invalid request error": 9,
    "success": 0,
}

# bnxt_re request status to wc status (kernel hw/bnxt_re/roce_hsi.h and ib_verbs.c).
_BNXT = {1: 7, 2: 1, 3: 2, 4: 4, 5: 6, 6: 9, 7: 10, 8: 11, 9: 13, 10: 12, 11: 5}
# irdma asynchronous event to wc status (kernel hw/irdma: irdma_set_flush_fields, irdma_flush_err_to_ib_wc_status).
_IRDMA = {
    **dict.fromkeys(range(0x102, 0x10B), 4),
    0x112: 10,
    **dict.fromkeys((0x114, 0x118, 0x119, 0x11B), 6),
    0x208: 9,
    0x20D: 10,
    0x20E: 11,
    0x223: 9,
    0x316: 11,
    0x50A: 12,
    0x50F: 13,
    0x700: 19,
}
# EFA completion status to wc status (rdma-core providers/efa/verbs.c). libfabric renames 13 to 4124 or 4126.
_EFA = {1: 5, 2: 2, 3: 2, 4: 2, 5: 4, 6: 1, 7: 10, 8: 16, 9: 15, 10: 13, 11: 9, 12: 7, 13: 20, 14: 11, 15: 20, 18: 9}
_EFA_UNRESPONSIVE = (4124, 4126)
# mlx5_ib prints the text of the wc status whose number is the CQE's syndrome: these texts stand for syndromes.
_MLX5_EVENT = {
    "operation aborted": 0x10,
    "invalid ee context number": 0x11,
    "invalid ee context state": 0x12,
    "fatal error": 0x13,
    "response timeout error": 0x14,
    "general error": 0x15,
    "local length error": 1,
    "local qp operation error": 2,
    "local protection error": 4,
    "wr flushed": 5,
    "memory bind operation error": 6,
}
# ... and "unrecognized status" for 0x16 and 0x22, which the vendor code can tell.
_MLX5_EVENT_VENDOR = {0x87: 0x16, 0x93: 0x22, 0x99: 0x22}


def _bnxt(fields: Fields, groups: Mapping[str, str | None]) -> bool:
    fields["wc_status"] = _BNXT.get(fields.get("vendor_err", 0))
    return fields["wc_status"] is not None


def _irdma(fields: Fields, groups: Mapping[str, str | None]) -> bool:
    fields["wc_status"] = _IRDMA.get(int(groups["event"] or "0", 16))
    return fields["wc_status"] is not None


def _efa(fields: Fields, groups: Mapping[str, str | None]) -> bool:
    code = fields.pop("vendor_err", None)
    text = (groups.get("what") or "").strip().lower()
    if text in WORDS and WORDS[text] == code:
        fields["wc_status"] = code  # the verbs provider: prov_errno is the wc status
        fields.pop("driver", None)
        return True
    if code in _EFA_UNRESPONSIVE:
        code = 13
    fields["vendor_err"], fields["wc_status"] = code, _EFA.get(code or 0)
    return fields["wc_status"] is not None


def _mlx5_event(fields: Fields, groups: Mapping[str, str | None]) -> bool:
    text = (groups["event"] or "").lower()
    fields["syndrome"] = _MLX5_EVENT.get(text) or _MLX5_EVENT_VENDOR.get(fields.get("vendor_err", 0))
    fields["wc_status"] = None
    return text != "success"


def _nccl(fields: Fields, groups: Mapping[str, str | None]) -> bool:
    before = (groups["before"] or "")[-80:]
    if "ib_plugin.c" in before or "NET/IBP" in before:
        fields["format"] = "nccl plugin"
    elif fields["format"] == "nccl<2.28.7" and before.endswith("NET/IB/GIN: "):
        fields["format"] = "nccl>=2.28.7"
    elif fields["format"] == "nccl<2.28.7" and before.endswith("NET/IB : "):
        fields["format"] = "nccl<2.22"  # of those that print `status=N`, the blank tells 2.20 and 2.21
    return True


def _mooncake(fields: Fields, groups: Mapping[str, str | None]) -> bool:
    fields["opcode"] = {"0": "READ", "1": "WRITE"}.get(fields.get("opcode", ""))
    if groups.get("newer"):
        fields["format"] = "mooncake>=0.3.12"
    return True


def _ucx(fields: Fields, groups: Mapping[str, str | None]) -> bool:
    if groups.get("nixl"):
        fields["program"] = "nixl"
    return True


def _gpu_cqe(fields: Fields, groups: Mapping[str, str | None]) -> bool:
    raw = groups.get("raw")
    if raw:  # printed as the CPU sees a big-endian word: the bytes are reversed
        fields["qpn"] = int.from_bytes(int(raw, 16).to_bytes(4, "little"), "big") & 0xFFFFFF
        fields["program"] = "nixl"
    if groups.get("swapped"):
        fields["qpn"] = int(groups["swapped"] or "0", 16) & 0xFFFFFF
        fields["program"] = "nvshmem"
    return True


def _spdk_queue(fields: Fields, groups: Mapping[str, str | None]) -> bool:
    if "queue pair" in (groups.get("what") or "").lower():
        fields["format"] = "spdk<21.10"
    return True


def _fixed(status: int) -> Callable[[Fields, Mapping[str, str | None]], bool]:
    def fix(fields: Fields, groups: Mapping[str, str | None]) -> bool:
        fields["wc_status"] = status
        return True

    return fix


def _mlx4(fields: Fields, groups: Mapping[str, str | None]) -> bool:
    fields["wc_status"], fields["qpn"] = 2, int(groups["qpnx"] or "0", 16)
    return True


_NUMBER = r"0x[0-9a-f]{1,16}|\d{1,12}"
_PEER = r"(?P<peer>[^\s<]{1,255})(?:<\d{1,5}>)?"
_GIDS = (
    r"(?:\s{0,4}localGid\s{0,4}(?P<local_gid>[0-9a-f:.]{2,45}))?"
    r"(?:\s{0,4}remoteGids?\s{0,4}(?P<remote_gid>[0-9a-f:.]{2,45}))?(?:\s{0,4}hca (?P<device>[\w.-]{1,64}))?"
)
_TYPE = r"(?: \((?P<opcode>Send|Recv|Flush|Unused|GIN[^)]{0,20})\))?"
_DEV = r"(?P<device>[a-z][\w.-]{0,63}?):(?P<port>\d{1,3})(?:/(?:IB|RoCE))?"
_UCX_TAIL = (
    r"(?:RC|DCI|UD|SRQ|DCT)? ?QP 0x(?P<qpnx>[0-9a-f]{1,8}) wqe\[\d+\]: ?(?:opcode )?(?P<opcode>[A-Z_]{2,20})?"
    r"(?:.{0,600}?\bdgid[= ](?P<remote_gid>[0-9a-f:.]{2,45}))?"
)
_KERNEL = r"(?:infiniband (?P<device>[\w.-]{1,64}): .{0,80}?)?"
_GLOO_OPS = r"(?:Memory region )?(?P<opcode>send|recv)"

FORMATS: tuple[Format, ...] = (
    # --- NCCL and RCCL (src/transport/net_ib.cc, net_ib/p2p.cc, gin.cc); opcode and len are garbage on an error.
    Format(
        "nccl",
        "nccl<2.29",
        ("got completion from peer",),
        rf"Got completion from peer {_PEER} with status=(?P<word>\w+)\((?P<status>\d+)\) .{{0,80}}?reqSize="
        rf".{{0,40}}?vendor_err=(?P<vendor>\d+) req_type=(?P<opcode>[A-Za-z]{{1,20}}?)(?:\b|(?=localGid)){_GIDS}",
        ("Got completion from peer ",),
        fix=_nccl,
    ),
    Format(
        "nccl",
        "nccl>=2.29",
        ("got completion from peer",),
        rf"Got completion from peer {_PEER} with status=(?P<word>\w+)\((?P<status>\d+)\) .{{0,80}}?"
        rf"vendor_err=(?P<vendor>\d+){_GIDS}",
        ("Got completion from peer ",),
        fix=_nccl,
    ),
    Format(
        "nccl",
        "nccl<2.28.7",
        ("got completion from peer",),
        rf"Got completion from peer {_PEER} with status=(?P<status>\d+) opcode=-?\d+ len=-?\d+ "
        rf"vendor err (?P<vendor>\d+){_TYPE}{_GIDS}",
        ("Got completion from peer ",),
        fix=_nccl,
    ),
    Format(
        "nccl",
        "nccl<2.20",
        ("got completion from peer",),
        rf"Got completion from peer {_PEER} with error (?P<status>\d+), opcode -?\d+, len -?\d+, "
        rf"vendor err (?P<vendor>\d+) \((?P<opcode>[A-Za-z]{{1,20}})\){_GIDS}",
        ("Got completion from peer ",),
        fix=_nccl,
    ),
    Format(
        "nccl",
        "nccl<2.18",
        ("got completion from peer",),
        rf"Got completion from peer {_PEER} with error (?P<status>\d+), opcode -?\d+, len -?\d+, "
        r"vendor err (?P<vendor>\d+)",
        ("Got completion from peer ",),
        fix=_nccl,
    ),
    Format(
        "nccl",
        "nccl<2.10",
        ("got completion with error ",),
        r"Got completion with error (?P<status>\d+), opcode -?\d+, len -?\d+, vendor err (?P<vendor>\d+)",
        (r"Got completion with error [0-9]",),
        fix=_nccl,
    ),
    Format(
        "nccl",
        "nccl>=2.30",
        ("got completion with error (devindex",),
        r"Got completion with error \(devIndex=\d+, wc->status=\((?P<word>\w+)\)(?P<status>\d+),"
        r".{0,160}?wc->qp_num=(?P<qpn>\d+)",
        (r"Got completion with error \(devIndex=",),
    ),
    # --- MVAPICH2 (ibv_channel_manager.c)
    Format(
        "mvapich",
        "mvapich2",
        ("vendor code=0x", "vendor code = 0x"),
        r"(?:completion with error|status)[ =:]{1,3}(?P<status>\d+)\W{1,3}vendor code ?= ?(?P<vendor>0x[0-9a-f]+)"
        r"(?:, dest rank=(?P<peer>\d+))?",
        ("vendor code ?= ?0x[0-9a-fA-F]",),
    ),
    # --- aws-ofi-nccl (include/nccl_ofi_platform.h) and libfabric's EFA provider (prov/efa)
    Format(
        "aws-ofi-nccl",
        "aws-ofi-nccl>=1.21",
        ("completed with error",),
        r"\((?P<opcode>[\w ]{1,30})\) completed with error: err: -?\d+, .{0,60}?prov_errno: (?P<vendor>\d+)"
        r"(?:, strerror: (?P<what>[^,\n]{0,120}))?",
        (r"completed with error: err: ",),
        "efa",
        _efa,
    ),
    Format(
        "aws-ofi-nccl",
        "aws-ofi-nccl<1.21",
        ("completed with error",),
        r"completed with error\. RC: -?\d+\. .{0,40}?Error: (?P<vendor>\d+) \((?P<what>[^)\n]{0,120})"
        r"(?:.{0,240}?direction: (?P<opcode>\w+))?",
        (r"completed with error\. RC: ",),
        "efa",
        _efa,
    ),
    Format(
        "nixl",
        "nixl libfabric",
        ("cq read failed on rail",),
        r"CQ read failed on rail \d+ with error: .{0,80}?prov_errno: (?P<vendor>\d+)",
        ("CQ read failed on rail [0-9]",),
        "efa",
        _efa,
    ),
    Format(
        "libfabric",
        "libfabric efa",
        ("prov_errno",),
        r"Encountered error during CQ polling\. err: .{0,80}?prov_errno: (?P<what>.{0,120}?) \((?P<vendor>\d+)\)",
        ("Encountered error during CQ polling",),
        "efa",
        _efa,
    ),
    Format(
        "libfabric",
        "libfabric efa",
        ("peer efa addr",),
        r"err: -?\d+, message: (?P<what>.{0,200}?) My EFA addr: fi_addr_efa://\[(?P<local_gid>[0-9a-f:.]+)\]"
        r".{0,120}?Peer EFA addr: fi_addr_efa://\[(?P<remote_gid>[0-9a-f:.]+)\]\S*"
        r"(?: Peer host id: (?P<peer>i-\w+|N/A)) ?\((?P<vendor>\d+)\)",
        ("Peer EFA addr: fi_addr_efa",),
        "efa",
        _efa,
    ),
    # --- UCX (src/uct/ib/mlx5/ib_mlx5_log.c, rc_verbs_iface.c, ib_iface.h); NIXL, Open MPI and MPICH print these lines
    Format(
        "ucx",
        "ucx>=1.6",
        ("synd 0x",),
        rf"(?P<nixl>nixl.{{0,200}}?)?[A-Za-z-]+ on {_DEV} \(synd (?P<synd>0x[0-9a-f]+) vend (?P<vendor>0x[0-9a-f]+)"
        r" hw_synd \d+/\d+\)",
        (r"\(synd 0x[0-9a-f]{1,2} vend 0x",),
        "mlx5",
        _ucx,
        _UCX_TAIL,
    ),
    Format(
        "spdk",
        "spdk mlx5",
        ("synd 0x",),
        r"Error on QP 0x(?P<qpnx>[0-9a-f]{1,8}) wqe\[\d+\]: .{0,80}?\(synd (?P<synd>0x[0-9a-f]+) "
        r"vend (?P<vendor>0x[0-9a-f]+) hw 0x[0-9a-f]+\)(?: opcode (?P<opcode>\w+))?",
        (r"\(synd 0x[0-9a-f]{1,2} vend 0x",),
        "mlx5",
    ),
    Format(
        "ucx",
        "ucx<1.6",
        ("synd 0x",),
        rf"Error on (?:{_DEV} )?QP 0x(?P<qpnx>[0-9a-f]{{1,8}}) wqe\[\d+\]: .{{0,80}}?\(synd (?P<synd>0x[0-9a-f]+) "
        r"vend (?P<vendor>0x[0-9a-f]+)(?: hw_synd \d+/\d+)?\)(?: opcode (?P<opcode>\w+))?",
        (r"\(synd 0x[0-9a-f]{1,2} vend 0x",),
        "mlx5",
    ),
    Format(
        "ucx",
        "ucx>=1.11",
        ("send completion with error",),
        r"send completion with error: (?P<word>[a-z ]{5,60}?) \[qpn (?P<qpn>0x[0-9a-f]+) wrid 0x[0-9a-f]+ ?"
        r"vendor_err (?P<vendor>0x[0-9a-f]+)\]",
        ("(?i)send completion with error",),
        tail=r"\[rqpn 0x[0-9a-f]+ .{0,80}?\bdgid=(?P<remote_gid>[0-9a-f:.]{2,45})",
    ),
    Format(
        "ucx",
        "ucx<1.11",
        ("send completion with error",),
        r"send completion with error: (?P<word>[a-z ]{5,60}?) qpn (?P<qpn>0x[0-9a-f]+) wrid 0x[0-9a-f]+ ?"
        r"vendor_err (?P<vendor>0x[0-9a-f]+)",
        ("(?i)send completion with error",),
    ),
    Format(
        "ucx",
        "ucx<1.7",
        ("send completion with error",),
        r"send completion with error(?: on qp (?P<qpn>0x[0-9a-f]+))?: (?P<word>[a-z ]{5,60}?)"
        r"(?: syndrome (?P<vendor>0x[0-9a-f]+)|\s*$)",
        ("(?i)send completion with error",),
    ),
    Format(
        "ucx",
        "ucx>=1.3",
        ("] with error on ",),
        r"\w+ completion\[\d+\] with error on (?P<device>[\w.-]{1,64})/0x[0-9a-f]+: (?P<word>[a-z ]{5,60}?), "
        r"vendor_err (?P<vendor>0x[0-9a-f]+)",
        (r"completion\[[0-9]{1,4}\] with error on ",),
    ),
    # --- perftest (src/perftest_resources.h) and the examples of rdma-core
    Format(
        "perftest",
        "perftest>=26.01",
        ("failed status-",),
        rf"Failed status-(?P<word>[\w ]{{5,60}}?) \((?P<status>\d+)\): wr_id -?\d+ syndrom (?P<vendor>{_NUMBER})",
        ("Failed status-.{1,60}syndrom ", _PERFTEST_COUNTS),
        tail=_PERFTEST_TAIL,
    ),
    Format(
        "perftest",
        "perftest<26.01",
        ("failed status ",),
        rf"Failed status (?P<status>\d+): qp_num (?P<qpn>\d+) wr_id -?\d+ syndrom (?P<vendor>{_NUMBER})",
        ("Failed status [0-9]{1,2}: ", _PERFTEST_COUNTS),
        tail=_PERFTEST_TAIL,
    ),
    Format(
        "perftest",
        "perftest<25.10",
        ("failed status ",),
        rf"Failed status (?P<status>\d+): wr_id -?\d+ syndrom (?P<vendor>{_NUMBER})",
        ("Failed status [0-9]{1,2}: ", _PERFTEST_COUNTS),
        tail=_PERFTEST_TAIL,
    ),
    Format(
        "ibv_pingpong",
        "rdma-core example",
        ("failed status ",),
        r"Failed status (?P<word>[\w ]{5,60}?) \((?P<status>\d+)\) for wr_id",
        (r"Failed status .{5,60}for wr_id",),
    ),
    Format(
        "rping",
        "rdma-core example",
        ("cq completion failed status",),
        r"cq completion failed status (?P<status>\d+)",
        ("cq completion failed status",),
    ),
    # --- device libraries (rdma-core providers/mlx5/cq.c, mlx4/cq.c, ionic) and devices polled from a GPU
    Format(
        "libmlx5",
        "libmlx5",
        ("got completion with error:",),
        r"mlx5: (?P<host>[^\s:]{1,255}): got completion with error:",
        (r"mlx5: .{1,80}: got completion with error:",),
        "mlx5",
        dump=True,
    ),
    Format(
        "libmlx4",
        "libmlx4",
        ("vendor syndrome ",),
        r"local QP operation err \(QPN (?P<qpnx>[0-9a-f]{1,8}), WQE index [0-9a-f]+, "
        r"vendor syndrome (?P<vendorx>[0-9a-f]{1,2})",
        (r"local QP operation err \(QPN ",),
        "mlx4",
        _mlx4,
    ),
    Format(
        "libionic",
        "libionic",
        ("cqe with error ",),
        r"cqe with error (?P<word>[a-z ]{5,60}?) for 0x[0-9a-f]+ .{0,12}?, qpid (?P<qpn>\d+)",
        ("cqe with error .{1,60}qpid ",),
    ),
    Format(
        "gpunetio",
        "doca gpunetio",
        ("vendor_err_synd=",),
        r"\bsyndrome=(?P<synd>0x[0-9a-f]+), vendor_err_synd=(?P<vendor>0x[0-9a-f]+|0)"
        r"(?:.{0,120}?(?:\bs_wqe_opcode_qpn=0x(?P<swapped>[0-9a-f]{1,8})|\bwqe_qpn=(?P<raw>[0-9a-f]{1,8})))?",
        ("syndrome=0x[0-9a-f]{1,2}, vendor_err_synd=",),
        "mlx5",
        _gpu_cqe,
        r"\bs_wqe_opcode_qpn=0x(?P<swapped>[0-9a-f]{1,8})",
    ),
    Format(
        "nvshmem",
        "nvshmem ibgda",
        ("ibgda_poll_cq failed",),
        r"ibgda_poll_cq failed with error=(?P<synd>\d+)",
        ("ibgda_poll_cq failed with error=",),
        "mlx5",
    ),
    Format(
        "nvshmem",
        "nvshmem ibrc",
        ("ibv_poll_cq failed, status",),
        r"ibv_poll_cq failed, status: (?P<status>\d+)",
        ("ibv_poll_cq failed, status: ",),
    ),
    Format(
        "nvshmem",
        "nvshmem ibdevx",
        ("got ibdevx completion",),
        r"Got ibdevx completion with error\. hws: [0-9a-f]+ ves: (?P<vendorx>[0-9a-f]+), syn: (?P<syndx>[0-9a-f]+)",
        ("Got ibdevx completion with error",),
        "mlx5",
    ),
    # --- kernel drivers
    Format(
        "mlx5_ib",
        "mlx5_ib wc error",
        ("wc error:",),
        rf"{_KERNEL}\bWC error: (?P<status>\d+), Message: ",
        ("(?i)WC error: [0-9]{1,2}, Message: ",),
        "mlx5",
        dump=True,
    ),
    Format(
        "mlx5_ib",
        "mlx5_ib dump error cqe",
        ("dump error cqe",),
        rf"{_KERNEL}dump error cqe",
        ("dump error cqe",),
        "mlx5",
        dump=True,
    ),
    Format(
        "mlx5_ib",
        "mlx5_ib cqe_dump",
        ("cqe_dump: ",),
        r"cqe_dump: [0-9a-f]{8}: ",
        ("cqe_dump: [0-9a-f]{8}: ",),
        "mlx5",
        dump=True,
    ),
    Format(
        "mlx5_ib",
        "mlx5_ib debug",
        ("vendor syndrome 0x",),
        rf"{_KERNEL}(?<!, )\bsyndrome (?P<synd>0x[0-9a-f]+), vendor syndrome (?P<vendor>0x[0-9a-f]+)\s*$",
        ("syndrome 0x[0-9a-f]{1,2}, vendor syndrome 0x",),
        "mlx5",
    ),
    Format(
        "mlx5_core",
        "mlx5e",
        ("error cqe on cqn",),
        r"Error cqe on cqn 0x[0-9a-f]+, ci 0x[0-9a-f]+, s?qn 0x[0-9a-f]+, (?:opcode 0x[0-9a-f]+, )?"
        r"syndrome (?P<synd>0x[0-9a-f]+), vendor syndrome (?P<vendor>0x[0-9a-f]+)",
        ("Error cqe on cqn 0x",),
        "mlx5",
    ),
    Format(
        "mlx5_ib",
        "mlx5_ib qp event",
        (": qp ",),
        r"(?P<device>[\w.-]{1,64})/(?P<port>\d{1,3}): QP (?P<qpn>\d+) error: (?P<event>[\w ]{3,60}?) "
        r"\((?P<vendor>0x[0-9a-f]+) 0x[0-9a-f]+ 0x[0-9a-f]+\)",
        (r": QP [0-9]{1,8} error: .{3,60}\(0x",),
        "mlx5",
        _mlx5_event,
    ),
    Format(
        "bnxt_re",
        "bnxt_re",
        ("cq processed req",),
        r"(?:(?P<device>bnxt_re[\w.-]{1,20}): .{0,40}?)?FP: CQ Processed Req wr_id\[\d+\] = 0x[0-9a-f]+ with status "
        r"(?P<vendor>0x[0-9a-f]+)",
        (r"CQ Processed Req wr_id\[",),
        "bnxt_re",
        _bnxt,
    ),
    Format(
        "bnxt_re",
        "bnxt_re out-of-tree",
        ("with vendor status 0x",),
        r"QPLIB: QP (?P<qpn>0x[0-9a-f]+) wr_id\[\d+\] = 0x[0-9a-f]+ vendor type 0x[0-9a-f]+ with vendor status "
        r"(?P<vendor>0x[0-9a-f]+)",
        ("with vendor status 0x",),
        "bnxt_re",
        _bnxt,
    ),
    Format(
        "rdma_rxe",
        "rdma_rxe",
        ("non-flush error status",),
        r"(?:\b(?:infiniband )?(?P<device>[\w.-]{1,64}): )?(?:qp#(?P<qpn>\d+) )?(?:\w{1,40}: )?"
        r"non-flush error status = (?P<status>\d+)",
        ("non-flush error status = ",),
        "rxe",
    ),
    Format(
        "irdma",
        "irdma",
        ("abnormal ae_id",),
        r"(?:(?P<device>[\w.-]{1,64}): )?abnormal ae_id = 0x(?P<event>[0-9a-f]{1,4}) bool qp=1 qp_id = (?P<qpn>\d+)",
        ("abnormal ae_id = 0x",),
        "irdma",
        _irdma,
    ),
    # --- kernel users of verbs (drivers/nvme, net/rds, ulp/ipoib, ulp/iser)
    Format(
        "nvme_rdma",
        "nvme_rdma",
        ("failed with status ",),
        r"(?P<opcode>RECV|SEND|MEMREG|LOCAL_INV|RDMA READ|RDMA WRITE) for CQE(?: 0x[0-9a-f]+| \S{1,20})? failed "
        r"with "
        r"status (?P<word>[\w ]{3,60}?) \((?P<status>\d+)\)",
        ("for CQE .{0,24}failed with status ",),
    ),
    Format(
        "rds",
        "rds",
        ("rds/ib:",),
        r"RDS/IB: (?P<opcode>send|recv) completion on <(?P<local_gid>[0-9a-f:.]+),(?P<peer>[0-9a-f:.]+), ?\d+> had "
        rf"status (?P<status>\d+) \([^)]{{0,60}}\)(?:, vendor err (?P<vendor>{_NUMBER}))?",
        ("RDS/IB: .{4,6}completion on <",),
    ),
    Format(
        "ib_ipoib",
        "ib_ipoib",
        ("vend_err",),
        r"(?:failed (?:cm )?(?P<opcode>send|recv) event|cm recv error) \(status=(?P<status>\d+), wrid=-?\d+,? "
        r"vend_err (?:0x)?(?P<vendorx>[0-9a-f]{1,8})\)",
        (r"\(status=[0-9]{1,2}, wrid=.{1,12}vend_err ",),
    ),
    Format(
        "ib_iser",
        "ib_iser",
        ("vend_err",),
        r"(?P<opcode>[\w ]{2,24}) failure: (?P<word>[\w ]{3,60}?) \((?P<status>\d+)\) vend_err (?:0x)?"
        r"(?P<vendorx>[0-9a-f]{1,8})",
        (r"\) vend_err ",),
    ),
    Format(
        "libiscsi",
        "libiscsi",
        ("vend_err",),
        r"\bwr id [0-9a-f]{1,16} status (?P<status>\d+) vend_err (?P<vendorx>[0-9a-f]{1,8})",
        (r"wr id [0-9a-f]{1,16} status [0-9]{1,2} vend_err ",),
    ),
    Format(
        "isert",
        "isert",
        ("vend_err",),
        r"(?P<word>[a-z][a-z -]{4,60}?) \((?P<status>\d+)\): wr id [0-9a-f]{1,16} vend_err (?P<vendorx>[0-9a-f]{1,8})",
        (r"\([0-9]{1,2}\): wr id [0-9a-f]{1,16} vend_err ",),
    ),
    # --- Mooncake transfer engine (worker_pool.cpp; tent/src/transport/rdma)
    Format(
        "mooncake",
        "mooncake<0.3.12",
        ("process failed for slice",),
        r"Process failed for slice \((?:opcode: (?P<opcode>\d+))?.{0,240}?local_nic: (?P<device>[^\s,]{1,64}), "
        r"peer_nic: (?P<peer>[^\s,@]{1,255}?)(?::\d{1,5})?@(?P<peer_device>[^\s,)]{1,64})(?=.{0,60}?dest_rkey)"
        r".{0,80}?(?P<newer>max_retry_cnt: \d+)?\): (?P<word>[a-z ]{5,60})",
        ("Process failed for slice ",),
        fix=_mooncake,
    ),
    Format(
        "mooncake",
        "mooncake tent",
        ("detected error wqe",),
        r"Detected error WQE for slice .{0,40}?\((?:opcode: (?P<opcode>\d+))?.{0,240}?"
        r"local_nic: (?P<device>[^\s,)]{1,64})\): (?P<word>[a-z ]{5,60})",
        ("Detected error WQE for slice ",),
        fix=_mooncake,
    ),
    Format(
        "mooncake",
        "mooncake tent",
        ("notification completion failed",),
        r"Notification completion failed: (?P<status>\d+), qp_num=(?P<qpn>\d+)",
        ("Notification completion failed: ",),
    ),
    Format(
        "mooncake",
        "mooncake trace",
        ("wr flush error",),
        r"Worker: WR flush error (?:on inactive local context (?P<device>[^\s,]{1,64}) )?"
        r"\(peer_nic: (?P<peer>[^\s,@]{1,255}?)(?::\d{1,5})?@(?P<peer_device>[^\s,)]{1,64})\)",
        ("Worker: WR flush error ",),
        fix=_fixed(5),
    ),
    # --- SPDK (lib/nvmf/rdma.c, lib/nvme/nvme_rdma.c, module/accel/mlx5)
    Format(
        "spdk",
        "spdk<20.04",
        ("cq error",),
        r"(?:Send )?CQ error (?P<what>on (?:CQ|Queue Pair|Connection) )?.{0,120}?\((?P<status>\d+)\):? "
        r"(?P<word>[a-z ]{5,60})",
        (r"CQ error .{0,120}\([0-9]{1,2}\)",),
        fix=_spdk_queue,
    ),
    Format(
        "spdk",
        "spdk>=20.04",
        ("error on cq ",),
        r"Error on CQ 0x[0-9a-f]+, .{0,120}?status: \((?P<status>\d+)\): (?P<word>[a-z ]{5,60})",
        ("Error on CQ 0x.{1,140}status: ",),
    ),
    Format(
        "spdk",
        "spdk>=21.10",
        ("wc error, ",),
        r"WC error, .{0,120}?status: \((?P<status>\d+)\): (?P<word>[a-z ]{5,60})",
        ("WC error, .{1,140}status: ",),
    ),
    Format(
        "spdk",
        "spdk accel",
        ("wc status ",),
        r"RDMA: qp 0x[0-9a-f]+, task 0x[0-9a-f]+, WC status (?P<status>\d+)",
        ("RDMA: qp 0x.{1,50}WC status ",),
    ),
    # --- gloo, tensorpipe, 3FS, Ceph, UCCL
    Format(
        "gloo",
        "gloo",
        ("wc->status == ibv_wc_success",),
        rf"wc->status == IBV_WC_SUCCESS\. (?P<status>\d+) vs 0(?:\. {_GLOO_OPS} for slot)?",
        (r"wc->status == IBV_WC_SUCCESS\. ",),
    ),
    Format(
        "tensorpipe",
        "tensorpipe",
        ("got work completion ",),
        r"got work completion (?:on device (?P<device>[\w.-]{1,64}) )?for request \d+ for QP (?P<qpn>\d+) with "
        r"status "
        r"(?P<word>[\w ]{3,60}?) and opcode",
        ("got work completion .{1,140}with status ",),
    ),
    Format(
        "3fs",
        "3fs",
        ("vendor_error: ",),
        r"\{WR: .{0,120}?, error: (?P<word>[a-z ]{5,60}), vendor_error: (?P<vendor>\d+)\}",
        ("error: .{5,60}, vendor_error: ",),
    ),
    Format(
        "ceph",
        "ceph",
        ("work request returned error for buffer",),
        r"work request returned error for buffer\(.{0,40}?\) status\((?P<status>\d+)\b",
        ("work request returned error for buffer",),
    ),
    Format(
        "ceph",
        "ceph",
        ("this connection's qp=",),
        r"Work Request Flushed Error: this connection's qp=(?P<qpn>\d+)",
        ("Flushed Error: this connection's qp=",),
        fix=_fixed(5),
    ),
    Format(
        "ceph",
        "ceph",
        ("connection between server and client not working",),
        r"connection between server and client not working\. Disconnect this now",
        ("connection between server and client not working",),
        fix=_fixed(12),
    ),
    Format(
        "uccl",
        "uccl",
        ("cqe error, wr_id=",),
        r"CQE error, wr_id=\d+, status=(?P<status>\d+) \([^)]{0,60}\)(?:.{0,80}?vendor_err=(?P<vendor>0x[0-9a-f]+))?"
        r"(?:.{0,20}?qp_num=(?P<qpn>0x[0-9a-f]+))?",
        ("CQE error, wr_id=",),
    ),
    Format(
        "uccl",
        "uccl",
        ("wr_flush_err, qp_num=",),
        r"WR_FLUSH_ERR, qp_num=(?P<qpn>0x[0-9a-f]+)",
        ("WR_FLUSH_ERR, qp_num=",),
        fix=_fixed(5),
    ),
    # --- Open MPI's openib BTL (opal/mca/btl/openib)
    Format(
        "openmpi",
        "openmpi openib",
        ("error polling ",),
        r"(?:\bto: (?P<peer>[^\s:]{1,255}):? )?error polling (?:\w+ )?CQ with status .{0,60}?status number "
        r"(?P<status>\d+)"
        r"(?: for wr_id .{0,60}?vendor err(?:or)? (?P<vendor>\d+))?",
        ("error polling .{0,16}with status ",),
    ),
    Format(
        "openmpi",
        "openmpi openib",
        ("infiniband retry count between two mpi",),
        r"The InfiniBand retry count between two MPI processes has been",
        ("InfiniBand retry count between two MPI processes",),
        fix=_fixed(12),
        tail=r"Local device: +(?P<device>[\w.-]{1,64})|Peer host: +(?P<peer>[\w.-]{1,255})",
    ),
    Format(
        "openmpi",
        "openmpi openib",
        ('"receiver not ready" retry count on a',),
        r"The OpenFabrics \"receiver not ready\" retry count on a (?:per-peer|shared)",
        ("OpenFabrics .receiver not ready. retry count on a",),
        fix=_fixed(13),
        tail=r"Local device: +(?P<device>[\w.-]{1,64})|Peer host: +(?P<peer>[\w.-]{1,255})",
    ),
    # --- our own endpoints (rdmadiag/verbs/errors.py)
    Format(
        "rdmadiag",
        "rdmadiag verbs",
        ("work request ",),
        r"(?:(?P<device>[\w.-]{1,64}): )?QP (?P<qpn>\d+): work request -?\d+ ended with (?P<word>[A-Z_]{4,40}), "
        rf"vendor syndrome (?P<vendor>{_NUMBER})",
        ("work request .{1,24}ended with ",),
    ),
    # --- what most programs written from the textbook print
    Format(
        "unknown",
        "bad completion",
        ("bad completion with status",),
        rf"got bad completion with status: (?P<status>{_NUMBER}), vendor syndrome: (?P<vendor>{_NUMBER})",
        ("bad completion with status: ",),
    ),
)

STATUS_WITH_VENDOR = Format(
    "unknown",
    "status and vendor code",
    ("vend",),
    rf"\bstatus[ :=]{{1,3}}(?P<status>0x[0-9a-f]{{1,2}}|\d{{1,2}})\b(?!\.\d).{{0,60}}?\bvend(?:or)?[ _](?:err(?:or)?"
    rf"|synd(?:rome?)?|code|status)[ :=]{{1,3}}(?P<vendor>{_NUMBER})",
    ("(?i)vend(?:or)?[ _](?:err(?:or)?|synd(?:rome?)?|code|status)[ :=]{1,3}[0-9]",),
)
"""A status and a vendor code in one line of a program that is not in the table."""

GENERIC_SIGNS: tuple[str, ...] = (
    *(f"(?i){text}" for text, _ in STATUS_TEXTS),
    r"IBV?_WC_[A-Z_]{4,20}_ERR",
    *(f"(?i)\\b{text}" for text, _ in LOOSE_TEXTS),
    r"(?i)fatal error \(19\)",
    r"(?i)\(19\):? fatal error",
    *STATUS_WITH_VENDOR.signs,
)

SIGNS: tuple[str, ...] = tuple(dict.fromkeys(sign for form in FORMATS for sign in form.signs)) + GENERIC_SIGNS
