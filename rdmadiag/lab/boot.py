"""Brings a lab's guests up: from a saved state when there is one, else a kernel is booted; KVM first, else TCG."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rdmadiag.lab import guest, initrd, kernels, places, topology
from rdmadiag.lab.guest import Guest, Machine
from rdmadiag.lab.kernels import Kernel
from rdmadiag.lab.options import Options
from rdmadiag.lab.places import LabError

Progress = Callable[[str], None]
TRIES = 4
RESUME_SECONDS = 15.0


class Plan(NamedTuple):
    """One guest to bring up: its name, its host name, its devices, and the script that sets it up."""

    name: str
    hostname: str
    machine: Machine
    script: str


class Hung(LabError):
    """A guest did not come up for no reason that is known: worth another try."""


class Made(NamedTuple):
    """What came up, and how: `how` is booted or restored, `steps` are seconds since the start."""

    guests: dict[str, Guest]
    accelerator: str
    how: str
    steps: dict[str, float]


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def tsc_khz() -> int:
    """Return the host's time stamp counter frequency, which an emulated guest sees, in kHz; 0 when it has none."""
    result = subprocess.run([str(initrd.agent()), "tsc"], capture_output=True, text=True, check=False)
    return int(result.stdout or 0)


def _may_use_kvm() -> bool:
    return os.access("/dev/kvm", os.R_OK | os.W_OK)


def accelerators(release: str) -> list[str]:
    """Return what to try, best first. KVM is left out where it has hung with this kernel since this machine started."""
    failed = places.read_json(places.cache_folder() / "kvm.json")
    hung = failed.get("boot_id") == _boot_id() and release in failed.get("releases", [])
    return ["kvm", "tcg"] if _may_use_kvm() and not hung else ["tcg"]


def _remember_hang(release: str) -> None:
    path = places.cache_folder() / "kvm.json"
    known = places.read_json(path)
    releases = known.get("releases", []) if known.get("boot_id") == _boot_id() else []
    places.write_json(path, {"boot_id": _boot_id(), "releases": [*releases, release]})


def initrd_file(kernel: Kernel, wanted: tuple[str, ...]) -> Path:
    """Return the initramfs for a kernel from the cache, built when missing."""
    stamp = (kernel.modules / "modules.dep").stat()
    key = (kernel.release, stamp.st_mtime_ns, stamp.st_size, wanted, initrd.agent().name, initrd.END)
    path = places.cache_folder("initrd") / f"{kernel.release}-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}"
    if not path.exists():
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_bytes(initrd.build(kernel.modules, wanted))
        part.replace(path)
    return path


def plans(options: Options, name: str, kernel: Kernel, accelerator: str, folder: Path) -> list[Plan]:
    """Return the guests of a lab: one, or one a host and the switch."""
    nics = initrd.NICS if options.kernel_per_host else ()
    base = Machine(
        image=kernels.boot_image(kernel),
        initrd=initrd_file(kernel, (*initrd.FIRST, *nics, *initrd.ROCE)),
        accelerator=accelerator,
        tsc_khz=tsc_khz(),
        share=options.folder,
    )
    if not options.kernel_per_host:
        make = topology.namespaces_script if options.namespaces else topology.one_kernel_script
        return [Plan("vm", name, base, make(options))]
    small = base._replace(processors=1, memory_mib=1024)
    found = []
    for place in (*topology.host_names(options), topology.SWITCH):
        script = topology.switch_script(options) if place == topology.SWITCH else topology.host_script(options, place)
        found.append(Plan(place, place, small._replace(nics=_nics(options, place, folder)), script))
    return found


def _nics(options: Options, place: str, folder: Path) -> tuple[tuple[str, str, str, int], ...]:
    found = []
    for link in topology.links(options):
        ends = (f"{folder}/{link.netdev}.link", f"{folder}/{link.port}.link")
        if place == topology.SWITCH:
            ends, key, mac = (ends[1], ends[0]), link.port, topology.switch_mac(link)
        elif place == link.host:
            key, mac = link.netdev, link.mac
        else:
            continue
        netdev = f"dgram,id={key},local.type=unix,local.path={ends[0]},remote.type=unix,remote.path={ends[1]}"
        found.append((key, netdev, mac, link.mtu))
    return tuple(found)


def state_file(plan: Plan, modules: str) -> Path:
    """Return where a guest's saved state lies: per kernel, devices, script, QEMU, processor, and place of the modules."""
    machine = plan.machine._replace(tsc_khz=0, share="yes" if plan.machine.share else "", nics=())
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("model name", "flags"))]
    image = machine.image.stat()
    key = (
        machine,
        image.st_mtime_ns,
        plan.script,
        modules,
        guest.qemu_version(),
        cpu[:2],
        guest.qemu_command(machine, Path("/"), "guest"),
    )
    return places.cache_folder("states") / hashlib.sha256(repr(key).encode()).hexdigest()[:24]


async def bring_up(options: Options, name: str, folder: Path, progress: Progress) -> Made:
    """Bring a lab's guests up. Raises LabError with the last try's reason; nothing is left running then."""
    started, steps = time.monotonic(), {}

    def step(text: str) -> None:
        steps[text] = round(time.monotonic() - started, 3)
        progress(text)

    kernel = await asyncio.to_thread(kernels.find, step, options.kernel)
    reason = ""
    for accelerator in accelerators(kernel.release):
        wanted = await asyncio.to_thread(plans, options, name, kernel, accelerator, folder)
        tries = 1 if accelerator == "kvm" else TRIES
        for attempt in range(tries):
            made: dict[str, Guest] = {}
            patience = 1.5**attempt
            async with contextlib.AsyncExitStack() as undo:
                undo.push_async_callback(_stop, made)
                try:
                    how = await _try(wanted, kernel, made, folder, patience, step, attempt)
                except Hung as error:
                    reason = str(error)
                    step(f"{accelerator.upper()}: {reason}")
                    continue
                undo.pop_all()
                return Made(made, accelerator, how, steps)
        if accelerator == "kvm":
            _remember_hang(kernel.release)
    raise LabError(f"the lab's guest did not come up in {TRIES} tries: {reason}")


async def _stop(made: dict[str, Guest]) -> None:
    for one in made.values():
        await one.stop()


async def _try(
    wanted: list[Plan],
    kernel: Kernel,
    made: dict[str, Guest],
    folder: Path,
    patience: float,
    step: Progress,
    attempt: int,
) -> str:
    one = wanted[0] if len(wanted) == 1 else None  # guests with NICs of their own are not saved
    state = state_file(one, kernel.own_modules) if one else None
    restore = state if state and state.exists() and attempt == 0 else None
    for plan in wanted:
        made[plan.name] = Guest(folder, plan.name, plan.machine)
        await made[plan.name].launch(restore)
    step(
        f"{'restoring a saved state' if restore else f'booting Linux {kernel.release}'} ({wanted[0].machine.accelerator.upper()})"
    )
    try:
        await asyncio.gather(
            *(_ready(plan, made[plan.name], kernel, patience, step, state, restore) for plan in wanted)
        )
    except LabError as error:
        if restore:
            restore.unlink(missing_ok=True)  # it may be what is wrong
            raise Hung(f"the saved state was of no use: {error}") from error
        raise
    return "restored" if restore else "booted"


async def _ready(
    plan: Plan, one: Guest, kernel: Kernel, patience: float, step: Progress, state: Path | None, restore: Path | None
) -> None:
    place = (plan.hostname, kernel.own_modules)
    if restore:
        await one.resume(RESUME_SECONDS * patience)
        await one.attach(*place)
        step("restored")
        return
    if wrong := await one.comes_up(patience):
        # QEMU that ends by itself ends again; with KVM there is another way to try.
        kind = LabError if one.ended.is_set() and plan.machine.accelerator == "tcg" else Hung
        raise kind(f"guest {plan.name}: {wrong}")
    step(f"{plan.name}: kernel is up")
    await one.attach(*place)
    await one.run(plan.script)
    step(f"{plan.name}: devices are made")
    if state:
        await one.detach(*place)
        try:
            await one.save(state)
            drop_states()
            step("state saved for the next time")
        except LabError as error:
            step(f"no saved state for the next time: {error}")
        await one.attach(*place)


def drop_states(keep: int = 8) -> None:
    """Take old saved states away: the least recently written beyond `keep`."""
    files = sorted(places.cache_folder("states").iterdir(), key=lambda path: path.stat().st_mtime)
    for path in files[:-keep]:
        path.unlink(missing_ok=True)


def as_json(made: Made) -> dict[str, Any]:
    """Return how a lab came up, for lab.json."""
    return {"accelerator": made.accelerator, "how": made.how, "steps": made.steps}
