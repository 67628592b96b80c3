"""Logical and physical state of an RDMA port, as sysfs writes them (`4: ACTIVE`, `5: LinkUp`).

Kernel include/rdma/ib_verbs.h (`ib_port_state`, `ib_port_phys_state`), drivers/infiniband/core/sysfs.c.
"""

from __future__ import annotations

from typing import Any

from rdmadiag.explain._words import number, refuse

HELP = "port state by number or name; `phys` before a number for the physical state"
EXAMPLES = (("ACTIVE",), ("4: ACTIVE",), ("1",), ("LinkUp",), ("phys", "2"), ("3: Disabled",))

_Row = tuple[int, str, str, str, tuple[str, ...], tuple[str, ...]]
STATES: tuple[_Row, ...] = (
    (0, "NOP", "no state change; only seen in a faulty reading", "local", (), ("read the file again",)),
    (
        1,
        "DOWN",
        "the link is down: nothing can be sent",
        "link or local",
        ("cable, optics or the far port", "RoCE: the netdev is down (`ip link`)", "the switch port is shut"),
        ("read phys_state: it tells where the link stands", "RoCE: ip link show <netdev>"),
    ),
    (
        2,
        "INIT",
        "the link is up but not configured",
        "fabric",
        ("InfiniBand: no subnet manager has reached the port", "RoCE: the netdev is coming up"),
        ("InfiniBand: check that a subnet manager runs (sminfo)",),
    ),
    (
        3,
        "ARMED",
        "configured by the subnet manager and about to become active",
        "fabric",
        ("no data packet or the subnet manager's last step came yet",),
        ("wait; if it stays, look at the subnet manager",),
    ),
    (
        4,
        "ACTIVE",
        "the port can carry traffic; EFA always says so, whatever the network",
        "none",
        (),
        ("nothing to do",),
    ),
    (
        5,
        "ACTIVE_DEFER",
        "active; the link had an error and is recovering",
        "link",
        ("marginal cable or optics",),
        ("watch link_error_recovery and link_downed",),
    ),
)
PHYS_STATES: tuple[_Row, ...] = (
    (1, "Sleep", "powered down by the driver or firmware", "local", (), ("bring the port up",)),
    (
        2,
        "Polling",
        "this end is fine and looks for a partner that does not answer",
        "far end or cable",
        ("cable unplugged or broken", "far port shut or its node off", "speed, FEC or autonegotiation do not match"),
        ("look at the far end first; reseat the cable; compare speed and FEC settings",),
    ),
    (
        3,
        "Disabled",
        "switched off at this end",
        "local",
        ("RoCE: netdev down", "port disabled by the operator or by firmware (power, module)"),
        ("ip link set <netdev> up; mlxlink, dmesg for module events",),
    ),
    (
        4,
        "PortConfigurationTraining",
        "both ends train the link",
        "link",
        ("training fails again and again: cable or optics",),
        ("wait a few seconds; if it stays, replace cable or optics",),
    ),
    (5, "LinkUp", "the physical link is up", "none", (), ("nothing to do here; read the logical state",)),
    (
        6,
        "LinkErrorRecovery",
        "the link had errors and retrains",
        "link",
        ("marginal cable or optics",),
        ("watch symbol_error and link_error_recovery; replace cable or optics",),
    ),
    (7, "Phy Test", "test mode", "local", ("a test was left on",), ("end the test; reset the port",)),
)


def decode(*words: str) -> dict[str, Any]:
    """Decode a state. Raises BadInput, listing the known names, for anything else."""
    parts = " ".join(words).replace(":", " ").split()
    physical = bool(parts) and parts[0].lower().startswith("phys")
    if len(parts) > 1 and (physical or parts[0].lower() == "state"):
        del parts[0]
    if len(parts) > 1 and parts[0].isdecimal() and not parts[1].isdecimal():  # sysfs writes both: 5: LinkUp
        del parts[0]
    text = " ".join(parts)
    read = number(text)
    both = ((STATES, "logical"), (PHYS_STATES, "physical"))
    for table, what in both[1:] if physical else both:
        for value, name, meaning, side, causes, steps in table:
            if name.lower() == text.lower() or (read is not None and read[0] == value):
                return {
                    "name": name,
                    "number": value,
                    "meaning": meaning,
                    "side": side,
                    "causes": list(causes),
                    "next": list(steps),
                    "kind": what,
                    "file": "phys_state" if what == "physical" else "state",
                    "sources": [
                        "kernel include/rdma/ib_verbs.h, drivers/infiniband/core/sysfs.c",
                        "IBA vol 1, 14.2.5.6 (PortInfo)",
                    ],
                }
    raise refuse("port state", text, "0 to 5, phys 1 to 7, or a name", [row[1] for row in (*STATES, *PHYS_STATES)])
