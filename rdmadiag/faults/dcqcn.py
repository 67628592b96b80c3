"""The congestion control that rxe lacks, emulated on a lab's hosts, so that CE marks and CNPs slow a sender and it recovers."""

import json

from rdmadiag.faults import Change, Moves, Parameter, Plan, Target, Values, Worker
from rdmadiag.lab import dcqcn

TITLE = "Emulated DCQCN: marked packets bring CNPs, CNPs cut the rate of a queue pair, which recovers"
REACH = "switch"
PARAMETERS = (
    Parameter("host", "any", "host that gets it (in a lab with a kernel per host: one; any is the first)"),
    Parameter(
        "like",
        "paper",
        "whose parameters: the paper's (SIGCOMM 2015), or a ConnectX adapter's defaults",
        choices=tuple(dcqcn.SETS),
    ),
    Parameter(
        "slower", 200.0, "all its times are longer by this factor, so that an emulated host can follow", "", 1, 10000
    ),
)
SIGNS = (
    "all of this is emulated, and no counter of rxe moves: an agent on each host hears what arrives, and sets the rates of HTB classes",
    "a packet marked CE (fault ce-mark, or a lab with --ecn) is answered with a CNP, at most one a queue pair in 50 us times `slower`",
    "a CNP cuts the rate of its queue pair by alpha / 2; without more it comes back: half of what is missing, again and again, then steps",
)
DIAGNOSIS = None  # an emulation that others need around them: nothing is wrong where it runs


def plan(target: Target, values: Values) -> Plan:
    """Put HTB at the hosts' netdevs, and beside each a process that is both points; the rates are those of the switch's ports."""
    from rdmadiag.lab import dcqcn_agent, packets

    cables = target.cables_of(values["host"])
    notes: tuple[str, ...] = (
        "rxe has no DCQCN: rates and CNPs are made by processes, times are longer than an adapter's",
    )
    place = ""
    if target.apart:
        cables = target.cables_of(cables[0].host)
        place = cables[0].host
        notes += (f"on {place} alone, for an injection is on one host: another with --host for each further host",)
    steps: list[Change | Worker] = []
    for cable in cables:
        here = f"tc qdisc show dev {cable.netdev}"
        lines = "\n".join(dcqcn_agent.root_lines(cable.netdev, target.rate))
        steps.append(
            Change(
                f"HTB at the root of {cable.netdev}, for emulated DCQCN",
                doing=f"! {here} | grep -v ' 0: ' | grep -q . || {{ echo 'foreign root qdisc, left alone:' >&2; {here} >&2; false; }}\n"
                f"tc -batch - <<'END'\n{lines}\nEND",
                undoing=f"tc qdisc del dev {cable.netdev} root handle {dcqcn_agent.HANDLE}",
                test=f"{here} | grep -q '^qdisc htb {dcqcn_agent.HANDLE} root '",
            )
        )
    for cable in cables:
        order = {
            "netdev": cable.netdev,
            "device": cable.device,
            "line": target.rate,
            **{name: values[name] for name in ("like", "slower")},
        }
        steps.append(
            Worker(
                f"a process that emulates DCQCN at {cable.netdev}",
                argv=(*packets.python("rdmadiag.lab.dcqcn_agent"), json.dumps(order)),
                name=f"dcqcn-{cable.netdev}",
                environment=tuple(packets.environment().items()),
            )
        )
    return Plan(
        place=place,
        netdevs=tuple(cable.netdev for cable in cables),
        steps=tuple(steps),
        hits=("rate_cuts", "cnps_sent", "cnps_heard", "ce_seen"),
        moves=Moves("file", ("overlimits",), probe=_delayed([cable.netdev for cable in cables], dcqcn_agent.HANDLE)),
        notes=notes,
        devices=tuple(cable.device for cable in target.cables),
    )


def _delayed(netdevs: list[str], handle: str) -> str:
    # The kernel's own count of packets that a class held back: by more than nothing, where a rate was cut.
    text = f"for n in {' '.join(netdevs)}; do tc -s class show dev $n 2>/dev/null; done"
    return (
        f"echo probe overlimits $({text} | sed -n '/^class htb {handle}1 /,/^class/!s/.*overlimits \\([0-9]*\\).*/\\1/p' "
        "| { sum=0; while read -r n; do sum=$((sum+n)); done; echo $sum; })"
    )
