"""Completion queues: by polling, or by an event channel."""

from __future__ import annotations

import select
import socket
import time
from typing import Any, NamedTuple

from rdmadiag.explain import wc_status
from rdmadiag.verbs import library
from rdmadiag.verbs.device import Device
from rdmadiag.verbs.errors import NotFinished, VerbsError, WorkFailed

OPCODES = {
    0: "SEND", 1: "RDMA_WRITE", 2: "RDMA_READ", 3: "COMP_SWAP", 4: "FETCH_ADD", 5: "BIND_MW", 6: "LOCAL_INV", 7: "TSO",
    128: "RECV", 129: "RECV_RDMA_WITH_IMM",
}  # fmt: skip
"""enum ibv_wc_opcode. Of a failed work request it means nothing (ibv_poll_cq(3))."""
NAP_LEAST_SECONDS, NAP_MOST_SECONDS = 0.00005, 0.01
_WITH_IMM = 1 << 1
_RECV = 128
_FETCHES = (2, 3, 4)


class Completion(NamedTuple):
    """A work completion. Of a failed one only wr_id, status, qpn and vendor_err mean anything (ibv_poll_cq(3)); the rest is empty.

    `byte_len` is what was received, read or fetched; of other requests it is empty.
    """

    wr_id: int
    status: str
    qpn: int
    vendor_err: int = 0
    opcode: str | None = None
    byte_len: int | None = None
    imm: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the work request succeeded."""
        return self.status == "SUCCESS"

    def check(self) -> Completion:
        """Return it. Raises WorkFailed when it failed."""
        if self.status != "SUCCESS":
            raise WorkFailed(self.status, self.vendor_err, self.qpn, self.wr_id)
        return self


class Cq:
    """A completion queue of at least `cqe` entries. A context manager. With `channel` it can wait for an event without polling."""

    def __init__(self, device: Device, cqe: int = 1024, channel: bool = False) -> None:
        module = library.module("cq")
        self.device = device
        self._channel: Any = None
        self._fd = -1
        self._armed = self._unacked = 0
        if channel:
            with library.new_descriptor(library.EVENT_FILE) as opened, library.calling("ibv_create_comp_channel"):
                self._channel = module.CompChannel(device.context)
            self._fd = opened[0] if len(opened) == 1 else -1
        with library.calling(f"ibv_create_cq of {cqe} entries"):
            self.cq: Any = module.CQ(device.context, cqe, None, self._channel, 0)
        self._poll = self.cq.poll

    def __enter__(self) -> Cq:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Destroy it with the QPs that use it, and its channel; may be called twice."""
        self.cq.close()
        if self._channel is not None:
            self._channel.close()

    def poll(self, most: int = 64) -> list[Completion]:
        """Return the completions that are there, at most so many. Raises VerbsError."""
        with library.calling("ibv_poll_cq"):
            count, found = self._poll(most)
        return [_completion(one) for one in found] if count else []

    def wait(self, seconds: float) -> list[Completion]:
        """Return completions, after waiting for the first at most so long [s]: on the event channel, else by polling."""
        begun = time.monotonic()
        while not (found := self.poll()):
            waited = time.monotonic() - begun
            left = seconds - waited
            if left <= 0:
                break
            if self._channel is None:
                # An eighth of the wait so far: late by little, and an emulated processor is not kept from the device's own work.
                time.sleep(min(max(waited / 8, NAP_LEAST_SECONDS), NAP_MOST_SECONDS, left))
            elif not self._sleep(left):
                return self.poll()
        return found

    def _sleep(self, seconds: float) -> bool:
        """Wait for the channel's event; what came before it was asked for is found by the caller's next poll."""
        if self._fd < 0:
            raise VerbsError("ibv_get_cq_event", 0, "the channel's file was not found in /proc/self/fd")
        if not self._armed:
            with library.calling("ibv_req_notify_cq"):
                self.cq.req_notify()
            self._armed = 1
            return True  # it may have come before: poll once more
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        with library.calling("ibv_get_cq_event"):
            self._channel.get_cq_event(self.cq)
            self.cq.ack_events(1)
        self._armed = 0
        return True

    def take(self, count: int, seconds: float) -> list[Completion]:
        """Return so many completions. Raises NotFinished when fewer came within the time [s]."""
        found: list[Completion] = []
        deadline = time.monotonic() + seconds
        while len(found) < count:
            found += self.wait(max(0.0, deadline - time.monotonic()))
            if len(found) < count and time.monotonic() >= deadline:
                raise NotFinished(
                    f"{len(found)} of {count} completions came within {seconds:g} s on {self.device.name}"
                )
        return found


def _completion(wc: Any) -> Completion:
    status = wc.status
    if status:
        name = wc_status.NAMES[status] if status < len(wc_status.NAMES) else f"status {status}"
        return Completion(wc.wr_id, name, wc.qp_num, wc.vendor_err)
    opcode = wc.opcode
    imm = socket.ntohl(wc.imm_data) if opcode >= _RECV and wc.wc_flags & _WITH_IMM else None
    length = wc.byte_len if opcode >= _RECV or opcode in _FETCHES else None
    return Completion(wc.wr_id, "SUCCESS", wc.qp_num, 0, OPCODES.get(opcode, str(opcode)), length, imm)
