"""What admission costs: six limits, claimed and settled, in memory and in a Redis beside us."""

from __future__ import annotations

import asyncio
import resource
import shutil
import tempfile
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count

import orjson

from bench.decide import BODY, microseconds
from proxy.app.context import new_record
from proxy.limits import Limiter
from proxy.limits.claims import estimate_claims
from proxy.limits.kinds import KINDS
from proxy.limits.stores.failover import FailoverStore
from proxy.limits.stores.local_fallback import LocalFallback
from proxy.limits.stores.memory import MemoryStore
from proxy.limits.stores.redis import RedisStore
from proxy.limits.stores.store import CounterStore
from proxy.money.usage import Price
from proxy.policy.review.sample_call import sample_call
from proxy.runtime.redis import connect
from proxy.settings import redis_at
from proxy.types import Call, ModelCall, Plan, ScopedLimit, Target, Upstream
from proxy.types.limit import Limit
from proxy.types.windows import Calendar

CALLS, AT_ONCE, MOST = 5000, 32, 10**9
UP = Upstream("up", "openai", "http://127.0.0.1:9")
TARGET = Target(UP, "m", prices=(Price(Decimal(1), Decimal(2)),))
BOUNDS = (
    ScopedLimit(Limit("calls", KINDS["requests"], MOST, 86_400), ("key",)),
    ScopedLimit(Limit("burst", KINDS["requests"], MOST, 60), ()),
    ScopedLimit(Limit("tokens", KINDS["tokens"], MOST, 86_400), ("tag.team",)),
    ScopedLimit(Limit("user", KINDS["tokens"], MOST, 86_400), ("user",)),
    ScopedLimit(Limit("at-once", KINDS["concurrency"], MOST), ("deployment",)),
    ScopedLimit(Limit("month", KINDS["usd"], MOST, Calendar("month")), ("tag.team",)),
)
PLAN = Plan("1", "widget", "chat", {"team": "support"}, (ModelCall("m", (TARGET,)),), limits=BOUNDS)


def asked(number: int) -> Call:
    call = sample_call(BODY, {}, datetime(2026, 1, 1, tzinfo=UTC))
    return replace(call, head=replace(call.head, call_id=f"bench-{number}"))


async def run(store: CounterStore, calls: int) -> float:
    """Give the microseconds of our processor for one call's admission and settlement."""
    admission = Limiter(store, lambda standing: None)
    numbers = iter(range(calls))

    async def worker() -> None:
        for number in numbers:
            record = new_record()
            record.call = prepared[number]
            async with admission.admit(PLAN, prepared[number], record):
                pass

    prepared = [asked(number) for number in range(calls)]
    before = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent / calls * 1e6


def utc() -> float:
    return datetime.now(UTC).timestamp()


async def in_memory() -> float:
    store = MemoryStore(time.monotonic, utc)
    return min([await run(store, CALLS) for _ in range(3)])


def store_alone() -> float:
    """What the counters themselves take of it."""
    store = MemoryStore(time.monotonic, utc)
    claims, used = estimate_claims(PLAN, asked(0)), [1, 1, 8, 8, 0, 11]

    def once() -> None:
        store.admit_sync("call", claims)
        store.settle_sync("call", used)

    return microseconds(once)


async def in_redis(port: int) -> float:
    server = connect(redis_at(f"redis://127.0.0.1:{port}/0").urls, timeout_s=5.0)
    names = count()
    async with RedisStore(server, utc) as shared:
        alone = LocalFallback(time.monotonic, utc)
        store = FailoverStore(
            shared,
            alone,
            lambda state: None,
            asyncio.sleep,
            lambda: 0.5,
            lambda: str(next(names)),
            lambda limit: None,
        )
        return min([await run(store, CALLS) for _ in range(3)])


async def report(free_port: Callable[[], int], listens: Callable[[int], Awaitable[bool]]) -> None:
    """Print both, beside reading the JSON of a call."""
    written = orjson.dumps(BODY)
    reference = microseconds(lambda: orjson.loads(written))
    print("\nsix limits claimed and settled, us of our processor; the ratio is to reading JSON\n")
    rows = [("the counters alone", store_alone()), ("in memory", await in_memory())]
    program = shutil.which("redis-server")
    if program is not None:
        port = free_port()
        with tempfile.TemporaryDirectory() as folder:
            command = [program, "--port", str(port), "--save", "", "--dir", folder]
            server = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL)
            while not await listens(port):
                await asyncio.sleep(0.05)
            rows.append((f"in Redis, {AT_ONCE} at once", await in_redis(port)))
            server.terminate()
            await server.wait()
    for name, spent in rows:
        print(f"{name:34}{spent:>12.1f}{spent / reference:>21.1f}")
