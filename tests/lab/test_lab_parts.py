"""The parts of a lab that need no guest: options, frames, the initramfs, kernels, folders and locks, the topology."""

from __future__ import annotations

import fcntl
import gzip
import lzma
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.lab import Options, frames, initrd, kernels, needs, places, status, take_down, topology, up
from rdmadiag.lab.lab import KEEPER
from rdmadiag.lab.options import bits_per_second, differences
from rdmadiag.lab.places import LabError

# --- options ---


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"hosts": 1}, "--hosts 1"),
        ({"rails": 3}, "--rails 3"),
        ({"mtu": 100}, "--mtu 100"),
        ({"rate": "fast"}, "--rate 'fast'"),
        ({"rate": "1kbit"}, "--rate '1kbit'"),
        ({"queue_bytes": 5}, "--queue 5"),
        ({"backend": "container"}, "--backend 'container'"),
        ({"backend": "native", "kernel_per_host": True}, "--backend native"),
        ({"hosts": 5, "kernel_per_host": True}, "--hosts 5"),
        ({"namespaces": True, "kernel_per_host": True}, "--namespaces with --kernel-per-host"),
        ({"namespaces": True, "backend": "native"}, "--namespaces with --backend native"),
        ({"kernel": "../etc"}, "--kernel '../etc'"),
        ({"kernel": "6.1.0", "backend": "native"}, "--kernel needs a virtual machine"),
    ],
)
def test_an_option_that_no_lab_can_have_is_named(values: dict[str, object], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        Options(**values)  # type: ignore[arg-type]


@given(st.text(max_size=20))
def test_a_rate_is_a_rate_or_refused(text: str) -> None:
    try:
        assert 10**6 <= bits_per_second(text) <= 10**11
    except BadInput as error:
        assert "--rate" in str(error)


def test_rates_are_in_bits_per_second() -> None:
    assert [bits_per_second(rate) for rate in ("200mbit", "1.5gbit", "5000kbit")] == [
        200_000_000,
        1_500_000_000,
        5_000_000,
    ]


def test_auto_takes_the_backend_that_runs_and_the_idle_limit_is_no_difference() -> None:
    running = Options(backend="vm", idle_seconds=5)
    assert differences(running, Options()) == []
    assert differences(running, Options(backend="native", hosts=3)) == [
        "--backend is vm, wanted native",
        "--hosts is 2, wanted 3",
    ]


def test_options_survive_their_json() -> None:
    options = Options(hosts=3, ecn=True, folder="/x")
    assert Options.from_json({**options.as_json(), "from_a_later_release": 1}) == options


@pytest.mark.parametrize("name", ["", "-x", "a/b", "..", "x" * 25, "a b"])
def test_a_name_that_is_no_folder_name_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="lab name"):
        places.check_name(name)


# --- frames ---


@given(
    st.lists(st.tuples(st.sampled_from([b"O", b"R", b"X"]), st.integers(0, 2**32 - 1), st.binary(max_size=300))),
    st.data(),
)
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    sent: list[tuple[bytes, int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(frames.frame(*one) for one in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    splitter, got = frames.Splitter(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += list(splitter.feed(stream[start:stop]))
    assert got == sent


@given(st.binary(max_size=100))
def test_garbage_is_frames_or_a_value_error(garbage: bytes) -> None:
    try:
        list(frames.Splitter().feed(garbage))
    except ValueError as error:
        assert "wanted at most" in str(error)


@pytest.mark.parametrize("argv", [[], ["a\0b"], ["x" * 300_000], ["x"] * 5000])
def test_a_command_that_fits_no_frame_is_refused(argv: list[str]) -> None:
    with pytest.raises(ValueError, match="wanted"):
        frames.start(argv, "/", {})


# --- initramfs and kernels ---


@pytest.mark.skipif(not shutil.which("cpio"), reason="needs cpio")
@given(st.integers(0, 3 * 4096))
def test_an_initramfs_ends_at_the_beginning_of_a_page_so_that_the_firmwares_tables_fit_behind_it(size: int) -> None:
    made = initrd.clear_of_tables(b"x" * size)
    assert made.rstrip(b"\0") == b"x" * size and len(made) % 4096 == initrd.END and len(made) - size < 4096


def test_the_archive_is_one_that_cpio_reads(tmp_path: Path) -> None:
    files = [("init", 0o100755, b"#!program"), ("modules", 0o040755, b""), ("modules/000-a.ko", 0o100644, b"x" * 5)]
    result = subprocess.run(
        ["cpio", "-i", "-d", "--quiet"],
        input=initrd.clear_of_tables(initrd.archive(files)),
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "init").read_bytes() == b"#!program"
    assert (tmp_path / "init").stat().st_mode & 0o111
    assert (tmp_path / "modules/000-a.ko").read_bytes() == b"x" * 5


def test_modules_are_loaded_after_what_they_need_and_once(tmp_path: Path) -> None:
    (tmp_path / "modules.dep").write_text(
        "kernel/rdma-rxe.ko.xz: kernel/ib_uverbs.ko kernel/ib_core.ko\nkernel/ib_uverbs.ko: kernel/ib_core.ko\nkernel/ib_core.ko:\n"
    )
    found = initrd.with_dependencies(tmp_path, ("ib_uverbs", "rdma_rxe", "built_in"))
    assert [path.name for path in found] == ["ib_core.ko", "ib_uverbs.ko", "rdma-rxe.ko.xz"]


def test_a_kernel_without_a_list_of_modules_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"modules\.dep.*depmod"):
        initrd.with_dependencies(tmp_path, ("veth",))


@pytest.mark.parametrize("suffix", [".ko", ".ko.xz", ".ko.gz"])
def test_modules_are_taken_out_of_their_compression(tmp_path: Path, suffix: str) -> None:
    pack = {".ko": bytes, ".ko.xz": lzma.compress, ".ko.gz": gzip.compress}[suffix]
    path = tmp_path / f"veth{suffix}"
    path.write_bytes(pack(b"\x7fELF module"))
    assert initrd.uncompressed(path) == b"\x7fELF module"


def bz_image(payload: bytes) -> bytes:
    """Return a made-up bzImage: the header of Documentation/arch/x86/boot.rst and a payload at offset 16."""
    head = bytearray(0x400)
    head[0x1F1] = 1
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", head, 0x248, 16, len(payload))
    return bytes(head) + b"\0" * 16 + payload


SIZE = struct.pack("<I", 11)  # the kernel's build puts the unpacked size behind the payload


@pytest.mark.parametrize(
    "pack", [lambda data: lzma.compress(data, check=lzma.CHECK_CRC32) + SIZE, lambda data: gzip.compress(data) + SIZE]
)
def test_the_kernel_is_taken_out_of_a_boot_image(pack: object) -> None:
    assert kernels.vmlinux(bz_image(pack(b"\x7fELF kernel"))) == b"\x7fELF kernel"  # type: ignore[operator]


@given(st.binary(max_size=2000))
def test_what_is_no_boot_image_is_left_as_it_is(data: bytes) -> None:
    assert kernels.vmlinux(data) is None
    assert kernels.vmlinux(bz_image(b"\xfd7zXZ\0" + data)) is None
    assert kernels.vmlinux(bz_image(b"\x1f\x8b\x08" + data)) is None


def tree(root: Path, release: str, *modules: str) -> None:
    """Make a kernel in a folder, as its package unpacks."""
    folder = root / "lib/modules" / release
    for module in modules:
        path = folder / "kernel/drivers" / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (folder / "modules.dep").touch()
    (root / "boot").mkdir(exist_ok=True)
    (root / f"boot/vmlinuz-{release}").touch()


def test_the_newest_kernel_with_rxe_is_taken(tmp_path: Path) -> None:
    for release in ("6.1.0-9-amd64", "6.1.0-57-amd64"):
        tree(tmp_path, release, "infiniband/sw/rxe/rdma_rxe.ko")
    tree(tmp_path, "6.12.1-cloud-amd64", "net/veth.ko")
    assert [kernel.release for kernel in kernels.installed(tmp_path)] == ["6.1.0-57-amd64", "6.1.0-9-amd64"]


def test_an_image_that_lies_among_the_modules_is_found_as_debians_packages_of_linux_7_have_it(tmp_path: Path) -> None:
    tree(tmp_path, "7.3.4+deb13-amd64", "infiniband/sw/rxe/rdma_rxe.ko.xz")
    (tmp_path / "boot/vmlinuz-7.3.4+deb13-amd64").rename(tmp_path / "lib/modules/7.3.4+deb13-amd64/vmlinuz")
    (found,) = kernels.installed(tmp_path)
    assert found.image == tmp_path / "lib/modules/7.3.4+deb13-amd64/vmlinuz"


# What apt-cache depends printed, cut: Debian 12, Debian 13 with its backports (2026-11-30). Ubuntu's is written by hand: none was at hand.
BOOKWORM = {
    "linux-image-amd64": "linux-image-amd64\n  Depends: linux-image-6.1.0-57-amd64\n",
    "linux-image-6.1.0-57-amd64": """linux-image-6.1.0-57-amd64
  Depends: kmod
  Depends: linux-base
 |Depends: initramfs-tools
  Depends: <linux-initramfs-tool>
  Recommends: firmware-linux-free
""",
}
TRIXIE_BACKPORTS = {
    "linux-image-amd64": """linux-image-amd64
  Depends: linux-base-amd64
  Depends: linux-image-7.3.4+deb13-amd64
  Depends: linux-modules-amd64
""",
    "linux-image-7.3.4+deb13-amd64": """linux-image-7.3.4+deb13-amd64
  PreDepends: linux-base
 |Depends: <dracut>
 |Depends: <initramfs-tools>
  Depends: <linux-initramfs-tool>
  Depends: linux-base-7.3.4+deb13-amd64
  Depends: linux-binary-7.3.4+deb13-amd64
  Depends: linux-modules-7.3.4+deb13-amd64
  Breaks: <initramfs-tools>
""",
}
UBUNTU = {"linux-image-generic": "linux-image-generic\n  Depends: linux-image-6.8.0-50-generic\n"}


@pytest.mark.parametrize(
    ("lists", "release", "wanted"),
    [
        (BOOKWORM, "", ["linux-image-6.1.0-57-amd64"]),
        (BOOKWORM, "6.1.0-57-amd64", ["linux-image-6.1.0-57-amd64"]),
        (TRIXIE_BACKPORTS, "", ["linux-binary-7.3.4+deb13-amd64", "linux-modules-7.3.4+deb13-amd64"]),
        (UBUNTU, "", [f"linux-{part}-6.8.0-50-generic" for part in ("image", "modules", "modules-extra")]),
    ],
)
def test_the_packages_that_hold_the_kernel_are_told_by_the_package_managers_lists(
    lists: dict[str, str], release: str, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lists_say(lists, monkeypatch)
    assert kernels.packages(release) == wanted


def test_a_release_that_the_lists_do_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lists_say(BOOKWORM, monkeypatch)
    with pytest.raises(LabError, match="know no linux-image-7.3.4-x; `apt-cache search"):
        kernels.packages("7.3.4-x")


def test_a_kernel_that_was_fetched_by_name_is_taken_by_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = places.cache_folder("kernels")
    for release, mark in (("6.1.0-57-amd64", "ready"), ("7.3.4+deb13-amd64", "asked")):
        tree(folder / release, release, "infiniband/sw/rxe/rdma_rxe.ko")
        (folder / release / mark).touch()
    assert [kernel.release for kernel in kernels.unpacked()] == ["6.1.0-57-amd64"]
    for release in ("6.1.0-57-amd64", "7.3.4+deb13-amd64"):
        assert [kernel.release for kernel in kernels.unpacked(release)] == [release]


def lists_say(lists: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let apt-cache answer from some lists."""

    def apt(*words: str, folder: Path | None = None) -> str:
        if words[-1] not in lists:
            raise LabError(f"no {words[-1]}")
        return lists[words[-1]]

    monkeypatch.setattr(kernels, "_apt", apt)
    monkeypatch.setattr(kernels.shutil, "which", lambda name: f"/usr/bin/{name}")


# --- folders and locks ---


def test_a_lock_is_held_once_and_is_seen(tmp_path: Path) -> None:
    first = places.lock(tmp_path / "x")
    assert first is not None and places.lock(tmp_path / "x") is None and places.is_locked(tmp_path / "x")
    os.close(first)
    assert not places.is_locked(tmp_path / "x")


def test_a_lock_of_a_folder_that_was_taken_away_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    old = places.lock(tmp_path / "x")
    places.remove(tmp_path / "x")
    new = places.lock(tmp_path / "x")
    assert new is not None and old is not None and os.fstat(new).st_ino == os.stat(tmp_path / "x/lock").st_ino
    fcntl.flock(old, fcntl.LOCK_UN)
    assert places.is_locked(tmp_path / "x")


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rdmadiag").mkdir()
    (tmp_path / "rdmadiag").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(LabError, match="of your own"):
        places.labs_folder()


def test_what_a_killed_lab_left_is_swept_by_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rdmadiag.lab import labs

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    left = places.labs_folder() / "gone"
    left.mkdir()
    (left / "lock").touch()
    (left / "request.json").write_text("{}")
    assert labs() == []
    assert not left.exists()


# --- topology ---


def test_every_link_has_its_own_names_address_and_mac() -> None:
    links = topology.links(Options(hosts=16, rails=2))
    assert len(links) == 48
    for field in ("netdev", "port", "address", "mac"):
        assert len({getattr(link, field) for link in links}) == 48
    assert all(len(link.netdev) < 16 for link in links)


@pytest.mark.parametrize(
    ("mtu", "active"), [(4200, 4096), (4175, 2048), (1500, 1024), (1104, 1024), (1103, 512), (576, 256), (300, 0)]
)
def test_the_active_mtu_leaves_room_for_headers(mtu: int, active: int) -> None:
    assert topology.active_mtu(mtu) == active


def test_ports_mark_only_with_ecn() -> None:
    plain, marking = (topology.qdiscs("p1", topology.shape(Options(ecn=ecn))) for ecn in (False, True))
    assert [line.split()[-4:] for line in plain][1] == ["10:", "bfifo", "limit", "1048576"]
    assert " red " in marking[1] and marking[1].endswith(" ecn")


def test_status_lines_that_are_cut_or_strange_are_left_out() -> None:
    text = (
        "rxe1 ACTIVE v1 4200 0,fe80::1,v2 1,0000:0000:0000:0000:0000:ffff:0a00:0001,v2\nrxe2 ACTIVE\n\nrxe3 DOWN - 0\n"
    )
    found = status.parse(text)
    assert [(one["device"], one["gid_index"], one["active_mtu"]) for one in found] == [
        ("rxe1", 1, 4096),
        ("rxe3", None, 0),
    ]


@pytest.mark.parametrize(
    ("release", "answer", "words"),
    [
        ({"ID": "debian", "VERSION_ID": "13", "PRETTY_NAME": "Debian GNU/Linux 13 (trixie)"}, "yes", "make demo"),
        ({"ID": "ubuntu", "VERSION_ID": "22.04", "PRETTY_NAME": "Ubuntu 22.04.5 LTS"}, "unknown", "untested"),
        ({}, "unknown", "untested"),
    ],
)
def test_a_distribution_on_which_no_lab_was_tried_is_said_to_be_untested(
    release: dict[str, str], answer: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs.platform, "freedesktop_os_release", lambda: release)
    (found,) = [need for need in needs.needs() if need.name == "distribution"]
    assert (found.answer, found.optional) == (answer, True) and words in found.why


def test_one_command_installs_what_is_missing() -> None:
    found = [
        needs.Need("a", "no", "", "", ("qemu-system-x86",)),
        needs.Need("b", "yes", "", "", ("gcc",)),
        needs.Need("c", "no", "", "", ("iproute2",)),
        needs.Need("d", "no", "", "", ("iproute2",)),
    ]
    assert needs.install_command(found).endswith("apt-get install -y qemu-system-x86 iproute2")
    assert needs.install_command(found[1:2]) == ""


def test_one_processor_takes_in_what_ports_and_netdevs_receive() -> None:
    cables = topology.links(Options())
    of_hosts, of_ports = (
        topology.writing(topology.steering([getattr(cable, end) for cable in cables])) for end in ("netdev", "port")
    )
    assert "echo 1 > /sys/class/net/p2/queues/rx-0/rps_cpus" in of_ports
    for script in (topology.one_kernel_script(Options()), topology.namespaces_script(Options())):
        assert set(of_hosts) | set(of_ports) <= set(script.splitlines())


# --- the keeper, from outside ---


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let labs of this test have a folder of their own, and find no tool with which a guest could be made."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_modules_where_we_are_run_do_not_take_the_place_of_the_keepers(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("asyncio", "queue", "shutil"):
        (runtime / f"{name}.py").write_text(f"print('hello from {name}')\nraise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(runtime))
    with pytest.raises(LabError, match="^lab stray: ") as refused:
        up(Options(backend="vm"), "stray")
    assert "hello" not in str(refused.value) and "its keeper ended" not in str(refused.value)
    assert not (runtime / "rdmadiag/stray").exists()


@pytest.mark.parametrize("line", ["hello", "17", '"ready"'])
def test_what_is_printed_by_others_while_a_keeper_starts_is_shown_when_it_ends(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    fake = runtime / "python"
    fake.write_text(f"#!/bin/sh\necho '{line}'\necho why >&2\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(LabError, match=f"its keeper ended with exit code 3 while it came up: {line}\nwhy$"):
        up(Options(backend="vm"), "odd")


Holder = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def holder(runtime: Path) -> Iterator[Holder]:
    """Return a function that starts a process which holds a lab's lock, as a keeper does while its lab comes up."""
    made = []

    def start(name: str, *words: str, text: str = "") -> subprocess.Popen[str]:
        folder = places.labs_folder() / name
        taken = places.lock(folder)
        assert taken is not None
        argv = [sys.executable, "-c", f"import signal, time\n{text}\nprint(1, flush=True)\ntime.sleep(1000)", *words]
        made.append(subprocess.Popen([*argv, str(folder)], pass_fds=(taken,), stdout=subprocess.PIPE, text=True))
        os.close(taken)
        assert made[-1].stdout and made[-1].stdout.readline()
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.communicate()


def test_a_lab_whose_keeper_has_written_nothing_yet_is_taken_down(holder: Holder) -> None:
    keeper = holder("new", KEEPER)
    assert take_down("new")
    assert keeper.wait(60) == -signal.SIGTERM
    assert not (places.labs_folder() / "new").exists()


def test_a_keeper_that_does_not_end_when_it_is_told_to_is_killed(holder: Holder) -> None:
    keeper = holder("deaf", KEEPER, text="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    assert take_down("deaf", seconds=1.0)
    assert keeper.wait(60) == -signal.SIGKILL


def test_a_lab_that_somebody_else_holds_is_not_waited_for_for_ever(holder: Holder) -> None:
    stranger = holder("held")
    with pytest.raises(
        LabError, match=r"lab held does not end: something holds .*/held/lock; `fuser .*/lock` names it"
    ):
        take_down("held", seconds=0.5)
    assert stranger.poll() is None
