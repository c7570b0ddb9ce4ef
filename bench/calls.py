"""How many functions one call runs, room by room: the same number on every machine.

The proxy runs in this process; client, provider and collector are processes of their own. What
Python's profiler tells counts: a Python function that is entered, a coroutine that goes on, and a
C function that Python calls. ``python -m bench.calls --write`` writes ``budget.json``, which a
test holds calls to: what a call runs may become less, and not more by more than ``SLACK``. So
with each chunk of a stream: the longer one of two runs so much more, and is so much longer. Chunks
of other pairs of API families (``bench.streams``) are counted with all in this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

import proxy
from bench import load, policies, streams
from bench.load import Job
from bench.policies import NO_MORE, Sizes
from bench.processes import serving
from proxy import app
from proxy.runtime.otel_settings import OtelSettings
from proxy.settings import Address, LedgerAt, Settings

WARM, COUNTED, MOST_SHOWN = 50, 100, 400
WARM_STREAMS, STREAMS, FEW, MANY, GAP_MS = 5, 20, 4, 68, 3  # of chunks, each a read of its own
SETTLED_S = 0.5  # until all is told of the calls before
SLACK = 3  # calls of functions, and a twentieth: rounds of the loop are not the same each time
SLACK_OF_CHUNK = 1
COUNTED_AGAIN = 4  # times, where a room is over its budget
HIT = "hit"
BUDGETED = ("bare", "everything", HIT)
CHUNKS = {f"{parts}, a chunk": parts for parts in ("bare", "guards")}
OF_CHUNKS = (*CHUNKS, *streams.CASES)
BUDGET = Path(__file__).parent / "budget.json"
ALL_CALLS = "always_on"  # the sampler: the default one traces a number of calls in a second
LIBRARIES = ("aiohttp", "asyncio", "opentelemetry", "other")
HOME = Path(proxy.__file__).parent


class CallCounter:
    """Counts what the profiler tells of so many calls, by the file whose code runs it."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
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
        return {room: count / self.calls for room, count in sorted(rooms.items())}


def room_of(file: str) -> str:
    """Return the room a file is in, the module's name for one beside the rooms."""
    path = Path(file)
    if not path.is_relative_to(HOME):
        for library in LIBRARIES:
            if f"/{library}/" in file:
                return library
        return "other"
    return path.relative_to(HOME).parts[0].removesuffix(".py")


async def _ask(port: int, first: int, total: int, *, stream: bool) -> None:
    job = Job(port=port, seed=first, total=total, stream=stream, plain=True, connections=1)
    await load.run(job)


@dataclass(frozen=True)
class Counted:
    """What a call runs: in the thread of the event loop, and in all others."""

    loop: CallCounter
    threads: CallCounter


async def counted(parts: str, more: Sizes = NO_MORE, *, chunks: int = 0) -> Counted:
    """Return what a call of this kind runs, once others have warmed the process up: a stream of so
    many chunks, or a whole answer. ``HIT`` is a call that gets a kept one."""
    calls = STREAMS if chunks else COUNTED
    made = Counted(CallCounter(calls), CallCounter(calls))
    threading.setprofile(made.threads)
    try:
        with tempfile.TemporaryDirectory() as name:
            await _count(made, Path(name), (parts, more), chunks=chunks)
    finally:
        threading.setprofile(None)
    return made


async def _count(made: Counted, folder: Path, wanted: tuple[str, Sizes], *, chunks: int) -> None:
    parts, more = wanted
    provider = ("bench.upstream", *([str(chunks), str(GAP_MS)] if chunks else []))
    calls, warm, stream = made.loop.calls, WARM_STREAMS if chunks else WARM, chunks > 0
    warm, first = (calls, 0) if parts == HIT else (warm, warm)
    async with serving(*provider) as upstream, serving("bench.collector") as collector:
        kept = "cache" if parts == HIT else parts
        chosen = settings(folder, kept, more, upstream, collector)
        log = os.open(os.devnull, os.O_WRONLY)
        async with app.running(chosen, log_fd=log) as running:
            await _ask(running.listen.port, 0, warm, stream=stream)
            await asyncio.sleep(SETTLED_S)
            made.loop.on = made.threads.on = True
            sys.setprofile(made.loop)
            await _ask(running.listen.port, first, calls, stream=stream)
            await asyncio.sleep(SETTLED_S)
            sys.setprofile(None)
            made.loop.on = made.threads.on = False
        os.close(log)


def settings(folder: Path, parts: str, more: Sizes, upstream: int, collector: int) -> Settings:
    """Return the settings of a proxy in this process that measures these parts."""
    (folder / "policies").mkdir()
    policies.write(folder / "policies", parts, upstream, more)
    kept = parts in policies.KEPT
    return Settings(
        folder / "policies",
        listen=Address("127.0.0.1", 0),
        admin=Address("127.0.0.1", 0),
        otlp_endpoint=f"http://127.0.0.1:{collector}" if kept else None,
        otel=OtelSettings(("otlp_proto_http",), ALL_CALLS) if kept else OtelSettings(),
        ledger=LedgerAt("sqlite", folder / "ledger.db") if kept else None,
    )


async def rooms_of(name: str) -> dict[str, float]:
    """Return the functions that a call, or a chunk of one, runs in each room."""
    if name not in OF_CHUNKS:
        return (await counted(name)).loop.by_room()
    short, long = [await _count_streams(name, length) for length in (FEW, MANY)]
    before = short.by_room()
    return {
        room: (count - before.get(room, 0)) / (MANY - FEW) for room, count in long.by_room().items()
    }


async def _count_streams(name: str, length: int) -> CallCounter:
    """Return what a stream of so many chunks runs in the thread of the event loop."""
    if name in CHUNKS:
        return (await counted(CHUNKS[name], chunks=length)).loop
    counter = CallCounter(STREAMS)
    await streams.run(streams.CASES[name], length, STREAMS, lambda: _profiled(counter))
    return counter


@contextmanager
def _profiled(counter: CallCounter) -> Iterator[None]:
    counter.on = True
    sys.setprofile(counter)
    try:
        yield
    finally:
        sys.setprofile(None)


async def over_budget(parts: str) -> list[str]:
    """Return the rooms in which a call runs more functions than ``budget.json`` says, each time
    that it is counted: where other programs keep the processor, a call rests more often."""
    budget = budgets()[parts]
    over = await _over(parts, budget)
    for _ in range(COUNTED_AGAIN if over else 0):
        again = await _over(parts, budget)
        over = {room: min(count, again[room]) for room, count in over.items() if room in again}
    return [f"{room} runs {count:.1f}, not {budget.get(room, 0)}" for room, count in over.items()]


def budgets() -> dict[str, dict[str, int]]:
    """Return the functions that a call of each kind may run, by room."""
    found: dict[str, dict[str, int]] = json.loads(BUDGET.read_text())
    return found


async def _over(parts: str, budget: dict[str, int]) -> dict[str, float]:
    slack = SLACK_OF_CHUNK if parts in OF_CHUNKS else SLACK
    return {
        room: count
        for room, count in (await rooms_of(parts)).items()
        if room not in LIBRARIES and count > 1.05 * budget.get(room, 0) + slack
    }


async def write_budget() -> None:
    """Write the functions that a call runs today as the most that it may run."""
    budget = {}
    for parts in (*BUDGETED, *OF_CHUNKS):
        counts = {room: ceil(count) for room, count in (await rooms_of(parts)).items()}
        kept = {room: count for room, count in counts.items() if count > 0}
        budget[parts] = {room: count for room, count in kept.items() if room not in LIBRARIES}
    BUDGET.write_text(json.dumps(budget, indent=2) + "\n")


async def main() -> None:
    """Print the functions of each kind of call by room, those of one that is named one by one."""
    for parts in sys.argv[1:] or (*policies.PARTS, HIT, *OF_CHUNKS):
        if parts in OF_CHUNKS:
            rooms = await rooms_of(parts)
            shown = ", ".join(f"{room} {count:.1f}" for room, count in rooms.items() if count > 0.1)
            print(f"{parts}: {sum(rooms.values()):.1f} ({shown})")
            continue
        made = await counted(parts)
        for thread, counter in (("loop", made.loop), ("threads", made.threads)):
            rooms = counter.by_room()
            shown = ", ".join(f"{room} {count:.0f}" for room, count in rooms.items() if count >= 1)
            print(f"{parts}, {thread}: {sum(rooms.values()):.0f} a call ({shown})")
        if len(sys.argv) > 1:
            for (file, name), count in made.loop.by_function.most_common(MOST_SHOWN):
                place = file.rpartition("site-packages/")[2].removeprefix(f"{HOME}/")
                print(f"{count / made.loop.calls:8.2f} {place}:{name}")


if __name__ == "__main__":
    uvloop.run(write_budget() if sys.argv[1:] == ["--write"] else main())
