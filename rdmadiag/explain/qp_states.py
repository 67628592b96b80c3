"""The QP state machine: which transitions exist, what each needs and allows, by QP type.

Table: kernel drivers/infiniband/core/verbs.c (`qp_state_table`, `ib_modify_qp_is_ok`), 6.12, which most drivers call;
mask bits: rdma-core libibverbs/verbs.h (`ibv_qp_attr_mask`). States: IBA vol 1, 10.3.1. The verbs layer refuses wrong
transitions with the same table before the kernel does. Drivers with tables of their own: EFA (SRD), mlx5 (DCI, DCT).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rdmadiag.explain._words import name as folded
from rdmadiag.explain._words import refuse

HELP = "the whole QP state machine of one type: [RC|UC|UD|XRC_INI|XRC_TGT|RAW_PACKET|SMI|GSI]"
EXAMPLES = (("RC",), ("UD",), ())

STATES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
"""State names (without IBV_QPS_) by number."""
QP_TYPES = ("RC", "UC", "UD", "XRC_INI", "XRC_TGT", "RAW_PACKET", "SMI", "GSI")

BITS = {
    "STATE": 1 << 0,
    "CUR_STATE": 1 << 1,
    "EN_SQD_ASYNC_NOTIFY": 1 << 2,
    "ACCESS_FLAGS": 1 << 3,
    "PKEY_INDEX": 1 << 4,
    "PORT": 1 << 5,
    "QKEY": 1 << 6,
    "AV": 1 << 7,
    "PATH_MTU": 1 << 8,
    "TIMEOUT": 1 << 9,
    "RETRY_CNT": 1 << 10,
    "RNR_RETRY": 1 << 11,
    "RQ_PSN": 1 << 12,
    "MAX_QP_RD_ATOMIC": 1 << 13,
    "ALT_PATH": 1 << 14,
    "MIN_RNR_TIMER": 1 << 15,
    "SQ_PSN": 1 << 16,
    "MAX_DEST_RD_ATOMIC": 1 << 17,
    "PATH_MIG_STATE": 1 << 18,
    "CAP": 1 << 19,
    "DEST_QPN": 1 << 20,
    "RATE_LIMIT": 1 << 25,
}
"""Bit of each attribute in the mask of ibv_modify_qp, by its name without IBV_QP_."""

_ALIASES = {"XRC": "XRC_INI", "XRC_SEND": "XRC_INI", "XRC_RECV": "XRC_TGT", "RAW": "RAW_PACKET", "ERROR": "ERR"}


def _mask(names: str) -> int:
    return sum(BITS[name] for name in names.split())


_DATAGRAM = ("UD", "SMI", "GSI")
_LINKED = ("UC", "RC", "XRC_INI", "XRC_TGT")
_TIMERS = "TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC"
_PATH = "AV PATH_MTU DEST_QPN RQ_PSN"
_TARGET = " MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"
_LIVE = "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE"
_LIVE_BY_TYPE = {
    **dict.fromkeys(_DATAGRAM, "CUR_STATE QKEY"),
    "UC": _LIVE,
    "XRC_INI": _LIVE,
    "RC": _LIVE + " MIN_RNR_TIMER",
    "XRC_TGT": _LIVE + " MIN_RNR_TIMER",
}
_DRAINED = "PORT AV TIMEOUT ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE"
_FIRST = {
    "UD": "PKEY_INDEX PORT QKEY",
    "SMI": "PKEY_INDEX QKEY",
    "GSI": "PKEY_INDEX QKEY",
    **dict.fromkeys(_LINKED, "PKEY_INDEX PORT ACCESS_FLAGS"),
}

# (from, to): what is required by type, what is optional by type; a type that is not named needs and allows nothing.
_Attrs = dict[str, str]
_TEXT: dict[tuple[str, str], tuple[_Attrs, _Attrs]] = {
    ("RESET", "INIT"): ({**_FIRST, "RAW_PACKET": "PORT"}, {}),
    ("INIT", "INIT"): ({}, _FIRST),
    ("INIT", "RTR"): (
        {"UC": _PATH, "XRC_INI": _PATH, "RC": _PATH + _TARGET, "XRC_TGT": _PATH + _TARGET},
        {**dict.fromkeys(_DATAGRAM, "PKEY_INDEX QKEY"), **dict.fromkeys(_LINKED, "ALT_PATH ACCESS_FLAGS PKEY_INDEX")},
    ),
    ("RTR", "RTS"): (
        {**dict.fromkeys((*_DATAGRAM, "UC"), "SQ_PSN"), "RC": _TIMERS, "XRC_INI": _TIMERS, "XRC_TGT": "TIMEOUT SQ_PSN"},
        {**_LIVE_BY_TYPE, "RAW_PACKET": "RATE_LIMIT"},
    ),
    ("RTS", "RTS"): ({}, {**_LIVE_BY_TYPE, "RAW_PACKET": "RATE_LIMIT"}),
    ("RTS", "SQD"): ({}, dict.fromkeys((*_DATAGRAM, *_LINKED), "EN_SQD_ASYNC_NOTIFY")),
    ("SQD", "RTS"): ({}, _LIVE_BY_TYPE),
    ("SQD", "SQD"): (
        {},
        {
            **dict.fromkeys(_DATAGRAM, "PKEY_INDEX QKEY"),
            "UC": "AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE",
            "RC": _DRAINED + " RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
            "XRC_INI": _DRAINED + " RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC",
            "XRC_TGT": _DRAINED + " MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
        },
    ),
    ("SQE", "RTS"): ({}, {**dict.fromkeys(_DATAGRAM, "CUR_STATE QKEY"), "UC": "CUR_STATE ACCESS_FLAGS"}),
    **{(state, "RESET"): ({}, {}) for state in STATES},
    **{(state, "ERR"): ({}, {}) for state in STATES if state != "RESET"},
}

TABLE: dict[tuple[str, str], dict[str, tuple[int, int]]] = {
    pair: {kind: (_mask(need.get(kind, "")), _mask(may.get(kind, ""))) for kind in QP_TYPES}
    for pair, (need, may) in _TEXT.items()
}
"""(from, to) -> QP type -> (required mask, optional mask), without STATE. A pair that is not a key is illegal."""


class Verdict(NamedTuple):
    """What `check` found: `missing` and `unknown` are masks; `ok` when the kernel would accept the call."""

    legal: bool
    missing: int
    unknown: int

    @property
    def ok(self) -> bool:
        """Whether the transition exists and the mask fits it."""
        return self.legal and not self.missing and not self.unknown


def attributes(mask: int) -> list[str]:
    """Return the names of a mask's bits, lowest first; a bit without a name as `bit N`."""
    known = {value: name for name, value in BITS.items()}
    return [known.get(1 << bit, f"bit {bit}") for bit in range(mask.bit_length()) if mask >> bit & 1]


def state(word: str) -> str:
    """Return the name of a state given as name, IBV_QPS_ name or number. Raises BadInput, listing the known names."""
    text = folded(word).removeprefix("IBV_QPS_").removeprefix("IB_QPS_")
    text = _ALIASES.get(text, text)
    if text.isascii() and text.isdecimal() and len(text) == 1 and int(text) < len(STATES):
        return STATES[int(text)]
    if text not in STATES:
        raise refuse("QP state", word, "a name or 0 to 6", STATES)
    return text


def qp_type(word: str) -> str:
    """Return the name of a QP type; XRC alone means XRC_INI. Raises BadInput, listing the known names."""
    text = folded(word).removeprefix("IBV_QPT_").removeprefix("IB_QPT_")
    text = _ALIASES.get(text, text)
    if text not in QP_TYPES:
        raise refuse("QP type", word, "a name", QP_TYPES)
    return text


def check(old: str, new: str, kind: str, mask: int) -> Verdict:
    """Judge one ibv_modify_qp: the masks of attributes that are missing, and of ones that the transition refuses.

    `old`, `new` and `kind` are names from STATES and QP_TYPES (see `state`, `qp_type`). STATE counts as missing only
    when the state changes: the kernel takes a call without it as old to old. An illegal pair has `legal` False.
    """
    row = TABLE.get((old, new))
    if row is None:
        return Verdict(False, 0, 0)
    required, optional = row[kind]
    needed = required | (BITS["STATE"] if old != new else 0)
    return Verdict(True, needed & ~mask, mask & ~(required | optional | BITS["STATE"]))


def following(old: str) -> list[str]:
    """Return the states that can follow `old` by ibv_modify_qp, in order of their number."""
    return [new for new in STATES if (old, new) in TABLE]


def decode(*words: str) -> dict[str, Any]:
    """List all transitions of a QP type (RC when none is named). Raises BadInput for an unknown type."""
    kind = qp_type(" ".join(words)) if words else "RC"
    return {
        "name": kind,
        "meaning": f"QP state machine of {kind}: what ibv_modify_qp needs and allows; STATE always counts as given",
        "next": ["rdmadiag explain qp-transition OLD NEW TYPE for one of them with its mask"],
        "transitions": [
            {"from": old, "to": new, "required": attributes(row[kind][0]), "optional": attributes(row[kind][1])}
            for (old, new), row in sorted(TABLE.items(), key=lambda item: tuple(map(STATES.index, item[0])))
        ],
        "by_hardware": [
            {"from": "RTS", "to": "ERR", "when": "a work request fails (RC, XRC), or the peer's request is refused"},
            {"from": "RTS", "to": "SQE", "when": "a send fails on UD, UC, SMI or GSI"},
        ],
        "sources": [
            "kernel drivers/infiniband/core/verbs.c (qp_state_table)",
            "IBA vol 1, 10.3.1",
            "rdma-core libibverbs/verbs.h (ibv_qp_attr_mask)",
        ],
    }
