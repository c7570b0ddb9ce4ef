"""Counts processor instructions under valgrind, independent of other load on the machine.

``python -m bench.instructions [NAME ...]`` counts calls (``bare``, ``everything``, ...) with all
threads of a process, and chunks of streams (``chat, guarded``, ...; see ``bench.streams``), each as
a multiple of the bare relay. ``--write-budget`` writes the ratios of the chunks to ``budget.json``,
which a test enforces. Kernel instructions and garbage collection are not counted.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import uvloop

import proxy.app
import proxy.runtime.fair_queue
from bench import load, relay, streams
from bench.calls import BUDGET, settings
from bench.load import Job
from bench.policies import NO_EXTRAS
from bench.processes import free_port, listens, serving
from proxy.ledger import writer
from proxy.runtime.otel_settings import BatchBounds
from proxy.telemetry import lines

RELAY, TRACED = "relay", "traced"  # TRACED: everything, and a sampler that samples every call
CALLS = ("bare", "limits", "cache", "mid", "everything", TRACED)
CALL_COUNTS = (200, 800)  # the cost of a call is the difference divided by 600
CHUNK_COUNTS, STREAMS = (16, 144), 5  # chunks of a stream; streams, of which the cheapest counts
BATCH_S = 10.0  # valgrind is about 50 times slower, so batches wait longer to stay as large
NEVER_S = 3600.0
WARM_UP_CALLS, WARM_UP_S = 64, 45.0
GUARDED = ("guards", "everything", TRACED)
DEFAULT_SAMPLER = ("traceidratio", "0.06")  # what the default sampler keeps at 1,000 calls/s
CHUNK_BUDGET = "instructions of a chunk, in relays"
TOLERANCE = 1.1  # between Python versions, processors and loads
VALGRIND = (
    "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
)  # fmt: skip
CALLGRIND = (
    "valgrind", "--tool=callgrind", "--instr-atstart=no", "--dump-before=getppid",
)  # fmt: skip


def lengthen_batches(seconds: float) -> None:
    """Let telemetry and ledger collect calls for this time before they write them."""
    vars(proxy.app)["EMIT_INTERVAL_S"] = seconds
    proxy.runtime.fair_queue.TIME_SLICE_S = seconds
    lines.SPOOL_BOUNDS = replace(lines.SPOOL_BOUNDS, batch_window_s=seconds)
    writer.SPOOL_BOUNDS = replace(writer.SPOOL_BOUNDS, batch_window_s=seconds)


@asynccontextmanager
async def running(name: str) -> AsyncIterator[int]:
    """Run the relay, or Headrace with the policy of this name, and yield its port."""
    async with serving("bench.upstream") as upstream, serving("bench.collector") as collector:
        if name == RELAY:
            port = free_port()
            task = asyncio.create_task(relay.main(port, f"http://127.0.0.1:{upstream}"))
            while not await listens(port):
                await asyncio.sleep(0.1)
            yield port
            task.cancel()
            return
        lengthen_batches(BATCH_S)
        gc.disable()
        with tempfile.TemporaryDirectory() as folder:
            policy = "everything" if name == TRACED else name
            options = settings(Path(folder), policy, NO_EXTRAS, upstream, collector)
            if options.otel.exporters:
                bounds = BatchBounds(delay_ms=int(1000 * BATCH_S))
                sampler, ratio = ("always_on", None) if name == TRACED else DEFAULT_SAMPLER
                otel = replace(options.otel, bounds=bounds, sampler=sampler, sampler_arg=ratio)
                options = replace(options, otel=otel)
            with open(os.devnull, "w") as log:  # noqa: ASYNC230
                async with proxy.app.run_proxy(options, log_fd=log.fileno()) as server:
                    yield server.listen.port


async def serve_calls(name: str, calls: int) -> None:
    """Serve distinct calls on 32 connections, after lazy parts of the process have loaded."""
    async with running(name) as port:
        await load.run(Job(port=port, seed=0, total=WARM_UP_CALLS))
        await asyncio.sleep(WARM_UP_S if name in GUARDED else 0)
        await load.run(Job(port=port, seed=WARM_UP_CALLS, total=calls))


def _run(tool: Sequence[str], *arguments: str) -> str:
    """Run this module under valgrind and return what valgrind reports."""
    command = (*tool, sys.executable, "-m", "bench.instructions", *arguments)
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr)
    return result.stderr


def count_calls(names: Sequence[str]) -> Iterator[str]:
    """Yield the instructions of a call of each kind, with start and end of the process removed."""
    low_count, high_count = CALL_COUNTS
    relay_cost = 0.0
    for name in (RELAY, *names):
        totals = []
        for calls in CALL_COUNTS:
            match = re.search(r"I\s+refs:\s+([\d,]+)", _run(VALGRIND, "--calls", name, str(calls)))
            assert match is not None
            totals.append(int(match[1].replace(",", "")))
        cost = (totals[1] - totals[0]) / (high_count - low_count)
        relay_cost = relay_cost or cost
        yield f"{name}: {cost / 1000:,.0f} thousand a call, {cost / relay_cost:.2f} of the relay"


async def serve_streams(names: Sequence[str]) -> None:
    """Run each case with few and with many chunks.

    Callgrind writes two files for each stream: what ran before it, and what ran for it.
    """
    lengthen_batches(NEVER_S)
    _start_counting()
    for name in names:
        for chunks in CHUNK_COUNTS:
            await streams.run(streams.CASES[name], chunks, STREAMS, _region)


def _start_counting() -> None:
    """Turn callgrind's instrumentation on: with it, the imports alone would take a minute.

    vgdb is not allowed to use ptrace here. It passes the command through shared memory, which
    valgrind reads while this process runs code.
    """
    command = ("vgdb", f"--pid={os.getpid()}", "--max-invoke-ms=0", "instrumentation", "on")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as vgdb:
        while vgdb.poll() is None:
            pass
        if vgdb.returncode:
            raise RuntimeError(vgdb.communicate()[1].decode())


@contextmanager
def _region() -> Iterator[None]:
    os.getppid()  # callgrind writes its counts to a file and resets them
    yield
    os.getppid()


def count_chunks(names: Sequence[str]) -> dict[str, float]:
    """Return the instructions that each case adds to a chunk sent without a proxy."""
    cases = (streams.DIRECT, *names)
    low_count, high_count = CHUNK_COUNTS
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        _run((*CALLGRIND, f"--callgrind-out-file={out}"), "--chunks", *cases)
        regions = 2 * STREAMS * len(cases)
        dumps = [Path(f"{out}.{2 * number}") for number in range(1, regions + 1)]
        totals = [int(dump.read_text().rpartition("totals: ")[2]) for dump in dumps]
    # The lowest of several streams has no periodic work of the process in it.
    lowest = [min(totals[start : start + STREAMS]) for start in range(0, regions, STREAMS)]
    costs = [
        (high_cost - low_cost) / (high_count - low_count)
        for low_cost, high_cost in zip(lowest[::2], lowest[1::2], strict=True)
    ]
    return {name: cost - costs[0] for name, cost in zip(names, costs[1:], strict=True)}


def ratios_of_chunks(names: Sequence[str]) -> Mapping[str, float]:
    """Return the cost of a chunk of each case as a multiple of the bare relay."""
    costs = count_chunks((streams.RELAY, *names))
    return {name: costs[name] / costs[streams.RELAY] for name in names}


def chunks_over_budget() -> list[str]:
    """Return a sentence for each case that costs more than its budget allows."""
    budget: dict[str, float] = json.loads(BUDGET.read_text())[CHUNK_BUDGET]
    ratios = ratios_of_chunks(tuple(budget))
    return [
        f"{name} costs {ratio:.2f} relays, budget {budget[name]}"
        for name, ratio in ratios.items()
        if ratio > TOLERANCE * budget[name]
    ]


def write_chunk_budget() -> None:
    """Write today's ratios as the budget."""
    cases = [name for name, case in streams.CASES.items() if case.proxy == "headrace"]
    ratios = {name: round(ratio, 2) for name, ratio in ratios_of_chunks(cases).items()}
    budget = {**json.loads(BUDGET.read_text()), CHUNK_BUDGET: ratios}
    BUDGET.write_text(json.dumps(budget, indent=2) + "\n")


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--calls"]:
        run = asyncio.run if arguments[1] == RELAY else uvloop.run
        run(serve_calls(arguments[1], int(arguments[2])))
    elif arguments[:1] == ["--chunks"]:
        gc.disable()
        asyncio.run(serve_streams(arguments[1:]))
    elif arguments == ["--write-budget"]:
        write_chunk_budget()
    else:
        if chunks := [name for name in arguments if name in streams.CASES]:
            costs = count_chunks((streams.RELAY, *chunks))
            for name, cost in costs.items():
                ratio = cost / costs[streams.RELAY]
                print(f"{name}: {cost / 1000:,.0f} thousand a chunk, {ratio:.2f} of the relay")
        calls = [name for name in arguments if name not in streams.CASES]
        if calls or not chunks:
            for line in count_calls(calls or CALLS):
                print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
