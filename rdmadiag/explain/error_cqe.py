"""mlx5 error completions as the kernel and libmlx5 dump them: 64 bytes, all fields big-endian.

Layout: rdma-core providers/mlx5/mlx5dv.h (`mlx5_err_cqe`), kernel include/linux/mlx5/device.h; bytes 52 and 53 are
named in openucx/ucx src/uct/ib/mlx5/ib_mlx5.h. Printed by kernel drivers/infiniband/hw/mlx5/cq.c (`cqe_dump: 00000030:
00 ..`, older ones four words a row) and by rdma-core providers/mlx5/cq.c (four words a row). The last 16 bytes hold all
that matters, so a dump cut to its last row still decodes. Not dumped at all: flushes and retries exceeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain import vendor_err, wc_status
from rdmadiag.explain._words import shown
from rdmadiag.patterns import late

HELP = "mlx5 error CQE dump, whole or its last row, from dmesg or libmlx5"
EXAMPLES = (
    ("00000000 92005204 0a03ac2e 007517d2",),
    ("cqe_dump: 00000030: 00 00 00 00 00 00 88 13 08 00 01 2d 00 3f 5a d2",),
    ("00000030:", "00", "00", "00", "00", "93", "00", "81", "15", "0a", "00", "1c", "af", "00", "00", "d1", "d3"),
)

CQE_OPCODES = {
    0: "REQ",
    1: "RESP_WR_IMM",
    2: "RESP_SEND",
    3: "RESP_SEND_IMM",
    4: "RESP_SEND_INV",
    5: "RESIZE_CQ",
    6: "NO_PACKET",
    12: "SIG_ERR",
    13: "REQ_ERR",
    14: "RESP_ERR",
    15: "INVALID",
}
WQE_OPCODES = {
    0x00: "NOP",
    0x01: "SEND_INVAL",
    0x08: "RDMA_WRITE",
    0x09: "RDMA_WRITE_IMM",
    0x0A: "SEND",
    0x0B: "SEND_IMM",
    0x0E: "TSO",
    0x10: "RDMA_READ",
    0x11: "ATOMIC_CS",
    0x12: "ATOMIC_FA",
    0x14: "ATOMIC_MASKED_CS",
    0x15: "ATOMIC_MASKED_FA",
    0x19: "FMR",
    0x1B: "LOCAL_INVAL",
    0x1F: "CONFIG_CMD",
    0x20: "SET_PSV",
    0x25: "UMR",
    0x28: "TAG_MATCHING",
    0x2C: "FLOW_TBL_ACCESS",
    0x2F: "MMO",
}
_REQ_ERR, _RESP_ERR = 13, 14
_SIZE, _ROW = 64, 16

# A row of a hex dump (offset, then bytes), or four bare words; at most 200 blanks between two words.
_ROWS = late(
    r"(?<![0-9a-zA-Z])(?P<offset>[0-9a-fA-F]{8}):(?P<bytes>(?:[ \t]{1,4}[0-9a-fA-F]{2}){16})(?![0-9a-zA-Z])"
    r"|(?<![0-9a-zA-Z:.])(?P<words>[0-9a-fA-F]{8}(?:\s{1,200}[0-9a-fA-F]{8}){3})(?![0-9a-zA-Z:])"
)
_GAP = 2000  # characters: rows of words farther apart belong to different dumps

_Dump = tuple[int, dict[int, bytes]]  # position of the last row in the text, rows by offset


def _is_error(row: bytes) -> bool:
    return row[15] >> 4 in (_REQ_ERR, _RESP_ERR) and row[7] != 0


def _dumps(text: str) -> Iterator[_Dump]:
    opened: list[dict[int, bytes]] = []  # dumps with offsets whose last row has not come; they can interleave
    run: list[tuple[int, bytes]] = []
    for match in _ROWS.finditer(text):
        if match["words"] is not None:
            row = bytes.fromhex("".join(match["words"].split()))
            if run and match.start() - run[-1][0] > _GAP:
                run = []
            run = [*run[-3:], (match.start(), row)]
            if _is_error(row):
                yield match.start(), {_SIZE - _ROW * (len(run) - at): part for at, (_, part) in enumerate(run)}
                run = []
            continue
        offset, row = int(match["offset"], 16), bytes.fromhex(match["bytes"])
        if offset >= _SIZE or offset % _ROW:
            continue
        mine = next((dump for dump in opened if max(dump) == offset - _ROW), None)
        if mine is None:
            mine = {}
            opened = [*opened[-7:], mine]
        mine[offset] = row
        if offset == _SIZE - _ROW:
            opened = [dump for dump in opened if dump is not mine]
            yield match.start(), mine


def fields(last: bytes, third: bytes | None = None) -> dict[str, Any]:
    """Return the fields of an error CQE from its last 16 bytes, and srqn from bytes 32 to 47 when they are known.

    `wc_status` is None when the CQE is not an error. QPN and srqn have 24 bits. Raises BadInput for other lengths.
    """
    if len(last) != _ROW or (third is not None and len(third) != _ROW):
        raise BadInput(f"the last row of an error CQE has 16 bytes, got {len(last)}")
    opcode, syndrome, vendor = last[15] >> 4, last[7], last[6]
    failed = opcode in (_REQ_ERR, _RESP_ERR)
    return {
        "qpn": int.from_bytes(last[9:12], "big"),
        "wqe_counter": int.from_bytes(last[12:14], "big"),
        "cqe_opcode": opcode,
        "cqe_opcode_name": CQE_OPCODES.get(opcode, "unknown"),
        "wqe_opcode": last[8] if opcode == _REQ_ERR else None,
        "wqe_opcode_name": WQE_OPCODES.get(last[8], "unknown") if opcode == _REQ_ERR else None,
        "syndrome": syndrome,
        "vendor_err": vendor,
        "wc_status": wc_status.from_syndrome(syndrome) if failed else None,
        "hw_err_synd": last[4],
        "hw_synd_type": last[5] >> 4,
        "srqn": None if third is None else int.from_bytes(third[1:4], "big"),
        "signature": last[14],
        "owner": last[15] & 1,
    }


def parse(text: str) -> list[dict[str, Any]]:
    """Find all error CQE dumps in a log, in order of their last rows; an empty list when there is none.

    Each has the keys of `fields`, `line` (from 1, of its last row), and `name` and `meaning` of its status. Never
    raises.
    """
    found: list[dict[str, Any]] = []
    line, counted = 1, 0
    for position, rows in _dumps(text):
        last = rows[_SIZE - _ROW]
        if not _is_error(last):
            continue
        line += text.count("\n", counted, position)
        counted = position
        found.append({**_told(fields(last, rows.get(_SIZE - 2 * _ROW))), "line": line})
    return found


def _told(values: dict[str, Any]) -> dict[str, Any]:
    status = wc_status.lookup(values["wc_status"]) if values["wc_status"] is not None else None
    return {
        "name": status["name"] if status else values["cqe_opcode_name"],
        "number": values["wc_status"],
        "meaning": status["meaning"] if status else "not an error completion",
        **values,
    }


def _bare(text: str) -> bytes | None:
    # Hex digits without structure: 16 bytes (the last row) or all 64, however they are cut.
    digits = "".join(part.removeprefix("0x") for part in text.replace(",", " ").lower().split() if part[-1] != ":")
    if len(digits) not in (2 * _ROW, 2 * _SIZE) or not set(digits) <= set("0123456789abcdef"):
        return None
    return bytes.fromhex(digits)[-_ROW:]


def _explain(values: dict[str, Any]) -> dict[str, Any]:
    status = wc_status.lookup(values["wc_status"])
    vendor = vendor_err.lookup(values["vendor_err"], values["wc_status"], "mlx5")
    sure = vendor if vendor and vendor["evidence"] != "unverified" and vendor["pair"] == "agrees" else None
    requester = values["cqe_opcode"] == _REQ_ERR
    queue = "send" if requester else "receive"
    return {
        "name": values["name"],
        "number": values["wc_status"],
        "meaning": f"{queue} queue of QP {values['qpn']:#08x}: {values['meaning']}",
        "side": status["side"] if status else "unknown",
        "causes": sure["causes"] if sure else status["causes"] if status else [],
        "next": status["next"] if status else [],
        "vendor_meaning": vendor["meaning"] if vendor else "code not known; trust the status",
        "vendor_evidence": vendor["evidence"] if vendor else "unknown",
        **{key: value for key, value in values.items() if key not in ("name", "number", "meaning")},
        "work_request": f"index {values['wqe_counter']} modulo the {queue} queue's size",
        "sources": [
            "rdma-core providers/mlx5/mlx5dv.h (mlx5_err_cqe), providers/mlx5/cq.c",
            "kernel drivers/infiniband/hw/mlx5/cq.c (dump_cqe)",
            "openucx/ucx src/uct/ib/mlx5/ib_mlx5.h",
        ],
    }


def decode(*words: str) -> dict[str, Any]:
    """Decode a dump; of several, the first that is not a flush, the others under `more`.

    Raises BadInput when there is no dump.
    """
    text = "\n".join(words)
    found = parse(text) or parse(" ".join(words))
    if not found:
        last = _bare(text)
        if last is None:
            last = next((rows[_SIZE - _ROW] for _, rows in _dumps(" ".join(words)) if _SIZE - _ROW in rows), None)
        if last is None:
            raise BadInput(
                "no error CQE found; wanted: a dump, or its last row, such as "
                f"'00000000 92005204 0a03ac2e 007517d2' or '00000030: 00 00 ..'; got {shown(text)}"
            )
        found = [_told(fields(last))]
    if found[0]["wc_status"] is None:
        return {
            **found[0],
            "side": "none",
            "causes": [],
            "next": [
                "the row is no error CQE: look for the row at offset "
                "0x30 whose last byte begins with d (send side) or e (receive side)"
            ],
        }
    first = next((one for one in found if one["wc_status"] != 5), found[0])
    answer = _explain(first)
    if len(found) > 1:
        answer["more"] = [one for one in found if one is not first]
    return answer
