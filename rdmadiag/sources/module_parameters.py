"""Parameters of modules that bear on RDMA: those in use (/sys/module), and those that files and the command line ask for."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host, names_in, text_of
from rdmadiag.patterns import late
from rdmadiag.sources.modules import RELEVANT

TABLES = ("module_parameter",)

FOLDERS = ("/lib/modprobe.d", "/usr/lib/modprobe.d", "/run/modprobe.d", "/etc/modprobe.d")
"""Where modprobe looks, the last one wins (modprobe.d(5))."""
FILES, VALUE_CHARACTERS, LINE_CHARACTERS = 200, 200, 4000


def read(host: Host) -> Iterable[Row | Gap]:
    """Read what is in use, then what is asked for; a parameter that only root may read is left out."""
    try:
        modules = host.ls("/sys/module")
    except NotPresent:
        modules = []
    except NotGiven as error:
        yield Gap(TABLES, error.reason, "not_given", error.how, error.what)
        modules = []
    for module in RELEVANT.intersection(modules):
        folder = f"/sys/module/{module}/parameters"
        for parameter in names_in(host, folder):
            if value := text_of(host, f"{folder}/{parameter}"):
                yield _row(module, parameter, "value", value, f"{folder}/{parameter}")
    yield from _command_line(text_of(host, "/proc/cmdline"), "/proc/cmdline")
    yield from _asked(host)


def _asked(host: Host) -> Iterator[Row]:
    # A file of the same name in a later folder replaces one in an earlier.
    files: dict[str, str] = {}
    for folder in FOLDERS:
        try:
            files.update((name, folder) for name in host.ls(folder)[:FILES] if name.endswith(".conf"))
        except (NotPresent, HostRefused):
            continue
    last: dict[tuple[str, str], Row] = {}  # all lines count, of one parameter the last
    for name, folder in sorted(files.items()):
        path = f"{folder}/{name}"
        lines = [Line(number, line) for number, line in enumerate(text_of(host, path).splitlines(), 1)]
        for row in parse_modprobe(lines):
            last[row.values["module"], row.values["parameter"]] = row._replace(at=path)
    yield from last.values()


def _row(module: str, parameter: str, column: str, value: str, at: str | int) -> Row:
    values = {
        "module": module.replace("-", "_"),
        "parameter": parameter.removeprefix("NVreg_"),
        column: value[:VALUE_CHARACTERS],
    }
    return Row("module_parameter", values, at)


_ON_COMMAND_LINE = late(r"(?:^|\s)(?P<module>[a-z][a-z0-9_-]{1,30})\.(?P<parameter>\w{1,50})=(?P<value>\"[^\"]*\"|\S+)")


def _command_line(text: str, at: str | int) -> Iterator[Row]:
    for match in _ON_COMMAND_LINE.finditer(text):
        if match["module"].replace("-", "_") in RELEVANT:
            yield _row(match["module"], match["parameter"], "configured", match["value"].strip('"'), at)


def parse_modprobe(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `options MODULE NAME=VALUE ...` of modprobe.d files, also behind `FILE:` of grep."""
    for number, text in lines:
        if (match := _OPTIONS.match(text[:LINE_CHARACTERS])) and match["module"].replace("-", "_") in RELEVANT:
            for parameter, value in _assignments(match["rest"]):
                yield _row(match["module"], parameter, "configured", value, number)


_OPTIONS = late(r"(?:/[\w./-]+:)?\s*options\s+(?P<module>[a-z][\w-]{1,40})\s+(?P<rest>\S.*)")


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # a quotation mark without its partner
        words = text.split()
    for word in words:
        name, equals, value = word.partition("=")
        if equals and late(r"\w{1,60}").fullmatch(name):
            yield name, value


_LISTED = late(r"/sys/module/(?P<module>\w{2,50})/parameters/(?P<parameter>\w{1,60}):(?P<value>.{0,200})$")


def parse_listing(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `grep -r "" /sys/module/MODULE/parameters`."""
    for number, text in lines:
        if (match := _LISTED.match(text[:LINE_CHARACTERS])) and match["module"] in RELEVANT:
            yield _row(match["module"], match["parameter"], "value", match["value"].strip(), number)


_SIGN = (
    r"(mlx[45]_core|mlx5_ib|ib_\w+|rdma_\w+|nvidia[a-z_]*|nvidia-peermem|bnxt_\w+|irdma|ice|efa|amdgpu|siw|nvme_rdma)"
)

TEXTS = (
    Text("modprobe.d", (rf"^(/[a-z./_-]+:)?[ \t]*options[ \t]+{_SIGN}[ \t]+[A-Za-z_0-9]+=",), parse_modprobe),
    Text("module parameters", (rf"^/sys/module/{_SIGN}/parameters/\w+:",), parse_listing),
)
