"""Composition: the only place where the parts of a process are made and joined."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import structlog
from aiohttp import web
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource

import proxy
from proxy import cache, edge, ledger
from proxy.beside import beside
from proxy.cache.key import secret_of
from proxy.cache.memory import Memory
from proxy.cache.sqlite import Sqlite
from proxy.cache.store import Shelf
from proxy.edge.admin import Readiness, Told, back
from proxy.edge.calls import Calls
from proxy.edge.request import Bounds
from proxy.emit import Emitters, Sink
from proxy.emit.log import CallLog, LineWriter, events
from proxy.emit.metrics import Metrics
from proxy.emit.outbox import Outbox
from proxy.emit.profiles import PROFILES
from proxy.emit.trace import Traces
from proxy.guardrails import Guards
from proxy.guardrails.engine import Engine
from proxy.ledger import budgets
from proxy.limits import Admission
from proxy.limits.alone import Alone
from proxy.limits.memory import MemoryStore
from proxy.limits.outage import Sheltered
from proxy.limits.store import Store
from proxy.pipeline import Pipeline
from proxy.policy.candidate import Candidate
from proxy.policy.past import Past
from proxy.policy.store import PolicyStore, read_folder
from proxy.policy.watch import Watch, look
from proxy.ports import Cache, Policies
from proxy.record import Record, TraceIds
from proxy.settings import Address, Settings
from proxy.types import Secret
from proxy.types.limit import Limit
from proxy.types.outcome import Standing
from proxy.upstream import Upstreams
from proxy.upstream.client import HttpClient
from proxy.upstream.health import Health

LINGER_S = 2.0
CLOSING_S = 1.0
KEEPALIVE_S = 75.0
GUARD_THREADS = 2  # they search without holding up the loop, and not much more than that


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy that answers. ``listen`` and ``admin`` are the addresses it really has."""

    listen: Address
    admin: Address
    policies: PolicyStore
    watch: Watch
    readiness: Readiness
    log: structlog.typing.FilteringBoundLogger


def new_record() -> Record:
    """Begin the account of a call: its clocks and the ids of its spans."""
    drawn = f"{random.getrandbits(256) | 1:064x}"  # ids, not secrets
    ids = TraceIds(drawn[:32], drawn[32:48], drawn[48:])
    return Record(ids, time.monotonic(), datetime.now(UTC), time.monotonic)


def new_span_id() -> str:
    return f"{random.getrandbits(64) | 1:016x}"  # an id, not a secret


def new_request_id() -> str:
    return f"req_{random.getrandbits(96):024x}"  # an id, not a secret


@dataclass(frozen=True, slots=True)
class Rooms:
    """What a call goes through between policy and emitters."""

    limits: Admission
    guards: Guards
    cache: Cache
    upstreams: Upstreams


def assembled(
    policies: Policies,
    rooms: Rooms,
    emitter: Emitters,
    start_record: Callable[[], Record] = new_record,
) -> Pipeline:
    """Join the rooms to the pipeline; what serves calls and what rehearses them differ in these
    parameters alone."""
    return Pipeline(
        policies=policies,
        limits=rooms.limits,
        guards=rooms.guards,
        cache=rooms.cache,
        upstreams=rooms.upstreams,
        emitter=emitter,
        start_record=start_record,
    )


@asynccontextmanager
async def running(settings: Settings, *sinks: Sink, log_fd: int = 1) -> AsyncIterator[Running]:
    """Run the proxy until the block is left; then drain, close and flush what was opened.

    ``sinks`` are told of every call beside the usual emitters. Raises ``PolicyError`` when the
    policies cannot be taken into force, ``ledger.Unusable`` when no ledger can be kept and
    ``OSError`` when an address cannot be had.
    """
    async with AsyncExitStack() as opened:
        metrics = Metrics(proxy.__version__)
        writer = LineWriter(log_fd, lambda reason, count: metrics.dropped("logs", reason, count))
        opened.callback(writer.close)
        log = events(writer.put)
        clock = (time.monotonic, asyncio.sleep)
        known = look(settings.policies)  # before it is read, so that no change is missed
        reading = partial(read_folder, settings.policies, settings.environ)
        store = PolicyStore(reading, *clock, log, metrics.reloaded)
        watch = Watch(settings.policies, known, store.refresh)
        candidate = await _candidate(settings, opened, log, metrics)
        all_sinks: tuple[Sink, ...] = (
            metrics,
            CallLog(writer.put),
            *_traces(settings, opened, metrics),
            past := Past(store.find, candidate.current if candidate else None),
            *([candidate] if candidate else []),
            *_ledger(settings, opened, log, metrics),
            *sinks,
        )
        soon = asyncio.get_running_loop().call_soon
        emitters = Emitters(all_sinks, _report(log, metrics), soon)
        opened.callback(emitters.tell)  # of the calls that end last
        via = f"{random.getrandbits(64):016x}"  # an id, not a secret
        rooms = await _rooms(settings, opened, log, metrics, via)
        pipeline = assembled(store, rooms, emitters)
        calls = Calls()
        front = edge.front(
            pipeline,
            via=via,
            new_id=new_request_id,
            bounds=Bounds(body_bytes=settings.body_bytes),
            calls=calls,
            on_bug=_bug(log),
        )
        readiness = Readiness()
        told = Told(metrics.render, past.explain, candidate.explain if candidate else None)
        admin = await _listen(opened, back(told, readiness), settings.admin)
        drain = partial(calls.drain, settings.drain_s)
        listen = await _listen(opened, front, settings.listen, drain)
        await opened.enter_async_context(beside(watch.run()))
        readiness.ready = True
        opened.callback(setattr, readiness, "ready", False)
        log.info("listening", address=str(listen), admin=str(admin), version=proxy.__version__)
        yield Running(listen, admin, store, watch, readiness, log)


async def _rooms(
    settings: Settings,
    opened: AsyncExitStack,
    log: structlog.typing.FilteringBoundLogger,
    metrics: Metrics,
    via: str,
) -> Rooms:
    http = await opened.enter_async_context(HttpClient())
    counters = await _counters(settings, opened, log, metrics)
    pool = opened.enter_context(ThreadPoolExecutor(GUARD_THREADS, "guards"))
    return Rooms(
        Admission(counters, _warn(log, metrics), _recall(settings, log)),
        Guards(Engine(time.monotonic, pool)),
        cache.Exact(await _shelves(settings, opened, metrics), _since_epoch),
        Upstreams(http, via, new_span_id, Health(time.monotonic, metrics.circuit)),
    )


async def _candidate(
    settings: Settings,
    opened: AsyncExitStack,
    log: structlog.typing.FilteringBoundLogger,
    metrics: Metrics,
) -> Candidate | None:
    """Give the sink of a candidate where there is one, its folder watched; it needs no secrets."""
    if settings.candidate is None:
        return None
    known = look(settings.candidate)
    reading = partial(read_folder, settings.candidate, None)
    clock = (time.monotonic, asyncio.sleep)
    store = PolicyStore(reading, *clock, log, lambda result: None, "candidate")
    watch = Watch(settings.candidate, known, store.refresh)
    await opened.enter_async_context(beside(watch.run()))
    return Candidate(lambda: store.current, metrics.candidate)


async def _counters(
    settings: Settings,
    opened: AsyncExitStack,
    log: structlog.typing.FilteringBoundLogger,
    metrics: Metrics,
) -> Store:
    """Open the store of the counters of limits: in memory, or in a server that may be away."""
    if settings.redis_url is None:
        return MemoryStore(time.monotonic, _since_epoch)
    from proxy.limits.redis import RedisStore, connect  # noqa: PLC0415  # an extra

    def tell(state: Literal["degraded", "recovered"]) -> None:
        metrics.counters_degraded(state == "degraded")
        log.warning(f"limits.{state}")

    server = connect(Secret(settings.redis_url))
    shared = await opened.enter_async_context(RedisStore(server, _since_epoch))
    alone = Alone(time.monotonic, _since_epoch, settings.replicas)
    sheltered = Sheltered(shared, alone, tell, asyncio.sleep, random.random, new_request_id)
    await opened.enter_async_context(beside(sheltered.watch()))
    return sheltered


def _recall(
    settings: Settings, log: structlog.typing.FilteringBoundLogger
) -> Callable[[Limit, Mapping[str, str]], Awaitable[int | None]]:
    """Let budgets that begin anew ask the ledger what their window has seen, where there is one."""

    async def ask(limit: Limit, of: Mapping[str, str]) -> int | None:
        at, found = settings.ledger, None
        if at is not None and at.kind == "sqlite":
            since_ms = limit.calendar.around(int(_since_epoch() * 1000))[1]
            found = await budgets.spent(at.path, since_ms, of)
        log.info("budget.begins", limit=limit.name, recalled_micro_usd=found)
        return found

    return ask


async def _shelves(
    settings: Settings, opened: AsyncExitStack, metrics: Metrics
) -> dict[str, Shelf]:
    """Open the stores of the cache. What is kept in memory ends with it, and so does its secret."""
    memory = Memory(settings.cache_bytes, time.monotonic, metrics)
    shelves = {
        "memory": Shelf(await opened.enter_async_context(memory), secrets.token_bytes(32)),
    }
    secret = secret_of(settings.cache_secret or "")
    if settings.cache_file is not None:
        file = Sqlite(settings.cache_file, settings.cache_bytes, _since_epoch, metrics)
        shelves["sqlite"] = Shelf(await opened.enter_async_context(file), secret)
    if settings.redis_url is not None:
        from proxy.cache.redis import Redis  # noqa: PLC0415  # an extra

        shared = Redis(Secret(settings.redis_url), time.monotonic, metrics)
        shelves["redis"] = Shelf(await opened.enter_async_context(shared), secret)
    return shelves


def _traces(settings: Settings, opened: AsyncExitStack, metrics: Metrics) -> tuple[Sink, ...]:
    """Give the sink of spans when there is a collector to send them to."""
    if settings.otlp_endpoint is None:
        return ()
    exporter = OTLPSpanExporter(f"{settings.otlp_endpoint.rstrip('/')}/v1/traces", timeout=2)
    outbox = Outbox(exporter, time.monotonic, partial(metrics.dropped, "traces"))
    opened.push_async_callback(asyncio.to_thread, outbox.close)
    who = {"service.version": proxy.__version__, "service.instance.id": new_request_id()}
    resource = Resource.create({"service.name": "headrace", **who})
    profiles = [PROFILES[name] for name in settings.trace_profiles]
    return (Traces(outbox, resource, settings.trace_ratio, profiles),)


def _since_epoch() -> float:
    return datetime.now(UTC).timestamp()


def _warn(
    log: structlog.typing.FilteringBoundLogger, metrics: Metrics
) -> Callable[[Standing], None]:
    """Tell of a limit that is nearly used up. Whose it is may be a user's name: it is not told."""

    def tell(standing: Standing) -> None:
        limit = standing.limit
        metrics.limit_warned(limit.name)
        log.warning("limit.warned", limit=limit.name, used=standing.used, of=limit.capacity)

    return tell


def _ledger(
    settings: Settings,
    opened: AsyncExitStack,
    log: structlog.typing.FilteringBoundLogger,
    metrics: Metrics,
) -> tuple[Sink, ...]:
    """Give the sink of rows when they are kept. It closes after the last call has ended."""
    if settings.ledger is None:
        return ()
    kind, path = settings.ledger.kind, settings.ledger.path
    dropped = partial(metrics.dropped, "ledger")
    kept = ledger.opened(kind, path, proxy.__version__, dropped, log)
    opened.push_async_callback(asyncio.to_thread, kept.close)
    return (kept,)


async def _nothing() -> None:
    """What there is to wait for where calls are short."""


async def _listen(
    opened: AsyncExitStack,
    handler: edge.Handler,
    at: Address,
    drain: Callable[[], Awaitable[None]] = _nothing,
) -> Address:
    """Open a listener. Leaving it stops accepting, waits for what runs, then closes the rest."""
    server = edge.Server(
        handler,
        access_log=None,
        keepalive_timeout=KEEPALIVE_S,
        lingering_time=LINGER_S,
    )
    runner = web.ServerRunner(server, shutdown_timeout=CLOSING_S)
    await runner.setup()
    opened.push_async_callback(runner.cleanup)
    opened.push_async_callback(drain)
    site = web.TCPSite(runner, at.host, at.port)
    await site.start()
    opened.push_async_callback(site.stop)
    host, port, *_ = runner.addresses[0]
    return Address(host, port)


def _bug(log: structlog.typing.FilteringBoundLogger) -> Callable[[BaseException, str], None]:
    """Log where a bug is, by type and line; its message could quote a request."""

    def tell(bug: BaseException, request_id: str) -> None:
        log.error("bug", request_id=request_id, **_where(bug))

    return tell


def _report(
    log: structlog.typing.FilteringBoundLogger, metrics: Metrics
) -> Callable[[Sink, BaseException], None]:
    def tell(sink: Sink, error: BaseException) -> None:
        metrics.dropped(type(sink).__name__.lower(), "error")
        log.error("emit.failed", sink=type(sink).__name__, **_where(error))

    return tell


def _where(error: BaseException) -> dict[str, str]:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
    return {"type": type(error).__name__, "at": line}
