"""A kernel with rdma_rxe for the guest: the host's own, or a distribution's package unpacked into the cache.

The package is fetched by `apt-get download`, which refuses what its signed lists do not vouch for, and unpacked with
`dpkg-deb -x`; nothing is installed. The kernel inside bzImage is unpacked too: an emulated guest saves 3 s by that.
"""

from __future__ import annotations

import fcntl
import gzip
import lzma
import os
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rdmadiag.lab.initrd import piped
from rdmadiag.lab.places import LabError, cache_folder

Progress = Callable[[str], None]


class Kernel(NamedTuple):
    """A kernel: its release, its image, and its folder /lib/modules/<release>, which may lie in the cache."""

    release: str
    image: Path
    modules: Path

    @property
    def own_modules(self) -> str:
        """Return the folder that must be put at the guest's /lib/modules; empty when it is there already."""
        parent = self.modules.parent
        return "" if parent == Path("/lib/modules") else str(parent)


def has_rxe(modules: Path) -> bool:
    """Tell whether rdma_rxe is among a kernel's modules."""
    folder = modules / "kernel/drivers/infiniband/sw/rxe"
    return folder.is_dir() and any(folder.glob("rdma_rxe.ko*"))


def _versions(text: str) -> list[int | str]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", text)]


def installed(root: Path = Path("/")) -> Iterator[Kernel]:
    """Yield the kernels with rdma_rxe that lie in /boot and /lib/modules and may be read, newest first.

    Debian's packages of Linux 7 have the image among the modules; what installs it copies it to /boot.
    """
    folder = root / "lib/modules"
    releases = os.listdir(folder) if folder.is_dir() else []
    for release in sorted(releases, key=_versions, reverse=True):
        modules = folder / release
        images = [at for at in (root / f"boot/vmlinuz-{release}", modules / "vmlinuz") if os.access(at, os.R_OK)]
        if images and has_rxe(modules) and (modules / "modules.dep").exists():
            yield Kernel(release, images[0], modules)


def unpacked(release: str = "") -> Iterator[Kernel]:
    """Yield the kernels in the cache, newest first: the distribution's own, or of a release that was asked for."""
    folder = cache_folder("kernels")
    marks = [*folder.glob("*/ready"), *(folder.glob("*/asked") if release else ())]
    for mark in sorted(marks, key=lambda path: _versions(path.parent.name), reverse=True):
        yield from (kernel for kernel in installed(mark.parent) if release in ("", kernel.release))


def find(progress: Progress = lambda text: None, release: str = "") -> Kernel:
    """Return a kernel, of a release where one is named: the host's, else one in the cache, else a package is fetched. Raises LabError.

    What was fetched because it was named is not taken when none is named.
    """
    for kernel in installed():
        if release in ("", kernel.release):
            return kernel
    folder = cache_folder("kernels")
    held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)  # two labs must not unpack at once
        for kernel in unpacked(release):
            return kernel
        return _fetch(folder, packages(release), "asked" if release else "ready", progress)
    finally:
        os.close(held)


def _apt(*words: str, folder: Path | None = None) -> str:
    result = subprocess.run(list(words), cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        what = " ".join(words[:3])
        raise LabError(f"{what}: {result.stderr.strip()[-300:]}; as root: apt-get update, then try again")
    return result.stdout


def packages(release: str = "") -> list[str]:
    """Return the packages that hold the distribution's kernel, or that of a release, with its rdma_rxe. Raises LabError.

    The package manager's lists tell. Debian: linux-image-<release>, which from about Linux 7.0 on is empty and depends on linux-binary
    and linux-modules; Ubuntu's rdma_rxe is in linux-modules-extra.
    """
    if not shutil.which("apt-get"):
        raise LabError("no kernel with rdma_rxe in /boot and /lib/modules, and no apt-get to fetch one with")
    release = release or _distributions()
    if release.endswith("-generic"):
        return [f"linux-{part}-{release}" for part in ("image", "modules", "modules-extra")]
    image = f"linux-image-{release}"
    try:
        text = _apt("apt-cache", "depends", image)
    except LabError:
        raise LabError(
            f"the package lists know no {image}; `apt-cache search linux-image` shows what they know, apt-get update renews them"
        ) from None
    return re.findall(rf"Depends: (linux-(?:binary|modules)-{re.escape(release)})\n", text) or [image]


def _distributions() -> str:
    for meta in ("linux-image-amd64", "linux-image-generic"):
        try:
            text = _apt("apt-cache", "depends", meta)
        except LabError:
            continue
        if match := re.search(r"Depends: linux-image-(\d\S*)", text):
            return match[1]
    raise LabError("the package lists know no linux-image-amd64 and no linux-image-generic; as root: apt-get update")


def _fetch(folder: Path, names: list[str], mark: str, progress: Progress) -> Kernel:
    release = names[0].split("-", 2)[2]
    target = folder / release
    shutil.rmtree(target, ignore_errors=True)
    (target / "deb").mkdir(parents=True)
    progress(f"fetching {' '.join(names)} (once; about 70 MB)")
    _apt("apt-get", "download", "-q", *names, folder=target / "deb")
    for deb in sorted((target / "deb").glob("*.deb")):
        progress(f"unpacking {deb.name}")
        _apt("dpkg-deb", "-x", str(deb), str(target))
    shutil.rmtree(target / "deb")
    modules = next((at for at in (target / "lib/modules", target / "usr/lib/modules") if at.is_dir()), None)
    if modules is None:
        raise LabError(f"{' '.join(names)}: no lib/modules in these packages")
    if not (target / "lib").exists():
        (target / "lib").symlink_to("usr/lib")
    depmod = shutil.which("depmod", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if not depmod:
        raise LabError("depmod is missing: apt-get install kmod")
    for entry in modules.iterdir():
        _apt(depmod, "-b", str(target), entry.name)
    (target / mark).touch()
    for kernel in installed(target):
        return kernel
    raise LabError(f"{' '.join(names)}: unpacked to {target}, but no kernel with rdma_rxe is in it")


_MAGICS: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
    (b"\xfd7zXZ\0", lambda data: lzma.LZMADecompressor().decompress(data)),
    (b"\x1f\x8b\x08", lambda data: gzip.decompress(data[: _gzip_end(data)])),
    (b"\x28\xb5\x2f\xfd", lambda data: piped("zstd", data[:-4])),  # the kernel puts its size behind it
    (b"\x02\x21\x4c\x18", lambda data: piped("lz4", data[:-4])),
)


def _gzip_end(data: bytes) -> int:
    unpacker = zlib.decompressobj(31)
    unpacker.decompress(data)
    return len(data) - len(unpacker.unused_data)


def vmlinux(image: bytes) -> bytes | None:
    """Return the ELF kernel inside a bzImage; None when it is packed in a way that is not known here.

    Offsets: kernel Documentation/arch/x86/boot.rst (setup_sects, payload_offset, payload_length).
    """
    if len(image) < 0x250 or image[0x202:0x206] != b"HdrS":
        return None
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[((image[0x1F1] or 4) + 1) * 512 + offset :][:length]
    for magic, unpack in _MAGICS:
        if payload.startswith(magic):
            try:
                kernel = unpack(payload)
            except (LabError, lzma.LZMAError, zlib.error, OSError, EOFError):
                return None
            return kernel if kernel.startswith(b"\x7fELF") else None
    return None


def boot_image(kernel: Kernel) -> Path:
    """Return the file to boot: the unpacked kernel from the cache, or the image itself when it cannot be unpacked."""
    info = kernel.image.stat()
    target = cache_folder("images") / f"{kernel.release}-{info.st_size:x}-{info.st_mtime_ns:x}"
    if not target.exists():
        unpacked = vmlinux(kernel.image.read_bytes())
        if unpacked is None:
            return kernel.image
        part = target.with_name(f".{target.name}.{os.getpid()}")
        part.write_bytes(unpacked)
        part.replace(target)
    return target
