"""Logs of programs that use RDMA, known as such even where no line is an error: NCCL and RCCL, UCX, Mooncake, NIXL, LMCache and others.

Nothing is parsed here: rules' patterns and the completion formats are matched over every text. A log that is known and holds no
known error is not the same as a text that nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rdmadiag.evidence.row import Line, Row, Text

TABLES = ("app_event",)


def _nothing(lines: Sequence[Line]) -> Iterable[Row]:
    return ()


def _log(name: str, *signs: str) -> Text:
    return Text(name, signs, _nothing, log="application")


TEXTS = (
    _log("NCCL log", r"\b[NR]CCL (INFO|WARN|TRACE|VERSION) ", r"\b[NR]CCL version ?:? ?[0-9]"),
    _log(
        "UCX log",
        r"\bUCX {1,2}(ERROR|WARN|DIAG|INFO|DEBUG|TRACE|FATAL) ",
        r"\bucp_context\.c:[0-9]",
        r"\bib_mlx5_log\.c:[0-9]",
    ),
    _log(
        "Mooncake log",
        r"\b(transfer_engine|rdma_(context|transport|endpoint)|worker_pool|transfer_metadata)\w*\.(cpp|h|cc):[0-9]+\]",
    ),
    _log(
        "NIXL log",
        r"\bNIXL (INFO|WARN|ERROR|DEBUG)",
        r"\bnixl_(agent|plugin)\w*\.(cpp|h):[0-9]",
        r"\bBackend UCX was instantiated",
    ),
    _log("vLLM log", r"\b(INFO|WARNING|ERROR) [0-9]{2}-[0-9]{2} [0-9:]{8} \[?[\w/]+\.py:[0-9]+\]"),
    _log("SGLang log", r"^\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}( (TP|DP|PP|EP)[0-9]+)+\]"),
    _log("LMCache log", r"\bLMCache (INFO|WARNING|ERROR|DEBUG): ", r"\] \[infini\] \[(info|debug|warning|error)\] "),
    _log("libfabric log", r"\blibfabric:[0-9]+:[0-9]+:[\w-]*:[\w;]+:"),
    _log("NVSHMEM log", r"\bNVSHMEM (INFO|WARN|ERROR|TRACE)\b", r"\bnvshmem/src/[\w/]+\.(cpp|cu|h):[0-9]"),
    _log("DeepEP log", r"\bDeepEP (timeout|error|warning|dispatch|combine)", r"\bdeep_ep\.(cpp|hpp):[0-9]"),
)
