"""Construction of the stores of a process: limit counters, cached responses, ledger."""

from __future__ import annotations

import asyncio
import random
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import proxy
from proxy import ledger
from proxy.app import telemetry
from proxy.app.context import Context, unix_time_s
from proxy.cache.key import derive_secret
from proxy.cache.memory import MemoryAnswerStore
from proxy.cache.semantic import SemanticCache, VectorIndex
from proxy.cache.sqlite import ForeignFile, SqliteAnswerStore
from proxy.cache.store import CacheBackend
from proxy.call.record import new_request_id
from proxy.dialects.responses.sealing import IdSealer
from proxy.ledger.spending import CallsOfRun, read_ledger_id, read_spend_unless_per_user
from proxy.ledger.store import LedgerUnusable
from proxy.ledger.writer import Ledger
from proxy.limits import Limiter
from proxy.limits.backfill import BackfillUnavailable, BudgetBackfill
from proxy.limits.reconcile import Reconciler
from proxy.limits.stores.memory import MemoryStore
from proxy.limits.stores.store import CounterStore, LedgerRun, renew_leases
from proxy.money.usage import NANO_PER_USD
from proxy.policy.catalog import ActiveBudgets
from proxy.policy.store import PolicyStore
from proxy.ports import Embedder
from proxy.runtime.background import background_task
from proxy.runtime.redis_settings import RedisLocation
from proxy.settings import BadSetting, LedgerLocation
from proxy.telemetry.log import Quota
from proxy.types.limit import BudgetQuery, Claim

if TYPE_CHECKING:
    from proxy.limits.stores.failover import FailoverStore
    from proxy.runtime.redis import RedisServer


def build_semantic_cache(context: Context, embedder: Embedder) -> SemanticCache:
    """Return the semantic cache. Its index takes at most half of the bytes of a store."""
    set_size = partial(context.metrics.set_cache_size, "vectors")
    index = VectorIndex(context.settings.cache_bytes // 2, set_size)
    count = partial(context.metrics.count, "headrace_cache_semantic_total")
    return SemanticCache(index, embedder, count)


def build_id_sealer(context: Context) -> IdSealer | None:
    """Return the cipher of provider-side ids, None without a secret."""
    if not context.settings.id_secrets:
        return None
    return IdSealer.from_secrets(context.settings.id_secrets)


async def open_counter_store(context: Context) -> CounterStore:
    """Open the store of limit counters: in memory, or on a Redis server that may be unreachable."""
    store = await _build_counter_store(context)
    await context.opened.enter_async_context(background_task(renew_leases(store, asyncio.sleep)))
    if context.ledger is not None:
        await context.opened.enter_async_context(
            background_task(_mark_booked_bills(context.ledger, store))
        )
    return store


async def _build_counter_store(context: Context) -> CounterStore:
    if context.settings.redis is None:
        return MemoryStore(time.monotonic, unix_time_s)
    create_client = _load_redis_client_factory()
    from proxy.limits.stores.failover import FailoverStore  # noqa: PLC0415  # needed for Redis only
    from proxy.limits.stores.local_fallback import LocalFallback  # noqa: PLC0415
    from proxy.limits.stores.redis import TIMEOUT_S, RedisStore  # noqa: PLC0415  # an extra

    def on_change(cause: str | None) -> None:
        context.metrics.set_counters_degraded(cause is not None)
        if cause is None:
            context.log.warning("limits.recovered")
        else:
            context.log.warning("limits.degraded", cause=cause)

    def on_lost_budget(claim: Claim) -> None:
        name, labels = claim.limit.name, context.metrics.catalog.get_scope_labels(claim.scope)
        context.metrics.count("headrace_budget_lost_total", name)
        context.log.error("budget.lost", limit=name, whose=labels)

    server = create_client(context.settings.redis, TIMEOUT_S)

    redis = RedisStore(server, unix_time_s, ledger=_build_ledger_run(context))
    remote = await context.opened.enter_async_context(redis)
    fallback = LocalFallback(time.monotonic, unix_time_s, context.settings.replicas)
    failover = FailoverStore(
        remote=remote,
        fallback=fallback,
        on_change=on_change,
        sleep=asyncio.sleep,
        random=random.random,
        new_id=new_request_id,
        on_lost_budget=on_lost_budget,
    )
    context.opened.push_async_callback(_close_counter_store, context, failover)
    await context.opened.enter_async_context(background_task(failover.probe_and_send_pending()))
    await failover.probe_at_start()
    return failover


def _build_ledger_run(context: Context) -> LedgerRun:
    """Return the ids of the ledger and of this run. Shared counters store them with each charge.

    Without a readable ledger, the process counts as its own ledger: it restores what it settled.
    """
    location, ledger = context.settings.ledger, context.ledger
    if location is None or ledger is None:
        return LedgerRun(secrets.token_hex(8))
    id = read_ledger_id(location.path) if location.kind == "sqlite" else None
    return LedgerRun(id or ledger.run, ledger.run, lambda: ledger.dead_runs)


async def _mark_booked_bills(ledger: Ledger, counters: CounterStore) -> None:
    """Mark bills as booked in the counter store once the ledger has their rows. Never returns."""
    bills, loop = asyncio.Queue[str](), asyncio.get_running_loop()

    def put(names: Sequence[str]) -> None:
        for name in names:
            loop.call_soon_threadsafe(bills.put_nowait, name)

    ledger.on_bills_settled = put
    while True:
        await counters.mark_bill_booked(await bills.get())


async def _close_counter_store(context: Context, counters: FailoverStore) -> None:
    await counters.close()
    if counters.pending_count:
        context.log.warning("limits.unsettled", count=counters.pending_count)


def _load_redis_client_factory() -> Callable[[RedisLocation, float], RedisServer]:
    """Return a function that creates Redis clients. Raises ``BadSetting`` without the extra."""
    try:
        from proxy.runtime.redis import create_client  # noqa: PLC0415  # an extra
    except ImportError:
        raise BadSetting("HEADRACE_REDIS_URL requires: pip install 'headrace[redis]'") from None

    def create(location: RedisLocation, timeout_s: float) -> RedisServer:
        try:
            return create_client(location.urls, timeout_s, cluster=location.cluster)
        except ValueError as error:
            raise BadSetting(f"HEADRACE_REDIS_URL: {error}") from None

    return create


def monitor_budget_drift(
    context: Context, store: PolicyStore, limiter: Limiter
) -> AbstractAsyncContextManager[None]:
    """Compare budgets with the ledger in the background, if this is the only process."""
    location = context.settings.ledger
    if location is None or location.kind != "sqlite" or context.settings.replicas > 1:
        return nullcontext()

    async def ask(budget: BudgetQuery, since_ms: int) -> Mapping[str, int]:
        path, scopes = location.path, budget.scopes
        return await read_spend_unless_per_user(path, budget, scopes, since_ms) or {}

    in_force = ActiveBudgets(lambda: store.current).read_budgets
    comparing = Reconciler(
        limiter=limiter,
        list_budgets=in_force,
        fetch_spend=ask,
        on_drift=context.metrics.set_ledger_drift,
        on_error=partial(telemetry.log_task_error, context, "drift.failed"),
        sleep=asyncio.sleep,
        monotonic=time.monotonic,
        utc=unix_time_s,
    )
    return background_task(comparing.run())


async def open_budget_backfill(
    context: Context, policies: PolicyStore, counters: CounterStore
) -> BudgetBackfill:
    """Open the backfill, which reads the spend of new budget counters from a SQLite ledger."""
    asking = BudgetBackfill(
        store=counters,
        fetch_spend=partial(_read_and_log_spend, context, ActiveBudgets(lambda: policies.current)),
        on_error=partial(telemetry.log_task_error, context, "recall.failed"),
        monotonic=time.monotonic,
        utc=unix_time_s,
    )
    return await context.opened.enter_async_context(asking)


async def _read_and_log_spend(
    context: Context, active_budgets: ActiveBudgets, claim: Claim, process_since_ms: int
) -> int | None:
    spent_nano_usd = None
    run = context.ledger.run if context.ledger else ""
    try:
        spent_nano_usd = await _read_window_nano_usd(
            context.settings.ledger, active_budgets, claim, CallsOfRun(run, process_since_ms)
        )
    except LedgerUnusable as error:
        raise BackfillUnavailable from error
    finally:
        recalled = None if spent_nano_usd is None else spent_nano_usd / NANO_PER_USD
        labels, name = context.metrics.catalog.get_scope_labels(claim.scope), claim.limit.name
        context.log.info("budget.begins", limit=name, whose=labels, recalled_usd=recalled)
    return spent_nano_usd


async def _read_window_nano_usd(
    location: LedgerLocation | None,
    active_budgets: ActiveBudgets,
    claim: Claim,
    excluded: CallsOfRun,
) -> int | None:
    """Return the nano-USD that the ledger has for a budget's window, None if unknown."""
    if location is None or location.kind != "sqlite":
        return None
    budget = (await active_budgets.read_budgets()).get(claim.limit.name)
    if budget is None:
        return None
    since_ms = claim.limit.calendar.get_window_start_ms(unix_time_s())
    scopes = [claim.scope]
    spend = await read_spend_unless_per_user(location.path, budget, scopes, since_ms, excluded)
    return None if spend is None else spend[claim.scope]


async def open_cache_backends(context: Context) -> dict[str, CacheBackend]:
    """Open the stores of the cache.

    The memory store gets a random secret, lost with the process.
    """
    path, max_bytes = context.settings.cache_file, context.settings.cache_bytes
    memory = MemoryAnswerStore(max_bytes, time.monotonic, context.metrics)
    backends = {
        "memory": CacheBackend(
            await context.opened.enter_async_context(memory), secrets.token_bytes(32)
        ),
    }
    secret = derive_secret(context.settings.cache_secret or "")
    if path is not None:
        backends["sqlite"] = CacheBackend(
            await _open_cache_file(context, path),
            secret,
            _build_tampering_callback(context, "sqlite"),
        )
    if context.settings.redis is not None:
        create_client = _load_redis_client_factory()
        from proxy.cache.redis import TIMEOUT_S, RedisAnswerStore  # noqa: PLC0415  # an extra

        remote = RedisAnswerStore(
            create_client(context.settings.redis, TIMEOUT_S), time.monotonic, context.metrics
        )
        store = await context.opened.enter_async_context(remote)
        backends["redis"] = CacheBackend(store, secret, _build_tampering_callback(context, "redis"))
    return backends


def _build_tampering_callback(context: Context, store: str) -> Callable[[], None]:
    """Return a callback that counts and logs a cached response changed by someone else."""
    quota = Quota(time.monotonic)

    def on_change() -> None:
        context.metrics.count_cache_evictions("changed", 1)
        suppressed = quota.take_token()
        if suppressed is not None:
            context.log.error("cache.changed", store=store, suppressed=suppressed)

    return on_change


async def _open_cache_file(context: Context, path: Path) -> SqliteAnswerStore:
    """Open the SQLite cache. Raises ``BadSetting`` if the file cannot be used."""

    def replaced(reason: str, backup: Path | None) -> None:
        context.metrics.count("headrace_files_replaced_total", "cache")
        fields = {"variable": "HEADRACE_CACHE_FILE", "file": str(path)}
        kept_as = str(backup) if backup else None
        context.log.warning("cache.file_replaced", reason=reason, kept_as=kept_as, **fields)

    failed = partial(context.on_writer_error, "cache")
    max_bytes = context.settings.cache_bytes
    file = SqliteAnswerStore(
        path,
        max_bytes,
        unix_time_s,
        events=context.metrics,
        on_replaced=replaced,
        on_write_error=failed,
    )
    try:
        return await context.opened.enter_async_context(file)
    except (sqlite3.Error, OSError, ForeignFile) as error:
        raise BadSetting(f"HEADRACE_CACHE_FILE: {path} cannot be used: {error}") from None


def open_ledger(context: Context) -> Ledger | None:
    """Open the ledger if one is configured. It closes after the last call has ended."""
    if context.settings.ledger is None:
        return None
    location = context.settings.ledger
    callbacks = telemetry.list_writer_callbacks(context, "ledger")
    sink = ledger.open_ledger(location, proxy.__version__, *callbacks, context.log)
    telemetry.register_writer(context, "ledger", sink)
    return sink
