"""What the host's packet filter does with RoCE v2 packets, from `nft -j list ruleset`, `iptables-save` and `ufw status`.

Software RoCE (rxe) sends and receives through the host's network stack, so these rules act on it. An adapter's own RoCE
does not pass them. The packet that is followed through the rules is a UDP packet to port 4791 between two hosts; it is
always `new` to connection tracking, since the answers have port 4791 as their destination too.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rdmadiag.errors import HostRefused, NotPresent
from rdmadiag.evidence.row import Gap, Json, Line, Row, Text
from rdmadiag.host import Host, link_of, text_of
from rdmadiag.patterns import late
from rdmadiag.sources._packet_path import END, Found, Rule, all_of, verdict
from rdmadiag.sources.devices import CLASS

TABLES = ("firewall",)
ROCE_PORT = 4791
LINE_CHARACTERS = 2000


_HOW = "sudo nft -j list ruleset > nft.json (or iptables-save, ufw status verbose), and --from nft.json"


def read(host: Host) -> Iterable[Row | Gap]:
    """Ask the packet filter's tools where it matters, on a node with software RoCE, and only for what the kernel has loaded.

    Asking nftables or iptables for rules would else load their modules.
    """
    try:
        software = [name for name in host.ls(CLASS) if not link_of(host, f"{CLASS}/{name}/device")]
    except (NotPresent, HostRefused):
        return
    if not software or not host.live:
        return
    try:
        found = list(_ask(host))
        yield from found
        if host.exists("/sys/module/nf_tables") and not any(row.values["hook"] == "input" for row in found):
            yield _row(
                "nft", "inet", "(none)", "input", ("accept", "no chain filters what comes in"), "nft list ruleset"
            )
    except NotPresent as absent:
        yield Gap(TABLES, str(absent), "not_given", _HOW, "nft list ruleset")
    except HostRefused as refused:
        yield Gap(TABLES, refused.reason, "not_permitted", refused.how or _HOW, "nft list ruleset")
    except (ValueError, RecursionError) as error:
        yield Gap(TABLES, f"nft -j list ruleset printed no JSON: {error}", "unreadable", _HOW, "nft list ruleset")


def _row(tool: str, family: str, chain: str, hook: str, found: Found, at: str | int) -> Row:
    values = {"tool": tool, "family": family, "chain": chain, "hook": hook, "verdict": found[0], "rule": found[1][:300]}
    return Row("firewall", {key: value for key, value in values.items() if value is not None}, at)


def _ask(host: Host) -> Iterator[Row]:
    if host.exists("/sys/module/nf_tables"):
        for row in parse_nft([json.loads(host.run("nft -j list ruleset"))]):
            yield row._replace(at="nft -j list ruleset")
    for tool, tables in (("iptables-save", "ip_tables_names"), ("ip6tables-save", "ip6_tables_names")):
        if text_of(host, f"/proc/net/{tables}"):
            lines = [Line(number, line) for number, line in enumerate(host.run(tool).split("\n"), 1)]
            for row in parse_iptables(lines):
                yield row._replace(at=tool)


# --- nft -j list ruleset ---

_FILTER_HOOKS = ("ingress", "prerouting", "input", "output", "postrouting", "egress")


def parse_nft(objects: list[dict[str, Any]]) -> Iterator[Row]:
    """Parse `nft -j list ruleset`, {"nftables": [...]}: chains that packets enter, of type filter; never raises.

    Where the verdict depends on the netdev that a packet comes in or goes out by, each netdev that the rules name has a row of its own.
    """
    rules: dict[tuple[str, str], list[tuple[str, list[Any]]]] = {}
    sets: dict[tuple[str, str], dict[str, Sequence[Any]]] = {}
    bases: list[dict[str, Any]] = []
    for entry in (item for found in objects if isinstance(listed := found.get("nftables"), list) for item in listed):
        kind, body = next(iter(entry.items()), ("", None)) if isinstance(entry, dict) else ("", None)
        if not isinstance(body, dict):
            continue
        owner = str(body.get("family", "")), str(body.get("table", ""))
        if kind == "chain" and body.get("type") == "filter" and body.get("hook") in _FILTER_HOOKS:
            bases.append(body)
        elif kind == "rule" and isinstance(body.get("expr"), list):
            rules.setdefault(owner, []).append((str(body.get("chain", "")), body["expr"]))
        elif kind == "set" and isinstance(body.get("elem"), list):
            sets.setdefault(owner, {})[f"@{body.get('name')}"] = [_element(one) for one in body["elem"]]
    for body in bases:
        family, table, name = (str(body.get(key, "")) for key in ("family", "table", "name"))
        if family not in ("ip", "ip6", "inet", "netdev"):
            continue
        policy = "drop" if body.get("policy") == "drop" else "accept"
        known, mine = sets.get((family, table), {}), rules.get((family, table), [])
        for netdev in ("", *sorted(_netdevs(mine, known))):
            chains: dict[str, list[Rule]] = {}
            for chain, statements in mine:
                chains.setdefault(chain, []).append(_nft_rule(statements, known, netdev))
            found = verdict(chains, name, policy)
            found = (policy, "policy") if found[0] == END else found
            row = _row("nft", family, f"{table} {name}", str(body["hook"]), found, 1)
            if not netdev:
                yield row
                if found[0] is not None:
                    break
            elif found[0] is not None:
                yield row._replace(values={**row.values, "netdev": netdev})


Sets = Mapping[str, Sequence[Any]]
_INTERFACES = ("iif", "iifname", "oif", "oifname")
_NETDEVS_MOST = 64


def _element(one: Any) -> Any:
    inner = one.get("elem") if isinstance(one, dict) else None
    return inner.get("val") if isinstance(inner, dict) else one


def _netdevs(rules: Sequence[tuple[str, list[Any]]], sets: Sets) -> set[str]:
    found: set[str] = set()
    for _, statements in rules:
        for statement in statements:
            body = statement.get("match") if isinstance(statement, dict) else None
            left = body.get("left") if isinstance(body, dict) else None
            meta = left.get("meta") if isinstance(left, dict) else None
            if isinstance(body, dict) and isinstance(meta, dict) and meta.get("key") in _INTERFACES:
                found.update(value for value in _resolved(body.get("right"), sets) if isinstance(value, str))
    return (
        {name for name in found if name and not name.startswith("@") and "*" not in name}
        if len(found) <= _NETDEVS_MOST
        else set()
    )


def _resolved(right: Any, sets: Sets) -> Sequence[Any]:
    return sets[right] if isinstance(right, str) and right in sets else _values(right)


def _nft_rule(statements: list[Any], sets: Sets, netdev: str = "") -> Rule:
    matches: list[bool | None] = []
    action, words = "", []
    for statement in statements:
        kind, body = next(iter(statement.items()), ("", None)) if isinstance(statement, dict) else ("?", None)
        if kind == "match" and isinstance(body, dict):
            matches.append(_nft_match(body, sets, netdev))
            words.append(_nft_words(body))
        elif kind in ("accept", "drop", "reject", "return"):
            action = kind
        elif kind in ("jump", "goto") and isinstance(body, dict):
            action = f"{kind} {body.get('target', '')}"
        elif kind == "vmap" and isinstance(body, dict):
            action = _nft_map(body)
            words.append("vmap")
        elif kind in ("counter", "log", "comment", "mangle", "notrack", "meta", "ct helper"):
            continue
        elif kind in ("queue", "?"):
            action = "?"
        else:  # limit, quota, xt: matches of which no more is said
            matches.append(None)
            words.append(kind)
    return Rule(all_of(matches), action, " ".join([*filter(None, words), action]).strip() or "a rule")


def _nft_match(body: Mapping[str, Any], sets: Sets = MappingProxyType({}), netdev: str = "") -> bool | None:
    left, right, negative = body.get("left"), body.get("right"), body.get("op") == "!="
    if not isinstance(left, dict):
        return None
    kind, what = next(iter(left.items()), ("", None))
    if not isinstance(what, dict):
        return None
    found: bool | None = None
    if kind == "payload":
        found = _payload(str(what.get("protocol")), str(what.get("field")), right)
        if found is False and what.get("protocol") in ("tcp", "icmp", "icmpv6", "sctp", "dccp", "igmp"):
            return False  # whatever is asked of such a packet, it is another protocol
    elif kind == "meta" and what.get("key") in ("l4proto", "protocol"):
        found = _holds(right, ("udp", 17)) if what["key"] == "l4proto" else None
    elif kind == "meta" and what.get("key") in _INTERFACES:
        named = _resolved(right, sets)
        if named == ["lo"]:
            found = False
        elif netdev and all(isinstance(value, str) and value[:1] != "@" and "*" not in value for value in named):
            found = netdev in named
    elif kind == "fib" and what.get("result") == "type":
        found = _holds(right, ("local",))
    elif kind == "ct" and what.get("key") == "state":
        found = _holds(right, ("new",))
    return None if found is None else found is not negative


def _payload(protocol: str, field: str, right: Any) -> bool | None:
    if protocol in ("udp", "th") and field == "dport":
        return _holds(right, (ROCE_PORT,))
    if protocol in ("ip", "ip6") and field in ("protocol", "nexthdr"):
        return _holds(right, ("udp", 17))
    return False if protocol in ("tcp", "icmp", "icmpv6", "sctp", "dccp", "igmp") else None


def _values(right: Any) -> list[Any]:
    if isinstance(right, dict) and isinstance(right.get("set"), list):
        return list(right["set"])
    return list(right) if isinstance(right, list) else [right]


def _holds(right: Any, wanted: tuple[Any, ...]) -> bool | None:
    if isinstance(right, str) and right.startswith("@"):
        return None  # a named set
    return _any_of(_values(right), wanted)


def _any_of(values: list[Any], wanted: tuple[Any, ...]) -> bool | None:
    unsure = False
    for value in values:
        bounds = value.get("range") if isinstance(value, dict) else None
        if isinstance(bounds, list) and len(bounds) == 2 and all(isinstance(bound, int) for bound in bounds):
            if any(isinstance(want, int) and bounds[0] <= want <= bounds[1] for want in wanted):
                return True
        elif isinstance(value, (dict, list)):
            unsure = True
        elif value in wanted:
            return True
    return None if unsure else False


def _nft_map(body: Mapping[str, Any]) -> str:
    # A verdict map: what happens to each value of a key.
    data, key = body.get("data"), body.get("key")
    pairs = data.get("set") if isinstance(data, dict) else None
    if not isinstance(pairs, list) or not isinstance(key, dict):
        return "?"
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], dict)):
            return "?"
        holds = _nft_match({"left": key, "right": pair[0], "op": "=="})
        if holds is None:
            return "?"
        if holds:
            kind, target = next(iter(pair[1].items()), ("?", None))
            return f"{kind} {target['target']}" if isinstance(target, dict) and "target" in target else str(kind)
    return ""


def _nft_words(body: Mapping[str, Any]) -> str:
    left, right = body.get("left"), body.get("right")
    inner = next(iter(left.values()), None) if isinstance(left, dict) else None
    name = (
        " ".join(str(value) for value in inner.values() if isinstance(value, str)) if isinstance(inner, dict) else "?"
    )
    return f"{name} {body.get('op', '')} {right if isinstance(right, (str, int)) else _values(right)}"[:120]


# --- iptables-save ---

_CHAIN = late(r":(?P<chain>\S{1,64}) (?P<policy>ACCEPT|DROP|-)")
_RULE = late(r"(?:\[\d+:\d+\] )?-A (?P<chain>\S{1,64}) (?P<rest>.*)")
_HOOKS = {"INPUT": "input", "OUTPUT": "output", "PREROUTING": "prerouting", "POSTROUTING": "postrouting"}
_TABLES = frozenset(("filter", "raw", "mangle", "security"))


def parse_iptables(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `iptables-save` and `ip6tables-save`: INPUT, OUTPUT and the like of every table but nat."""
    family, table = "ip", ""
    policies: dict[str, tuple[str, int]] = {}
    chains: dict[str, list[Rule]] = {}
    for number, text in lines:
        text = text.strip()[:LINE_CHARACTERS]
        if "Generated by ip" in text:
            family = "ip6" if "Generated by ip6" in text else "ip"
        elif text.startswith("*"):
            table, policies, chains = text[1:], {}, {}
        elif match := _CHAIN.match(text):
            policies[match["chain"]] = (match["policy"], number)
        elif match := _RULE.match(text):
            chains.setdefault(match["chain"], []).append(_iptables_rule(match["rest"]))
        elif text == "COMMIT" and table in _TABLES:
            for chain, hook in _HOOKS.items():
                if chain in policies:
                    policy = "drop" if policies[chain][0] == "DROP" else "accept"
                    found = verdict(chains, chain, policy)
                    found = (policy, "policy") if found[0] == END else found
                    yield _row("iptables", family, f"{table} {chain}", hook, found, policies[chain][1])


def _iptables_rule(text: str) -> Rule:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    matches: list[bool | None] = []
    action, negative = "", False
    place = 0
    while place < len(words):
        word = words[place]
        value = words[place + 1] if place + 1 < len(words) else ""
        place += 2
        if word == "!":
            negative, place = True, place - 1
            continue
        if word in ("-j", "-g"):
            action = _target(word, value)
            break  # what follows are the target's own options
        if word in ("-m", "--comment", "-c"):
            negative = False
            continue
        found = _iptables_match(word, value)
        matches.append(None if found is None else found is not negative)
        negative = False
    return Rule(all_of(matches), action, f"-A ... {text}"[:300])


def _target(word: str, value: str) -> str:
    if value in ("ACCEPT", "DROP", "REJECT", "RETURN"):
        return value.lower()
    if value in (
        "LOG",
        "NFLOG",
        "MARK",
        "CONNMARK",
        "CT",
        "NOTRACK",
        "TOS",
        "DSCP",
        "TCPMSS",
        "CHECKSUM",
        "ULOG",
        "AUDIT",
    ):
        return ""
    if value in ("NFQUEUE", "QUEUE", "TPROXY", "SYNPROXY"):
        return "?"
    return f"{'goto' if word == '-g' else 'jump'} {value}"


def _iptables_match(word: str, value: str) -> bool | None:
    if word in ("-p", "--protocol"):
        return value in ("udp", "17", "all", "0")
    if word in ("--dport", "--dports", "--destination-port", "--destination-ports"):
        return any(_in_range(part) for part in value.split(","))
    if word in ("-i", "-o"):
        return False if value == "lo" else None
    if word in ("--ctstate", "--state"):
        return "NEW" in value.split(",")
    if word == "--dst-type":
        return "LOCAL" in value.split(",")  # of the types that are told apart: neither broadcast nor multicast
    if word in ("-d", "--destination") and _MANY.match(value):
        return False
    return None


_MANY = late(r"22[4-9]\.|23\d\.|255\.255\.255\.255|ff[0-9a-f]{2}:")


def _in_range(text: str) -> bool:
    first, _, last = text.partition(":")
    if not first.isdecimal() or (last and not last.isdecimal()):
        return False
    return int(first[:6]) <= ROCE_PORT <= int((last or first)[:6])


# --- ufw status ---

_UFW_STATUS = late(r"Status: (?P<status>active|inactive)\s*$")
_UFW_DEFAULT = late(
    r"Default: (?P<incoming>deny|allow|reject) \(incoming\), (?P<outgoing>deny|allow|reject) \(outgoing\)"
)
_UFW_RULE = late(
    r"(?:\[ *\d+\] )?(?P<to>\S.*?)\s{2,}(?P<verdict>ALLOW|DENY|REJECT|LIMIT)(?: (?P<way>IN|OUT|FWD))?\s{2,}(?P<source>\S.*?)\s*$"
)
_UFW_TO = late(r"(?P<ports>\d[\d:,]*)(?:/(?P<protocol>tcp|udp))?(?: \(v6\))?$")
_UFW_VERDICTS = {
    "ALLOW": "accept",
    "DENY": "drop",
    "REJECT": "reject",
    "LIMIT": "?",
    "allow": "accept",
    "deny": "drop",
    "reject": "reject",
}


def parse_ufw(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ufw status`, also verbose and numbered: what comes in, IPv4."""
    start, incoming = 0, ""
    rules: list[Rule] = []
    for number, text in lines:
        text = text[:LINE_CHARACTERS]
        if match := _UFW_STATUS.match(text.strip()):
            yield from _ufw_row(start, incoming, rules)
            start, incoming, rules = (number, "", []) if match["status"] == "active" else (0, "", [])
            if match["status"] == "inactive":
                yield _row("ufw", "ip", "incoming", "input", ("accept", "Status: inactive"), number)
        elif match := _UFW_DEFAULT.match(text.strip()):
            incoming = _UFW_VERDICTS[match["incoming"]]
        elif start and (match := _UFW_RULE.match(text)) and match["way"] in (None, "IN") and "(v6)" not in match["to"]:
            everyone = match["source"].startswith("Anywhere")
            matches = all_of((_ufw_port(match["to"]), True if everyone else None))
            rules.append(Rule(matches, _UFW_VERDICTS[match["verdict"]], text.strip()))
    yield from _ufw_row(start, incoming, rules)


def _ufw_row(start: int, incoming: str, rules: list[Rule]) -> Iterator[Row]:
    if start:
        found = verdict({"": rules}, "", incoming or END)
        unknown = (None, "the default policy is not shown (ufw status verbose)")
        yield _row("ufw", "ip", "incoming", "input", unknown if found[0] == END else found, start)


def _ufw_port(text: str) -> bool | None:
    if text == "Anywhere":
        return True
    match = _UFW_TO.match(text)
    if match is None:
        return None  # an application profile, an address, an interface
    return match["protocol"] != "tcp" and any(_in_range(part) for part in match["ports"].split(","))


TEXTS: tuple[Text | Json, ...] = (
    Json("nft list ruleset", (("nftables",),), parse_nft, ("nft",)),
    Text(
        "iptables-save",
        (r"^# Generated by ip6?tables", r"^:(INPUT|PREROUTING) (ACCEPT|DROP) \["),
        parse_iptables,
        ("iptables-save",),
    ),
    Text("ufw status", (r"^Status: (active|inactive)[ \t\r]*$",), parse_ufw, ("ufw",)),
)
