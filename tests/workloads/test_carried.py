"""Claims against counters. The counters are those of rxe1 and rxe2 around runs in a lab on 2026-11-30, and an mlx5's kind."""

from __future__ import annotations

from rdmadiag.workloads._carried import delta, judge, most, parse
from tests.workloads import HOSTS

ZERO = {"sent_pkts": 1000, "rcvd_pkts": 1000, "netdev_tx_bytes": 5000, "netdev_rx_bytes": 5000, "netdev_mtu": 4200}


def moved(**by: int) -> dict[str, int]:
    return {name: value + by.get(name, 0) for name, value in ZERO.items()}


def answer(claimed: int, one: dict[str, int], other: dict[str, int]) -> str:
    return judge(claimed, HOSTS, (ZERO, ZERO), (one, other)).answer


def test_a_claim_that_packets_and_bytes_can_hold_is_right() -> None:
    client = moved(sent_pkts=256, rcvd_pkts=16, netdev_tx_bytes=1_070_000, netdev_rx_bytes=1000)
    server = moved(sent_pkts=16, rcvd_pkts=256, netdev_tx_bytes=1000, netdev_rx_bytes=1_070_000)
    assert answer(256 * 4096, client, server) == "yes"
    assert answer(256 * 4096 + 1, client, server) == "no"


def test_a_pull_is_judged_in_its_own_direction() -> None:
    client = moved(sent_pkts=16, rcvd_pkts=256, netdev_tx_bytes=1000, netdev_rx_bytes=1_070_000)
    server = moved(sent_pkts=256, rcvd_pkts=16, netdev_tx_bytes=1_070_000, netdev_rx_bytes=1000)
    assert answer(1_000_000, client, server) == "yes"


def test_bytes_of_tcp_on_the_netdev_do_not_count_as_rdma() -> None:
    one = moved(netdev_tx_bytes=9_000_000, netdev_rx_bytes=9_000_000)
    assert answer(1_000_000, one, one) == "no"


def test_many_small_packets_do_not_hold_a_large_claim() -> None:
    # 1,000 acknowledgements times the MTU would; the netdev's bytes say how small they were.
    one = moved(sent_pkts=1000, rcvd_pkts=1000, netdev_tx_bytes=80_000, netdev_rx_bytes=80_000)
    assert answer(1_000_000, one, one) == "no"


def test_adapters_are_judged_by_their_port_data_counters() -> None:
    counters = {"port_xmit_data": 300, "port_rcv_data": 10, "netdev_tx_bytes": 0, "netdev_rx_bytes": 0}
    assert most(counters, 4096) == ((1200, 40), "port_xmit_data, port_rcv_data")


def test_what_cannot_be_read_or_was_reset_is_unknown() -> None:
    assert answer(100, {}, moved(sent_pkts=1)) == "unknown"
    assert answer(100, moved(sent_pkts=-5), moved(sent_pkts=1)) == "unknown"
    assert answer(0, moved(), moved()) == "unknown"


def test_one_device_at_both_ends_is_unknown() -> None:
    found = judge(100, (HOSTS[0], HOSTS[0]), (ZERO, ZERO), (moved(sent_pkts=9), moved(sent_pkts=9)))
    assert found.answer == "unknown" and "turn traffic around" in found.why


def test_lines_that_are_no_counters_are_passed_over() -> None:
    assert parse("sent_pkts 5\nlifespan\nx y\nnetdev_mtu ²\n\nrcvd_pkts 7 8\n") == {"sent_pkts": 5}
    assert delta({"a": 5, "b": 5, "c": 1}, {"a": 9, "b": 4}) == {"a": 4}
