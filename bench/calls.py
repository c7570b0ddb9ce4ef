"""How many functions one call runs, room by room: the same number on every machine.

The proxy runs in this process; client, provider and collector are processes of their own. What
Python's profiler tells counts: a Python function that is entered, a coroutine that goes on, and a
C function that Python calls. All threads count.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

import proxy
from bench import policies
from bench.processes import serving
from proxy import app
from proxy.settings import Address, LedgerAt, Settings

WARM, COUNTED = 50, 100
HOME = Path(proxy.__file__).parent
ROOMS = tuple(sorted(each.name for each in HOME.iterdir() if (each / "__init__.py").exists()))


class CallCounter:
    """Counts what the profiler tells of, by the file whose code runs it."""

    def __init__(self) -> None:
        self.by_file: Counter[str] = Counter()
        self.by_function: Counter[tuple[str, str]] = Counter()
        self.on = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.on and event in ("call", "c_call"):
            code = frame.f_code
            self.by_file[code.co_filename] += 1
            self.by_function[code.co_filename, code.co_qualname] += 1

    def by_room(self) -> dict[str, float]:
        """Return the events of one call by room of the proxy; ``other`` is libraries."""
        rooms: Counter[str] = Counter()
        for name, count in self.by_file.items():
            rooms[room_of(name)] += count
        return {room: count / COUNTED for room, count in sorted(rooms.items())}


def room_of(file: str) -> str:
    """Return the room a file is in, the module's name for one beside the rooms."""
    path = Path(file)
    if not path.is_relative_to(HOME):
        for library in ("aiohttp", "asyncio", "opentelemetry"):
            if f"/{library}/" in file:
                return library
        return "other"
    return path.relative_to(HOME).parts[0].removesuffix(".py")


async def _ask(port: int, first: int, total: int, *, stream: bool) -> None:
    numbers = (str(each) for each in (port, first, total, int(stream)))
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.load", *numbers)
    if await process.wait():
        raise RuntimeError("the client failed")


async def counted(parts: str, *, stream: bool = False, hits: bool = False) -> CallCounter:
    """Return what a call of this kind costs, after others have warmed the process up."""
    counter = CallCounter()
    threading.setprofile(counter)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with serving("bench.upstream") as upstream, serving("bench.collector") as collector:
            (folder / "policies").mkdir()
            policies.write(folder / "policies", parts, upstream)
            kept = parts in policies.KEPT
            settings = Settings(
                folder / "policies",
                listen=Address("127.0.0.1", 0),
                admin=Address("127.0.0.1", 0),
                otlp_endpoint=f"http://127.0.0.1:{collector}" if kept else None,
                ledger=LedgerAt("sqlite", folder / "ledger.db") if kept else None,
            )
            log = os.open(os.devnull, os.O_WRONLY)
            async with app.running(settings, log_fd=log) as running:
                await _ask(running.listen.port, 0, WARM, stream=stream)
                sys.setprofile(counter)
                counter.on = True
                await _ask(running.listen.port, 0 if hits else WARM, COUNTED, stream=stream)
                await asyncio.sleep(1)
                counter.on = False
                sys.setprofile(None)
            os.close(log)
    threading.setprofile(None)
    return counter


async def main() -> None:
    """Print the calls of each kind by room, those of one kind by function too if it is named."""
    for parts in sys.argv[1:] or policies.PARTS:
        counter = await counted(parts)
        rooms = counter.by_room()
        print(f"{parts}: {sum(rooms.values()):.0f} a call", rooms)
        if len(sys.argv) > 1:
            for (file, name), count in counter.by_function.most_common(400):
                place = file.rpartition("site-packages/")[2].removeprefix(f"{HOME}/")
                print(f"{count / COUNTED:8.2f} {place}:{name}")


if __name__ == "__main__":
    uvloop.run(main())
