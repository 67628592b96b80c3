"""RDMA character devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, lines, rows

from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import parse_tree
from rdmadiag.sources.chardevs import TEXTS, parse_listing, read

TREE = """\
/dev/infiniband/uverbs0:
/sys/class/infiniband_verbs/uverbs0/ibdev:mlx5_0
/sys/class/infiniband_verbs/uverbs1/ibdev:mlx5_1
/sys/class/infiniband_verbs/abi_version:6
"""


def test_files_that_should_be_there_and_are_not_have_rows():
    host = LiveTree(TREE, usable={"/dev/infiniband/uverbs0": False})
    assert rows(read(host), "chardev") == [
        {"path": "/dev/infiniband/rdma_cm", "present": 0},
        {"path": "/dev/infiniband/uverbs0", "device": "mlx5_0", "present": 1, "accessible": 0},
        {"path": "/dev/infiniband/uverbs1", "device": "mlx5_1", "present": 0},
    ]


def test_a_node_without_the_folder_lacks_rdma_cm():
    assert rows(read(LiveTree()), "chardev") == [{"path": "/dev/infiniband/rdma_cm", "present": 0}]


def test_a_captured_tree_without_the_folder_cannot_tell():
    (gap,) = read(CapturedHost(parse_tree("/sys/class/infiniband/mlx5_0/ports/\n")[0]))
    assert (gap.tables, gap.kind) == (("chardev",), "not_given")


def test_a_long_listing_is_parsed():
    text = """\
total 0
drwxr-xr-x 2 root root       60 Jan  1 00:00 by-ibdev
crw------- 1 root root 231,  64 Jan  1 00:00 issm0
crw-rw-rw- 1 root root  10,  58 Jan  1 00:00 rdma_cm
crw-rw-rw- 1 root root 231, 192 Jan  1 00:00 uverbs0
"""
    assert [(row["path"], row["present"]) for row in rows(parse_listing(lines(text)), "chardev")] == [
        ("/dev/infiniband/issm0", 1),
        ("/dev/infiniband/rdma_cm", 1),
        ("/dev/infiniband/uverbs0", 1),
    ]


def test_a_short_listing_after_its_prompt_is_whole():
    found = rows(parse_listing(lines("$ ls /dev/infiniband/\nucm0  ucm2  uverbs0  uverbs2\n")), "chardev")
    assert [row["present"] for row in found] == [1, 1, 1, 1, 0]
    assert found[-1]["path"] == "/dev/infiniband/rdma_cm"
    assert len(rows(parse_listing(lines("uverbs0\n")), "chardev")) == 1
    assert len(rows(parse_listing(lines("$ ls /dev/infiniband | grep uverbs\nuverbs0\n")), "chardev")) == 1


def test_a_listing_of_the_class_names_devices():
    found = rows(parse_listing(lines("$ ls /sys/class/infiniband\nmlx5_0  mlx5_bond_0\n")), "device")
    assert found == [{"device": "mlx5_0"}, {"device": "mlx5_bond_0"}]
    assert rows(parse_listing(lines("$ ls /tmp\nmlx5_0\n")), "device") == []


@pytest.mark.parametrize("quote", ["'", ""])
def test_a_folder_that_is_not_there_has_nothing_in_it(quote):
    text = f"ls: cannot access {quote}/dev/infiniband{quote}: No such file or directory"
    assert rows(parse_listing(lines(text)), "chardev") == [
        {"path": "/dev/infiniband", "present": 0},
        {"path": "/dev/infiniband/rdma_cm", "present": 0},
    ]


@given(st.text())
def test_no_text_raises(text):
    for kind in TEXTS:
        list(kind.parse(lines(text)))
        list(kind.parse(lines("$ ls /dev/infiniband\n" + text)))
