"""One QP transition: the attributes that ibv_modify_qp needs and allows for it, with the mask.

Table and sources: rdmadiag.explain.qp_states.
"""

from __future__ import annotations

from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain import qp_states
from rdmadiag.explain._words import number, refuse, shown

HELP = "attributes and mask of a QP transition: OLD NEW [RC|UC|UD|XRC_INI|XRC_TGT|...] [MASK]"
EXAMPLES = (("INIT", "RTR", "RC"), ("RTR", "RTS"), ("RESET", "RTS", "UD"), ("INIT", "RTR", "UC", "0x121181"))

_WHY = {
    "AV": "ah_attr: dgid, sgid_index, hop_limit, traffic_class, port; on RoCE is_global must be 1",
    "PATH_MTU": "not above active_mtu of either port",
    "DEST_QPN": "24 bits, exchanged out of band",
    "RQ_PSN": "24 bits; must be the peer's sq_psn",
    "SQ_PSN": "24 bits; must be the peer's rq_psn",
    "MAX_DEST_RD_ATOMIC": "READs and atomics accepted at once; at least the peer's max_rd_atomic",
    "MAX_QP_RD_ATOMIC": "READs and atomics sent at once; not above the peer's max_dest_rd_atomic",
    "MIN_RNR_TIMER": "0 to 31: rdmadiag explain rnr-timer",
    "TIMEOUT": "0 to 31: rdmadiag explain ack-timeout; 0 waits for ever",
    "RETRY_CNT": "0 to 7",
    "RNR_RETRY": "0 to 7; 7 retries without end",
    "PKEY_INDEX": "0 on RoCE",
    "PORT": "from 1",
    "ACCESS_FLAGS": "qp_access_flags: what the peer may do (REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC)",
    "QKEY": "32 bits; the same at both ends",
    "ALT_PATH": "InfiniBand only: the kernel refuses it on RoCE",
}


def _listed(mask: int) -> list[dict[str, str]]:
    return [
        {"name": f"IBV_QP_{name}", "bit": f"{1 << bit:#x}", "value": _WHY.get(name, "")}
        for bit in range(mask.bit_length())
        if mask >> bit & 1
        for name in qp_states.attributes(1 << bit)
    ]


def decode(*words: str) -> dict[str, Any]:
    """Decode a transition, and judge a mask if one is given. Raises BadInput for an unknown state, type or mask."""
    plain = [word for word in words if word.upper() not in ("->", "TO")]
    if not 2 <= len(plain) <= 4:
        raise BadInput(f"qp-transition wants OLD NEW [TYPE] [MASK], such as INIT RTR RC; got {shown(' '.join(words))}")
    old, new = qp_states.state(plain[0]), qp_states.state(plain[1])
    kind, given = "RC", None
    for word in plain[2:]:
        read = number(word)
        if read is not None and word[0].isdecimal():
            given = read[0]
        else:
            kind = qp_states.qp_type(word)
    row = qp_states.TABLE.get((old, new))
    answer: dict[str, Any] = {"name": f"{old} -> {new} ({kind})", "legal": row is not None}
    if row is None:
        followers = qp_states.following(old)
        answer["meaning"] = (
            f"no such transition: ibv_modify_qp fails with EINVAL; from {old} it can go to " + ", ".join(followers)
        )
        answer["side"] = "local: the program or library that drives the QP"
        answer["causes"] = [
            "a step was left out, or another thread moved the QP first",
            "the QP had failed and was in ERR already",
        ]
        answer["next"] = _path(old, new)
        answer["legal_from_here"] = followers
    else:
        required, optional = row[kind]
        full = required | qp_states.BITS["STATE"]
        answer["meaning"] = f"needs {len(qp_states.attributes(required))} attributes besides IBV_QP_STATE"
        answer["required_mask"] = f"{full:#x}"
        answer["optional_mask"] = f"{optional:#x}"
        answer["required"] = _listed(full)
        answer["optional"] = _listed(optional)
        answer["next"] = ["on EINVAL compare the mask that was passed, bit by bit"]
        if given is not None:
            verdict = qp_states.check(old, new, kind, given)
            answer["given_mask"] = f"{given:#x}"
            answer["accepted"] = verdict.ok
            answer["missing"] = [f"IBV_QP_{name}" for name in qp_states.attributes(verdict.missing)]
            answer["refused"] = [f"IBV_QP_{name}" for name in qp_states.attributes(verdict.unknown)]
            if given >= 1 << 31:
                raise refuse("attribute mask", hex(given), "below 0x80000000")
    if old == "RESET" and new == "ERR":
        answer["note"] = "IBA allows any state to ERR; the kernel's table has no RESET to ERR"
    answer["sources"] = [
        "kernel drivers/infiniband/core/verbs.c (qp_state_table, ib_modify_qp_is_ok)",
        "rdma-core libibverbs/verbs.h (ibv_qp_attr_mask)",
        "IBA vol 1, 10.3.1",
    ]
    return answer


# The shortest legal way, as advice; breadth first over seven states.
def _path(old: str, new: str) -> list[str]:
    ways = [[old]]
    seen = {old}
    for way in ways:
        if way[-1] == new:
            return ["go " + " -> ".join(way)]
        for step in qp_states.following(way[-1]):
            if step not in seen:
                seen.add(step)
                ways.append([*way, step])
    return [f"no sequence of ibv_modify_qp calls leads to {new}; the device moves a QP there"]
