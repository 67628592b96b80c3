"""One counter: where it is read, what it means, how to read it. Backed by the table in rdmadiag.explain.counters."""

from __future__ import annotations

from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain import counters
from rdmadiag.explain._words import refuse

HELP = "counter by the kernel's name or by its signal: NAME [driver]"
EXAMPLES = (
    ("out_of_buffer",),
    ("rx_prio3_pause",),
    ("link_downed",),
    ("transport_retries_exceeded",),
    ("vport_out_of_sequence",),
    ("rcvd_rnr_err", "rxe"),
)

_PORT = "/sys/class/infiniband/<device>/ports/<port>"
_FILES = {"pma": f"{_PORT}/counters/", "ethtool": "ethtool -S <netdev>: ", "bnxt_en": "ethtool -S <netdev>: "}
_EFA_DEVICE = ("cmds", "_err", "keep_alive")
_TOPS = {"wraps": "wraps to 0 above", "saturates": "stays at its top and must be reset:", "gauge": "a level of at most"}


def _file(driver: str, name: str) -> str:
    if driver == "efa" and any(part in name for part in _EFA_DEVICE) and not name.startswith("rdma_"):
        return f"/sys/class/infiniband/<device>/hw_counters/{name}"
    return f"{_FILES.get(driver, f'{_PORT}/hw_counters/')}{name}"


def _width(row: counters.Row) -> str:
    top = (1 << row[4]) - 1
    return f"{row[4]} bits; {_TOPS[row[7]]} {top if row[4] < 64 else '2^64 - 1'}"


def _where(row: counters.Row, name: str) -> dict[str, Any]:
    return {
        "driver": row[0],
        "counter": name,
        "file": _file(row[0], name),
        "side": row[3],
        "bits": row[4],
        "kind": row[7],
        "terminal": bool(row[5]),
        "benign": bool(row[6]),
        "width": _width(row),
    }


def _verdict(row: counters.Row) -> str:
    if row[5]:
        return "terminal: one increment is a dead QP"
    return "benign: it moves in health" if row[6] else "not terminal; a rise over a window wants a reason"


def _refused(name: str, drivers: list[str], elsewhere: list[str]) -> BadInput:
    if elsewhere:
        return refuse("counter", name, f"one of {drivers[0]}; it is a counter of {', '.join(sorted(set(elsewhere)))}")
    from difflib import get_close_matches

    near = get_close_matches(name[:80], {row[1] for row in counters.COUNTERS} | counters.MEANINGS.keys(), 5, 0.5)
    return refuse(
        "counter",
        name,
        f"a kernel counter name or a signal; nearest: {', '.join(near) or 'none'}"
        " (rdmadiag explain counters DRIVER lists all)",
    )


def decode(*words: str) -> dict[str, Any]:
    """Decode a counter or a signal. Raises BadInput, with the nearest names, for one that no driver has."""
    drivers = [word.lower() for word in words if word.lower() in counters.DRIVERS]
    names = [word for word in words if word.lower() not in counters.DRIVERS]
    if len(names) != 1 or len(drivers) > 1:
        raise refuse("counter", " ".join(words), "one name and at most one driver: " + ", ".join(counters.DRIVERS))
    name = names[0].strip().rstrip(":").rpartition("/")[2]
    known, value, is_priority = counters.template(name)
    wanted = {known.lower(), name.lower()}
    spelled = [row for row in counters.COUNTERS if row[1].lower() in wanted]
    meant = [row for row in counters.COUNTERS if row[2] == name.lower()]
    rows = [row for row in spelled if not drivers or row[0] in drivers]
    by_signal = not rows
    if by_signal:
        rows = [row for row in meant if not drivers or row[0] in drivers]
    if not rows:
        raise _refused(name, drivers, [row[0] for row in (*spelled, *meant)])
    first = rows[0]
    unit, meaning, reading = counters.MEANINGS[first[2]]
    answer: dict[str, Any] = {
        "name": name if by_signal else first[1].replace("{N}", str(value)),
        "signal": first[2],
        "meaning": meaning,
        "unit": unit,
        "side": first[3] if len({row[3] for row in rows}) == 1 else "by driver, see where",
        "terminal": any(row[5] for row in rows),
        "benign": all(row[6] for row in rows),
        "verdict": _verdict(first),
        "how_to_read": reading,
        "next": ["compare two readings over a known window; a sum since boot is weak evidence"]
        if first[7] != "gauge"
        else ["read it now: it has no meaning as a difference"],
        "where": [_where(row, row[1] if by_signal else row[1].replace("{N}", str(value))) for row in rows],
        "also_spelled": [f"{row[0]}: {row[1]}" for row in counters.COUNTERS if row[2] == first[2] and row not in rows],
    }
    if is_priority:
        answer["priority"] = value
    others = sorted({row[2] for row in rows} - {first[2]})
    if others:
        answer["other_signals"] = {signal: counters.MEANINGS[signal][1] for signal in others}
    answer["sources"] = [
        "kernel drivers/infiniband (sysfs.c and each driver's hw_counters table)",
        "kernel Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
        "IBA vol 1, 16.1.3.5 (PortCounters saturate)",
    ]
    return answer
