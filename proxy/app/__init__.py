"""Composition: constructs and connects all objects of a process."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import proxy
from proxy import cache, ports, server
from proxy.app import stores, telemetry
from proxy.app.admin import AdminParts, build_call_sinks, open_admin_handler
from proxy.app.context import Context, unix_time_s
from proxy.call.record import new_record, new_request_id
from proxy.egress import HttpGuardClients
from proxy.guards.unguarded import LazyGuards
from proxy.limits import Limiter
from proxy.pipeline import Pipeline
from proxy.policy.catalog import list_labels
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.cloud_tokens import CloudTokens
from proxy.policy.review.compare import CandidateSink
from proxy.policy.store import PolicyFolder, PolicyStore, ReloadResult
from proxy.policy.watch import (
    FileStates,
    FolderWatch,
    read_all_file_states,
    read_secret_states,
    watch_and_renew,
)
from proxy.runtime.background import SideTasks, background_task, run_steps_with_pauses
from proxy.runtime.fair_queue import FairSemaphore, Offload
from proxy.runtime.frozen import frozen
from proxy.server import Calls, CorsHeaders, Drain, PublicEndpoints, Stop
from proxy.server.admin import Readiness
from proxy.server.listening import listen
from proxy.server.request import BodyMemory, BodyParser, BodyShare, Bounds
from proxy.settings import Address, Settings
from proxy.telemetry import EMIT_INTERVAL_S, Emitters, RecordSink
from proxy.telemetry.decisions import DecisionLog
from proxy.telemetry.lines import SCHEMAS, LineWriter, build_line_logger
from proxy.telemetry.log import LogLevel, Quota
from proxy.telemetry.metrics import LoopLagMonitor, Metrics
from proxy.upstream import Upstreams
from proxy.upstream.background_billing import BackgroundBilling
from proxy.upstream.client import HttpClient
from proxy.upstream.health import Health

LINGER_S = 2.0
KEEPALIVE_S = 75.0
GUARD_THREADS = 2  # keep searches off the event loop; more threads gain little


@frozen
class RunningProxy:
    """Running proxy. ``listen`` and ``admin`` are its actual addresses."""

    listen: Address
    admin: Address
    policies: PolicyStore
    watch: FolderWatch


@asynccontextmanager
async def run_proxy(
    settings: Settings,
    *sinks: RecordSink,
    log_fd: int = 1,
    trust: ssl.SSLContext | None = None,
    check: Callable[[Snapshot], None] = lambda snapshot: None,
    on_loaded: Callable[[], None] = lambda: None,
) -> AsyncIterator[RunningProxy]:
    """Run the proxy until the block is left, then drain, close and flush.

    ``sinks`` get every call in addition to the usual emitters. ``trust`` replaces the system's
    certificates. ``check`` may raise to reject the policies before anything listens. ``on_loaded``
    is called when the proxy is ready.

    Raises ``PolicyError`` for invalid policies, ``LedgerUnusable`` for a ledger that cannot be
    opened, and ``OSError`` for an address that cannot be bound.
    """
    async with AsyncExitStack() as opened:
        context, shutdown_log = _open_context(settings, opened, log_fd)
        decisions = telemetry.open_decision_log(context)
        store, watch, tokens = _open_policies(context, decisions)
        check(store.current)
        candidate = await _open_candidate_policy_sink(context)
        context = replace(context, ledger=stores.open_ledger(context))
        stored, own_sinks = build_call_sinks(context, store, decisions, candidate)
        emitters = _build_emitters(context, (*own_sinks, *sinks))
        opened.callback(emitters.emit_pending)  # reports the last calls
        via = f"{random.getrandbits(64):016x}"  # an id, not a secret
        http = await opened.enter_async_context(HttpClient(trust, settings.upstream_connections))
        pipeline, limits, upstreams = await _build_pipeline(context, http, store, via, emitters)
        calls, readiness, bug = Calls(), Readiness(), partial(telemetry.log_internal_error, context)
        public = PublicEndpoints(readiness.is_ready, CorsHeaders(lambda: store.current.origins))
        bounds = _build_request_bounds(context, upstreams.offload)
        state = server.ListenerState(
            via, new_request_id, bounds, calls, public, upstreams.ids, store.get_passthrough_paths
        )
        front = server.make_data_handler(pipeline, state, bug)
        observed = AdminParts(
            emitters, stored, store, counters=limits.store, health=upstreams.health
        )
        handler = await opened.enter_async_context(open_admin_handler(context, observed, readiness))
        await preload_for_first_calls(store.current, http)
        admin_address, *_ = await _start_listener(opened, handler, settings.admin)
        listen, clients, stop = await _start_listener(opened, front, settings.listen)
        readiness.listen = str(listen)
        drain = Drain(settings.drain_seconds, settings.drain_grace_seconds)
        opened.push_async_callback(drain.run, clients, calls, stop)
        context.metrics.add_gauge(
            "headrace_open_connections", "client", read=lambda: len(clients.connections)
        )
        await opened.enter_async_context(stores.monitor_budget_drift(context, store, limits))
        await opened.enter_async_context(background_task(watch_and_renew(watch, tokens)))
        opened.callback(readiness.stop)
        loading = load_until_ready(store.current, calls, readiness, context.metrics, on_loaded)
        await opened.enter_async_context(background_task(loading))
        telemetry.log_listening_and_shutdown(context, shutdown_log, listen, admin_address)
        yield RunningProxy(listen=listen, admin=admin_address, policies=store, watch=watch)


def _open_context(
    settings: Settings, opened: AsyncExitStack, log_fd: int
) -> tuple[Context, telemetry.ShutdownLog]:
    metrics = Metrics(proxy.__version__)
    levels = LogLevel(settings.log.level, time.monotonic)
    dropped = partial(metrics.count_dropped, "logs")
    writer = LineWriter(log_fd, dropped, lambda error: failed("logs", error))
    log = build_line_logger(writer.enqueue, levels, SCHEMAS[settings.log.schema])
    failed = telemetry.build_writer_error_callback(metrics, log)
    opened.callback(writer.close)
    shutdown_log = telemetry.ShutdownLog(log, settings.drain_seconds)
    opened.callback(shutdown_log.log_end)
    metrics.add_gauge("headrace_telemetry_queue_length", "logs", read=lambda: writer.pending_count)
    context = Context(
        settings=settings,
        opened=opened,
        log=log,
        metrics=metrics,
        levels=levels,
        on_writer_error=failed,
    )
    telemetry.route_library_logs(context)
    return context, shutdown_log


async def _build_pipeline(
    context: Context,
    http: HttpClient,
    store: PolicyStore,
    via: str,
    emitters: Emitters,
) -> tuple[Pipeline, Limiter, Upstreams]:
    """Return the pipeline of clients, and its stages that other parts of the process use."""
    telemetry.set_secret_fingerprints(context.metrics, context.settings)
    context.metrics.add_gauge("headrace_queued_requests", read=lambda: http.pool.waiting)
    context.metrics.add_gauge(
        "headrace_open_connections", "upstream", read=lambda: http.pool.in_use + http.pool.idle
    )
    lag = partial(context.metrics.observe, "headrace_event_loop_lag_seconds")
    await context.opened.enter_async_context(LoopLagMonitor(lag))
    counters = await stores.open_counter_store(context)
    pool = context.opened.enter_context(ThreadPoolExecutor(GUARD_THREADS, "guards"))
    bodies_thread = context.opened.enter_context(ThreadPoolExecutor(1, "bodies"))
    offload = Offload(bodies_thread, FairSemaphore(1))  # callers take turns in it
    emitters.side_tasks = await context.opened.enter_async_context(SideTasks())
    backfill = await stores.open_budget_backfill(context, store, counters)
    warn = partial(telemetry.log_limit_warning, context)
    limits = Limiter(counters, warn, backfill, offload=offload)
    health = Health(time.monotonic, context.metrics.set_circuit)
    response_bodies = BodyMemory(context.settings.answers_bytes, "answers")
    context.metrics.add_gauge("headrace_answer_body_bytes", read=lambda: response_bodies.used_bytes)
    ids = stores.build_id_sealer(context)
    billing = BackgroundBilling(counters.claim_bill, ids) if ids else None
    upstreams = Upstreams(
        http=http,
        via=via,
        health=health,
        offload=offload,
        new_share=partial(BodyShare, response_bodies),
        ids=ids,
        claim_background_bill=billing.claim_background_bill if billing else None,
    )
    internal = Pipeline(
        policies=store,
        limits=limits,
        guards=LazyGuards(partial(_build_guards, context, None, None)),
        cache=cache.NullCache(),
        upstreams=upstreams,
        emitter=emitters,
        start_record=new_record,
        pause_scheduler=upstreams.pause_scheduler,
    )
    outside = HttpGuardClients(http, internal.run, new_request_id)
    guards = LazyGuards(partial(_build_guards, context, pool, outside))
    response_cache = cache.AnswerCache(
        backends=await stores.open_cache_backends(context),
        now=unix_time_s,
        semantic=stores.build_semantic_cache(context, outside),
        offload=offload,
        pause_scheduler=upstreams.pause_scheduler,
    )
    return replace(internal, guards=guards, cache=response_cache), limits, upstreams


def _build_guards(
    context: Context, pool: ThreadPoolExecutor | None, guard_clients: ports.GuardClients | None
) -> ports.Guards:
    from proxy.guards.engine import Engine  # noqa: PLC0415 # fifty modules that only guards need
    from proxy.guards.run import PolicyGuards  # noqa: PLC0415
    from proxy.guards.stream.placeholders import derive_placeholder_key  # noqa: PLC0415

    settings = context.settings
    waited = partial(context.metrics.observe, "headrace_guard_wait_seconds")
    engine = Engine(
        time.thread_time,
        pool,
        max_texts=settings.body_values,
        on_wait=waited,
        now=time.monotonic,
    )
    engine = engine if guard_clients is None else replace(engine, guard_clients=guard_clients)
    return PolicyGuards(engine, derive_placeholder_key(*settings.id_secrets[:1]))


def _build_emitters(context: Context, sinks: tuple[RecordSink, ...]) -> Emitters:
    loop = asyncio.get_running_loop()
    emitters = Emitters(
        sinks=sinks,
        on_error=partial(telemetry.report_sink_error, context),
        schedule_batch=partial(loop.call_later, EMIT_INTERVAL_S),
        schedule_next_iteration=loop.call_soon,
        unauthenticated_quota=Quota(time.monotonic),
    )
    context.metrics.add_gauge("headrace_inflight_requests", read=lambda: emitters.active)
    return emitters


def _build_request_bounds(context: Context, offload: Offload) -> Bounds:
    settings = context.settings
    bodies = BodyMemory(settings.bodies_bytes)
    context.metrics.add_gauge("headrace_request_body_bytes", read=lambda: bodies.used_bytes)
    return Bounds(
        settings.body_bytes,
        bodies=bodies,
        parsing=BodyParser(settings.body_values, offload),
        keepalive_s=settings.keepalive_seconds,
    )


def _open_policies(
    context: Context, decisions: tuple[DecisionLog, ...]
) -> tuple[PolicyStore, FolderWatch, CloudTokens]:
    """Load the policies. Return their store, the watch of their folder, and the cloud tokens."""
    folder = context.settings.policies

    def warn(ref: str, reason: str) -> None:  # the old token is used meanwhile
        context.log.warning("token.not_renewed", ref=ref, reason=reason)

    tokens = CloudTokens(context.settings.environ, warn)
    enforcement = telemetry.PolicyActivator(
        partial(telemetry.iter_activation_steps, context.settings, context.metrics, context.log)
    )
    source = PolicyFolder(folder, context.settings.environ, tokens, prepare=enforcement.prepare)
    tell = telemetry.build_reload_callback(context.metrics, enforcement, decisions)
    store, watch = _open_store(context, source, tell)
    unread = "headrace_policy_revocations_unread"
    context.metrics.add_gauge(unread, read=lambda: len(store.revocation_problems))
    return store, watch, tokens


def _open_store(
    context: Context,
    source: PolicyFolder,
    on_result: Callable[[ReloadResult, Snapshot], None],
    subject: str = "policy",
) -> tuple[PolicyStore, FolderWatch]:
    """Load a folder. Return its store, and its watch, which does not run yet."""

    def read_secrets() -> FileStates:
        return read_secret_states(store.secret_files, source.tokens)

    states = read_all_file_states(source.path)  # before reading, so that no change is missed
    store = PolicyStore(source, time.monotonic, asyncio.sleep, context.log, on_result, subject)
    watch = FolderWatch(
        lambda: read_all_file_states(source.path) | read_secrets(),
        states | read_secrets(),
        store.refresh,
        store.apply_revocations,
        context.settings.settle_seconds,
        time.monotonic,
    )
    return store, watch


async def _open_candidate_policy_sink(context: Context) -> CandidateSink | None:
    """Return the sink of the candidate policies, which need no secrets, and watch their folder."""
    folder = context.settings.candidate
    if folder is None:
        return None
    metrics = context.metrics
    enforcement = telemetry.PolicyActivator(
        lambda read: [metrics.allow_labels(list_labels(read), "candidate", create_series=False)]
    )
    source = PolicyFolder(folder, None, prepare=enforcement.prepare)
    store, watch = _open_store(context, source, enforcement.activate, "candidate")
    await context.opened.enter_async_context(background_task(watch.run()))
    count = partial(context.metrics.count, "headrace_candidate_decisions_total")
    return CandidateSink(lambda: store.current, count, lambda: store.rejection)


async def _start_listener(
    opened: AsyncExitStack, handler: server.Handler, configured: Address
) -> tuple[Address, server.HttpServer, Stop]:
    listener = server.HttpServer(
        handler,
        access_log=None,
        keepalive_timeout=KEEPALIVE_S,
        lingering_time=LINGER_S,
    )
    address, stop = await listen(opened, listener, configured)
    return address, listener, stop


async def preload_for_first_calls(snapshot: Snapshot, http: HttpClient) -> None:
    """Load the modules and data that the first calls need."""
    async with asyncio.TaskGroup() as loading:
        loading.create_task(http.load_certificates())
        await asyncio.sleep(0)  # starts the thread of the other task
        snapshot.prepare()


async def load_until_ready(
    snapshot: Snapshot,
    calls: Calls,
    readiness: Readiness,
    metrics: Metrics,
    on_loaded: Callable[[], None],
) -> None:
    """Load rarely used modules between calls, report readiness, and prepare metrics in a thread.

    ``on_loaded`` is called before readiness is reported.
    """
    await run_steps_with_pauses(snapshot.iter_loading_steps(), calls.has_active)
    on_loaded()
    readiness.ready = True
    await asyncio.to_thread(metrics.get_or_create_exposition)
