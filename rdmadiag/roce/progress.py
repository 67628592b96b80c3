"""How far streams of requests are: when the message of each request began, and how much is in flight. Arrays are of a chunk, by stream."""

from __future__ import annotations

import numpy as np

from rdmadiag.roce import headers


def began(
    t: np.ndarray, time: np.ndarray, stream: np.ndarray, opcode: np.ndarray, starts: np.ndarray, new: np.ndarray
) -> np.ndarray:
    """Return when the message of each request began [ns]; -1 where its first packet is not in the capture, or this one came again."""
    begins = headers.STARTS_MESSAGE[opcode]
    lengths = np.diff(np.append(starts, len(time)))
    last = np.maximum.accumulate(np.where(begins, np.arange(len(time)), -1))
    known = last >= np.repeat(starts, lengths)
    found = np.where(known, np.where(new, time, -1)[last], np.repeat(t["began"][stream[starts]], lengths))
    t["began"][stream[starts]] = found[np.append(starts[1:], len(time)) - 1]
    return np.where(new, found, -1)


def in_flight(
    t: np.ndarray,
    sent: dict[str, np.ndarray],
    streams: np.ndarray,
    when: np.ndarray,
    value: np.ndarray,
    acked_first: dict[int, int],
) -> None:
    """Note the most PSNs of each stream that were sent and not yet acknowledged, from when its answers are known.

    `streams`, `when`, `value`: the first PSN that is not acknowledged after each answer, by stream and turn; `acked_first`: before.
    """
    mine = sent["stream"]
    at = np.searchsorted(_key(streams, when), _key(mine, sent["order"])) - 1
    here = (at >= 0) & (streams[at] == mine) if len(streams) else np.zeros(len(mine), bool)
    ids, starts, of = np.unique(mine, return_index=True, return_inverse=True)
    first = np.fromiter((acked_first.get(n, int(t["acked"][n])) for n in ids.tolist()), np.int64, len(ids))
    acked = np.where(here, value[at] if len(value) else 0, first[of])
    counted = sent["new"] & (t["partner"][mine] >= 0)
    most = np.maximum.reduceat(np.where(counted, sent["end"] - acked, 0), starts)
    t["in_flight"][ids] = np.maximum(t["in_flight"][ids], most)


def _key(stream: np.ndarray, order: np.ndarray) -> np.ndarray:
    # One sorted key of a stream and the turn of a packet.
    return np.asarray(stream.astype(np.int64) << 40 | order)
