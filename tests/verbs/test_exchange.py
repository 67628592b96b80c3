"""Connection data over TCP: what was told is what is read, and nothing else is taken."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.verbs import exchange
from rdmadiag.verbs.exchange import BadOffer, Memory, Offer
from rdmadiag.verbs.qp import Peer

GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"
OFFER = Offer(((17, 5), (18, 0xFFFFFF)), GID, 4096, 0, 16, Memory(1 << 46, 1 << 20, 0xDEAD), "rxe1")


@pytest.fixture
def link() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def test_an_offer_is_read_as_it_was_told() -> None:
    assert exchange.read(OFFER.as_json()) == OFFER


def test_a_peer_is_told_of_each_qp() -> None:
    assert OFFER.peer(1) == Peer(18, 0xFFFFFF, GID, 4096, 0, 16)


def test_both_ends_swap_and_what_follows_stays_in_the_socket(link: tuple[socket.socket, socket.socket]) -> None:
    here, there = link
    got: list[Offer] = []

    def other() -> None:
        got.append(exchange.swap(there, OFFER._replace(device="rxe2")))
        there.sendall(b"next")

    thread = threading.Thread(target=other)
    thread.start()
    assert exchange.swap(here, OFFER).device == "rxe2"
    thread.join()
    assert got == [OFFER]
    assert here.recv(4) == b"next"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qps": []}, "qps is not a list of 1 to 1024 pairs"),
        ({"qps": [[0, 1]]}, "qpn is '0'; wanted an integer from 1 to 16777215"),
        ({"qps": [[1, 1 << 24]]}, "psn is '16777216'"),
        ({"qps": [[True, 1]]}, "qpn is 'True'"),
        ({"qps": [[1]]}, r"qps holds '\[1\]'; wanted a pair"),
        ({"mtu": 1500}, "mtu 1500; wanted one of"),
        ({"mtu": None}, "mtu is 'None'"),
        ({"gid": "10.0.0.1"}, "gid '10.0.0.1'; wanted an IPv6 address"),
        ({"gid": 7.5}, "gid '7.5'"),
        ({"memory": [1, 2]}, "memory is not a list of address, length and rkey"),
        ({"memory": [1, 2, 1 << 32]}, "rkey is '4294967296'"),
    ],
)
def test_what_is_no_connection_data_is_refused_with_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOffer, match=message):
        exchange.read(OFFER.as_json() | change)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"hello\n", "is no JSON"),
        (b"[]\n", "wanted an object"),
        (b"x" * (1 << 16) + b"yz\n", "a line of more than 65536 bytes"),
        (b"{}", "closed the connection before it told any"),
    ],
)
def test_a_peer_that_talks_another_protocol_is_refused(
    link: tuple[socket.socket, socket.socket], sent: bytes, message: str
) -> None:
    here, there = link
    there.sendall(sent)
    there.shutdown(socket.SHUT_WR)
    with pytest.raises(BadOffer, match=message):
        exchange.swap(here, OFFER)


def test_a_silent_peer_is_given_up_in_time(link: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(BadOffer, match="timed out"):
        exchange.swap(link[0], OFFER, seconds=0.05)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*Offer._fields, "x"]), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(_JSON, st.dictionaries(st.sampled_from(Offer._fields), _JSON, max_size=3))
def test_no_object_of_a_peer_raises_anything_but_bad_offer(value: Any, change: dict[str, Any]) -> None:
    for one in (value, OFFER.as_json() | change):
        try:
            found = exchange.read(one)
        except BadOffer:
            continue
        assert exchange.read(found.as_json()) == found
