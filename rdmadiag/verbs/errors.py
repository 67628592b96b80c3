"""Errors of verbs, with what a person needs to act on them: the call, the errno, the masks, the QP and the work request."""

from __future__ import annotations

import os

from rdmadiag.errors import RdmadiagError
from rdmadiag.explain import qp_states


class VerbsError(RdmadiagError):
    """A call was refused by the library or the kernel: names the call and keeps its `errno`."""

    def __init__(self, call: str, errno: int, hint: str = "") -> None:
        self.call, self.errno = call, errno
        super().__init__(f"{call}: {os.strerror(errno)} (errno {errno}){': ' * bool(hint)}{hint}")


class NoPyverbs(RdmadiagError):
    """There is no pyverbs that this Python can load."""


class WrongTransition(RdmadiagError):
    """A QP cannot go that way: it was refused before the kernel saw it. `missing` and `refused` are masks of ibv_qp_attr_mask."""

    def __init__(self, qpn: int, old: str, new: str, mask: int, verdict: qp_states.Verdict) -> None:
        self.qpn, self.old, self.new, self.mask = qpn, old, new, mask
        self.missing, self.refused = verdict.missing, verdict.unknown
        if not verdict.legal:
            why = f"there is no such transition; from {old} it can go to {', '.join(qp_states.following(old))}"
        else:
            required, optional = qp_states.TABLE[(old, new)]["RC"]
            need = required | (qp_states.BITS["STATE"] if old != new else 0)
            parts = [f"given mask {mask:#x}, required {need:#x}, optional {optional:#x}"]
            parts += [f"missing {_names(verdict.missing)}"] if verdict.missing else []
            parts += [f"not allowed {_names(verdict.unknown)}"] if verdict.unknown else []
            why = "; ".join(parts)
        super().__init__(f"QP {qpn}: {old} to {new}: {why} (rdmadiag explain qp-transition {old} {new} RC)")


def _names(mask: int) -> str:
    return ", ".join(f"IBV_QP_{name}" for name in qp_states.attributes(mask))


class WorkFailed(RdmadiagError):
    """A work request ended with an error: its status (IBV_WC_ left off), vendor syndrome, QP and wr_id."""

    def __init__(self, status: str, vendor_err: int, qpn: int, wr_id: int) -> None:
        self.status, self.vendor_err, self.qpn, self.wr_id = status, vendor_err, qpn, wr_id
        super().__init__(
            f"QP {qpn}: work request {wr_id} ended with {status}, vendor syndrome {vendor_err:#x} "
            f"(rdmadiag explain wc-status {status})"
        )


class NotFinished(RdmadiagError):
    """Work requests did not end in time; nothing says that they never will."""
