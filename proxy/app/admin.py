"""Constructs the admin listener with the console, and samples the time series of the console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial

from proxy import server
from proxy.app import telemetry
from proxy.app.context import Context, unix_time_s
from proxy.console.calls import RecentCalls
from proxy.console.series import SAMPLE_S, Sources, TimeSeries
from proxy.limits.stores.store import CounterStore
from proxy.policy.review.call_history import CallHistory
from proxy.policy.review.compare import CandidateSink
from proxy.policy.store import PolicyStore
from proxy.runtime.background import background_task
from proxy.runtime.frozen import frozen
from proxy.server.admin import AdminAccess, AdminSources, Readiness, make_admin_handler
from proxy.server.console import Console
from proxy.server.sessions import Sessions
from proxy.telemetry import Emitters, RecordSink
from proxy.telemetry.decisions import DecisionLog
from proxy.telemetry.log import CallLog
from proxy.upstream.health import Health


@frozen
class CallStores:
    """Sinks of calls that the admin listener shows. ``recent`` is None without a console."""

    history: CallHistory
    candidate: CandidateSink | None
    recent: RecentCalls | None


@frozen
class AdminParts:
    """Parts of the process that the admin listener shows."""

    emitters: Emitters
    calls: CallStores
    policies: PolicyStore
    counters: CounterStore
    health: Health


def build_call_sinks(
    context: Context,
    store: PolicyStore,
    decisions: tuple[DecisionLog, ...],
    candidate: CandidateSink | None,
) -> tuple[CallStores, tuple[RecordSink, ...]]:
    """Return all sinks of calls, and the stores of calls that the admin listener shows."""
    settings = context.settings
    history = CallHistory(store.find_snapshot, candidate.get_snapshot if candidate else None)
    recent = RecentCalls(history, candidate, settings.trace_url) if settings.has_console else None
    call_log = CallLog(
        log=context.log,
        levels=context.levels,
        ratio=settings.log.ratio,
        on_line=recent.add if recent is not None else None,
    )
    sinks: tuple[RecordSink, ...] = (
        context.metrics,
        call_log,
        *telemetry.open_otel_sinks(context),
        *decisions,
        history,
        *([candidate] if candidate else []),
        *([context.ledger] if context.ledger else []),
    )
    return CallStores(history, candidate, recent), sinks


@asynccontextmanager
async def open_admin_handler(
    context: Context, parts: AdminParts, readiness: Readiness
) -> AsyncIterator[server.Handler]:
    """Return the handler of the admin listener. Time series are sampled while the block runs."""
    settings, candidate = context.settings, parts.calls.candidate
    async with AsyncExitStack() as opened:
        console, recent = None, parts.calls.recent
        if recent is not None:
            series = TimeSeries(context.metrics, unix_time_s)
            console = _open_console(context, parts, recent, series, readiness)
            opened.enter_context(closing(console))
            await opened.enter_async_context(background_task(_sample_series(context, series)))
        update_gauges = partial(telemetry.update_limit_gauges, context.metrics, parts.counters)
        sources = AdminSources(
            emit_pending=parts.emitters.emit_pending,
            update_gauges=update_gauges,
            render_metrics=context.metrics.render,
            levels=context.levels,
            calls=parts.calls.history,
            explain_candidate=candidate.explain_latest_changes if candidate else None,
            console=console,
        )
        sessions = None if console is None else console.sessions
        access = AdminAccess(settings.admin_token, settings.admin_hosts, sessions)
        yield make_admin_handler(sources, readiness, access)


def _open_console(
    context: Context,
    parts: AdminParts,
    recent: RecentCalls,
    series: TimeSeries,
    readiness: Readiness,
) -> Console:
    settings, ledger = context.settings, context.settings.ledger
    sources = Sources(
        policies=parts.policies,
        folder=settings.policies,
        candidate=parts.calls.candidate,
        candidate_folder=settings.candidate,
        metrics=context.metrics,
        series=series,
        health=parts.health,
        counters=parts.counters,
        ledger=ledger.path if ledger is not None and ledger.kind == "sqlite" else None,
        listen=lambda: readiness.listen,
        now=unix_time_s,
    )
    sessions = Sessions(settings.admin_token, time.monotonic)
    return Console(sources, recent, sessions, readiness.is_stopping)


async def _sample_series(context: Context, series: TimeSeries) -> None:
    while True:
        try:
            await asyncio.to_thread(series.add_sample)
        except Exception as error:  # noqa: BLE001  # the console must not stop the proxy
            telemetry.log_task_error(context, "console.sample_failed", error)
        await asyncio.sleep(SAMPLE_S)
