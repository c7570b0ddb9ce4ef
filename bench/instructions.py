"""``python -m bench.instructions [PARTS ...]``: how many instructions of the processor a call takes
in all threads, beside one through the bare relay: no other program on the machine changes that.
PARTS may also be cases of ``bench.streams``: what each chunk takes, with client and upstream.

It wants valgrind, which makes everything some fifty times as slow: what is told of calls together
is gathered for so much longer here. The kernel's instructions are not counted, nor is Python's
search for garbage in Headrace, which rarely has any.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import uvloop

import proxy.app
import proxy.runtime.turn
from bench import load, relay, streams
from bench.calls import settings
from bench.load import Job
from bench.policies import NO_MORE
from bench.processes import free_port, listens, serving
from proxy.ledger import writer
from proxy.runtime.otel_settings import BatchBounds
from proxy.telemetry import lines

RELAY = "relay"
TRACED = "traced"  # everything on, and a sampler that samples every call
SHOWN = (RELAY, "bare", "limits", "cache", "mid", "everything", TRACED)
CALLS = (200, 800)  # the difference is of so many, without what a start takes
GATHERED_S = 10.0
CHUNKS, STREAMS = (16, 144), 4  # chunks of a stream, and how many streams
WARM, LOADED_S = 64, 45.0  # calls; seconds, as a quarter of one takes fifty times as long
GUARDED = ("guards", "everything", TRACED)
USUAL_SAMPLER = ("traceidratio", "0.06")  # as the default one samples 1,000 calls a second
VALGRIND = (
    "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
)  # fmt: skip


def gather_longer() -> None:
    """Have as many calls told of together as on a machine that is not slow."""
    vars(proxy.app)["EMIT_EVERY_S"] = GATHERED_S  # which it has from another room
    proxy.runtime.turn.TURN_S = GATHERED_S
    lines.BOUNDS = replace(lines.BOUNDS, gather_s=GATHERED_S)
    writer.BOUNDS = replace(writer.BOUNDS, gather_s=GATHERED_S)


@asynccontextmanager
async def running(parts: str) -> AsyncIterator[int]:
    """Serve calls in this process, as the relay does or as a policy with these parts says. Yields
    the port."""
    async with serving("bench.upstream") as upstream, serving("bench.collector") as collector:
        if parts == RELAY:
            port = free_port()
            task = asyncio.ensure_future(relay.main(port, f"http://127.0.0.1:{upstream}"))
            while not await listens(port):
                await asyncio.sleep(0.1)
            yield port
            task.cancel()
            return
        gather_longer()
        gc.disable()
        with tempfile.TemporaryDirectory() as folder:
            chosen = settings(
                Path(folder),
                "everything" if parts == TRACED else parts,
                NO_MORE,
                upstream,
                collector,
            )
            if chosen.otel.exporters:
                bounds = BatchBounds(delay_ms=int(1000 * GATHERED_S))
                sampler, ratio = ("always_on", None) if parts == TRACED else USUAL_SAMPLER
                otel = replace(chosen.otel, bounds=bounds, sampler=sampler, sampler_arg=ratio)
                chosen = replace(chosen, otel=otel)
            with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230  # it never waits
                async with proxy.app.running(chosen, log_fd=nowhere.fileno()) as made:
                    yield made.listen.port


async def served(parts: str, calls: int) -> None:
    """Serve so many calls, each another one, of 32 connections, once all is loaded that a process
    with these parts loads between calls. Of a case of streams it is the length of each."""
    if parts in streams.CASES:
        gc.disable()
        await streams.run(streams.CASES[parts], calls, STREAMS, nullcontext)
        return
    async with running(parts) as port:
        await load.run(Job(port=port, seed=0, total=WARM))
        await asyncio.sleep(LOADED_S if parts in GUARDED else 0)
        await load.run(Job(port=port, seed=WARM, total=calls))


def instructions(parts: str, calls: int) -> int:
    """Return what a process takes from its start to its end that serves so many calls."""
    program = (sys.executable, "-m", "bench.instructions", "--served", parts, str(calls))
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    told = subprocess.run(
        (*VALGRIND, *program), env=environment, capture_output=True, text=True, check=True
    ).stderr
    found = re.search(r"I\s+refs:\s+([\d,]+)", told)
    assert found is not None, told
    return int(found[1].replace(",", ""))


def main() -> None:
    chosen = sys.argv[1:] or SHOWN[1:]
    for case in [each for each in chosen if each in streams.CASES]:
        few, many = CHUNKS
        counted = instructions(case, many) - instructions(case, few)
        print(f"{case}: {counted / (many - few) / (STREAMS + streams.WARM) / 1000:,.0f} thousand")
    if calls := [each for each in chosen if each not in streams.CASES]:
        count_calls(calls)


def count_calls(chosen: Sequence[str]) -> None:
    few, many = CALLS
    whole = 0.0
    for parts in (RELAY, *chosen):
        a_call = (instructions(parts, many) - instructions(parts, few)) / (many - few)
        whole = whole or a_call
        print(f"{parts}: {a_call / 1000:,.0f} thousand a call, {a_call / whole:.2f} of the relay's")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--served"]:
        own_loop = sys.argv[2] == RELAY or sys.argv[2] in streams.CASES
        run = asyncio.run if own_loop else uvloop.run
        run(served(sys.argv[2], int(sys.argv[3])))
    else:
        main()
