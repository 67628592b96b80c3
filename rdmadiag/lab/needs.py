"""What a lab needs of this machine, what of it is missing, and the command that installs it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from typing import NamedTuple

from rdmadiag.lab import kernels
from rdmadiag.lab.places import LabError
from rdmadiag.verbs import library

_SBIN = "/usr/sbin:/sbin"


class Need(NamedTuple):
    """One thing: `answer` is yes, no or unknown; `packages` bring it (Debian, Ubuntu); a lab comes up without optional ones."""

    name: str
    answer: str
    found: str
    why: str
    packages: tuple[str, ...] = ()
    optional: bool = False


_TOOLS = (
    ("qemu-system-x86_64", "runs the guest", ("qemu-system-x86",), False),
    ("ip", "makes links, in the guest", ("iproute2",), False),
    ("tc", "shapes switch ports, in the guest", ("iproute2",), False),
    ("rdma", "makes rxe devices, in the guest", ("iproute2",), False),
    ("depmod", "lists a kernel's modules", ("kmod",), False),
    ("zstd", "unpacks kernels and modules of Ubuntu", ("zstd",), True),
    ("ibv_rc_pingpong", "small traffic tests", ("ibverbs-utils",), True),
    ("rping", "small traffic tests", ("rdmacm-utils",), True),
    ("ib_write_bw", "bandwidth tests", ("perftest",), True),
    ("tcpdump", "captures at a switch port", ("tcpdump",), True),
    ("nft", "changes packets in the switch", ("nftables",), True),
)
_PROVIDERS = ("/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib/libibverbs", "/usr/lib64/libibverbs")


_TRIED = {
    ("debian", "12"): "all tests of the lab were run on it",
    ("debian", "13"): "`make demo` was run on it",
    ("ubuntu", "24.04"): "`make demo` was run on it",
}


def _find(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


def needs() -> Iterator[Need]:
    """Yield everything that a lab in a virtual machine needs or can use."""
    machine = platform.machine()
    yield Need("x86-64", "yes" if machine == "x86_64" else "no", machine, "the guest's machine type is made for it")
    yield _distribution()
    for tool, why, packages, optional in _TOOLS:
        path = _find(tool)
        yield Need(tool, "yes" if path else "no", path or "", why, packages, optional)
    yield _compiler()
    rxe = [
        f"{folder}/{name}"
        for folder in _PROVIDERS
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if "rxe" in name
    ]
    yield Need(
        "librxe", "yes" if rxe else "no", rxe[0] if rxe else "", "verbs on rxe devices", ("ibverbs-providers",), True
    )
    yield _pyverbs()
    curl = _library("libcurl.so.4")
    yield Need("libcurl", "yes" if curl else "no", curl, "Mooncake's engine is linked to it", ("libcurl4",), True)
    yield _kernel()
    kvm = os.access("/dev/kvm", os.R_OK | os.W_OK)
    there = "/dev/kvm" if kvm else "not permitted" if os.path.exists("/dev/kvm") else "none"
    yield Need(
        "kvm",
        "yes" if kvm else "no",
        there,
        "faster than emulation, where it works (tried at each first boot)",
        (),
        True,
    )


def _distribution() -> Need:
    try:
        told = platform.freedesktop_os_release()
    except OSError:
        told = {}
    tried = _TRIED.get((told.get("ID", ""), told.get("VERSION_ID", "")))
    found = told.get("PRETTY_NAME", "it does not say its name")
    why = tried or "the lab is untested on it; Debian 12 and 13 and Ubuntu 24.04 are not"
    return Need("distribution", "yes" if tried else "unknown", found, why, (), True)


def _library(name: str) -> str:
    paths = (f"{folder}/{name}" for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"))
    return next((path for path in paths if os.path.exists(path)), "")


def _compiler() -> Need:
    compiler = _find("gcc") or _find("cc")
    found = compiler if compiler and _library("libc.a") else ""
    return Need(
        "gcc, libc.a", "yes" if found else "no", found or "", "compiles the guest's agent", ("gcc", "libc6-dev")
    )


def _pyverbs() -> Need:
    found = library.find()
    there = found or next((f"{place}/pyverbs" for place in library.PLACES if os.path.isdir(f"{place}/pyverbs")), "")
    told = there if found or not there else f"{there} is of another Python than {sys.executable}"
    return Need("pyverbs", "yes" if found else "no", told, "verbs from Python", ("python3-pyverbs",), True)


def _kernel() -> Need:
    why = "the guest's kernel, with rdma_rxe"
    for kernel in kernels.installed():
        return Need("kernel", "yes", f"{kernel.release}, this machine's", why)
    for kernel in kernels.unpacked():
        return Need("kernel", "yes", f"{kernel.release}, unpacked in {kernel.image.parent.parent}", why)
    try:
        names = kernels.packages()
    except LabError as error:
        return Need("kernel", "no", str(error), why)
    return Need(
        "kernel", "yes", f"{names[0]} can be fetched by the first `lab up` (about 70 MB; nothing is installed)", why
    )


def install_command(missing: list[Need]) -> str:
    """Return the command that installs the packages of what is missing; empty when there is nothing to install."""
    packages = dict.fromkeys(package for need in missing if need.answer == "no" for package in need.packages)
    if not packages:
        return ""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get update && {sudo}apt-get install -y {' '.join(packages)}"
