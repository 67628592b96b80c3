"""Whether what a requester or responder sent is legal: opcode order, RETH length against the bytes that followed, MSN, what ACKs name."""

from __future__ import annotations

import numpy as np

from rdmadiag.roce import headers, icrc
from rdmadiag.roce.columns import Columns

AGAIN_NS = 5_000_000_000
"""A PSN that comes again after this time may be another life of its QP number: what it carries is not compared [ns]."""


def judge(c: Columns, sent: dict[str, np.ndarray], starts: np.ndarray, t: np.ndarray) -> None:
    """Judge requests that follow each other without a hole: only there is the packet before known."""
    stream, opcode = sent["stream"], sent["opcode"]
    count = len(stream)
    inner = ~sent["first"]
    before = np.empty(count, np.uint8)
    before[1:] = opcode[:-1]
    before[starts] = t["last_opcode"][stream[starts]]
    known = np.empty(count, bool)
    known[1:] = sent["new"][:-1]
    known[starts] = t["last_new"][stream[starts]]
    follows = known & sent["new"] & ~sent["gap"] & (sent["un"] == sent["due"])
    open_before = headers.FIRST[before] | headers.MIDDLE[before]
    goes_on = headers.MIDDLE[opcode] | headers.LAST[opcode]
    kind_differs = headers.KIND[before] != headers.KIND[opcode]
    wrong = follows & ((open_before != goes_on) | (open_before & goes_on & kind_differs))
    _count(t, "illegal", stream, sent["frame"], wrong)
    ends = np.append(starts[1:], count) - 1
    t["last_opcode"][stream[starts]] = opcode[ends]
    t["last_new"][stream[starts]] = sent["new"][ends] & headers.KNOWN[opcode[ends]]
    _lengths(c, sent, follows, inner, t)


def _lengths(c: Columns, sent: dict[str, np.ndarray], follows: np.ndarray, inner: np.ndarray, t: np.ndarray) -> None:
    # WRITEs of one packet, and WRITEs whose packets lie one after another in this chunk.
    operation = headers.OPERATION[sent["opcode"]]
    write = headers.KIND[sent["opcode"]] == 2
    only = write & headers.STARTS_MESSAGE[sent["opcode"]] & headers.ENDS_MESSAGE[sent["opcode"]] & (sent["size"] >= 0)
    wrong = only & (sent["payload"] != sent["size"]) & (sent["payload"] >= 0)
    first = np.nonzero(write & (operation == 0x06) & (sent["size"] >= 0))[0]
    if len(first):
        total = np.cumsum(sent["payload"])
        ends = np.nonzero(write & headers.LAST[sent["opcode"]])[0]
        at = np.searchsorted(ends, first)
        have = at < len(ends)
        first, last = first[have], ends[at[have]]
        breaks = np.cumsum(~follows)
        whole = (breaks[last] == breaks[first]) & (sent["stream"][last] == sent["stream"][first])
        first, last = first[whole], last[whole]
        short = total[last] - total[first] + sent["payload"][first] != sent["size"][first]
        wrong[first[short]] = True
    _count(t, "bad_length", sent["stream"], sent["frame"], wrong)


def answers(c: Columns, o: np.ndarray, stream: np.ndarray, syndrome: np.ndarray, t: np.ndarray) -> None:
    """Judge answers: the MSN never goes back where the PSN goes on; READ responses of one request follow each other without a hole.

    Notes the credits.
    """
    with_aeth = np.nonzero(syndrome >= 0)[0]
    if len(with_aeth):
        ids, msn = stream[with_aeth], c.dense("AETH", 1, 3)[o[with_aeth]]
        starts = np.nonzero(np.diff(ids, prepend=-1))[0]
        before = np.empty_like(msn)
        before[1:] = msn[:-1]
        known = t["msn"][ids[starts]]
        before[starts] = np.where(known >= 0, known, msn[starts])
        named = c.psn[o[with_aeth]]
        before_named = np.empty_like(named)
        before_named[1:] = named[:-1]
        before_named[starts] = t["msn_psn"][ids[starts]]
        back = (headers.deltas(msn, before) < 0) & (headers.deltas(named, before_named) > 0)
        _count(t, "msn_back", ids, c.frame[o[with_aeth]], back)
        ends = np.append(starts[1:], len(ids)) - 1
        t["msn"][ids[starts]], t["msn_psn"][ids[starts]] = msn[ends], named[ends]
        credit = np.where(syndrome[with_aeth] >> 5 == 0, syndrome[with_aeth], -1)
        t["last_credit"][ids[starts]] = credit[ends]
    opcode, psn = c.opcode[o], c.psn[o]
    same = np.diff(stream, prepend=-1) == 0
    before_psn, before_op = np.roll(psn, 1), np.roll(opcode, 1)
    goes_on = headers.READ_RESPONSE[opcode] & (headers.MIDDLE[opcode] | headers.LAST[opcode])
    open_before = headers.READ_RESPONSE[before_op] & (headers.FIRST[before_op] | headers.MIDDLE[before_op])
    hole = same & goes_on & open_before & (headers.deltas(psn, before_psn) > 1)
    _count(t, "response_holes", stream, c.frame[o], hole, "response_hole_frame")


def ahead(
    stream: np.ndarray, un: np.ndarray, frame: np.ndarray, time: np.ndarray, acks: np.ndarray, t: np.ndarray
) -> None:
    """Note ACKs of requests that were not sent: `un` of each by the stream of requests that it answers, -1 where that is not known."""
    here = acks & (stream >= 0) & (un >= t["expected"][np.maximum(stream, 0)])
    if here.any():
        _count(t, "ahead", stream, frame, here)
        np.maximum.at(t["ahead_un"], stream[here], un[here])
        np.maximum.at(t["ahead_time"], stream[here], time[here])


def changed(
    table: dict[str, np.ndarray], rows: np.ndarray, sent: dict[str, np.ndarray], again: np.ndarray, exact: np.ndarray
) -> dict[int, tuple[int, int, int]]:
    """Return those of packets that came again (`again` in sent, before that `rows` in table) with another payload: PSN, both frames."""
    now = {name: sent[name][again] for name in ("opcode", "payload", "checked", "content", "time", "un", "frame")}
    alike = exact & headers.CARRIES_DATA[now["opcode"]] & (now["checked"] != icrc.BAD)
    alike &= (now["time"] - table["time"][rows] < AGAIN_NS) & (now["content"] != table["content"][rows])
    for name in ("opcode", "payload", "checked"):
        alike &= now[name] == table[name][rows]
    found = {}
    for n in np.nonzero(alike)[0].tolist():
        old = int(rows[n])
        if now["checked"][n] == icrc.GOOD:
            size = int(headers.HEADER_BYTES[now["opcode"][n]]) - headers.BTH_BYTES + (int(now["payload"][n]) + 3 & ~3)
            one, two = (
                icrc.body(int(value) >> 32, int(value) & 0xFFFFFFFF, size)
                for value in (now["content"][n], table["content"][old])
            )
            if one == two:
                continue
        found[n] = (int(now["un"][n]), int(table["frame"][old]), int(now["frame"][n]))
    return found


def _count(t: np.ndarray, name: str, stream: np.ndarray, frame: np.ndarray, here: np.ndarray, first: str = "") -> None:
    rows = np.nonzero(here)[0]
    if not len(rows):
        return
    ids, at, counts = np.unique(stream[rows], return_index=True, return_counts=True)
    fresh = t[name][ids] == 0
    t[first or f"{name}_frame"][ids[fresh]] = frame[rows[at[fresh]]]
    t[name][ids] += counts
