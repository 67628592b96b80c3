"""One guest: its QEMU process, its console, and the channel to its agent. Owned by the lab's keeper, in asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from rdmadiag.lab import frames
from rdmadiag.lab.places import LabError

MEMORY_MIB = 2048
CONSOLE_BYTES = 1 << 20
KVM_SECONDS = 3.0  # a kernel that KVM really boots is up in under one
STILL_SECONDS = 4.0  # an emulated guest that is coming up uses processor time all the while
IDLE = 0.05  # of a processor: an idle guest's timers use less
NO_PORT = "no virtio-serial port"
PROCESSOR_SECONDS = 12.0  # and comes up with 4 to 5 s of it
_FLAGS = "console=ttyS0 quiet panic=-1 cryptomgr.notests=1 mitigations=off rcupdate.rcu_expedited=1 net.ifnames=0"


class Machine(NamedTuple):
    """What a guest is started from; `nics` are (id, netdev option, MAC address, MTU)."""

    image: Path
    initrd: Path
    accelerator: str
    tsc_khz: int
    share: str = ""
    processors: int = 2
    memory_mib: int = MEMORY_MIB
    nics: tuple[tuple[str, str, str, int], ...] = ()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def qemu_command(machine: Machine, folder: Path, name: str, restore: Path | None = None) -> list[str]:
    """Return QEMU's command line; its sockets lie in `folder`, named after the guest."""
    tcg = machine.accelerator == "tcg"
    flags = f"{_FLAGS} tsc=reliable tsc_early_khz={machine.tsc_khz}" if tcg and machine.tsc_khz else _FLAGS
    at = f"{folder}/{name}"
    words = ["qemu-system-x86_64", "-M", "microvm", "-accel", "tcg,thread=multi" if tcg else "kvm"]
    # `rep movsb` is slow in TCG: without it the goodput is half as much again.
    words += ["-cpu", "max,erms=off" if tcg else "host", "-smp", str(machine.processors), "-m", str(machine.memory_mib)]
    words += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    words += ["-kernel", str(machine.image), "-initrd", str(machine.initrd), "-append", flags]
    words += ["-chardev", f"socket,id=console,path={at}.console", "-serial", "chardev:console"]
    words += ["-chardev", f"socket,id=agent,path={at}.agent", "-device", "virtio-serial-device"]
    words += ["-device", "virtserialport,chardev=agent,name=rdmadiag"]
    words += ["-qmp", f"unix:{at}.qmp,server=on,wait=off"]
    shares = [("root", "/", ",readonly=on"), *([("share", machine.share, "")] if machine.share else [])]
    for tag, path, access in shares:
        quoted = path.replace(",", ",,")
        words += ["-fsdev", f"local,id={tag},path={quoted},security_model=none,multidevs=remap{access}"]
        words += ["-device", f"virtio-9p-device,fsdev={tag},mount_tag={tag}"]
    for key, netdev, mac, mtu in machine.nics:
        words += ["-netdev", netdev, "-device", f"virtio-net-device,netdev={key},mac={mac},host_mtu={mtu}"]
    return [*words, "-incoming", f"exec:cat {shlex.quote(str(restore))}"] if restore else words


class Guest:
    """A running guest. `on_frame(type, id, payload)` gets what concerns commands; `ended` says how QEMU went."""

    def __init__(self, folder: Path, name: str, machine: Machine) -> None:
        self.folder, self.name, self.machine = folder, name, machine
        self.process: asyncio.subprocess.Process | None = None
        self.hello = asyncio.Event()
        self.ended = asyncio.Event()
        self.on_frame: Callable[[bytes, int, bytes], None] = lambda kind, number, payload: None
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[int, asyncio.Future[tuple[int, str]]] = {}
        self._ids = iter(range(1, 1 << 31))
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._console = bytearray()
        self._console_closed = asyncio.Event()
        self.complaint = ""

    # --- life ---

    async def launch(self, restore: Path | None = None) -> None:
        """Start QEMU; does not wait for the guest."""
        for kind, handler in (("console", self._read_console), ("agent", self._read_agent)):
            path = self.folder / f"{self.name}.{kind}"
            path.unlink(missing_ok=True)
            self._servers.append(await asyncio.start_unix_server(handler, str(path)))
        command = qemu_command(self.machine, self.folder, self.name, restore)
        try:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                preexec_fn=_die_with_parent,
            )
        except FileNotFoundError as error:
            raise LabError("qemu-system-x86_64 is missing: apt-get install qemu-system-x86") from error
        self._task(self._watch())

    def _task(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        assert self.process and self.process.stderr
        while text := await self.process.stderr.read(8192):
            self.complaint = (self.complaint + text.decode(errors="replace"))[-8192:]
        await self.process.wait()
        with contextlib.suppress(asyncio.TimeoutError):  # the console's last bytes say why
            await asyncio.wait_for(self._console_closed.wait(), 2.0)
        self.ended.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(LabError(self.why_ended()))

    async def within(self, work: Awaitable[Any], seconds: float) -> bool:
        """Wait for something, or the guest's end, or a deadline; tell whether it came."""
        waits = [asyncio.ensure_future(work), asyncio.ensure_future(self.ended.wait())]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        came = waits[0].done() and not waits[0].cancelled() and waits[0].exception() is None
        for wait in waits:
            wait.cancel()
        return came

    async def comes_up(self, patience: float) -> str:
        """Wait for the agent's hello; return empty, or what speaks for a hang. `patience` is a factor on the limits.

        An emulated guest is judged by its processor time: on a busy machine a healthy boot takes any time of day.
        """
        assert self.process
        kvm, began = self.machine.accelerator == "kvm", time.monotonic()
        moved, before, used = began, 0.0, 0.0
        while not await self.within(self.hello.wait(), 0.2):
            now = time.monotonic()
            if self.ended.is_set():
                return self.why_ended()
            if kvm and now - began > KVM_SECONDS * patience:
                return f"no first program within {now - began:.0f} s"
            if NO_PORT in self.console():
                return f"its first program says: {NO_PORT}"
            used = processor_seconds(self.process.pid)
            moved, before = (now, used) if used - before > IDLE * (now - moved) else (moved, before)
            if not kvm and now - moved > STILL_SECONDS * patience:
                return f"no first program, and it stood still for {now - moved:.0f} s"
            if not kvm and used > PROCESSOR_SECONDS * patience:
                return f"no first program after {used:.0f} s of processor time"
        return ""

    async def stop(self) -> None:
        """End QEMU and take its sockets away; may be called twice."""
        for server in self._servers:
            server.close()
        if self.process and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        self._servers.clear()
        for kind in ("console", "agent", "qmp"):
            (self.folder / f"{self.name}.{kind}").unlink(missing_ok=True)

    def why_ended(self) -> str:
        """Say how the guest came to its end, from its console and from QEMU."""
        console = self.console()
        if panic := re.search(r"Kernel panic[^\n]*", console):
            return f"the guest panicked: {panic[0].strip()}"
        code = self.process.returncode if self.process else None
        if code is not None and code < 0:
            return f"QEMU was killed by signal {-code} ({signal.Signals(-code).name})"
        return f"QEMU ended with exit code {code}{': ' * bool(self.complaint)}{self.complaint.strip()}"

    # --- console ---

    async def _read_console(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = self.folder / f"{self.name}.console.log"
        with contextlib.suppress(OSError, asyncio.CancelledError), path.open("ab", buffering=0) as file:
            while data := await reader.read(65536):
                self._console += data
                if len(self._console) > CONSOLE_BYTES:
                    del self._console[: CONSOLE_BYTES // 2]
                    file.truncate(0)
                    data = bytes(self._console)
                file.write(data)
        self._console_closed.set()
        writer.close()

    def console(self) -> str:
        """Return what the guest's console showed, at most the last MiB."""
        return self._console.decode(errors="replace")

    # --- agent ---

    async def _read_agent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer, splitter = writer, frames.Splitter()
        with contextlib.suppress(OSError, ValueError, asyncio.CancelledError):
            while data := await reader.read(1 << 18):
                for kind, number, payload in splitter.feed(data):
                    if kind == b"H":
                        self.hello.set()
                    elif kind == b"D" and number in self._answers:
                        answer = self._answers.pop(number)
                        if not answer.done():
                            answer.set_result((struct.unpack_from("<i", payload)[0], payload[4:].decode()))
                    else:
                        self.on_frame(kind, number, payload)
        writer.close()

    def new_id(self) -> int:
        """Return a number for a command or request."""
        return next(self._ids)

    def send(self, kind: bytes, number: int, payload: bytes = b"") -> None:
        """Send one frame."""
        if self._writer is None or self._writer.is_closing():
            raise LabError(f"guest {self.name}: no channel to its agent")
        self._writer.write(frames.frame(kind, number, payload))

    async def call(self, kind: bytes, payload: bytes = b"", seconds: float = 20.0) -> None:
        """Send a request and wait for its answer. Raises LabError with what the agent said, or when nothing comes."""
        number, answer = self.new_id(), asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self.send(kind, number, payload)
        try:
            code, text = await asyncio.wait_for(answer, seconds)
        except asyncio.TimeoutError as error:
            self._answers.pop(number, None)
            raise LabError(f"guest {self.name}: no answer within {seconds:g} s") from error
        if code:
            raise LabError(f"guest {self.name}: {text or os.strerror(code)}")

    def _places(self, hostname: str, modules: str) -> bytes:
        words = (hostname, self.machine.share, modules)
        return struct.pack("<Q", time.time_ns()) + os.urandom(32) + b"".join(os.fsencode(w) + b"\0" for w in words)

    async def attach(self, hostname: str, modules: str) -> None:
        """Mount the host's files in the guest; sets its clock, name and random numbers too."""
        await self.call(b"M", self._places(hostname, modules))

    async def detach(self, hostname: str, modules: str) -> None:
        """Unmount the host's files, as a saved state needs it."""
        await self.call(b"U", self._places(hostname, modules))

    async def run(self, script: str, seconds: float = 60.0) -> str:
        """Run a shell script and return what it printed. Raises LabError with its errors when it fails."""
        number, done = self.new_id(), asyncio.get_running_loop().create_future()
        out, before = bytearray(), self.on_frame

        def take(kind: bytes, owner: int, payload: bytes) -> None:
            if owner != number:
                before(kind, owner, payload)
            elif kind in (b"O", b"E"):
                out.extend(payload)
                self.send(b"C", number, struct.pack("<I", len(payload)))
            elif kind == b"R" and not done.done():
                done.set_result(struct.unpack_from("<i", payload)[0])

        self.on_frame = take
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        try:
            self.send(b"X", number, frames.start(["/bin/sh", "-c", script], "/", {"PATH": path, "LC_ALL": "C"}))
            code = await asyncio.wait_for(done, seconds)
        except asyncio.TimeoutError as error:
            raise LabError(f"guest {self.name}: no end of its set-up within {seconds:g} s") from error
        finally:
            self.on_frame = before
        text = out.decode(errors="replace")
        if code:
            raise LabError(f"guest {self.name}: set-up failed: {text.strip()[-500:] or os.strerror(abs(code))}")
        return text

    # --- QMP: docs/interop/qmp-spec.rst of QEMU ---

    async def qmp(self, *commands: dict[str, Any]) -> list[Any]:
        """Run monitor commands; return their results. Raises LabError with QEMU's word when one is refused."""
        reader, writer = await asyncio.open_unix_connection(f"{self.folder}/{self.name}.qmp", limit=1 << 22)
        results = []
        try:
            await reader.readline()
            for command in ({"execute": "qmp_capabilities"}, *commands):
                writer.write(json.dumps(command).encode() + b"\n")
                while True:
                    answer = json.loads(await asyncio.wait_for(reader.readline(), 20) or b'{"error": {"desc": "gone"}}')
                    if "error" in answer:
                        raise LabError(f"QEMU: {command['execute']}: {answer['error'].get('desc')}")
                    if "return" in answer:
                        results.append(answer["return"])
                        break
        finally:
            writer.close()
        return results[1:]

    async def save(self, target: Path) -> None:
        """Write the guest's state to a file and let it go on. The host's files must be detached."""
        part = target.with_name(f".{target.name}.{os.getpid()}")
        await self.qmp(
            {"execute": "stop"},
            {"execute": "migrate-set-parameters", "arguments": {"max-bandwidth": 10**11}},
            {"execute": "migrate", "arguments": {"uri": f"exec:cat > {shlex.quote(str(part))}"}},
        )
        try:
            while True:
                (state,) = await self.qmp({"execute": "query-migrate"})
                if state.get("status") in ("completed", "failed", "cancelled"):
                    break
                await asyncio.sleep(0.02)
            await self.qmp({"execute": "cont"})
            if state["status"] != "completed":
                raise LabError(f"QEMU could not save the guest: {state.get('error-desc', state['status'])}")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    async def resume(self, seconds: float) -> None:
        """Let a restored guest run, and wait until its agent answers. Raises LabError."""
        deadline, runs = time.monotonic() + seconds, False
        while time.monotonic() < deadline and not self.ended.is_set():
            with contextlib.suppress(OSError, LabError, asyncio.TimeoutError, ValueError):
                if runs:
                    await self.call(b"P", seconds=1.0)
                    return
                (state,) = await self.qmp({"execute": "query-status"})
                if state["status"] != "inmigrate":
                    await self.qmp({"execute": "cont"})
                    runs = True
                    continue
            await asyncio.sleep(0.02)
        raise LabError(f"guest {self.name} did not wake up from its saved state")


def processor_seconds(pid: int) -> float:
    """Return what a process has used of processors, in seconds; 0 when it is gone (proc(5), stat)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def qemu_version() -> str:
    """Return the first line that QEMU says of itself; empty when it is missing."""
    import subprocess

    if not shutil.which("qemu-system-x86_64"):
        return ""
    result = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=False)
    return result.stdout.partition("\n")[0].strip()
