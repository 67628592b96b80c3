"""Decoders: each public module here is a topic of `rdmadiag explain`, from what was printed to what it means.

A topic defines `HELP` (one line), `EXAMPLES` (argument tuples that decode) and `decode(*words) -> dict`, a JSON-able
answer whose first keys matter most. A topic's name is its file name with '_' written as '-'.
"""

from __future__ import annotations

ALIASES = {
    "wc": "wc-status",
    "vendor": "vendor-err",
    "cqe": "error-cqe",
    "timeout": "ack-timeout",
    "rnr": "rnr-timer",
    "transition": "qp-transition",
}
"""Short names of topics."""
