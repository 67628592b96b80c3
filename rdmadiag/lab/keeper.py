"""The process that keeps a lab: it owns the guests, and passes frames between clients and agents.

Started by `lab up` as `python -m rdmadiag.lab.keeper FOLDER`, in a session of its own, with the lab's lock as an open
file. Until the lab is up it tells its progress on standard output and gives up when standard input ends (whoever
started it is gone). Then it lives until it is told to stop, nobody used the lab for the idle limit, or a guest ends.
The guests die with it: the kernel kills them (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

from rdmadiag.lab import boot, frames, places
from rdmadiag.lab.guest import Guest
from rdmadiag.lab.options import Options
from rdmadiag.lab.places import LabError

SIGHUP_TO_KILL_SECONDS = 3.0
CLIENT_BUFFER = 1 << 20


class Keeper:
    """One lab. `record` is what its file lab.json says."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder, self.options = folder, options
        self.guests: dict[str, Guest] = {}
        self.clients: dict[tuple[str, int], asyncio.StreamWriter] = {}
        self.over = asyncio.Event()
        self.connections = 0
        self.last_used = time.monotonic()
        self.record: dict[str, Any] = {"name": folder.name, "pid": os.getpid(), "options": options.as_json()}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- life ---

    async def run(self) -> int:
        """Bring the lab up, keep it, take it down; return the exit code."""
        loop = asyncio.get_running_loop()
        main = asyncio.ensure_future(self._bring_up())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, main)
        gone = asyncio.ensure_future(self._starter_gone())
        await asyncio.wait([main, gone], return_when=asyncio.FIRST_COMPLETED)
        if not main.done():
            main.cancel()
        try:
            await main
        except (LabError, asyncio.CancelledError) as error:
            await self._tear_down_native()
            _tell({"failed": str(error) or "it was told to stop while it came up"})
            places.remove(self.folder)
            return 1
        gone.cancel()
        places.write_json(self.folder / "lab.json", self.record)
        server = await asyncio.start_unix_server(self._client, str(self.folder / "socket"), limit=1 << 18)
        _tell({"ready": self.record})
        _detach_from_starter()
        await self._keep()
        server.close()
        await self._take_down()
        return 0

    def _stop(self, main: asyncio.Future[None]) -> None:
        self.over.set()
        main.cancel()

    async def _starter_gone(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.read(4096):
            pass

    async def _bring_up(self) -> None:
        began = time.monotonic()
        if self.options.backend == "native":
            _tell({"step": "making links and devices on this machine's kernel"})
            await self._native("set-up")
        else:
            made = await boot.bring_up(self.options, self.folder.name, self.folder, lambda text: _tell({"step": text}))
            self.guests = made.guests
            self.record |= boot.as_json(made)
            for guest in self.guests.values():
                guest.on_frame = functools.partial(self._from_guest, guest.name)
        self.record["up_seconds"] = round(time.monotonic() - began, 3)
        self.record["since"] = time.time()
        self.record["guests"] = {
            name: guest.process.pid for name, guest in self.guests.items() if guest.process is not None
        }

    async def _keep(self) -> None:
        ends = [asyncio.ensure_future(guest.ended.wait()) for guest in self.guests.values()]
        over = asyncio.ensure_future(self.over.wait())
        while True:
            limit = self.options.idle_seconds
            left = max(self.last_used + limit - time.monotonic(), 0.0) if limit else None
            await asyncio.wait([over, *ends], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if over.done() or any(end.done() for end in ends):
                return
            if self.connections:
                self.last_used = time.monotonic()
            elif limit and time.monotonic() - self.last_used >= limit:
                return

    async def _take_down(self) -> None:
        dead = [guest for guest in self.guests.values() if guest.ended.is_set()]
        if dead and not self.over.is_set():
            reason = f"guest {dead[0].name}: {dead[0].why_ended()}"
            tail = dead[0].console().splitlines()[-40:]
            places.write_json(self.folder / "died.json", {"reason": reason, "console": tail, "at": time.time()})
        for (name, number), writer in list(self.clients.items()):
            if dead and name == dead[0].name:
                refusal = struct.pack("<ii", -1, frames.STEP_AGENT) + dead[0].why_ended().encode()
                with contextlib.suppress(OSError):
                    writer.write(frames.frame(b"R", number, refusal))
                    await asyncio.wait_for(writer.drain(), 1)
        for guest in self.guests.values():
            await guest.stop()
        await self._tear_down_native()
        for name in ("socket", "keeper.log"):
            (self.folder / name).unlink(missing_ok=True)
        for path in self.folder.glob("*.link"):
            path.unlink(missing_ok=True)
        if not (self.folder / "died.json").exists():
            places.remove(self.folder)

    async def _native(self, what: str) -> None:
        # In a process of its own: pyroute2 forks helpers, and ends them by signals that our own loop would take for ours.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rdmadiag.lab.native", what, str(self.folder)),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        said = (await process.communicate())[1].decode(errors="replace").strip()
        if process.returncode:
            raise LabError(said[-1000:])

    async def _tear_down_native(self) -> None:
        if self.options.backend == "native":
            with contextlib.suppress(LabError):  # what it leaves is found by its mark at the next command
                await self._native("tear-down")

    # --- frames ---

    def _from_guest(self, name: str, kind: bytes, number: int, payload: bytes) -> None:
        client = self.clients.get((name, number))
        if client is not None:
            with contextlib.suppress(OSError):
                client.write(frames.frame(kind, number, payload))
        if kind == b"R":
            self.clients.pop((name, number), None)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter, job = frames.Splitter(), None
        self.connections += 1
        try:
            while data := await reader.read(1 << 18):
                for kind, _number, payload in splitter.feed(data):
                    if kind == b"J":
                        answer = await self._request(json.loads(payload), writer)
                        writer.write(frames.frame(b"J", 0, json.dumps(answer.get("answer")).encode()))
                        job = answer.get("job", job)
                    elif job is not None:
                        self.guests[job[0]].send(kind, job[1], payload)
                await writer.drain()
        except (OSError, ValueError, LabError):
            pass  # the client is gone, or speaks another language
        finally:
            self.connections -= 1
            self.last_used = time.monotonic()
            if job is not None and self.clients.pop(job, None) is not None:
                self._spawn(self._abandon(*job))
            writer.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _abandon(self, name: str, number: int) -> None:
        # Whoever ran this command is gone: it is told so, and killed if it does not mind.
        for number_of_signal in (signal.SIGHUP, signal.SIGKILL):
            with contextlib.suppress(LabError):
                self.guests[name].send(b"I", number)
                self.guests[name].send(b"S", number, struct.pack("<I", number_of_signal))
                self.guests[name].send(b"C", number, struct.pack("<I", 1 << 30))
            await asyncio.sleep(SIGHUP_TO_KILL_SECONDS)

    async def _request(self, wanted: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        if wanted.get("do") == "down":
            self.over.set()
            return {"answer": {"ok": True}}
        if wanted.get("do") == "job":
            name = wanted.get("guest") or next(iter(self.guests), "")
            if name not in self.guests:
                return {"answer": {"problem": f"no guest {name!r}; there are {', '.join(self.guests)}"}}
            job = (name, self.guests[name].new_id())
            self.clients[job] = writer
            return {"answer": {"ok": True}, "job": job}
        if wanted.get("do") == "ping":
            answers = {}
            for name, guest in self.guests.items():
                try:
                    await guest.call(b"P", seconds=2.0)
                    answers[name] = "answers"
                except LabError as error:
                    answers[name] = str(error)
            return {"answer": {"guests": answers, "idle_seconds": time.monotonic() - self.last_used}}
        return {"answer": {"problem": f"no such request: {wanted.get('do')!r}"}}


def _tell(line: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(line).encode() + b"\n")


def _detach_from_starter() -> None:
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def main() -> int:
    """Keep the lab whose folder is named by the first argument."""
    folder = Path(sys.argv[1])
    options = Options.from_json(places.read_json(folder / "request.json"))
    os.umask(0o077)
    return asyncio.run(Keeper(folder, options).run())


if __name__ == "__main__":
    sys.exit(main())
