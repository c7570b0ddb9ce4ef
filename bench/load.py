"""A client over raw sockets that keeps so many requests under way, bounded in count."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.policies import KEY


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
        f"authorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def asked(*, stream: bool, seed: int | None = None) -> bytes:
    """Return a request of some kilobyte; each ``seed`` makes a question that no cache has."""
    question = "Which city is the capital of France, and since when? " * 15
    messages = [{"role": "user", "content": question}]
    body: dict[str, object] = {"model": "support-chat", "messages": messages}
    body |= {"stream": True} if stream else {}
    body |= {"seed": seed} if seed is not None else {}
    return request(json.dumps(body, separators=(",", ":")).encode())


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


async def run(port: int, raw: Callable[[int], bytes], total: int, concurrency: int) -> Result:
    """Send ``total`` requests over ``concurrency`` connections that are kept open; ``raw`` makes
    each by its number."""
    latencies: list[float] = []
    left = iter(range(total))

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        for number in left:
            begun = time.perf_counter()
            writer.write(raw(number))
            await _answer(reader)
            latencies.append(time.perf_counter() - begun)
        writer.close()

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(connection())
    return Result(time.perf_counter() - begun, sorted(latencies))


def main(port: int, first: int, total: int, stream: int) -> None:
    """Send so many requests one after the other, with the seeds from ``first`` on."""
    asyncio.run(run(port, lambda at: asked(stream=bool(stream), seed=first + at), total, 1))


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
