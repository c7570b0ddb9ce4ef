"""What a process tells of itself beside its calls: spans, warnings, bugs and where they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource

import proxy
from proxy.app import measuring
from proxy.app.site import Site, new_request_id
from proxy.emit import Sink
from proxy.emit.chain import BadChain
from proxy.emit.decisions import Decisions
from proxy.emit.metrics import Metrics
from proxy.emit.outbox import Outbox
from proxy.emit.profiles import PROFILES
from proxy.emit.trace import Traces
from proxy.policy.caches import stores_of
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.store import Result
from proxy.settings import Address, BadSetting
from proxy.types.outcome import Standing
from proxy.usage import NANO

LOG_EVERY_S = 60.0
Log = structlog.typing.FilteringBoundLogger


def traces(site: Site) -> tuple[Sink, ...]:
    """Give the sink of spans when there is a collector to send them to."""
    if site.settings.otlp_endpoint is None:
        return ()
    exporter = OTLPSpanExporter(f"{site.settings.otlp_endpoint.rstrip('/')}/v1/traces", timeout=2)
    dropped, failed = partial(site.metrics.dropped, "traces"), partial(site.failed, "traces")
    outbox = Outbox(exporter, time.monotonic, dropped, failed)
    waiting = partial(getattr, outbox, "waiting")
    site.metrics.watch("headrace_telemetry_queue_length", "traces", read=waiting)
    site.opened.push_async_callback(asyncio.to_thread, outbox.close)
    who = {"service.version": proxy.__version__, "service.instance.id": new_request_id()}
    resource = Resource.create({"service.name": "headrace", **who})
    profiles = [PROFILES[name] for name in site.settings.trace_profiles]
    return (Traces(outbox, resource, site.settings.trace_ratio, profiles),)


def decisions(site: Site) -> tuple[Decisions, ...]:
    """Give the sink of decisions when they are kept. It closes after the last call has ended."""
    path = site.settings.log.decisions
    if path is None:
        return ()
    dropped, failed = partial(site.metrics.dropped, "decisions"), partial(site.failed, "decisions")
    replaced = partial(site.metrics.file_replaced, "decisions")
    try:
        kept = Decisions(path, dropped, failed, replaced, site.log)
    except BadChain as error:
        raise BadSetting(f"HEADRACE_DECISION_LOG: {error}") from None
    waiting = partial(getattr, kept, "waiting")
    site.metrics.watch("headrace_telemetry_queue_length", "decisions", read=waiting)
    site.opened.push_async_callback(asyncio.to_thread, kept.close)
    return (kept,)


def policies(site: Site, decisions: Iterable[Decisions]) -> Callable[[Result, Snapshot], None]:
    """Count readings of the policies, and warn at each of stores of the cache that they ask for and
    no variable names: those keep nothing."""
    settings, count = site.settings, measuring.policies(site.metrics, decisions)
    needs = {
        "sqlite": ("HEADRACE_CACHE_FILE", settings.cache_file),
        "redis": ("HEADRACE_REDIS_URL", settings.redis),
    }

    def tell(result: Result, snapshot: Snapshot) -> None:
        count(result, snapshot)
        if result == "rejected":
            return
        for store, deployments in stores_of(snapshot).items():
            variable, given = needs.get(store, ("", store))
            if given is None:
                named = {"store": store, "variable": variable, "deployments": deployments}
                site.log.warning("cache.store_missing", **named)

    return tell


def listening(site: Site, ending: Ending, listen: Address, admin: Address) -> None:
    """Log where the process listens, and that it stops as soon as it does."""
    named = {"address": str(listen), "admin": str(admin), "version": proxy.__version__}
    site.log.info("listening", **named)
    site.opened.callback(ending.begin)


@dataclass(slots=True)
class Ending:
    """Logs the end of a process: when it begins to stop, and when all is closed but the log."""

    log: Log
    drain_seconds: float
    began: float | None = None

    def begin(self) -> None:
        self.began = time.monotonic()
        self.log.info("stopping", drain_seconds=self.drain_seconds)

    def end(self) -> None:
        if self.began is not None:
            self.log.info("stopped", seconds=round(time.monotonic() - self.began, 3))


def warn(site: Site) -> Callable[[Standing], None]:
    """Tell of a limit that is nearly used up, and whose it is: but for what a caller has said."""

    def tell(standing: Standing) -> None:
        limit = standing.limit
        site.metrics.limit_warned(limit.name)
        used: float = standing.used
        capacity: float = limit.capacity
        if limit.kind == "usd":  # money is read in USD
            used, capacity = used / NANO, capacity / NANO
        whose = site.metrics.roster.owners(standing.scope)
        site.log.warning("limit.warned", limit=limit.name, whose=whose, used=used, of=capacity)

    return tell


def bug(site: Site) -> Callable[[BaseException, str], None]:
    """Log where a bug is, by type and line; its message could quote a request."""

    def tell(bug: BaseException, request_id: str) -> None:
        site.log.error("bug", request_id=request_id, **where(bug))

    return tell


def report(site: Site) -> Callable[[Sink, BaseException], None]:
    def tell(sink: Sink, error: BaseException) -> None:
        site.metrics.dropped(type(sink).__name__.lower(), "error")
        site.log.error("emit.failed", sink=type(sink).__name__, **where(error))

    return tell


def writer_failed(metrics: Metrics, log: Log) -> Callable[[str, BaseException], None]:
    """Count and log an exception in the thread of a writer: the log once a minute for each of them,
    as one that fails with every batch must not fill it."""
    logged: dict[str, float] = {}

    def tell(writer: str, error: BaseException) -> None:
        metrics.writer_failed(writer)
        now = time.monotonic()
        if now - logged.get(writer, -LOG_EVERY_S) >= LOG_EVERY_S:
            logged[writer] = now
            log.error("writer.failed", writer=writer, **where(error))

    return tell


def amiss(site: Site, event: str) -> Callable[[Exception], None]:
    """Log why something beside the calls came to nothing."""

    def tell(error: Exception) -> None:
        site.log.error(event, **where(error))

    return tell


def where(error: BaseException) -> dict[str, str]:
    """Return an error's type and the line where it was raised: nothing that could quote a text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
    return {"type": type(error).__name__, "at": line}
