"""Telemetry of the process: sinks of decisions and spans, warnings, bugs and logs of libraries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import proxy
from proxy.app.context import Context
from proxy.policy.catalog import cache_stores, list_labels, shared_response_stores
from proxy.policy.decide.snapshot import Snapshot
from proxy.ports import EventLog
from proxy.settings import Address, BadSetting, Settings
from proxy.telemetry import RecordSink
from proxy.telemetry.chain import BadChain
from proxy.telemetry.decisions import Decisions
from proxy.telemetry.log import CallLog
from proxy.telemetry.log_limits import Quota
from proxy.telemetry.metrics import Metrics
from proxy.types.outcome import CounterState

LOG_EVERY_S = 60.0


def call_log(context: Context) -> CallLog:
    return CallLog(context.log, context.levels, context.settings.log.ratio)


def decisions(context: Context) -> tuple[Decisions, ...]:
    """Return the sink of decisions if they are kept. It closes after the last call has ended."""
    path = context.settings.log.decisions
    if path is None:
        return ()
    dropped = partial(context.metrics.dropped, "decisions")
    failed = partial(context.failed, "decisions")
    replaced = partial(context.metrics.count, "headrace_files_replaced_total", "decisions")
    try:
        decision_log = Decisions(path, dropped, failed, replaced, context.log)
    except BadChain as error:
        raise BadSetting(f"HEADRACE_DECISION_LOG: {error}") from None
    waiting = partial(getattr, decision_log, "waiting")
    context.metrics.watch("headrace_telemetry_queue_length", "decisions", read=waiting)
    context.opened.push_async_callback(asyncio.to_thread, decision_log.close)
    return (decision_log,)


def opentelemetry(context: Context) -> tuple[RecordSink, ...]:
    """Return the sinks of spans and OTLP metrics that are exported. Only then import the SDK."""
    settings = context.settings
    otel = settings.otel
    for warning in otel.warnings:
        context.log.warning("otel.variable", problem=warning)
    if settings.otlp_endpoint is not None and not otel.is_used:
        otel = replace(otel, exporters=("otlp_proto_http",))
    if not otel.is_used:
        return ()
    from proxy.app import tracing  # noqa: PLC0415  # 250 modules of the SDK

    return (*tracing.traces(context, otel), *tracing.metrics(context, otel))


def token_failed(context: Context, ref: str, reason: str) -> None:
    """Warn of a token of a cloud that could not be renewed; the one that is held still counts
    until it expires."""
    context.log.warning("token.not_renewed", ref=ref, reason=reason)


def enforcing(
    settings: Settings, metrics: Metrics, log: EventLog, snapshot: Snapshot
) -> Iterator[Callable[[], None]]:
    """Prepare to put policies in force, in the thread that reads them.

    Yields what lets their names be labels, what logs a store of the cache whose variable is not
    set, and what logs upstreams where keys can read stored responses of each other, because no
    secret seals ids.
    """
    yield metrics.admit(list_labels(snapshot))
    needs = {
        "sqlite": ("HEADRACE_CACHE_FILE", settings.cache_file),
        "redis": ("HEADRACE_REDIS_URL", settings.redis),
    }
    for store, deployments in cache_stores(snapshot).items():
        variable, store_url = needs.get(store, ("", store))
        if store_url is None:
            fields = {"store": store, "variable": variable, "deployments": deployments}
            yield partial(log.warning, "cache.store_missing", **fields)
    upstreams = [] if settings.id_secrets else shared_response_stores(snapshot)
    if upstreams:
        yield partial(log.warning, "ids.unsealed", variable="HEADRACE_SECRET", upstreams=upstreams)


def listening(context: Context, ending: Ending, listen: Address, admin: Address) -> None:
    """Log where the process listens, and that it stops as soon as it does."""
    fields = {"address": str(listen), "admin": str(admin), "version": proxy.__version__}
    context.log.info("listening", **fields)
    context.opened.callback(ending.begin)


@dataclass(slots=True)
class Ending:
    """Logs the end of a process: when it begins to stop, and when all is closed but the log."""

    log: EventLog
    drain_seconds: float
    began: float | None = None

    def begin(self) -> None:
        self.began = time.monotonic()
        self.log.info("stopping", drain_seconds=self.drain_seconds)

    def end(self) -> None:
        if self.began is not None:
            self.log.info("stopped", seconds=round(time.monotonic() - self.began, 3))


def warn(context: Context, standing: CounterState) -> None:
    """Log a limit that is nearly used up, and its owner, but nothing that a caller has written."""
    limit = standing.limit
    context.metrics.count("headrace_limit_warnings_total", limit.name)
    used: float = standing.used
    capacity: float = limit.capacity
    if limit.kind.scale > 1:  # money is read in USD
        used, capacity = used / limit.kind.scale, capacity / limit.kind.scale
    labels = context.metrics.roster.owners(standing.scope)
    context.log.warning("limit.warned", limit=limit.name, whose=labels, used=used, of=capacity)


def bug(context: Context, bug: BaseException, request_id: str) -> None:
    """Log where a bug is, by type and line; its message could quote a request."""
    context.log.error("bug", request_id=request_id, **where(bug))


def report(context: Context, sink: RecordSink, error: BaseException) -> None:
    """Count and log a sink that failed."""
    context.metrics.dropped(sink.name, "error")
    context.log.error("emit.failed", sink=sink.name, **where(error))


def writer_failed(metrics: Metrics, log: EventLog) -> Callable[[str, BaseException], None]:
    """Count and log an exception in the thread of a writer: the log once a minute for each of them,
    as one that fails with every batch must not fill it."""
    logged: dict[str, float] = {}

    def tell(writer: str, error: BaseException) -> None:
        metrics.count("headrace_writer_failures_total", writer)
        now = time.monotonic()
        if now - logged.get(writer, -LOG_EVERY_S) >= LOG_EVERY_S:
            logged[writer] = now
            log.error("writer.failed", writer=writer, **where(error))

    return tell


def amiss(context: Context, event: str, error: Exception) -> None:
    """Log why something beside the calls came to nothing."""
    context.log.error(event, **where(error))


def where(error: BaseException) -> dict[str, str]:
    """Return an error's type and the line where it was raised: nothing that could quote a text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
    return {"type": type(error).__name__, "location": line}


class LibraryLog(logging.Handler):
    """Turns warnings and errors of libraries into events, and many of them into few.

    Messages and tracebacks may quote a request, so an event has only the library's name, the type
    of the error and its line.
    """

    def __init__(self, log: EventLog, now: Callable[[], float]) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._quota = Quota(now)

    def emit(self, record: logging.LogRecord) -> None:
        missed = self._quota.take()
        if missed is None:
            return
        error = record.exc_info[1] if record.exc_info else None
        place = (
            where(error)
            if error is not None
            else {"location": f"{record.filename}:{record.lineno}"}
        )
        tell = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        tell("library.failed", library=record.name, suppressed=missed, **place)


def route_library_logs(context: Context) -> None:
    """Send what libraries log to the log of the process, until it ends."""
    handler, root = LibraryLog(context.log, time.monotonic), logging.getLogger()
    root.addHandler(handler)
    context.opened.callback(root.removeHandler, handler)
