"""Finds pyverbs: this Python's own, else the distribution's when it was built for this Python. And the small calls that pyverbs lacks.

pyverbs has to be of the same rdma-core as the libibverbs that is installed, so it comes from the distribution
(python3-pyverbs) and not from PyPI. A virtual environment does not see that folder; the package alone is taken from it, nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.machinery
import importlib.util
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from rdmadiag.verbs.errors import NoPyverbs, VerbsError

PLACES = (
    "/usr/lib/python3/dist-packages",
    f"/usr/lib64/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages",
    f"/usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages",
)
"""Folders of distributions in which python3-pyverbs puts its package (Debian and Ubuntu; Fedora, RHEL, SUSE; Arch)."""


def find(places: tuple[str, ...] = PLACES) -> str | None:
    """Return the folder of a distribution's pyverbs that this Python can load, None without one."""
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]  # names this Python: .cpython-311-x86_64-linux-gnu.so
    for place in places:
        folder = os.path.join(place, "pyverbs")
        if os.path.exists(os.path.join(folder, f"device{suffix}")):
            return folder
    return None


def module(name: str) -> Any:
    """Import a module of pyverbs by its name in the package. Raises NoPyverbs with the command that installs it."""
    if "pyverbs" not in sys.modules and importlib.util.find_spec("pyverbs") is None:
        folder = find()
        if folder is None:
            version = f"{sys.version_info[0]}.{sys.version_info[1]}"
            raise NoPyverbs(
                f"no pyverbs for this Python ({version}, {sys.executable}): apt-get install python3-pyverbs, and run rdmadiag "
                "by the distribution's own Python (or a virtual environment made from /usr/bin/python3)"
            )
        spec = importlib.util.spec_from_file_location("pyverbs", f"{folder}/__init__.py")
        assert spec and spec.loader
        package = importlib.util.module_from_spec(spec)
        sys.modules["pyverbs"] = package
        spec.loader.exec_module(package)
    try:
        return importlib.import_module(f"pyverbs.{name}")
    except ImportError as error:
        raise NoPyverbs(f"pyverbs.{name}: {error}; is libibverbs1 of the same release installed?") from error


@contextlib.contextmanager
def calling(call: str, hint: str = "") -> Iterator[None]:
    """Give a failed call of pyverbs the name of its verb: raises VerbsError with the errno."""
    try:
        yield
    except Exception as error:  # pyverbs' own classes are known only once it is imported
        code = getattr(error, "error_code", None)
        if not type(error).__module__.startswith("pyverbs"):
            raise
        # PyverbsRDMAErrno keeps no number: it ends with "Errno: N, text".
        said = str(error).rpartition("Errno: ")[2].partition(",")[0]
        number = int(code) if code else int(said) if said.isdigit() else 0
        raise VerbsError(call, number, hint or ("" if number else str(error))) from error


@contextlib.contextmanager
def new_descriptor(*wanted: str) -> Iterator[list[int]]:
    """Note which file descriptor of a kind (its link in /proc/self/fd) is opened in the block: pyverbs 44 shows none of them."""
    before, found = _descriptors(wanted), list[int]()
    yield found
    found += sorted(_descriptors(wanted) - before)


def _descriptors(wanted: tuple[str, ...]) -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") in wanted:
                found.add(int(name))
    return found


EVENT_FILE = "anon_inode:[infinibandevent]"
CM_FILE = "/dev/infiniband/rdma_cm"


_DESCRIPTION = struct.Struct("=QII")


class RawEvent(ctypes.Structure):
    """struct ibv_async_event (libibverbs/verbs.h): a pointer to what it is about, or a port number; and the type."""

    _fields_ = (("element", ctypes.c_uint64), ("event_type", ctypes.c_int))


class _QpHead(ctypes.Structure):
    """The first fields of struct ibv_qp (libibverbs/verbs.h)."""

    _fields_ = (*((name, ctypes.c_void_p) for name in ("context", "qp_context", "pd", "send_cq", "recv_cq", "srq")),
                ("handle", ctypes.c_uint32), ("qp_num", ctypes.c_uint32))  # fmt: skip


class Event(NamedTuple):
    """An asynchronous event: `name` as in enum ibv_event_type without IBV_EVENT_; `qpn` or `port` where it is about one."""

    name: str
    qpn: int | None = None
    port: int | None = None


EVENT_NAMES = (
    "CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", "PATH_MIG", "PATH_MIG_ERR",
    "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE", "SM_CHANGE", "SRQ_ERR", "SRQ_LIMIT_REACHED",
    "QP_LAST_WQE_REACHED", "CLIENT_REREGISTER", "GID_CHANGE", "WQ_FATAL",
)  # fmt: skip
"""enum ibv_event_type by number (libibverbs/verbs.h)."""
_OF_QP = (
    "QP_FATAL",
    "QP_REQ_ERR",
    "QP_ACCESS_ERR",
    "COMM_EST",
    "SQ_DRAINED",
    "PATH_MIG",
    "PATH_MIG_ERR",
    "QP_LAST_WQE_REACHED",
)
_OF_PORT = ("PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE", "SM_CHANGE", "CLIENT_REREGISTER", "GID_CHANGE")


def event_of(number: int, element: int) -> Event:
    """Return an event by its number and element; a QP's pointer is followed to its number. An unknown one keeps its number."""
    name = EVENT_NAMES[number] if 0 <= number < len(EVENT_NAMES) else f"event {number}"
    if name in _OF_QP and element:
        return Event(name, qpn=_QpHead.from_address(element).qp_num)
    return Event(name, port=element & 0xFF if name in _OF_PORT else None)


def read_event(descriptor: int) -> Event:
    """Read and acknowledge one asynchronous event of a device's event file: blocks until there is one. Raises VerbsError.

    pyverbs tells an event's type only, and holds the interpreter's lock while it waits; so the file is read as libibverbs does
    (struct ib_uverbs_async_event_desc, include/uapi/rdma/ib_user_verbs.h). Without the acknowledgement a QP could not be destroyed.
    """
    try:
        data = os.read(descriptor, _DESCRIPTION.size)
    except OSError as error:
        raise VerbsError("read of an asynchronous event", error.errno or 0) from error
    element, number, _ = _DESCRIPTION.unpack(data)
    event = event_of(number, element)
    verbs = ctypes.CDLL("libibverbs.so.1")
    verbs.ibv_ack_async_event.argtypes = (ctypes.POINTER(RawEvent),)
    verbs.ibv_ack_async_event.restype = None
    verbs.ibv_ack_async_event(ctypes.byref(RawEvent(element, number)))
    return event
