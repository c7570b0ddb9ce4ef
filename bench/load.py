"""A client over raw sockets that keeps so many requests under way, bounded in count."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """What one round gave: seconds in all, and each request's latency in seconds, sorted."""

    seconds: float
    latencies: list[float]

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        return self.latencies[min(len(self.latencies) - 1, int(len(self.latencies) * share))]


def request(body: bytes) -> bytes:
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer hr-bench-key\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _answer(reader: asyncio.StreamReader) -> None:
    """Read one response. Raises ``ConnectionError`` for any status but 200."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b" 200 " not in head[:16]:
        raise ConnectionError(head.split(b"\r\n")[0].decode())
    if b"content-length:" in head:
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
    else:
        await reader.readuntil(b"0\r\n\r\n")


async def run(port: int, raw: bytes, total: int, concurrency: int) -> Result:
    """Send ``total`` requests over ``concurrency`` connections that are kept open."""
    latencies: list[float] = []
    left = iter(range(total))

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        for _ in left:
            begun = time.perf_counter()
            writer.write(raw)
            await _answer(reader)
            latencies.append(time.perf_counter() - begun)
        writer.close()

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(connection())
    return Result(time.perf_counter() - begun, sorted(latencies))
