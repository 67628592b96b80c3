"""What packet filters do with RoCE v2 packets: printed by the tools themselves (tests/data/texts/firewall/origin.md)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.evidence.row import Row
from rdmadiag.sources._packet_path import Rule, verdict
from rdmadiag.sources.firewall import parse_iptables, parse_nft, parse_ufw, read

DATA = Path(__file__).parent.parent / "data/texts/firewall"


def nft(name):
    return {row["hook"]: row for row in rows(parse_nft([json.loads((DATA / name).read_text())]), "firewall")}


def text(parse, name):
    return {row["hook"]: row for row in rows(parse(lines((DATA / name).read_text())), "firewall")}


def test_a_policy_of_drop_drops_what_no_rule_accepts():
    found = nft("nft-drop.json")
    assert (found["input"]["verdict"], found["input"]["rule"]) == ("drop", "policy")
    assert found["output"]["verdict"] == "accept"


def test_a_rule_for_the_port_accepts():
    assert nft("nft-open.json")["input"]["rule"] == "udp dport == 4791 accept"


def test_a_match_that_json_does_not_tell_leaves_the_verdict_open():
    assert "verdict" not in nft("nft-compat.json")["input"]


def test_a_jump_is_followed_in_iptables():
    found = text(parse_iptables, "iptables-save.txt")
    assert (found["input"]["verdict"], found["input"]["family"]) == ("drop", "ip")
    assert found["input"]["rule"].endswith("--dport 4791 -j DROP")


def test_the_whole_ruleset_of_ufw_accepts_what_ufw_says_it_accepts():
    assert text(parse_iptables, "ufw-iptables-save.txt")["input"]["verdict"] == "accept"
    assert text(parse_ufw, "ufw-open.txt")["input"]["verdict"] == "accept"
    assert text(parse_ufw, "ufw-off.txt")["input"]["verdict"] == "accept"


def test_without_its_rule_for_the_port_ufw_drops():
    whole = (DATA / "ufw-iptables-save.txt").read_text()
    closed = "\n".join(line for line in whole.splitlines() if "4791" not in line)
    (found,) = [row for row in rows(parse_iptables(lines(closed)), "firewall") if row["hook"] == "input"]
    assert found["verdict"] == "drop"
    assert text(parse_ufw, "ufw-deny.txt")["input"]["verdict"] == "drop"


def test_a_rule_for_some_hosts_alone_leaves_it_open():
    status = "Status: active\nDefault: deny (incoming), allow (outgoing), disabled (routed)\n"
    (row,) = rows(parse_ufw(lines(f"{status}4791/udp                   ALLOW IN    10.0.0.0/8\n")), "firewall")
    assert "verdict" not in row
    (row,) = rows(parse_ufw(lines(f"{status}4791/tcp                   ALLOW IN    Anywhere\n")), "firewall")
    assert row["verdict"] == "drop"


@pytest.mark.parametrize(
    "rule,wanted",
    [
        ("-p udp --dport 4000:5000 -j DROP", "drop"),
        ("-p udp --dport 5000 -j DROP", "accept"),
        ("-p tcp --dport 4791 -j DROP", "accept"),
        ("-p udp -m multiport --dports 53,4791 -j REJECT", "reject"),
        ("! -p udp -j DROP", "accept"),
        ("-i lo -j DROP", "accept"),
        ("-m conntrack --ctstate INVALID -j DROP", "accept"),
        ("-s 10.0.0.0/8 -j DROP", None),
        ("-j LOG --log-prefix x", "accept"),
        ("-j nowhere", "accept"),
    ],
)
def test_each_kind_of_match_is_judged(rule, wanted):
    found = rows(parse_iptables(lines(f"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT {rule}\nCOMMIT")), "firewall")
    assert found[0].get("verdict") == wanted


@pytest.mark.parametrize(
    "expression,wanted",
    [
        (
            [
                {"match": {"op": "!=", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 53}},
                {"drop": None},
            ],
            "drop",
        ),
        (
            [
                {"match": {"op": "!=", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 22}},
                {"drop": None},
            ],
            "accept",
        ),
        (
            [
                {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": "@ports"}},
                {"drop": None},
            ],
            None,
        ),
        (
            [
                {
                    "vmap": {
                        "key": {"ct": {"key": "state"}},
                        "data": {"set": [["established", {"accept": None}], ["new", {"drop": None}]]},
                    }
                }
            ],
            "drop",
        ),
        ([{"limit": {"rate": 1}}, {"drop": None}], None),
        ([{"queue": None}], None),
        (["?", 3], None),
    ],
)
def test_each_kind_of_nft_expression_is_judged(expression, wanted):
    base = {"family": "inet", "table": "t", "name": "c", "type": "filter", "hook": "input", "policy": "accept"}
    rule = {"family": "inet", "table": "t", "chain": "c", "expr": expression}
    (row,) = rows(parse_nft([{"nftables": [{"chain": base}, {"rule": rule}]}]), "firewall")
    assert row.get("verdict") == wanted


def test_chains_that_jump_in_a_circle_end():
    assert verdict({"a": [Rule(True, "jump a", "round")]}, "a", "accept")[0] is None


@given(
    st.recursive(
        st.none() | st.text(max_size=6) | st.integers(),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "nftables",
                        "rule",
                        "chain",
                        "expr",
                        "match",
                        "left",
                        "right",
                        "ct",
                        "key",
                        "meta",
                        "vmap",
                        "data",
                        "set",
                    ]
                ),
                x,
                max_size=3,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_raises(value):
    list(parse_nft([{"nftables": value}]))
    list(parse_nft([{"nftables": [{"rule": {"expr": value}}, {"rule": {"expr": [value]}}, {"chain": value}]}]))


RXE = "/sys/class/infiniband/rxe0/node_guid:1\n"
NFT = "/sys/module/nf_tables/version:1\n"
DROPS = json.dumps(
    {
        "nftables": [
            {
                "chain": {
                    "family": "inet",
                    "table": "f",
                    "name": "in",
                    "type": "filter",
                    "hook": "input",
                    "policy": "drop",
                }
            }
        ]
    }
)


def asked(tree, texts):
    return [row.values for row in read(LiveTree(tree, texts=texts)) if isinstance(row, Row)]


def test_a_live_node_with_software_roce_is_asked_for_its_rules():
    (row,) = asked(RXE + NFT, {"nft -j list ruleset": DROPS})
    assert (row["tool"], row["hook"], row["verdict"]) == ("nft", "input", "drop")


def test_tools_are_asked_only_for_what_the_kernel_has_loaded():
    assert asked(RXE, {"nft -j list ruleset": DROPS, "iptables-save": "*filter\n:INPUT DROP [0:0]\nCOMMIT"}) == []
    legacy = RXE + "/proc/net/ip_tables_names:filter\n"
    (row,) = asked(legacy, {"iptables-save": "*filter\n:INPUT DROP [0:0]\nCOMMIT"})
    assert (row["tool"], row["verdict"]) == ("iptables", "drop")


def test_a_ruleset_without_a_chain_for_what_comes_in_lets_it_in():
    (row,) = asked(RXE + NFT, {"nft -j list ruleset": '{"nftables": []}'})
    assert (row["hook"], row["verdict"]) == ("input", "accept")


def test_a_tool_that_is_not_here_or_prints_no_json_is_a_gap():
    assert "nft" in gaps(read(LiveTree(RXE + NFT)))[0].how
    assert "JSON" in gaps(read(LiveTree(RXE + NFT, texts={"nft -j list ruleset": "x"})))[0].reason


def test_a_node_without_software_roce_is_not_asked():
    nic = "/sys/class/infiniband/mlx5_0/device -> /sys/devices/x\n/sys/devices/x/vendor:1\n"
    assert list(read(LiveTree(nic + NFT, texts={"nft -j list ruleset": DROPS}))) == []


def test_what_depends_on_the_netdev_is_told_for_each_netdev_that_is_named() -> None:
    # As `nft -j list ruleset` 1.0.6 prints a table whose rule holds for the netdevs of a set (Linux 6.1).
    rule = {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "@lan"}}
    port = {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 4791}}
    own = {"family": "inet", "table": "filter"}
    listed = [
        {
            "set": {
                **own,
                "name": "lan",
                "type": "ifname",
                "elem": [{"elem": {"val": "v2", "timeout": 20, "expires": 13}}, "v3"],
            }
        },
        {"chain": {**own, "name": "in", "type": "filter", "hook": "input", "policy": "accept"}},
        {"chain": {**own, "name": "hit"}},
        {"rule": {**own, "chain": "hit", "expr": [{"counter": "hit"}, {"drop": None}]}},
        {"rule": {**own, "chain": "in", "expr": [rule, port, {"goto": {"target": "hit"}}]}},
    ]
    found = rows(parse_nft([{"nftables": listed}]), "firewall")
    assert [(row.get("netdev"), row.get("verdict")) for row in found] == [(None, None), ("v2", "drop"), ("v3", "drop")]
    wide = {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "eth*"}}
    listed[4] = {"rule": {**own, "chain": "in", "expr": [wide, port, {"drop": None}]}}
    assert [row.get("netdev") for row in rows(parse_nft([{"nftables": listed}]), "firewall")] == [None]
