"""Bad input, each in a process of its own: a clear error or a gap, within bounds of memory and time, and nothing written."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow

PEAK_BYTES = 300 << 20
BUDGET_SECONDS = 1.0
CPU_SECONDS, HANGS_SECONDS = 15.0, 120.0
"""Most processor time: budget, start, rules and what was being parsed when time was up. What takes so long beside that hangs."""


MEASURE = """
import os, resource, sys
pid = os.fork()
if pid == 0:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    os.close(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
os.write(int(sys.argv[1]), f"{usage.ru_maxrss} {usage.ru_utime + usage.ru_stime}".encode())
sys.exit(os.waitstatus_to_exitcode(status) & 255)
"""
"""A small process between: the peak that the kernel tells of a process begins with that of the one which forked it, and pytest's is large."""


class Ended(NamedTuple):
    code: int
    out: str
    error: str
    peak_bytes: int
    cpu_seconds: float


def check(*args: str, stdin: int | None = None) -> Ended:
    """Run `rdmadiag check` and measure it."""
    command = [sys.executable, "-m", "rdmadiag", "check", "--budget", f"{BUDGET_SECONDS:g}s", *args]
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", MEASURE, str(writer), *command],
        stdin=stdin if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[writer],
    ) as process:
        os.close(writer)
        try:
            out, error = process.communicate(timeout=HANGS_SECONDS)
        finally:
            process.kill()
    with os.fdopen(reader) as told:
        peak_kib, cpu_seconds = told.read().split()
    return Ended(process.returncode, out.decode(), error.decode(), int(peak_kib) * 1024, float(cpu_seconds))


def ends_well(ended: Ended, *codes: int) -> None:
    """Assert what holds for every bad input."""
    assert ended.code in codes, ended
    assert "Traceback" not in ended.error + ended.out
    assert ended.peak_bytes < PEAK_BYTES
    assert ended.cpu_seconds < CPU_SECONDS
    if ended.code == 2:
        assert ended.error.startswith("rdmadiag: ") and ended.error.count("\n") == 1 and not ended.out
    for stream in (ended.out, ended.error):
        assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in stream)


def sparse(path: Path, size: int, head: bytes = b"") -> None:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)


def make_tar(path: Path, members: dict[str, bytes | tuple[bytes, str]], mode: str = "w:gz") -> None:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type, info.linkname = content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


ZEROS = bytes(1 << 20)


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(4):
            with archive.open(f"m{number}", "w", force_zip64=True) as member:
                for _ in range(100):
                    member.write(ZEROS)


def tar_bomb(path: Path) -> None:
    with gzip.open(path, "wb", 1) as file:
        for number in range(2):
            info = tarfile.TarInfo(f"m{number}")
            info.size = 200 << 20
            file.write(info.tobuf())
            for _ in range(200):
                file.write(ZEROS)


def tar_name_bomb(path: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 200 << 20
    with gzip.open(path, "wb", 1) as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(200):
            file.write(b"a" * (1 << 20))


def xz_with_a_huge_dictionary(path: Path) -> None:
    packer = lzma.LZMACompressor(filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}])
    path.write_bytes(packer.compress(b"a" * 1000) + packer.flush())


def zip_of_many(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(15_000):
            archive.writestr(str(number), b"x")


NAMED = {  # how to make it, the exit codes it may have, what is said
    "empty": (lambda p: p.write_bytes(b""), (2,), "empty"),
    "binary": (lambda p: p.write_bytes(b"\x7fELF" + bytes(5000)), (2,), "byte 4: binary, not a text"),
    "5 GB of zeros": (lambda p: sparse(p, 5 << 30), (2,), "binary"),
    "5 GB after a text": (lambda p: sparse(p, 5 << 30, b"[    1.000000] x\n" * 1000), (3,), "not read to its end"),
    "wrong encoding": (lambda p: p.write_bytes(b"[    1.000000] caf\xe9 \xff\xfe\n"), (0, 3), ""),
    "deep JSON": (lambda p: p.write_bytes(b'[{"a":' * 100_000), (3,), "nested too deeply"),
    "JSON with millions of values": (lambda p: p.write_bytes(b"[" + b"{}," * 3_000_000 + b"{}]"), (3,), "too many"),
    "JSON cut off": (
        lambda p: p.write_bytes(
            json.dumps([{"ifname": "mlx5_0", "lqpn": 1, "type": "RC", "state": "RTS"}] * 9)[:-30].encode()
        ),
        (3,),
        "cut off",
    ),
    "gzip cut off": (lambda p: p.write_bytes(gzip.compress(os.urandom(9000).hex().encode())[:5000]), (3,), "cut off"),
    "gzip damaged": (
        lambda p: p.write_bytes(gzip.compress(b"x" * 9000)[:12] + b"\xff" * 99),
        (2,),
        "damaged gzip file",
    ),
    "gzip bomb": (lambda p: p.write_bytes(gzip.compress(bytes(100 << 20), 1)), (2,), "binary"),
    "zip bomb": (zip_bomb, (2, 3), "MiB"),
    "tar bomb": (tar_bomb, (2, 3), "unpacks to more than"),
    "tar with a name of 200 MB": (tar_name_bomb, (2,), "name that is too long"),
    "xz that wants 1 GB": (xz_with_a_huge_dictionary, (2,), "Memory usage limit"),
    "zip of 15,000 files": (zip_of_many, (3,), "was not read"),
    "tar with paths out of it": (
        lambda p: make_tar(p, {"../out": b"x", "/tmp/rdmadiag-out": b"x", "sys/l": (tarfile.SYMTYPE, "/etc/shadow")}),
        (3,),
        "a path out of the archive",
    ),
    "line of 50 MB": (lambda p: p.write_bytes(b"NCCL WARN x " * 4_000_000), (0, 1, 3), ""),
    "flood of prompts": (lambda p: p.write_bytes(b"$ ibstat\n" * 1_000_000), (0, 3), ""),
    "escape sequences": (
        lambda p: p.write_bytes(
            b"node-a:1:2 [0] NCCL WARN \x1b]0;x\x07\x1b[2J\x9b31m\xc2\x9b Call to ibv_reg_mr failed\x07\n"
        ),
        (0, 1, 3),
        "",
    ),
    "tree that is deep and wide": (
        lambda p: p.write_bytes(
            b"# seconds 1\n/sys/" + b"a/" * 30_000 + b":x\n" + b"/sys/l -> l/l\n/sys/l/l/x:1\n" * 1000
        ),
        (0, 3),
        "",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_bad_input_that_was_named_is_a_clear_error_or_a_gap(name: str, tmp_path: Path) -> None:
    make, codes, said = NAMED[name]
    path = tmp_path / "given"
    make(path)
    ended = check("--from", str(path))
    ends_well(ended, *codes)
    assert said in " ".join((ended.out + ended.error).split())
    if ended.code == 2:
        assert str(path) in ended.error
    assert os.listdir(tmp_path) == ["given"] and not Path("/tmp/rdmadiag-out").exists()


@pytest.mark.parametrize("name", ["empty", "binary", "gzip damaged", "tar with a name of 200 MB", "xz that wants 1 GB"])
def test_bad_input_in_a_folder_is_a_gap_and_the_rest_is_read(name: str, tmp_path: Path) -> None:
    NAMED[name][0](tmp_path / "bad")
    (tmp_path / "dmesg.txt").write_text("[    0.000000] Linux version 6.1.0 (x)\n[    1.000000] x\n")
    ended = check("--from", str(tmp_path), "--format", "json")
    ends_well(ended, 3)
    report = json.loads(ended.out)
    assert [gap["subject"] for gap in report["gaps"] if gap["kind"] == "unreadable"] == [str(tmp_path / "bad")]
    assert report["nodes"]


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom", "/nosuch", "", "a=/nosuch", "\u20ac\x1b[31m"])
def test_what_is_no_file_is_a_clear_error(path: str) -> None:
    ends_well(check("--from", path), 2)


PIPES = {
    "yes": (b"y\n" * 50_000, (3,)),
    "a line without end": (b"y" * 100_000, (3,)),
    "a kernel log without end": (b"[    1.000000] mlx5_core 0000:18:00.0: an ordinary line\n" * 2000, (3,)),
    "zeros": (bytes(100_000), (2,)),
    "nothing, for ever": (b"", (2,)),
}


@pytest.mark.parametrize("name", PIPES)
def test_an_endless_pipe_is_cut_off_by_the_budget(name: str) -> None:
    content, codes = PIPES[name]
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            while True:
                os.write(writer, content) if content else time.sleep(60)
        finally:
            os._exit(0)
    os.close(writer)
    try:
        ended = check("--from", "-", stdin=reader)
    finally:
        os.close(reader)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    ends_well(ended, *codes)
    assert "in time" in ended.out + ended.error or name == "zeros"


LONG_CALL = (
    "WITH RECURSIVE r(a, b) AS (SELECT 'a', 'b' UNION ALL SELECT a || a, b || b FROM r WHERE length(a) < 500000)"
    " SELECT n.node, trim(max(r.a), max(r.b) || 'a') AS text, 1 AS wrong FROM r, {table} n GROUP BY n.node"
)
OWN_RULES = {  # one that takes for ever where there is a log, and one where rules are loaded
    "a pattern that takes for ever": ({"patterns": ["job (?P<value>(a+)+)b"]}, (1,), "a job of ours failed"),
    "a query that takes for ever": ({"query": [LONG_CALL.format(table="reading")]}, (0, 1), "took longer than 2 s"),
}


@pytest.mark.parametrize("name", OWN_RULES)
def test_an_own_rule_that_takes_for_ever_is_cut_off(name: str, tmp_path: Path) -> None:
    keys, codes, says = OWN_RULES[name]
    rule = {
        "id": "own",
        "kind": "cause",
        "layer": "app",
        "severity": "error",
        "title": "A job of ours failed",
        "message": "a job of ours failed",
        "examples": {"wrong": [{}], "fine": [{}], "unknown": [{}]},
        **keys,
    }
    (tmp_path / "own.json").write_text(json.dumps(rule))
    log = tmp_path / "app.log"
    log.write_text("2026-03-08 17:43:19 INFO NCCL INFO job " + "a" * 60 + "\n" + "job aab\n")
    ended = check("--rules", str(tmp_path / "own.json"), "--from", str(log), "--explain", "own")
    ends_well(ended, *codes)
    assert says in ended.out


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_what_may_not_be_read_is_a_clear_error(open_path: Path) -> None:
    root = Path(__file__).resolve().parent.parent
    if not all(folder.stat().st_mode & 0o005 == 0o005 for folder in (root, *root.parents)):
        pytest.skip(f"another user may not enter {root}, so none can run the program there")
    path = open_path / "x"
    path.write_text("x")
    path.chmod(0)
    code = "import os, sys; os.setgroups([]); os.setegid(65534); os.seteuid(65534); from rdmadiag.cli import main; main(sys.argv[1:])"
    result = subprocess.run(
        [sys.executable, "-c", code, "check", "--from", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2 and "Permission denied" in result.stderr, result.stderr
