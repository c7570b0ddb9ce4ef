"""A client over raw sockets: ``python -m bench.load JOB``, where JOB is the JSON of a ``Job``.

In closed loop each connection always has one call under way. In open loop a call is due at its
moment whether or not earlier ones were answered, and its latency counts from that moment: a proxy
that stands still is charged for the queue that it caused.
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
from bench.processes import come_first, placed

SPIN_S = 0.002  # timers are told in whole milliseconds: what is due sooner is waited for awake
ANSWERED_S = 300.0
END = b"\r\n0\r\n\r\n"
HEAD, CHUNKED = -1, -2  # what is read, where it is not so many bytes of a body


class Failed(Exception):
    """An answer that is none; the message says what came."""


@dataclass(frozen=True)
class Job:
    """What is asked of a port: ``total`` calls, or calls for so many ``seconds``.

    ``seed`` makes each call another one, from this number on; without it all are the same.
    ``plain`` calls have a model and one message alone. ``rate`` is how many are due in a second,
    in open loop; 0 is closed loop.
    """

    port: int
    path: str = "/v1/chat/completions"
    headers: dict[str, str] = field(default_factory=dict)
    model: str = "support-chat"
    size: int = 1000
    stream: bool = False
    plain: bool = False
    seed: int | None = None
    connections: int = 32
    seconds: float = 0.0
    total: int = 0
    rate: float = 0.0


@dataclass(frozen=True)
class Result:
    """What a job gave: calls answered, the seconds they took, and latencies in microseconds.

    ``first`` is until the first byte of the body.
    """

    calls: int
    seconds: float
    p50: float
    p99: float
    first_p50: float


class Caller(asyncio.Protocol):
    """One connection: sends a request, reads the answer, and asks what is next."""

    transport: asyncio.WriteTransport

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def call(self, due: float) -> None:
        """Send the next request, which was due then."""
        self.busy, self.due, self.first = True, due, 0.0
        self.head, self.tail, self.left = b"", b"", HEAD
        self.transport.write(self.asking.request())

    def data_received(self, data: bytes) -> None:
        if self.left == HEAD:
            self.head += data
            head, end, data = self.head.partition(b"\r\n\r\n")
            if not end:
                return
            if head[9:12] != b"200":
                self.asking.fail(Failed(self.head[:500].decode(errors="replace")))
                return
            length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
            self.left = int(length) if length else CHUNKED
        if data and not self.first:
            self.first = time.perf_counter()
        if self.left == CHUNKED:
            self.tail = (self.tail + data)[-len(END) :]
        else:
            self.left -= len(data)
        if self.left == 0 or self.tail == END:
            self.busy = False
            self.asking.answered(self, self.due, self.first)

    def connection_lost(self, error: Exception | None) -> None:
        if self.busy:
            self.asking.fail(Failed("the connection was closed"))


class Asking:
    """One job under way."""

    def __init__(self, job: Job) -> None:
        self.job = job
        seed = job.seed is not None
        body = bodies.chat(job.size, model=job.model, stream=job.stream, seed=seed, plain=job.plain)
        self.next = job.seed or 0
        more = len(bodies.number(0)) if seed else 0
        self.raw = bodies.head(job.path, len(body) + more, job.headers) + body
        self.latencies: list[float] = []
        self.firsts: list[float] = []
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.idle: deque[Caller] = deque()
        self.due: deque[float] = deque()
        self.asked = 0
        self.whole = False  # nothing more is asked

    def request(self) -> bytes:
        """Return the next request."""
        if self.job.seed is None:
            return self.raw
        self.next += 1
        return self.raw + bodies.number(self.next)

    def fail(self, error: Failed) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def answered(self, caller: Caller, due: float, first: float) -> None:
        now = time.perf_counter()
        self.latencies.append(now - due)
        self.firsts.append(first - due)
        if self.job.rate:
            self.idle.append(caller)
            self._serve()
        elif self._goes_on(now):
            self.asked += 1
            caller.call(now)
        else:
            self.whole = True
        self._finish()

    def _finish(self) -> None:
        """End where nothing more is asked, and all is answered."""
        if self.whole and len(self.latencies) == self.asked and not self.done.done():
            self.done.set_result(None)

    def _goes_on(self, now: float) -> bool:
        """True if more is to be asked."""
        return self.asked < self.job.total if self.job.total else now < self.end

    def _serve(self) -> None:
        while self.due and self.idle:
            self.idle.popleft().call(self.due.popleft())

    def _tick(self) -> None:
        """Send what is due, and wait for what is next."""
        now = time.perf_counter()
        due = self.begun + self.asked / self.job.rate
        while due <= now and self._goes_on(due):
            self.due.append(due)
            self.asked += 1
            due = self.begun + self.asked / self.job.rate
        self._serve()
        if not self._goes_on(due):
            self.whole = True
            self._finish()
        elif due - now > SPIN_S:
            self.loop.call_later(due - now - SPIN_S, self._tick)
        else:
            self.loop.call_soon(self._tick)

    async def run(self) -> Result:
        """Ask all, and wait for the answers. Raises ``Failed`` for any that is none."""
        callers = [await self._connected() for _ in range(self.job.connections)]
        try:
            return await self._asked_by(callers)
        finally:
            for caller in callers:
                caller.transport.close()

    async def _asked_by(self, callers: list[Caller]) -> Result:
        self.begun = time.perf_counter()
        self.end = self.begun + self.job.seconds
        if self.job.rate:
            self.idle.extend(callers)
            self._tick()
        else:
            for caller in callers[: self.job.total or None]:
                self.asked += 1
                caller.call(time.perf_counter())
        async with asyncio.timeout(self.job.seconds + ANSWERED_S):
            await self.done
        return self._result(time.perf_counter() - self.begun)

    async def _connected(self) -> Caller:
        _, caller = await self.loop.create_connection(
            lambda: Caller(self), "127.0.0.1", self.job.port
        )
        return caller

    def _result(self, seconds: float) -> Result:
        latencies, firsts = sorted(self.latencies), sorted(self.firsts)
        return Result(
            calls=len(latencies),
            seconds=seconds,
            p50=percentile(latencies, 0.5) * 1e6,
            p99=percentile(latencies, 0.99) * 1e6,
            first_p50=percentile(firsts, 0.5) * 1e6,
        )


async def run(job: Job, cores: list[int] | None = None) -> Result:
    """Do a job in a process of its own. Raises ``Failed`` if one of its calls was not answered."""
    with placed(cores):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.load", json.dumps(asdict(job))),
            stdout=PIPE,
            start_new_session=True,
        )
    if cores is not None:
        come_first(process.pid)
    written, _ = await process.communicate()
    if process.returncode:
        raise Failed(f"a call to port {job.port} was not answered")
    return Result(**json.loads(written))


async def main(told: str) -> None:
    try:
        result = await Asking(Job(**json.loads(told))).run()
    except Failed as error:
        sys.exit(f"{error}")
    except TimeoutError:
        sys.exit("calls were not answered in time")
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
