"""Partition keys: of InfiniBand ports alone, filled entries alone."""

from __future__ import annotations

from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import parse_tree
from rdmadiag.sources import pkeys

PORT = "/sys/class/infiniband/mlx5_0/ports/1"


def test_filled_entries_of_an_infiniband_port_are_read_with_the_member_bit() -> None:
    lines = [
        f"{PORT}/link_layer:InfiniBand",
        f"{PORT}/pkeys/0:0xffff",
        f"{PORT}/pkeys/1:0x8001",
        f"{PORT}/pkeys/2:0x0000",
    ]
    rows = [row.values for row in pkeys.read(CapturedHost(parse_tree("\n".join([*lines, f"{PORT}/pkeys/x:1", ""]))[0]))]  # type: ignore[union-attr]
    assert [(row["pkey_index"], row["pkey"]) for row in rows] == [(0, 0xFFFF), (1, 0x8001)]


def test_a_roce_port_has_no_partition_that_matters() -> None:
    text = f"{PORT}/link_layer:Ethernet\n{PORT}/pkeys/0:0xffff\n"
    assert list(pkeys.read(CapturedHost(parse_tree(text)[0]))) == []
