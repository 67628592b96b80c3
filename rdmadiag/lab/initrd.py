"""The guest's initramfs: our agent, compiled, and the kernel modules it loads; an uncompressed cpio (newc) archive."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from rdmadiag.lab.places import LabError, cache_folder

SOURCE = Path(__file__).with_name("guest.c")
FIRST = ("virtio_mmio", "virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")
ROCE = ("crc32_generic", "veth", "bridge", "rdma_rxe", "ib_uverbs", "rdma_ucm", "sch_tbf", "sch_red", "virtio_rng")
NICS = ("virtio_net",)


def agent() -> Path:
    """Return the compiled agent from the cache, compiled when missing. Raises LabError with what the compiler said."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    target = cache_folder("agent") / digest
    if target.exists():
        return target
    if not compiler:
        raise LabError("no C compiler for the guest's agent: apt-get install gcc libc6-dev")
    part = target.with_name(f".{digest}.{os.getpid()}")
    result = subprocess.run(
        [compiler, "-O2", "-Wall", "-static", "-s", "-o", str(part), str(SOURCE)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise LabError(f"compiling {SOURCE} failed (wanted gcc and libc6-dev): {result.stderr.strip()[-500:]}")
    part.replace(target)
    return target


def uncompressed(path: Path) -> bytes:
    """Return a module's bytes, taken out of .xz, .gz or .zst. Raises LabError when the tool for .zst is missing."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return piped("zstd", data)
    return data


def piped(tool: str, data: bytes) -> bytes:
    """Decompress with a tool. Raises LabError when it is missing or refuses."""
    if not shutil.which(tool):
        raise LabError(f"{tool} is missing, which unpacks this kernel's files: apt-get install {tool}")
    result = subprocess.run([tool, "-dc"], input=data, capture_output=True, check=False)
    if result.returncode:
        raise LabError(f"{tool} -dc: {result.stderr.decode(errors='replace').strip()[-200:]}")
    return result.stdout


def _plain_name(path: str) -> str:
    return os.path.basename(path).split(".ko")[0].replace("-", "_")


def with_dependencies(modules: Path, wanted: Iterable[str]) -> list[Path]:
    """Return the files of modules in the order in which to load them; what is built in, or not made, is left out.

    `modules` is /lib/modules/<release>; reads modules.dep (depmod). Raises LabError when that is missing.
    """
    try:
        lines = (modules / "modules.dep").read_text().splitlines()
    except OSError as error:
        raise LabError(f"{modules}/modules.dep: {error.strerror}; depmod (package kmod) makes it") from error
    needs = {_plain_name(head): (head, rest.split()) for head, _, rest in (line.partition(":") for line in lines)}
    order: dict[str, None] = {}
    for name in wanted:
        if name in needs:
            head, dependencies = needs[name]
            for path in (*reversed(dependencies), head):
                order.setdefault(path)
    return [modules / path for path in order]


def _entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    encoded = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


_PAGE = 4096
END = 64
"""Where in its page an initramfs ends [bytes]."""


def archive(files: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Return a cpio archive (newc: kernel Documentation/driver-api/early-userspace/buffer-format.rst)."""
    entries = [_entry(number, *file) for number, file in enumerate(files, 1)]
    return b"".join(entries) + _entry(0, "TRAILER!!!", 0, b"")


def build(modules: Path, wanted: Iterable[str]) -> bytes:
    """Return the initramfs for a kernel's modules."""
    files: list[tuple[str, int, bytes]] = [("init", 0o100755, agent().read_bytes())]
    files += [(name, 0o040755, b"") for name in ("dev", "proc", "sys", "sbin", "modules")]
    files.append(("sbin/modprobe", 0o120777, b"/init"))  # the kernel calls it here, outside the host's root
    # The kernel opens /dev/console before our program runs; devtmpfs is mounted only then, and brings it.
    for place, path in enumerate(with_dependencies(modules, wanted)):
        files.append((f"modules/{place:03}-{_plain_name(str(path))}.ko", 0o100644, uncompressed(path)))
    return clear_of_tables(archive(files))


def clear_of_tables(content: bytes) -> bytes:
    """Return an initramfs with zeros behind it (the kernel skips them), so that it ends at the beginning of a page.

    QEMU puts it into the last whole pages of memory (hw/i386/x86-common.c, with acpi_data_size 0 for a microvm), and newer
    firmware (seen with QEMU 10.0, not with 7.2) its ACPI tables, 768 bytes, at memory's end: one that ends late in its page
    lies over them, and the kernel hangs.
    """
    return content + bytes((END - len(content)) % _PAGE)
