"""GIDs, errno, port states, firmware command status."""

import errno as numbers

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.explain import errno, gid, mlx5_cmd_status, port_state


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("0000:0000:0000:0000:0000:0000:0000:0000", "zero"),
        ("::", "zero"),
        ("fe80::1", "link_local"),
        ("fe80:0000:0000:0000:0000:0000:0000:0000", "link_local"),
        ("febf::1", "link_local"),
        ("fec0::1", "ipv6"),
        ("0000:0000:0000:0000:0000:ffff:0a00:0001", "ipv4"),
        ("::ffff:10.0.0.1", "ipv4"),
        ("::ffff:0.0.0.0", "ipv4"),
        ("2001:db8::1", "ipv6"),
        ("::1", "ipv6"),
        ("ff02::1", "ipv6"),
        ("", None),
        ("fe80", None),
        ("10.0.0.1", None),
        ("fe80::1%eth0", None),
        ("a\0b", None),
        ("\ud800", None),
    ],
)
def test_kinds_of_gids(text, kind):
    assert gid.kind(text) == kind


def test_only_mapped_gids_hold_an_ipv4_address():
    assert gid.ipv4("0000:0000:0000:0000:0000:ffff:0a14:0f02") == "10.20.15.2"
    assert gid.ipv4("::10.0.0.1") is None and gid.ipv4("nothing") is None


def test_an_eui_64_gives_the_mac_and_a_port_guid_does_not():
    assert gid.decode("fe80::255:44ff:fe33:2211")["mac"] == "00:55:44:33:22:11"
    assert gid.decode("fe80::b859:9f03:00d4:1234")["mac"] is None


def test_gids_are_read_in_the_ways_people_write_them():
    assert gid.decode("fe800000000000000255 44fffe332211".replace(" ", ""))["name"] == "link_local"
    assert gid.decode("10.0.0.1")["short"] == "::ffff:10.0.0.1"
    assert gid.decode("gid=fe80::1%eth0/64")["short"] == "fe80::1"


def test_a_bare_link_local_prefix_is_not_usable():
    assert "not usable" in gid.decode("fe80::")["meaning"]


def test_the_infiniband_default_prefix_is_seen():
    assert gid.decode("fe80::1")["ib_default_prefix"] is True
    assert gid.decode("fe80:0:0:1::1")["ib_default_prefix"] is False


@given(st.text(max_size=50))
def test_kind_and_ipv4_take_any_text(text):
    assert gid.kind(text) in (None, "zero", "link_local", "ipv4", "ipv6")
    assert (gid.ipv4(text) is not None) == (gid.kind(text) == "ipv4")


@given(st.ip_addresses(v=6))
def test_all_ipv6_addresses_have_a_kind(address):
    expected = (
        "zero"
        if address.packed == bytes(16)
        else "ipv4"
        if address.ipv4_mapped is not None
        else "link_local"
        if address.is_link_local
        else "ipv6"
    )
    assert gid.kind(str(address)) == expected == gid.kind(address.exploded)


def test_the_same_errno_means_other_things_for_other_calls():
    assert "locked-memory" in errno.decode("ENOMEM", "ibv_reg_mr")["meaning"]
    assert "send queue is full" in errno.decode("ENOMEM", "ibv_post_send")["meaning"]


@pytest.mark.parametrize(
    "words",
    [
        ("ENOMEM", "ibv_reg_mr"),
        ("ibv_reg_mr", "12"),
        ("-12", "reg_mr"),
        ("errno", "12", "ibv_reg_mr"),
        ("ibv_reg_mr", "Cannot", "allocate", "memory"),
        ("ibv_reg_mr_iova2()", "12"),
    ],
)
def test_errno_and_call_in_every_spelling(words):
    answer = errno.decode(*words)
    assert (answer["call"], answer["number"]) == ("ibv_reg_mr", numbers.ENOMEM)


def test_an_errno_alone_lists_the_calls_and_a_call_alone_its_errnos():
    assert {one["call"] for one in errno.decode("ETIMEDOUT")["by_call"]} >= {"ibv_modify_qp", "rdma_connect"}
    assert {one["name"] for one in errno.decode("ibv_modify_qp")["errors"]} >= {"EINVAL", "ETIMEDOUT", "ENODATA"}


def test_a_pair_that_is_not_known_still_says_what_the_errno_is_elsewhere():
    answer = errno.decode("ECONNREFUSED", "ibv_reg_mr")
    assert "nothing special is known" in answer["meaning"] and answer["by_call"][0]["call"] == "rdma_connect"


def test_every_errno_of_the_table_exists():
    for rows in errno.CALLS.values():
        assert len({row[0] for row in rows}) == len(rows)
        for row in rows:
            assert isinstance(getattr(numbers, row[0]), int)


@pytest.mark.parametrize("words", [("EFOO",), ("99999", "ibv_reg_mr"), ("ibv_frob",), ("errorcode",)])
def test_unknown_errnos_and_calls_are_refused(words):
    with pytest.raises(BadInput, match="ibv_reg_mr"):
        errno.decode(*words)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("4: ACTIVE",), "ACTIVE"),
        (("active",), "ACTIVE"),
        (("4",), "ACTIVE"),
        (("phys", "4"), "PortConfigurationTraining"),
        (("phys_state: 2",), "Polling"),
        (("5: LinkUp",), "LinkUp"),
        (("5", "LinkUp"), "LinkUp"),
        (("Phy Test",), "Phy Test"),
        (("1: DOWN",), "DOWN"),
        (("7",), "Phy Test"),
    ],
)
def test_port_states(words, name):
    assert port_state.decode(*words)["name"] == name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("0x3",), "bad parameter"),
        (("bad parameter(0x3)",), "bad parameter"),
        (("10",), "bad index"),
        (("0x10",), "bad QP state"),
        (("limits", "exceeded(0x8)"), "limits exceeded"),
        (("FW not ready",), "FW not ready"),
        (("0x50",), "bad input length"),
    ],
)
def test_firmware_command_statuses(words, name):
    assert mlx5_cmd_status.decode(*words)["name"] == name
