"""Composition: the only place where the parts of a process are made and joined."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import structlog
from aiohttp import web
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import proxy
from proxy import cache, edge, guardrails, limits
from proxy.edge.admin import Readiness, back
from proxy.edge.calls import Calls
from proxy.edge.request import Bounds
from proxy.emit import Emitters, Sink
from proxy.emit.log import CallLog, LineWriter, events
from proxy.emit.metrics import Metrics
from proxy.emit.trace import Traces
from proxy.pipeline import Pipeline
from proxy.policy.past import Past
from proxy.policy.snapshot import Snapshot
from proxy.policy.store import PolicyStore, read_folder
from proxy.policy.watch import Watch, look
from proxy.record import Record, TraceIds
from proxy.settings import Address, Settings
from proxy.upstream import Upstreams
from proxy.upstream.client import HttpClient
from proxy.upstream.health import Health

LINGER_S = 2.0
CLOSING_S = 1.0
KEEPALIVE_S = 75.0
SPANS_QUEUED = 2048
SPANS_A_BATCH = 128


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


@asynccontextmanager
async def running(settings: Settings, *sinks: Sink, log_fd: int = 1) -> AsyncIterator[Running]:
    """Run the proxy until the block is left; then drain, close and flush what was opened.

    ``sinks`` are told of every call beside the usual emitters. Raises ``PolicyError`` when the
    policies cannot be taken into force and ``OSError`` when an address cannot be had.
    """
    async with AsyncExitStack() as opened:
        metrics = Metrics(proxy.__version__)
        writer = LineWriter(log_fd, lambda reason, count: metrics.dropped("logs", reason, count))
        opened.callback(writer.close)
        log = events(writer.put)
        clock = (time.monotonic, asyncio.sleep)
        known = look(settings.policies)  # before it is read, so that no change is missed
        store = PolicyStore(_reading(settings), *clock, log, metrics.reloaded)
        watch = Watch(settings.policies, known, store.refresh)
        all_sinks: tuple[Sink, ...] = (
            metrics,
            CallLog(writer.put),
            *_traces(settings, opened),
            past := Past(store.find),
            *sinks,
        )
        soon = asyncio.get_running_loop().call_soon
        emitters = Emitters(all_sinks, _report(log, metrics), soon)
        opened.callback(emitters.tell)  # of the calls that end last
        via = f"{random.getrandbits(64):016x}"  # an id, not a secret
        pipeline = Pipeline(
            policies=store,
            limits=limits.Unlimited(),
            guards=guardrails.Unguarded(),
            cache=cache.Forgetful(),
            upstreams=Upstreams(
                await opened.enter_async_context(HttpClient()),
                via,
                new_span_id,
                Health(time.monotonic, metrics.circuit),
            ),
            emitter=emitters,
            start_record=new_record,
        )
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
        admin = await _listen(opened, back(metrics.render, readiness, past.explain), settings.admin)
        drain = partial(calls.drain, settings.drain_s)
        listen = await _listen(opened, front, settings.listen, drain)
        await opened.enter_async_context(watch)
        readiness.ready = True
        opened.callback(setattr, readiness, "ready", False)
        log.info("listening", address=str(listen), admin=str(admin), version=proxy.__version__)
        yield Running(listen, admin, store, watch, readiness, log)


def _reading(settings: Settings) -> Callable[[], Snapshot]:
    def read() -> Snapshot:
        return read_folder(settings.policies, settings.environ)

    return read


def _traces(settings: Settings, opened: AsyncExitStack) -> tuple[Sink, ...]:
    """Give the sink of spans when there is a collector to send them to."""
    if settings.otlp_endpoint is None:
        return ()
    exporter = OTLPSpanExporter(f"{settings.otlp_endpoint.rstrip('/')}/v1/traces", timeout=2)
    processor = BatchSpanProcessor(
        exporter, max_queue_size=SPANS_QUEUED, max_export_batch_size=SPANS_A_BATCH
    )
    opened.push_async_callback(asyncio.to_thread, processor.shutdown)
    resource = Resource.create({"service.name": "headrace", "service.version": proxy.__version__})
    return (Traces(processor, resource, settings.trace_ratio),)


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
