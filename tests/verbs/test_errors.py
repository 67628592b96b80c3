"""Errors of verbs say what was wrong, with masks and names; and pyverbs is found or its absence explained. No adapter is needed."""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rdmadiag.explain import qp_states
from rdmadiag.verbs import library
from rdmadiag.verbs.cq import Completion
from rdmadiag.verbs.errors import VerbsError, WorkFailed, WrongTransition


def test_a_transition_without_an_attribute_names_it_and_the_masks() -> None:
    mask = qp_states.BITS["STATE"] | qp_states.BITS["PORT"] | qp_states.BITS["QKEY"]
    error = WrongTransition(7, "RESET", "INIT", mask, qp_states.check("RESET", "INIT", "RC", mask))
    assert error.missing == qp_states.BITS["ACCESS_FLAGS"] | qp_states.BITS["PKEY_INDEX"]
    assert error.refused == qp_states.BITS["QKEY"]
    assert "QP 7: RESET to INIT: given mask 0x61, required 0x39, optional 0x0; missing IBV_QP_ACCESS_FLAGS" in str(
        error
    )
    assert "not allowed IBV_QP_QKEY" in str(error)


def test_a_transition_that_does_not_exist_says_where_one_can_go() -> None:
    error = WrongTransition(7, "RTS", "RTR", 1, qp_states.check("RTS", "RTR", "RC", 1))
    assert "there is no such transition; from RTS it can go to RESET, RTS, SQD, ERR" in str(error)


def test_a_failed_completion_keeps_status_syndrome_qp_and_work_request() -> None:
    with pytest.raises(WorkFailed) as caught:
        Completion(9, "REM_ACCESS_ERR", 17, 0x88).check()
    error = caught.value
    assert (error.status, error.vendor_err, error.qpn, error.wr_id) == ("REM_ACCESS_ERR", 0x88, 17, 9)
    assert str(error).startswith("QP 17: work request 9 ended with REM_ACCESS_ERR, vendor syndrome 0x88")


def test_a_failed_call_is_named_with_its_errno() -> None:
    assert str(VerbsError("ibv_reg_mr", 12, "ulimit -l")) == "ibv_reg_mr: Cannot allocate memory (errno 12): ulimit -l"


class _Rdma(Exception):
    """Stands for pyverbs' own errors, which keep the errno in the attribute or in the text."""


_Rdma.__module__ = "pyverbs.pyverbs_error"


@pytest.mark.parametrize("kept", [True, False])
def test_the_errno_of_an_error_of_pyverbs_is_kept(kept: bool) -> None:
    error = _Rdma("Failed to create QP. Errno: 12, Cannot allocate memory")
    if kept:
        error.error_code = 12  # type: ignore[attr-defined]
    with (
        pytest.raises(VerbsError, match="ibv_create_qp: Cannot allocate memory") as caught,
        library.calling("ibv_create_qp"),
    ):
        raise error
    assert caught.value.errno == 12


def test_a_mistake_of_ours_is_not_taken_for_an_error_of_the_device() -> None:
    with pytest.raises(ZeroDivisionError), library.calling("ibv_create_qp"):
        raise ZeroDivisionError


def test_pyverbs_of_another_python_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "pyverbs"
    folder.mkdir()
    (folder / "device.cpython-27-x86_64-linux-gnu.so").touch()
    assert library.find((str(tmp_path),)) is None
    (folder / f"device{importlib.machinery.EXTENSION_SUFFIXES[0]}").touch()
    assert library.find((str(tmp_path),)) == str(folder)


def test_without_pyverbs_the_message_says_what_to_install() -> None:
    code = """
import sys
from rdmadiag.verbs import library
sys.path = [p for p in sys.path if "dist-packages" not in p]
library.find = lambda: None
try: library.module("device")
except library.NoPyverbs as error: print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "apt-get install python3-pyverbs" in ran.stdout


def test_importing_the_room_does_not_import_pyverbs() -> None:
    code = "import sys, rdmadiag.verbs.endpoint, rdmadiag.verbs.cm; print(any('pyverbs' in m for m in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_an_event_names_the_qp_or_port_that_it_is_about() -> None:
    head = library._QpHead(qp_num=77)
    number = library.EVENT_NAMES.index
    assert library.event_of(number("QP_FATAL"), ctypes.addressof(head)) == library.Event("QP_FATAL", qpn=77)
    assert library.event_of(number("PORT_ERR"), 2) == library.Event("PORT_ERR", port=2)
    assert library.event_of(number("DEVICE_FATAL"), 0) == library.Event("DEVICE_FATAL")
    assert library.event_of(99, 1) == library.Event("event 99")


def test_a_new_descriptor_is_the_one_that_was_opened_in_the_block() -> None:
    first = os.open("/dev/null", os.O_RDONLY)
    with library.new_descriptor("/dev/null") as found:
        second = os.open("/dev/null", os.O_RDONLY)
    os.close(first)
    os.close(second)
    assert found == [second]
