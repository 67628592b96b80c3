"""Commands of RDMA programs in pasted texts, with the options that choose device, port, GID, QPs and rdma_cm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Line, Row, Text
from rdmadiag.patterns import late

TABLES = ("command",)

LINE_CHARACTERS = 1000
"""A longer command line is cut."""

Values = dict[str, Any]


class Options(NamedTuple):
    """The options of one family of programs: which take a column's value, and which single letters are flags."""

    values: Mapping[str, str]
    flags: str = ""
    rdma_cm: bool = False


_VERBS = Options({"-d": "device", "--ib-dev": "device", "-i": "port", "--ib-port": "port"})
_PERFTEST = Options(
    {
        **_VERBS.values,
        "-x": "gid_index",
        "--gid-index": "gid_index",
        "-q": "qps",
        "--qp": "qps",
        "-t": "depth",
        "--tx-depth": "depth",
        "-n": "iterations",
        "--iters": "iterations",
    },
    flags="aFeghzRvbNVCHUOZP",
)
_PINGPONG = Options({**_VERBS.values, "-g": "gid_index", "--gid-idx": "gid_index"})
_FABRIC = Options({"-C": "device", "--Ca": "device", "-P": "port", "--Port": "port"})
_CM = Options({}, rdma_cm=True)
_UCX = Options({"-d": "device"})
_MOONCAKE = Options({"--device_name": "device"})
_NONE = Options({})

_FAMILIES: tuple[tuple[Options, tuple[str, ...]], ...] = (
    (_PERFTEST, tuple(f"ib_{kind}_{what}" for kind in ("write", "read", "send", "atomic") for what in ("bw", "lat"))),
    (_PINGPONG, tuple(f"ibv_{kind}_pingpong" for kind in ("rc", "uc", "ud", "srq", "xsrq"))),
    (_VERBS, ("ibv_devinfo", "ibv_asyncwatch", "ibv_devices")),
    (
        _FABRIC,
        ("ibping", "ibroute", "ibtracert", "perfquery", "smpquery", "sminfo", "saquery", "iblinkinfo", "ibnetdiscover"),
    ),
    (_CM, ("rping", "ucmatose", "cmatose", "udaddy", "mckey", "cmtime", "udpong")),
    (_CM, ("rdma_client", "rdma_server", "rdma_xclient", "rdma_xserver", "rstream", "riostream", "rcopy")),
    (_UCX, ("ucx_perftest", "ucx_info", "io_demo")),
    (_MOONCAKE, ("transfer_engine_bench", "mooncake_master", "nixlbench")),
    (
        _NONE,
        (
            "mpirun",
            "mpiexec",
            "srun",
            "torchrun",
            "all_reduce_perf",
            "all_gather_perf",
            "sendrecv_perf",
            "alltoall_perf",
        ),
    ),
    (_NONE, ("ibstat", "ibstatus", "ibdev2netdev", "show_gids", "fi_info", "fi_pingpong", "fi_rdm_pingpong", "qperf")),
    (_NONE, ("rdma", "modprobe", "rxe_cfg", "cma_roce_mode", "mlnx_qos", "ibdiagnet", "mlxlink", "mst", "opensm")),
)
PROGRAMS: Mapping[str, Options] = {name: options for options, names in _FAMILIES for name in names}
"""Every program whose commands are kept."""

_WRAPPERS = late(
    r"sudo|env|time|timeout|nohup|numactl|taskset|stdbuf|ip|docker|podman|kubectl|ssh|strace|gdb|watch|[A-Za-z_]\w*=.*"
)
_WORD = late(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*')+")
_SEPARATOR = late(r"[|;&]{1,2}|\d?>{1,2}.*|<")
_DEVICE = late(r"[A-Za-z][\w.-]*")
_SECRET = late(r"(?i)(\w*(?:token|secret|passw|credential|apikey|api_key)\w*[= ])\S+")


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse prompt lines, and lines that are nothing but a command."""
    for number, text in lines:
        command = prompt_command(text) or text.strip()
        if values := command_values(command[:LINE_CHARACTERS]):
            yield Row("command", values, number)


def command_values(command: str) -> Values | None:
    """Return the columns of a command line; None when no program in it is known."""
    words = _WORD.findall(command)
    if not words:
        return None
    names = [word.rpartition("/")[2] for word in words]
    last = 12 if _WRAPPERS.fullmatch(words[0]) else 1
    place = next((place for place, name in enumerate(names[:last]) if name in PROGRAMS), None)
    if place is None:
        return None
    program = names[place]
    values: Values = {"program": program, "line": _SECRET.sub(r"\1...", command)}
    return {**values, **_options(PROGRAMS[program], words[place + 1 :])}


def _options(options: Options, words: Sequence[str]) -> Values:
    values: Values = {"rdma_cm": 1} if options.rdma_cm else {}
    end = next((place for place, word in enumerate(words) if _SEPARATOR.fullmatch(word)), len(words))
    for place, word in enumerate(words[:end]):
        following = words[place + 1] if place + 1 < end else ""
        values.update(_option(options, word, following))
    return values


def _option(options: Options, word: str, following: str) -> Values:
    name, equals, value = word.partition("=")
    if column := options.values.get(name):
        return _value(column, value if equals else following)
    if word.startswith("--"):
        return {"rdma_cm": 1} if word == "--rdma_cm" else {}
    if column := options.values.get(word[:2]):
        return _value(column, word[2:])  # -q1026
    return {"rdma_cm": 1} if late(rf"-[{options.flags}]*R[{options.flags}]*").fullmatch(word) and options.flags else {}


def _value(column: str, text: str) -> Values:
    text = text.strip("\"'")
    if column == "device":
        device, _, port = text.partition(":")
        if not _DEVICE.fullmatch(device):
            return {}
        return {"device": device, **({"port": int(port)} if late(r"\d{1,3}").fullmatch(port) else {})}
    return {column: int(text)} if late(r"\d{1,9}").fullmatch(text) else {}


def _nothing(lines: Sequence[Line]) -> Iterator[Row]:
    yield from ()


_ANY = "|".join(PROGRAMS)

TEXTS = (
    Text(
        "command line",
        (
            # alone on a line, after a prompt, or after a wrapper that follows a prompt
            rf"^[ \t]*([A-Z_0-9]+=[^ \t]+[ \t]+)*([\w./-]+/)?({_ANY})([ \t]+-|[ \t\r]*$)",
            rf"[$#>%+][ \t]?(sudo )?([A-Za-z_0-9]+=[^ \t]+[ \t]+)*([\w./~-]+/)?({_ANY})([ \t\r]|$)",
            rf"(^|[$#>%+])[ \t]?(sudo|env|time|taskset|numactl|ip|docker|podman|kubectl|ssh|timeout|watch) .*[ /]({_ANY})([ \t\r]|$)",
        ),
        parse,
        by_line=True,
    ),
    # By their prompt lines these programs begin a section, though none of what they print is read here.
    Text("command line", (), _nothing, tuple(PROGRAMS)),
)
