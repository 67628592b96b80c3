"""Kernel modules."""

from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.sources.modules import TEXTS, parse_lsmod, parse_modinfo, parse_modules, read

TREE = """\
/proc/modules:rdma_rxe 131072 0 - Live 0x0000000000000000
/proc/modules:ib_core 507904 3 rdma_rxe,rdma_cm,ib_uverbs, Live 0x0000000000000000 (OE)
/proc/modules:mlx5_core 2555904 1 mlx5_ib, Live 0x0000000000000000 (OE)
/sys/module/mlx5_core/version:24.10-1.1.4
/sys/module/siw/parameters/loopback_enabled:Y
/sys/module/usbcore/parameters/quirks:
/proc/sys/kernel/osrelease:6.1.0
/lib/modules/6.1.0/modules.builtin:kernel/drivers/net/mlxfw/mlxfw.ko
/lib/modules/6.1.0/modules.builtin:kernel/drivers/usb/core/usbcore.ko
"""


def test_loaded_modules_have_users_and_the_relevant_ones_versions():
    found = {row["module"]: row for row in rows(read(LiveTree(TREE)), "module")}
    assert found["ib_core"] == {"module": "ib_core", "users": 3, "used_by": "rdma_rxe,rdma_cm,ib_uverbs", "builtin": 0}
    assert found["rdma_rxe"]["used_by"] == ""
    assert found["mlx5_core"]["version"] == "24.10-1.1.4"


def test_relevant_modules_that_are_built_in_are_found():
    found = {row["module"]: row["builtin"] for row in rows(read(LiveTree(TREE)), "module")}
    assert (found["siw"], found["mlxfw"]) == (1, 1)
    assert "usbcore" not in found


def test_a_kernel_without_module_support_is_seen_by_what_it_has():
    host = LiveTree("/sys/module/ib_core/parameters/x:1\n/sys/class/infiniband_verbs/uverbs0/dev:231:192\n")
    assert {row["module"]: row["builtin"] for row in rows(read(host), "module")} == {"ib_core": 1, "ib_uverbs": 1}
    assert list(read(LiveTree())) == []


def test_lsmod_is_parsed():
    text = """\
Module                  Size  Used by
rdma_rxe              102400  0
ib_core               208896  2 ib_cm,rdma_rxe
"""
    assert rows(parse_lsmod(lines(text)), "module") == [
        {"module": "rdma_rxe", "used_by": "", "builtin": 0, "users": 0},
        {"module": "ib_core", "used_by": "ib_cm,rdma_rxe", "builtin": 0, "users": 2},
    ]
    assert gaps(parse_lsmod(lines(text))) == []


def test_lsmod_behind_grep_leaves_a_gap():
    (gap,) = gaps(parse_lsmod(lines("$ lsmod |grep rxe\nrdma_rxe              102400  0\n")))
    assert (gap.tables, gap.kind) == (("module",), "not_given")


def test_modinfo_tells_of_a_module_that_is_built_in():
    text = "$ modinfo ib_core\nname:           ib_core\nfilename:       (builtin)\nlicense:        Dual BSD/GPL\n"
    assert rows(parse_modinfo(lines(text)), "module") == [{"module": "ib_core", "builtin": 1}]
    assert rows(parse_modinfo(lines(text.replace("(builtin)", "/lib/modules/x.ko"))), "module") == []


@given(st.text())
def test_no_text_raises(text):
    list(parse_modules(lines(text)))
    for kind in TEXTS:
        list(kind.parse(lines(text)))
