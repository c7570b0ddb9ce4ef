"""Load generator over raw sockets: ``python -m bench.load JOB``, where JOB is a ``Job`` as JSON.

In closed loop each connection always has one request in flight. In open loop requests are due at
fixed times. Latency counts from the due time, so a stalled proxy is charged for its queue.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

from bench import bodies
from bench.figures import percentile
from bench.processes import pinned, prioritize_session

SPIN_S = 0.002  # timers of the loop have a resolution of 1 ms, so shorter waits spin
RESPONSE_TIMEOUT_S = 300.0
LAST_CHUNK = b"\r\n0\r\n\r\n"
READING_HEAD, READING_CHUNKS = -1, -2  # instead of the remaining bytes of a body


class CallFailed(Exception):
    """A response is missing or not 200."""


@dataclass(frozen=True)
class Job:
    """Requests to one port: a ``total`` of them, or as many as fit into ``seconds``."""

    port: int
    path: str = "/v1/chat/completions"
    headers: dict[str, str] = field(default_factory=dict)
    model: str = "support-chat"
    size: int = 1000
    stream: bool = False
    plain: bool = False
    """Send one message and no parameters."""
    seed: int | None = None
    """Number the requests from here, so that no two are equal. None sends equal requests."""
    connections: int = 32
    seconds: float = 0.0
    total: int = 0
    rate: float = 0.0
    """Requests per second in open loop. 0 is closed loop."""


@dataclass(frozen=True)
class Result:
    """Figures of a finished job. Latencies are in microseconds."""

    calls: int
    seconds: float
    p50: float
    p99: float
    first_p50: float
    """Median time to the first byte of a body."""


class Connection(asyncio.Protocol):
    """Sends one request at a time and reads its response."""

    transport: asyncio.WriteTransport

    def __init__(self, run: LoadRun) -> None:
        self.run = run
        self.in_flight = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def send(self, due_at: float) -> None:
        self.in_flight, self.due_at, self.first_byte_at = True, due_at, 0.0
        self.head, self.tail, self.remaining = b"", b"", READING_HEAD
        self.transport.write(self.run.next_request())

    def data_received(self, data: bytes) -> None:
        if self.remaining == READING_HEAD:
            self.head += data
            head, end, data = self.head.partition(b"\r\n\r\n")
            if not end:
                return
            if head[9:12] != b"200":
                self.run.fail(CallFailed(self.head[:500].decode(errors="replace")))
                return
            length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
            self.remaining = int(length) if length else READING_CHUNKS
        if data and not self.first_byte_at:
            self.first_byte_at = time.perf_counter()
        if self.remaining == READING_CHUNKS:
            self.tail = (self.tail + data)[-len(LAST_CHUNK) :]
        else:
            self.remaining -= len(data)
        if self.remaining == 0 or self.tail == LAST_CHUNK:
            self.in_flight = False
            self.run.on_response(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self.in_flight:
            self.run.fail(CallFailed("the connection was closed"))


class LoadRun:
    """Executes a job in the running event loop."""

    def __init__(self, job: Job) -> None:
        self.job = job
        has_seed = job.seed is not None
        body = bodies.chat(
            job.size, model=job.model, stream=job.stream, seed=has_seed, plain=job.plain
        )
        self.seed = job.seed or 0
        length = len(body) + (len(bodies.number(0)) if has_seed else 0)
        self.request = bodies.head(job.path, length, job.headers) + body
        self.latencies: list[float] = []
        self.first_byte_latencies: list[float] = []
        self.loop = asyncio.get_running_loop()
        self.finished: asyncio.Future[None] = self.loop.create_future()
        self.idle: deque[Connection] = deque()
        self.due_times: deque[float] = deque()
        self.requests = 0
        self.all_requested = False

    def next_request(self) -> bytes:
        if self.job.seed is None:
            return self.request
        self.seed += 1
        return self.request + bodies.number(self.seed)

    def fail(self, error: CallFailed) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)

    def on_response(self, connection: Connection) -> None:
        now = time.perf_counter()
        self.latencies.append(now - connection.due_at)
        self.first_byte_latencies.append(connection.first_byte_at - connection.due_at)
        if self.job.rate:
            self.idle.append(connection)
            self._send_due()
        elif self._has_more(now):
            self.requests += 1
            connection.send(now)
        else:
            self.all_requested = True
        self._finish_if_complete()

    def _finish_if_complete(self) -> None:
        is_complete = self.all_requested and len(self.latencies) == self.requests
        if is_complete and not self.finished.done():
            self.finished.set_result(None)

    def _has_more(self, now: float) -> bool:
        return self.requests < self.job.total if self.job.total else now < self.ends_at

    def _send_due(self) -> None:
        while self.due_times and self.idle:
            self.idle.popleft().send(self.due_times.popleft())

    def _tick(self) -> None:
        """Send the requests that are due, and schedule the next tick."""
        now = time.perf_counter()
        due_at = self.started_at + self.requests / self.job.rate
        while due_at <= now and self._has_more(due_at):
            self.due_times.append(due_at)
            self.requests += 1
            due_at = self.started_at + self.requests / self.job.rate
        self._send_due()
        if not self._has_more(due_at):
            self.all_requested = True
            self._finish_if_complete()
        elif due_at - now > SPIN_S:
            self.loop.call_later(due_at - now - SPIN_S, self._tick)
        else:
            self.loop.call_soon(self._tick)

    async def run(self) -> Result:
        """Send all requests and wait for their responses.

        Raises:
            CallFailed: A response is missing or not 200.
            TimeoutError: Responses are missing after ``RESPONSE_TIMEOUT_S``.
        """
        connections: list[Connection] = []
        try:
            for _ in range(self.job.connections):
                _, connection = await self.loop.create_connection(
                    lambda: Connection(self), "127.0.0.1", self.job.port
                )
                connections.append(connection)
            self._start(connections)
            async with asyncio.timeout(self.job.seconds + RESPONSE_TIMEOUT_S):
                await self.finished
            return self._result(time.perf_counter() - self.started_at)
        finally:
            for connection in connections:
                connection.transport.close()

    def _start(self, connections: list[Connection]) -> None:
        self.started_at = time.perf_counter()
        self.ends_at = self.started_at + self.job.seconds
        if self.job.rate:
            self.idle.extend(connections)
            self._tick()
            return
        for connection in connections[: self.job.total or None]:
            self.requests += 1
            connection.send(time.perf_counter())

    def _result(self, seconds: float) -> Result:
        latencies = sorted(self.latencies)
        return Result(
            calls=len(latencies),
            seconds=seconds,
            p50=percentile(latencies, 0.5) * 1e6,
            p99=percentile(latencies, 0.99) * 1e6,
            first_p50=percentile(sorted(self.first_byte_latencies), 0.5) * 1e6,
        )


async def run(job: Job, cores: list[int] | None = None) -> Result:
    """Execute a job in a child process. Raises ``CallFailed`` if a response is missing."""
    with pinned(cores):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.load", json.dumps(asdict(job))),
            stdout=PIPE,
            start_new_session=True,
        )
    if cores is not None:
        prioritize_session(process.pid)
    output, _ = await process.communicate()
    if process.returncode:
        raise CallFailed(f"a call to port {job.port} was not answered")
    return Result(**json.loads(output))


async def main(job: str) -> None:
    try:
        result = await LoadRun(Job(**json.loads(job))).run()
    except CallFailed as error:
        sys.exit(f"{error}")
    except TimeoutError:
        sys.exit("calls were not answered in time")
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
