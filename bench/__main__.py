"""``make bench``: whole answers and streams, Headrace against a bare relay, round by round.

The processor time of the process under test, per request and per chunk, is the figure to trust;
only ratios within one run mean anything.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from asyncio.subprocess import Process
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench import decide, guards, limits, load, policies
from bench.load import asked
from bench.processes import free_port, listens, started
from bench.upstream import CHUNKS

WHOLE_ASKED, STREAM_ASKED = asked(stream=False), asked(stream=True)
ROUNDS, WHOLE, STREAMS, CONCURRENCY = 5, 2000, 200, 32


@dataclass
class Target:
    """A process under test and what its rounds gave: microseconds of processor time per unit."""

    name: str
    port: int
    process: Process
    whole: list[float]
    chunk: list[float]
    rate: list[float]
    p99: list[float]

    def cpu(self) -> float:
        """Give the processor time that the process has used, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self) -> float:
        """Give the largest resident size so far, in megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def measure(target: Target) -> None:
    """Run one round of whole answers and one of streams."""
    before = target.cpu()
    whole = await load.run(target.port, lambda _: WHOLE_ASKED, WHOLE, CONCURRENCY)
    between = target.cpu()
    await load.run(target.port, lambda _: STREAM_ASKED, STREAMS, CONCURRENCY)
    after = target.cpu()
    target.whole.append((between - before) / WHOLE * 1e6)
    target.chunk.append((after - between) / (STREAMS * CHUNKS) * 1e6)
    target.rate.append(whole.per_second)
    target.p99.append(whole.percentile(0.99) * 1000)


def report(relay: Target, headrace: Target) -> None:
    print(f"{ROUNDS} rounds, {WHOLE} whole answers and {STREAMS} streams of {CHUNKS} chunks each,")
    print(f"{CONCURRENCY} at once; medians. Only the ratios mean anything.\n")
    print(f"{'':34}{relay.name:>12}{headrace.name:>12}{'ratio':>9}")
    rows = (
        ("processor time per request, us", relay.whole, headrace.whole),
        ("processor time per chunk, us", relay.chunk, headrace.chunk),
        ("requests per second", relay.rate, headrace.rate),
        ("99th percentile, ms", relay.p99, headrace.p99),
        ("largest resident size, MB", [relay.peak()], [headrace.peak()]),
    )
    for name, theirs, ours in rows:
        ratio = statistics.median(o / t for o, t in zip(ours, theirs, strict=True))
        a, b = statistics.median(theirs), statistics.median(ours)
        print(f"{name:34}{a:12.1f}{b:12.1f}{ratio:9.2f}")


async def main() -> None:
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        upstream, port_a, port_b, admin = (free_port() for _ in range(4))
        policies.write(folder, "bare", upstream)
        base = f"http://127.0.0.1:{upstream}"
        await opened.enter_async_context(started(upstream, "bench.upstream", str(upstream)))
        relay = await opened.enter_async_context(started(port_a, "bench.relay", str(port_a), base))
        serve = ("proxy", "serve", "--policies", str(folder))
        listen = ("--listen", f"127.0.0.1:{port_b}", "--admin-listen", f"127.0.0.1:{admin}")
        headrace = await opened.enter_async_context(started(port_b, *serve, *listen))
        targets = [
            Target("bare relay", port_a, relay, [], [], [], []),
            Target("headrace", port_b, headrace, [], [], [], []),
        ]
        for target in targets:  # warm up, uncounted
            await load.run(target.port, lambda _: WHOLE_ASKED, 200, CONCURRENCY)
        for _ in range(ROUNDS):
            for target in targets:
                await measure(target)
        report(*targets)
    decide.report()
    await guards.report()
    await limits.report(free_port, listens)


if __name__ == "__main__":
    uvloop.run(main())
