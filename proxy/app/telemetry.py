"""Connects the process to its telemetry: sinks, gauges, warnings, and internal errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

import proxy
from proxy.app.context import Context, unix_time_s
from proxy.ledger.writer import Ledger
from proxy.limits.stores.store import CounterStore, StoreUnavailable
from proxy.policy.catalog import (
    list_deployments_by_cache_store,
    list_labels,
    list_upstreams_storing_for_several_keys,
)
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.store import ReloadResult
from proxy.ports import EventLog
from proxy.settings import Address, BadSetting, Settings
from proxy.telemetry import RecordSink
from proxy.telemetry.chain import InvalidChain
from proxy.telemetry.decisions import DecisionLog
from proxy.telemetry.log import Quota
from proxy.telemetry.metrics import Metrics
from proxy.types.limit import Claim, CounterState

LOG_EVERY_S = 60.0
WriterCallbacks = tuple[Callable[..., None], Callable[..., None], Callable[..., None]]


def open_decision_log(context: Context) -> tuple[DecisionLog, ...]:
    """Return the sink of decisions, if it is enabled. It closes after the last call has ended."""
    path = context.settings.log.decisions
    if path is None:
        return ()
    try:
        decision_log = DecisionLog(path, *list_writer_callbacks(context, "decisions"), context.log)
    except InvalidChain as error:
        raise BadSetting(f"HEADRACE_DECISION_LOG: {error}") from None
    register_writer(context, "decisions", decision_log)
    return (decision_log,)


def list_writer_callbacks(context: Context, name: str) -> WriterCallbacks:
    """Return what a writer calls after a dropped record, a failed write, and a replaced file."""
    return (
        partial(context.metrics.count_dropped, name),
        partial(context.on_writer_error, name),
        partial(context.metrics.count, "headrace_files_replaced_total", name),
    )


def register_writer(context: Context, name: str, writer: Ledger | DecisionLog) -> None:
    """Export the queue length of a writer, and close it after the last call."""
    read = partial(getattr, writer, "pending_count")
    context.metrics.add_gauge("headrace_telemetry_queue_length", name, read=read)
    context.opened.push_async_callback(asyncio.to_thread, writer.close)


def open_otel_sinks(context: Context) -> tuple[RecordSink, ...]:
    """Return the sinks of spans and OTLP metrics. Imports the SDK only if they are exported."""
    settings = context.settings
    otel = settings.otel
    for warning in otel.warnings:
        context.log.warning("otel.variable", problem=warning)
    if settings.otlp_endpoint is not None and not otel.has_any_exporter:
        otel = replace(otel, exporters=("otlp_proto_http",))
    if not otel.has_any_exporter:
        return ()
    from proxy.app import tracing  # noqa: PLC0415  # 250 modules of the SDK

    return (
        *tracing.build_trace_sinks(context, otel),
        *tracing.build_otlp_metric_sinks(context, otel),
    )


def iter_activation_steps(
    settings: Settings, metrics: Metrics, log: EventLog, snapshot: Snapshot
) -> Iterator[Callable[[], None]]:
    """Prepare to activate policies, in the thread that reads them.

    Yields steps that register label values, log cache stores without a setting, and log upstreams
    whose stored responses are readable across keys because no secret seals ids.
    """
    yield metrics.allow_policy_labels(list_labels(snapshot))
    needs = {
        "sqlite": ("HEADRACE_CACHE_FILE", settings.cache_file),
        "redis": ("HEADRACE_REDIS_URL", settings.redis),
    }
    for store, deployments in list_deployments_by_cache_store(snapshot).items():
        variable, store_url = needs.get(store, ("", store))
        if store_url is None:
            fields = {"store": store, "variable": variable, "deployments": deployments}
            yield partial(log.warning, "cache.store_missing", **fields)
    upstreams = [] if settings.id_secrets else list_upstreams_storing_for_several_keys(snapshot)
    if upstreams:
        yield partial(log.warning, "ids.unsealed", variable="HEADRACE_SECRET", upstreams=upstreams)


def log_listening_and_shutdown(
    context: Context, shutdown_log: ShutdownLog, listen: Address, admin: Address
) -> None:
    """Log the addresses now, and the start of the shutdown when ``context.opened`` closes."""
    fields = {"address": str(listen), "admin": str(admin), "version": proxy.__version__}
    context.log.info("listening", **fields)
    context.opened.callback(shutdown_log.log_start)


@dataclass(slots=True)
class ShutdownLog:
    """Logs the start of the shutdown, and its end when all but the log is closed."""

    log: EventLog
    drain_seconds: float
    started_at: float | None = None

    def log_start(self) -> None:
        self.started_at = time.monotonic()
        self.log.info("stopping", drain_seconds=self.drain_seconds)

    def log_end(self) -> None:
        if self.started_at is not None:
            self.log.info("stopped", seconds=round(time.monotonic() - self.started_at, 3))


def log_limit_warning(context: Context, state: CounterState) -> None:
    """Log a limit near its capacity and its owner, without text of the client."""
    limit = state.limit
    context.metrics.count("headrace_limit_warnings_total", limit.name)
    used: float = state.used
    capacity: float = limit.capacity
    if limit.kind.scale > 1:  # nano-USD to USD
        used, capacity = used / limit.kind.scale, capacity / limit.kind.scale
    labels = context.metrics.catalog.get_scope_labels(state.scope)
    context.log.warning("limit.warned", limit=limit.name, whose=labels, used=used, of=capacity)


def log_internal_error(context: Context, error: BaseException, request_id: str) -> None:
    """Log type and location of an internal error. Its message could quote a request."""
    context.log.error("bug", request_id=request_id, **get_error_type_and_location(error))


def report_sink_error(context: Context, sink: RecordSink, error: BaseException) -> None:
    """Count and log a failed sink."""
    context.metrics.count_dropped(sink.name, "error")
    context.log.error("emit.failed", sink=sink.name, **get_error_type_and_location(error))


def build_writer_error_callback(
    metrics: Metrics, log: EventLog
) -> Callable[[str, BaseException], None]:
    """Return a callback that counts exceptions of writer threads, and logs one a minute of each."""
    logged: dict[str, float] = {}

    def count_failure(writer: str, error: BaseException) -> None:
        metrics.count("headrace_writer_failures_total", writer)
        now = time.monotonic()
        if now - logged.get(writer, -LOG_EVERY_S) >= LOG_EVERY_S:
            logged[writer] = now
            log.error("writer.failed", writer=writer, **get_error_type_and_location(error))

    return count_failure


def log_task_error(context: Context, event: str, error: Exception) -> None:
    context.log.error(event, **get_error_type_and_location(error))


def get_error_type_and_location(error: BaseException) -> dict[str, str]:
    """Return an error's type and location, which cannot quote a text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
    return {"type": type(error).__name__, "location": line}


class LibraryLogHandler(logging.Handler):
    """Logs warnings and errors of libraries as rate-limited events.

    An event has the library's name, the type of the error and its location: texts may quote calls.
    """

    def __init__(self, log: EventLog, now: Callable[[], float]) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._quota = Quota(now)

    def emit(self, record: logging.LogRecord) -> None:
        suppressed = self._quota.take_token()
        if suppressed is None:
            return
        error = record.exc_info[1] if record.exc_info else None
        place = (
            get_error_type_and_location(error)
            if error is not None
            else {"location": f"{record.filename}:{record.lineno}"}
        )
        log = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        log("library.failed", library=record.name, suppressed=suppressed, **place)


def route_library_logs(context: Context) -> None:
    """Send the logs of libraries to the log of the process while it runs."""
    handler, root = LibraryLogHandler(context.log, time.monotonic), logging.getLogger()
    root.addHandler(handler)
    context.opened.callback(root.removeHandler, handler)


READ_TIMEOUT_S = 1.0


async def update_limit_gauges(metrics: Metrics, store: CounterStore) -> None:
    """Read the counters within ``READ_TIMEOUT_S``. After a timeout the previous values stay."""
    claims = [Claim(limit, scope, 0) for limit, scope in metrics.catalog.counters]
    with suppress(TimeoutError, StoreUnavailable):
        async with asyncio.timeout(READ_TIMEOUT_S):
            states = await store.read(claims) if claims else ()
            metrics.set_limit_gauges(states, unix_time_s())


def set_secret_fingerprints(metrics: Metrics, settings: Settings) -> None:
    """Export fingerprints of the secrets that all replicas must share as metrics."""
    ids = settings.id_secrets
    texts = {"ids": ids[0] if ids else "", "accepted": "\0".join(sorted(ids))}
    if settings.redis is not None:
        texts["cache"] = settings.cache_secret or ""
    fingerprints = dict.fromkeys(texts, "none")
    for use, secret in texts.items():
        if secret:  # 32 bits distinguish secrets and do not reveal them
            text = secret.encode("utf-8", "surrogateescape")
            digest = blake2b(text, digest_size=4, person=b"headrace print")
            fingerprints[use] = digest.hexdigest()
    metrics.set_secret_fingerprints(fingerprints)


class PolicyActivator:
    """Activates policies.

    Slow work runs in the thread that reads the policies; ``build`` does that work and returns
    the steps that remain for the event loop.
    """

    def __init__(self, build: Callable[[Snapshot], Iterable[Callable[[], None]]]) -> None:
        self._build = build
        self._rest: dict[str, tuple[Callable[[], None], ...]] = {}

    def prepare(self, snapshot: Snapshot) -> None:
        """Do the slow work for a snapshot, once per revision."""
        if snapshot.revision not in self._rest:
            self._rest = {snapshot.revision: tuple(self._build(snapshot))}

    def activate(self, result: ReloadResult, snapshot: Snapshot) -> None:
        """Run the event-loop steps that ``prepare`` built, if the revision became active."""
        if result == "in_force":
            for enforce in self._rest[snapshot.revision]:
                enforce()


def build_reload_callback(
    metrics: Metrics, activator: PolicyActivator, decisions: Iterable[DecisionLog]
) -> Callable[[ReloadResult, Snapshot], None]:
    """Return a callback that counts, logs and applies the result of each policy read."""

    def report(result: ReloadResult, snapshot: Snapshot) -> None:
        metrics.count_reload(result)
        if result != "unchanged":
            for decision_log in decisions:
                decision_log.add_policy_entry(result, snapshot.revision)
        activator.activate(result, snapshot)

    return report
