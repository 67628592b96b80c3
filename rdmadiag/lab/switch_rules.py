"""nftables rules of in-flight changes: what the kernel drops or marks itself, and which packets visit the program.

One netdev table with `flags owner`: the kernel takes it away when the program's netlink socket closes, however it ended, and
traffic passes. It also passes when the program stands still (SIGSTOP): nothing is done while the set `alive` is empty, and its
element lasts ALIVE_SECONDS.
BTH fields are read as raw payload behind the UDP header: opcode at bit 64, DestQP 104, PSN 136, RETH R_Key 224, AETH syndrome 160.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rdmadiag.lab import pattern
from rdmadiag.lab.changes import Change, Match
from rdmadiag.roce.packet import UDP_PORT

ALIVE_SECONDS = 10
_MILLION = 1_000_000
_ALWAYS = 4294967295  # numgen inc counts to this before it starts again


def table(name: str, changes: Sequence[Change], ports: dict[str, str], macs: dict[str, list[str]], punt_to: str) -> str:
    """Return the table. `ports`: switch port of each host's cable (port to host); `macs`: a host's MAC addresses; `punt_to`: netdev."""
    lines = [
        f"table netdev {name} {{",
        " flags owner",
        f" set alive {{ type inet_service; flags timeout; elements = {{ {UDP_PORT} timeout {ALIVE_SECONDS}s }}\n }}",
        " chain ce {\n  ip ecn set ce\n  ip6 ecn set ce\n }",
    ]
    for n, change in enumerate(changes):
        lines += [
            f" counter s{n} {{\n }}",
            f" counter c{n} {{\n }}",
            f" chain h{n} {{\n  {_action(n, change)}\n }}",
            f" chain k{n} {{",
            f"  {_rule(n, change, punt_to)}",
            " }",
        ]
        if change.match.nth_qp:
            lines += [f" set q{n} {{ typeof @th,104,24\n }}"]
    for n, change in enumerate(changes):
        if change.match.nth_qp:  # QPs found, and while they are not, all others
            lines += [f' chain f{n} {{\n  @th,104,24 @q{n} counter name "c{n}" fwd to "{punt_to}"\n  jump k{n}\n }}']
    for number, (port, host) in enumerate(ports.items()):
        lines += [
            f' chain in{number} {{ type filter hook ingress device "{port}" priority 0; policy accept;',
            "  udp dport != @alive accept",
        ]
        for n, change in sorted(enumerate(changes), key=lambda pair: not pair[1].in_kernel):
            if change.match.source not in ("", host):
                continue
            to = macs[change.match.target] if change.match.target else []
            target = f"ether daddr {{ {', '.join(to)} }} " if to else ""
            lines.append(f"  {target}udp dport {UDP_PORT} jump {'f' if change.match.nth_qp else 'k'}{n}")
        lines.append(" }")
    return "\n".join([*lines, "}"]) + "\n"


def _rule(n: int, change: Change, punt_to: str) -> str:
    if not change.in_kernel:
        qp = "" if change.match.qp is None else f"@th,104,24 {change.match.qp:#x} "
        return f'{qp}counter name "c{n}" fwd to "{punt_to}"'
    words = [*_conditions(change.match), f'counter name "s{n}"']
    m, chosen = change.match, change.match.chosen()
    if m.occurrence:
        first, last = m.occurrence
        words += [f"numgen inc mod {_ALWAYS} >= {first - 1}", f"numgen inc mod {_ALWAYS} < {last - first + 1}"]
    if chosen:
        words.append(pattern.select(*chosen, f"h{n}"))
    else:
        if m.probability is not None:
            words.append(f"numgen random mod {_MILLION} < {max(round(m.probability * _MILLION), 1)}")
        words.append(f"goto h{n}")
    return " ".join(words)


def _action(n: int, change: Change) -> str:
    # What is done to the packets that were chosen, within the budget.
    if not change.in_kernel:
        return "continue"
    budget = f"numgen inc mod {_ALWAYS} < {change.match.budget} " if change.match.budget else ""
    # The mark goes on the header of the packet's own version; ICRC and UDP checksum do not cover it.
    return f'{budget}counter name "c{n}" {"drop" if change.action.do == "drop" else "jump ce"}'


def _conditions(m: Match) -> list[str]:
    words = []
    if m.opcodes:
        words.append(f"@th,64,8 {{ {', '.join(f'{code:#x}' for code in sorted(m.opcodes))} }}")
    if m.qp is not None:
        words.append(f"@th,104,24 {m.qp:#x}")
    for at, size, limits in ((136, 24, m.psn), (160, 8, m.syndrome)):
        if limits and limits[0] == limits[1]:
            words.append(f"@th,{at},{size} {limits[0]:#x}")
        elif limits:
            words += [f"@th,{at},{size} >= {limits[0]:#x}", f"@th,{at},{size} <= {limits[1]:#x}"]
    if m.rkey is not None:
        words.append(f"@th,224,32 {m.rkey:#x}")
    return words


def refresh(name: str) -> str:
    """Return the commands that keep the table at work for another ALIVE_SECONDS."""
    # Added first, so that there is one to delete after the program stood still; adding does not renew one that is there.
    return (
        f"add element netdev {name} alive {{ {UDP_PORT} }}\n"
        f"delete element netdev {name} alive {{ {UDP_PORT} }}\n"
        f"add element netdev {name} alive {{ {UDP_PORT} timeout {ALIVE_SECONDS}s }}\n"
    )


def found(name: str, n: int, qpn: int) -> str:
    """Return the commands by which only this QP visits the program, now that the n-th is known."""
    return f"add element netdev {name} q{n} {{ {qpn:#x} }}\nflush chain netdev {name} k{n}\n"


def counters(listing: str) -> dict[str, tuple[int, int]]:
    """Return packets and bytes of each counter of what `list counters` printed."""
    pattern = re.compile(r"counter (\w+) \{\s*packets (\d+) bytes (\d+)")
    return {name: (int(packets), int(size)) for name, packets, size in pattern.findall(listing)}
