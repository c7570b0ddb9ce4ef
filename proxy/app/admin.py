"""Constructs the admin listener with the console, and samples the time series of the console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing

from proxy import server
from proxy.app import telemetry
from proxy.app.context import Context, since_epoch
from proxy.console.calls import RecentCalls
from proxy.console.series import SAMPLE_S, Sources, TimeSeries
from proxy.limits.stores.store import CounterStore
from proxy.policy.review.call_history import CallHistory
from proxy.policy.review.compare import Candidate
from proxy.policy.store import PolicyStore
from proxy.runtime.background import run_in_background
from proxy.runtime.frozen import frozen
from proxy.server.admin import Access, AdminSources, Readiness, make_admin_handler
from proxy.server.console import Console
from proxy.server.sessions import Sessions
from proxy.telemetry import Emitters, RecordSink
from proxy.telemetry.decisions import Decisions
from proxy.telemetry.log import CallLog
from proxy.upstream.health import Health


@frozen
class CallStores:
    """Sinks of calls that the admin listener shows. ``recent`` is None without a console."""

    history: CallHistory
    candidate: Candidate | None
    recent: RecentCalls | None


@frozen
class Observed:
    """Parts of the process that the admin listener shows."""

    emitters: Emitters
    calls: CallStores
    policies: PolicyStore
    counters: CounterStore
    health: Health


def call_sinks(
    context: Context,
    store: PolicyStore,
    decisions: tuple[Decisions, ...],
    candidate: Candidate | None,
) -> tuple[CallStores, tuple[RecordSink, ...]]:
    """Return the sinks of calls, and those of them that the admin listener shows."""
    settings = context.settings
    history = CallHistory(store.find, candidate.current if candidate else None)
    recent = RecentCalls(history, candidate, settings.trace_url) if settings.has_console else None
    call_log = CallLog(
        log=context.log,
        levels=context.levels,
        ratio=settings.log.ratio,
        keep=recent.add if recent is not None else None,
    )
    sinks: tuple[RecordSink, ...] = (
        context.metrics,
        call_log,
        *telemetry.opentelemetry(context),
        *decisions,
        history,
        *([candidate] if candidate else []),
        *([context.ledger] if context.ledger else []),
    )
    return CallStores(history, candidate, recent), sinks


@asynccontextmanager
async def admin(
    context: Context, observed: Observed, readiness: Readiness
) -> AsyncIterator[server.Handler]:
    """Return the handler of the admin listener. Time series are sampled while the block runs."""
    settings, candidate = context.settings, observed.calls.candidate
    async with AsyncExitStack() as opened:
        console, recent = None, observed.calls.recent
        if recent is not None:
            series = TimeSeries(context.metrics, since_epoch)
            console = _console(context, observed, recent, series, readiness)
            opened.enter_context(closing(console))
            await opened.enter_async_context(run_in_background(_sample(context, series)))
        sources = AdminSources(
            settle=observed.emitters.tell,
            look=telemetry.LimitGauges(context.metrics, observed.counters, since_epoch).look,
            render=context.metrics.render,
            levels=context.levels,
            calls=observed.calls.history,
            candidate=candidate.explain if candidate else None,
            console=console,
        )
        sessions = None if console is None else console.sessions
        access = Access(settings.admin_token, settings.admin_hosts, sessions)
        yield make_admin_handler(sources, readiness, access)


def _console(
    context: Context,
    observed: Observed,
    recent: RecentCalls,
    series: TimeSeries,
    readiness: Readiness,
) -> Console:
    settings, ledger = context.settings, context.settings.ledger
    sources = Sources(
        policies=observed.policies,
        folder=settings.policies,
        candidate=observed.calls.candidate,
        candidate_folder=settings.candidate,
        metrics=context.metrics,
        series=series,
        health=observed.health,
        counters=observed.counters,
        ledger=ledger.path if ledger is not None and ledger.kind == "sqlite" else None,
        listen=lambda: readiness.listen,
        now=since_epoch,
    )
    sessions = Sessions(settings.admin_token, time.monotonic)
    return Console(sources, recent, sessions, readiness.is_stopping)


async def _sample(context: Context, series: TimeSeries) -> None:
    while True:
        try:
            await asyncio.to_thread(series.sample)
        except Exception as error:  # noqa: BLE001  # the console must not stop the proxy
            telemetry.amiss(context, "console.sample_failed", error)
        await asyncio.sleep(SAMPLE_S)
