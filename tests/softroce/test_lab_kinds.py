"""Other kinds of lab: a kernel for each host, this kernel's own rxe, an ordinary user; and guests that hang."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmadiag.lab import Lab, Options, boot, find, guest, kernels, places
from rdmadiag.lab.places import LabError
from tests.softroce.conftest import ROOT, Cli, environment, pingpong, processes_of, wait_until

QEMU = shutil.which("qemu-system-x86_64") or ""


@pytest.fixture(scope="module")
def separate(cli: Cli) -> Iterator[Lab]:
    """Return a lab with one kernel a host."""
    name = f"kph-{os.getpid()}"
    made = cli("up", name, "--kernel-per-host")
    assert made.returncode == 0, made.stderr
    yield find(name)
    cli("down", name)
    assert not processes_of(name)


def test_each_host_has_a_kernel_of_its_own_and_the_switch_has_one(separate: Lab) -> None:
    boots = {
        host: separate.run(["cat", "/proc/sys/kernel/random/boot_id"], host=host).text
        for host in ("h1", "h2", "switch")
    }
    assert len(set(boots.values())) == 3
    assert separate.run(["sysctl", "-w", "vm.swappiness=7"], host="h1").code == 0
    assert separate.run(["cat", "/proc/sys/vm/swappiness"], host="h2").text != "7\n"
    assert [separate.run(["hostname"], host=host).text.strip() for host in boots] == list(boots)


def _sent(lab: Lab, port: str) -> int:
    shown = lab.run(["ip", "-j", "-s", "link", "show", port], host="switch")
    return int(json.loads(shown.out)[0]["stats64"]["tx"]["packets"])


def _ping_pong_across(lab: Lab) -> None:
    before = {port: _sent(lab, port) for port in ("p1", "p2")}
    words = [sys.executable, "-m", "rdmadiag", "lab", "exec", lab.name, "--host", "h1", "--"]
    command = ["timeout", "90", "ibv_rc_pingpong", "-d", "rxe1", "-g", "1", "-n", "100"]
    with subprocess.Popen(
        [*words, *command], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as server:
        script = """tries=0
        until timeout 60 ibv_rc_pingpong -d rxe2 -g 1 -n 100 10.0.0.1 > /tmp/client.txt 2>&1; do
          tries=$((tries+1)); [ $tries -lt 20 ] || { cat /tmp/client.txt; exit 1; }; sleep 0.5
        done"""
        ran = lab.run(["sh", "-c", script], host="h2", timeout_seconds=120)
        assert (ran.code, server.wait(60)) == (0, 0), ran
    assert all(_sent(lab, port) - before[port] >= 100 for port in before)


def test_rc_messages_cross_the_switch_between_two_kernels(separate: Lab) -> None:
    _ping_pong_across(separate)


@pytest.mark.long
@pytest.mark.parametrize("dies", ["h2", "switch"])
def test_a_killed_guest_of_several_ends_the_lab_and_takes_the_others_along(cli: Cli, name: str, dies: str) -> None:
    assert cli("up", name, "--kernel-per-host").returncode == 0
    os.kill(find(name).record["guests"][dies], signal.SIGKILL)
    wait_until(lambda: not processes_of(name))
    shown = cli("status", name)
    assert shown.returncode == 1 and f"guest {dies}" in shown.stdout and "killed by signal 9" in shown.stdout


def test_a_native_lab_carries_traffic_and_is_taken_apart_completely(separate: Lab) -> None:
    # The switch's guest has rxe and no host of a lab: there, this kernel is "this machine".
    python, here = sys.executable, str(ROOT)

    def inner(*words: str, code: int = 0) -> str:
        ran = separate.run([python, "-m", "rdmadiag", "lab", *words], host="switch", folder=here, timeout_seconds=120)
        assert ran.code == code, ran
        return ran.text + ran.err.decode()

    def links() -> str:
        return separate.run(["sh", "-c", "ip -br link; ip netns; rdma link; ls /run/rdmadiag"], host="switch").text

    separate.run(["mkdir", "-p", "/run/rdmadiag"], host="switch")
    before = links()
    shown = json.loads(inner("up", "n", "--format", "json", "--backend", "native").partition("\nlab: ")[0])
    assert [link["state"] for link in shown["links"]] == ["ACTIVE", "ACTIVE", None, None]
    assert "alias rdmadiag lab n" in separate.run(["ip", "link", "show", "v1"], host="switch").text
    ran = separate.run(
        [python, "-m", "rdmadiag", "lab", "exec", "n", "--", *pingpong("rxe1", "rxe2", "10.0.0.1", 50)],
        host="switch",
        folder=here,
        timeout_seconds=120,
    )
    assert ran.code == 0, ran
    assert inner("exec", "n", "--", "sh", "-c", "exit 7", code=7) == ""
    keeper = json.loads(separate.run(["cat", "/run/rdmadiag/n/lab.json"], host="switch").out)["pid"]
    assert separate.run(["kill", "-9", str(keeper)], host="switch").code == 0
    assert "its keeper process was killed" in inner("status", "n", code=1)
    inner("down", "n")
    assert links() == before


def test_a_native_lab_refuses_links_that_are_not_its_own(separate: Lab) -> None:
    assert separate.run(["ip", "link", "add", "v2", "type", "dummy"], host="switch").code == 0
    try:
        ran = separate.run(
            [sys.executable, "-m", "rdmadiag", "lab", "up", "n", "--backend", "native"],
            host="switch",
            folder=str(ROOT),
            timeout_seconds=120,
        )
        assert ran.code == 2 and b"link v2 exists and is not of this lab" in ran.err
        assert separate.run(["ip", "link", "show", "v2"], host="switch").code == 0
        assert separate.run(["ip", "link", "show", "v1"], host="switch").code != 0
    finally:
        separate.run(["ip", "link", "del", "v2"], host="switch")


@pytest.mark.long
def test_each_host_has_a_namespace_of_its_own_with_its_device_only_where_the_kernel_lets_rxe_live_there(
    cli: Cli, name: str, real_cache: None
) -> None:
    newest = next(
        (path.parent.name for path in sorted(places.cache_folder("kernels").glob("*/asked"), reverse=True)), ""
    )
    words = (
        "--namespaces",
        *(("--kernel", newest) if newest else ()),
    )  # one fetched by `lab up --kernel`, where there is one
    made = cli("up", name, *words)
    if made.returncode:
        assert "does not let rxe live in a network namespace: rxe1 opened no UDP port 4791" in made.stderr, made.stderr
        assert not processes_of(name)
        pytest.skip(made.stderr.strip().splitlines()[-1])
    apart = find(name)
    shown = json.loads(cli("status", name, "--format", "json").stdout)
    assert [link["state"] for link in shown["links"]] == ["ACTIVE", "ACTIVE", None, None]
    for host, other in (("h1", "h2"), ("h2", "h1")):
        assert apart.run(["ls", "/sys/class/infiniband"], host=host).text.split() == [f"rxe{host[1]}"]
        assert apart.run(["ls", f"/sys/class/infiniband/rxe{host[1]}/ports/1/hw_counters"], host=host).out
        assert apart.run(["ip", "link", "show", f"v{other[1]}"], host=host).code != 0
    assert apart.run(["ls", "/sys/class/infiniband"]).text.split() == ["rxe1"], "without --host: h1"
    _ping_pong_across(apart)
    # TCP needs no binding to a netdev to cross the switch: the other address is on no netdev of this host.
    before = _sent(apart, "q2")
    command = "timeout 60 python3 -S -c 'import socket; socket.create_server((\"\", 7100)).accept()'"
    with subprocess.Popen(
        [sys.executable, "-m", "rdmadiag", "lab", "exec", name, "--host", "h2", "--", "sh", "-c", command],
        env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    ) as listening:  # fmt: skip
        script = """tries=0; until python3 -S -c 'import socket; socket.create_connection(("10.0.100.2", 7100), 5)'; do
        tries=$((tries+1)); [ $tries -lt 20 ] || exit 1; sleep 0.5; done"""
        assert apart.run(["sh", "-c", script], host="h1", timeout_seconds=120).code == 0
        assert listening.wait(60) == 0
    assert _sent(apart, "q2") > before
    assert cli("down", name).returncode == 0
    again = cli("up", name, *words)
    assert again.returncode == 0 and "restored" in again.stdout, "namespaces are part of the saved state"
    _ping_pong_across(find(name))


def test_native_is_refused_where_this_kernel_has_no_rxe(cli: Cli, name: str) -> None:
    if (
        os.path.isdir("/sys/module/rdma_rxe")
        or subprocess.run(["modprobe", "-n", "-q", "rdma_rxe"], check=False).returncode == 0
    ):
        pytest.skip("this kernel has rdma_rxe")
    refused = cli("up", name, "--backend", "native")
    assert refused.returncode == 2
    assert "this kernel loads no rdma_rxe" in refused.stderr or "needs root" in refused.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_an_ordinary_user_makes_and_uses_a_lab(tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> None:
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run(
        [*as_nobody, "test", "-r", sys.executable, "-a", "-r", str(ROOT / "rdmadiag/__init__.py")], check=False
    ).returncode:
        pytest.skip(f"{ROOT} may not be read by an ordinary user")
    place = Path("/tmp") / f"rdmadiag-user-{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    cache = Path(environment().get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "rdmadiag")
    try:
        for part in ("kernels", "agent"):
            if (cache / part).is_dir():
                shutil.copytree(cache / part, place / "cache/rdmadiag" / part, symlinks=True)
        (place / "work").mkdir(parents=True)
        subprocess.run(["chown", "-R", "65534:65534", str(place)], check=True)
        values = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "XDG_CACHE_HOME": str(place / "cache"),
            "HOME": str(place),
        }

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*as_nobody, sys.executable, "-m", "rdmadiag", "lab", *words],
                env=values,
                cwd=place / "work",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )

        made = run("up", "mine")
        assert made.returncode == 0, made.stderr
        try:
            ran = run("exec", "mine", "--", "sh", "-c", "id -u; rdma link | grep -c ACTIVE; echo made > there")
            assert (ran.stdout, ran.returncode) == ("0\n2\n", 0), ran.stderr
            assert (place / "work/there").stat().st_uid == 65534
            assert (
                run("exec", "mine", "--", "sh", "-c", f"echo x > {place}/cache/x && cat {place}/cache/x").stdout
                == "x\n"
            )
            assert not (place / "cache/x").exists()
        finally:
            assert run("down", "mine").returncode == 0
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree("/tmp/rdmadiag-65534", ignore_errors=True)


# --- guests that hang ---


@pytest.fixture
def false_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_cache: None) -> Path:
    """Put a QEMU first on PATH that hangs when the word in the file `hang` is in its command line, once; with a file `portless` there
    its guest finds no port of the agent's name, once."""
    script = tmp_path / "bin/qemu-system-x86_64"
    script.parent.mkdir()
    script.write_text(f"""#!/bin/sh
echo "$*" >> {tmp_path}/calls
word=$(cat {tmp_path}/hang 2>/dev/null)
case "$*" in *"$word"*) [ -z "$word" ] || {{ rm {tmp_path}/hang; exec sleep 1000; }};; esac
case "$*" in *,name=rdmadiag*) [ ! -e {tmp_path}/portless ] || {{
  rm {tmp_path}/portless
  for word in "$@"; do shift; case $word in *,name=rdmadiag) word=${{word%rdmadiag}}other;; esac; set -- "$@" "$word"; done
}};; esac
exec {QEMU} "$@"
""")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    return tmp_path


def bring_up(folder: Path, options: Options) -> tuple[list[str], str, str]:
    """Bring a lab up in this process and end it; return its progress, how it came up, and with what."""
    steps: list[str] = []
    kernel = kernels.find()
    (plan,) = boot.plans(options, "hang", kernel, "tcg", folder)
    boot.state_file(plan, kernel.own_modules).unlink(missing_ok=True)

    async def work() -> boot.Made:
        made = await boot.bring_up(options, "hang", folder, steps.append)
        for one in made.guests.values():
            await one.stop()
        return made

    made = asyncio.run(work())
    return steps, made.how, made.accelerator


def test_a_boot_that_hangs_is_tried_again(false_qemu: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    monkeypatch.setattr(boot, "_may_use_kvm", lambda: False)
    (false_qemu / "hang").write_text("tcg")
    steps, how, _accelerator = bring_up(false_qemu, Options(mtu=1501))
    assert any(re.fullmatch(r"TCG: guest vm: no first program, and it stood still for \d+ s", step) for step in steps)
    assert how == "booted"
    assert len((false_qemu / "calls").read_text().splitlines()) >= 2


def test_a_guest_without_the_agents_port_is_not_waited_for(
    false_qemu: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    monkeypatch.setattr(boot, "_may_use_kvm", lambda: False)
    (false_qemu / "portless").touch()
    steps, how, _accelerator = bring_up(false_qemu, Options(mtu=1502))
    assert "TCG: guest vm: its first program says: no virtio-serial port" in steps
    assert how == "booted"


def test_a_kvm_that_hangs_gives_way_to_emulation_and_is_not_tried_again(
    false_qemu: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    monkeypatch.setattr(boot, "_may_use_kvm", lambda: True)
    remembered: list[str] = []
    monkeypatch.setattr(boot, "accelerators", lambda release: ["kvm", "tcg"])
    monkeypatch.setattr(boot, "_remember_hang", remembered.append)
    (false_qemu / "hang").write_text("-accel kvm")
    steps, _how, accelerator = bring_up(false_qemu, Options(mtu=1502))
    assert any(re.fullmatch(r"KVM: guest vm: no first program within \d+ s", step) for step in steps)
    assert accelerator == "tcg"
    assert remembered == [kernels.find().release]


def test_a_hang_of_kvm_is_remembered_for_its_kernel_until_this_machine_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(boot, "_may_use_kvm", lambda: True)
    assert boot.accelerators("6.1") == ["kvm", "tcg"]
    boot._remember_hang("6.1")
    assert (boot.accelerators("6.1"), boot.accelerators("6.2")) == (["tcg"], ["kvm", "tcg"])
    monkeypatch.setattr(boot, "_boot_id", lambda: "another start")
    assert boot.accelerators("6.1") == ["kvm", "tcg"]


def test_qemus_own_complaint_is_the_reason(false_qemu: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    monkeypatch.setattr(boot, "_may_use_kvm", lambda: False)
    real = guest.qemu_command
    monkeypatch.setattr(guest, "qemu_command", lambda *words: [*real(*words), "-no-such-option"])
    with pytest.raises(LabError, match="no-such-option"):
        bring_up(false_qemu, Options(mtu=1503))
