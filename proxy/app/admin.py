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
from proxy.console.limits import LimitStates
from proxy.console.money import MoneyPage
from proxy.console.overview import Overview
from proxy.console.page_thread import PageThread
from proxy.console.policies import PolicyPage
from proxy.console.series import SAMPLE_S, TimeSeries
from proxy.console.trial import TryPage
from proxy.limits.stores.store import CounterStore
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.call_history import CallHistory
from proxy.policy.review.compare import Candidate
from proxy.policy.store import PolicyStore
from proxy.runtime.background import run_in_background
from proxy.runtime.frozen import frozen
from proxy.server.admin import Access, AdminSources, Readiness, make_admin_handler
from proxy.server.console import Console, ConsolePages
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
            console = await opened.enter_async_context(
                _console(context, observed, recent, readiness)
            )
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


@asynccontextmanager
async def _console(
    context: Context, observed: Observed, recent: RecentCalls, readiness: Readiness
) -> AsyncIterator[Console]:
    settings, metrics, candidate = context.settings, context.metrics, observed.calls.candidate
    policies, series, ledger = observed.policies, TimeSeries(metrics, since_epoch), settings.ledger
    thread, ledger_thread = PageThread("console"), PageThread("ledger-pages")

    def snapshot() -> Snapshot:
        return policies.current

    limits = LimitStates(
        store=observed.counters,
        counters=lambda: metrics.roster.counters,
        snapshot=snapshot,
        denied=series.denied,
    )
    pages = ConsolePages(
        thread=thread,
        ledger_thread=ledger_thread,
        overview=Overview(
            listen=lambda: readiness.listen,
            series=series,
            metrics=metrics,
            policies=policies,
            health=observed.health,
            now=since_epoch,
            candidate=candidate,
        ),
        limits=limits,
        calls=recent,
        policy=PolicyPage(
            policies=policies,
            folder=settings.policies,
            metrics=metrics,
            series=series,
            now=since_epoch,
            candidate=candidate,
            candidate_folder=settings.candidate,
        ),
        money=MoneyPage(
            path=ledger.path if ledger is not None and ledger.kind == "sqlite" else None,
            snapshot=snapshot,
            limits=lambda: (limit for limit, _ in metrics.roster.counters),
            now=since_epoch,
        ),
        trial=TryPage(
            active=snapshot,
            limits=limits,
            thread=thread,
            candidate=candidate.current if candidate is not None else None,
        ),
    )
    sessions = Sessions(settings.admin_token, time.monotonic)
    with closing(thread), closing(ledger_thread):
        async with run_in_background(_sample(context, series)):
            yield Console(pages, sessions, readiness.is_stopping)


async def _sample(context: Context, series: TimeSeries) -> None:
    while True:
        try:
            await asyncio.to_thread(series.sample)
        except Exception as error:  # noqa: BLE001  # the console must not stop the proxy
            telemetry.amiss(context, "console.sample_failed", error)
        await asyncio.sleep(SAMPLE_S)
