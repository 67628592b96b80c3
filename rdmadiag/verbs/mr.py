"""Memory regions: host memory of our own or the caller's, and dma-buf where a GPU's driver gives one."""

from __future__ import annotations

import ctypes
import errno
import mmap
from typing import Any

from rdmadiag.verbs import library
from rdmadiag.verbs.device import Pd

ACCESS = {
    "LOCAL_WRITE": 1,
    "REMOTE_WRITE": 2,
    "REMOTE_READ": 4,
    "REMOTE_ATOMIC": 8,
    "MW_BIND": 16,
    "RELAXED_ORDERING": 1 << 20,
}
"""enum ibv_access_flags."""
ALL_ACCESS = ("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
_HINT = {
    errno.ENOMEM: "locked memory ran out: ulimit -l, or the device's max_mr",
    errno.EPERM: "not permitted: ulimit -l",
}


def access_mask(names: tuple[str, ...]) -> int:
    """Return the mask of access flags by name."""
    return sum(ACCESS[name] for name in names)


class Mr:
    """A registered region of host memory; `view` is the memory, `address` its start. A context manager.

    Without `memory` it makes `length` zeroed, page-aligned bytes. `memory` of a caller must be writable and outlive it. Closing
    deregisters: the rkey is void when close returns. Raises VerbsError.
    """

    def __init__(
        self,
        pd: Pd,
        length: int = 0,
        access: tuple[str, ...] = ALL_ACCESS,
        memory: memoryview | None = None,
    ) -> None:
        self._own = None if memory is not None else mmap.mmap(-1, length)
        self.view = memoryview(self._own) if self._own is not None else memory
        assert self.view is not None
        self.length = self.view.nbytes
        first = ctypes.c_char.from_buffer(self.view)
        self.address = ctypes.addressof(first)
        del first
        self.mr: Any = None
        try:
            with library.calling(f"ibv_reg_mr of {self.length} bytes with {'|'.join(access) or 'no access'}"):
                self.mr = library.module("mr").MR(pd.pd, self.length, access_mask(access), address=self.address)
        finally:
            if self.mr is None:
                self.close()
        self.lkey, self.rkey = int(self.mr.lkey), int(self.mr.rkey)

    def __enter__(self) -> Mr:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Deregister, and give memory of our own back; may be called twice."""
        if self.mr is not None:
            self.mr.close()
        if self._own is not None and self.view is not None:
            self.view.release()
            self._own.close()
            self._own = None


class DmaBufMr:
    """A region of a dma-buf, such as a GPU driver exports (`fd`, `offset`). A context manager. UNTESTED: no GPU was at hand.

    `address` is what work requests use: the offset in the buffer (iova), as pyverbs registers it. Raises VerbsError.
    """

    def __init__(self, pd: Pd, fd: int, length: int, offset: int = 0, access: tuple[str, ...] = ALL_ACCESS) -> None:
        self.length, self.address = length, offset
        hint = "this device or kernel takes no dma-buf"
        with library.calling(f"ibv_reg_dmabuf_mr of {length} bytes", hint):
            self.mr: Any = library.module("mr").DmaBufMR(pd.pd, length, access_mask(access), dmabuf=fd, offset=offset)
        self.lkey, self.rkey = int(self.mr.lkey), int(self.mr.rkey)

    def __enter__(self) -> DmaBufMr:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Deregister; may be called twice."""
        self.mr.close()
