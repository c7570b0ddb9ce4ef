"""The stores of a process: counters, kept answers, rows."""

from __future__ import annotations

import asyncio
import random
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import proxy
from proxy import ledger
from proxy.app import telling
from proxy.app.site import Site, new_request_id, since_epoch
from proxy.beside import beside
from proxy.cache.file import ForeignFile
from proxy.cache.key import secret_of
from proxy.cache.memory import Memory
from proxy.cache.sqlite import Sqlite
from proxy.cache.store import CacheBackend
from proxy.emit import Sink
from proxy.emit.quota import Quota
from proxy.ledger import budgets
from proxy.ledger.store import Unusable
from proxy.limits import Admission
from proxy.limits.backfill import Backfill, BackfillUnavailable, Recall
from proxy.limits.failover import FailoverStore
from proxy.limits.leases import renewing
from proxy.limits.local_fallback import LocalFallback
from proxy.limits.memory import MemoryStore
from proxy.limits.reconcile import Reconciler
from proxy.limits.store import CounterStore
from proxy.policy.budgets import BudgetsInForce
from proxy.policy.store import PolicyStore
from proxy.settings import BadSetting, LedgerAt, RedisAt
from proxy.types.budget import BudgetQuery
from proxy.types.limit import Claim
from proxy.usage import NANO

if TYPE_CHECKING:
    from proxy.redis import Server


async def counters(site: Site) -> CounterStore:
    """Open the store of the counters of limits: in memory, or in a server that may be away."""
    store = await _counters(site)
    await site.opened.enter_async_context(beside(renewing(store, asyncio.sleep)))
    return store


async def _counters(site: Site) -> CounterStore:
    if site.settings.redis is None:
        return MemoryStore(time.monotonic, since_epoch)
    connect = _connector()
    from proxy.limits.redis import TIMEOUT_S, RedisStore  # noqa: PLC0415  # an extra

    def tell(state: Literal["degraded", "recovered"]) -> None:
        site.metrics.counters_degraded(state == "degraded")
        site.log.warning(f"limits.{state}")

    def lost(claim: Claim) -> None:
        name, named = claim.limit.name, site.metrics.roster.owners(claim.scope)
        site.metrics.budget_lost(name)
        site.log.error("budget.lost", limit=name, whose=named)

    server = connect(site.settings.redis, TIMEOUT_S)
    shared = await site.opened.enter_async_context(RedisStore(server, since_epoch))
    alone = LocalFallback(time.monotonic, since_epoch, site.settings.replicas)
    sheltered = FailoverStore(
        shared, alone, tell, asyncio.sleep, random.random, new_request_id, lost
    )
    site.opened.push_async_callback(_close, site, sheltered)
    await site.opened.enter_async_context(beside(sheltered.watch()))
    return sheltered


async def _close(site: Site, counters: FailoverStore) -> None:
    await counters.close()
    if counters.owing:
        site.log.warning("limits.unsettled", count=counters.owing)


def _connector() -> Callable[[RedisAt, float], Server]:
    """Give what connects to a server that is shared. Raises ``BadSetting`` where it is missing."""
    try:
        from proxy.redis import connect  # noqa: PLC0415  # an extra
    except ImportError:
        raise BadSetting("HEADRACE_REDIS_URL needs: pip install 'headrace[redis]'") from None
    return connect


def drift(
    site: Site, store: PolicyStore, admission: Admission
) -> AbstractAsyncContextManager[None]:
    """Look now and then whether budgets and ledger agree, where one process keeps all of both."""
    at = site.settings.ledger
    if at is None or at.kind != "sqlite" or site.settings.replicas > 1:
        return nullcontext()

    async def ask(budget: BudgetQuery, since_ms: int) -> Mapping[str, int]:
        return await budgets.spent(at.path, budget, budget.scopes, since_ms) or {}

    clocks = (asyncio.sleep, time.monotonic, since_epoch)
    in_force = BudgetsInForce(lambda: store.current).all
    tell, failed = site.metrics.drifted, telling.amiss(site, "drift.failed")
    return beside(Reconciler(admission, in_force, ask, tell, failed, *clocks).run())


async def recalls(site: Site, policies: PolicyStore, counters: CounterStore) -> Backfill:
    """Let budgets that begin anew ask the ledger what their window has seen, where there is one."""
    failed = telling.amiss(site, "recall.failed")
    asking = Backfill(counters, _recall(site, policies), failed, time.monotonic, since_epoch)
    return await site.opened.enter_async_context(asking)


def _recall(site: Site, policies: PolicyStore) -> Recall:
    in_force = BudgetsInForce(lambda: policies.current)

    async def ask(claim: Claim, before_ms: int | None) -> int | None:
        found, budget = None, in_force.named(claim.limit.name)
        try:
            found = await _seen(site.settings.ledger, budget, claim, before_ms)
        except Unusable as error:
            raise BackfillUnavailable from error
        finally:
            recalled = None if found is None else found / NANO
            named = site.metrics.roster.owners(claim.scope)
            name = claim.limit.name
            site.log.info("budget.begins", limit=name, whose=named, recalled_usd=recalled)
        return found

    return ask


async def _seen(
    at: LedgerAt | None, budget: BudgetQuery | None, claim: Claim, before_ms: int | None
) -> int | None:
    """Return what a counter of a budget has seen in its window, as the ledger knows it."""
    if at is None or at.kind != "sqlite" or budget is None:
        return None
    since_ms = claim.limit.calendar.around(int(since_epoch() * 1000))[1]
    until_ms = budgets.NEVER_MS if before_ms is None else before_ms
    found = await budgets.spent(at.path, budget, [claim.scope], since_ms, until_ms)
    return None if found is None else found[claim.scope]


async def backends(site: Site) -> dict[str, CacheBackend]:
    """Open the stores of the cache. What is kept in memory ends with it, and so does its secret."""
    path, most = site.settings.cache_file, site.settings.cache_bytes
    memory = Memory(most, time.monotonic, site.metrics)
    backends = {
        "memory": CacheBackend(
            await site.opened.enter_async_context(memory), secrets.token_bytes(32)
        ),
    }
    secret = secret_of(site.settings.cache_secret or "")
    if path is not None:
        backends["sqlite"] = CacheBackend(
            await _cache_file(site, path), secret, _changed(site, "sqlite")
        )
    if site.settings.redis is not None:
        connect = _connector()
        from proxy.cache.redis import TIMEOUT_S, Redis  # noqa: PLC0415  # an extra

        shared = Redis(connect(site.settings.redis, TIMEOUT_S), time.monotonic, site.metrics)
        store = await site.opened.enter_async_context(shared)
        backends["redis"] = CacheBackend(store, secret, _changed(site, "redis"))
    return backends


def _changed(site: Site, store: str) -> Callable[[], None]:
    """Return what tells of a kept answer that somebody else has changed."""
    quota = Quota(time.monotonic)

    def tell() -> None:
        site.metrics.evicted("changed", 1)
        untold = quota.take()
        if untold is not None:
            site.log.error("cache.changed", store=store, untold=untold)

    return tell


async def _cache_file(site: Site, path: Path) -> Sqlite:
    """Open the file of kept answers. Raise ``BadSetting`` where that cannot be."""

    def replaced(reason: str, kept: Path | None) -> None:
        site.metrics.file_replaced("cache")
        named = {"variable": "HEADRACE_CACHE_FILE", "file": str(path)}
        kept_as = str(kept) if kept else None
        site.log.warning("cache.file_replaced", reason=reason, kept_as=kept_as, **named)

    failed = partial(site.failed, "cache")
    file = Sqlite(path, site.settings.cache_bytes, since_epoch, site.metrics, replaced, failed)
    try:
        return await site.opened.enter_async_context(file)
    except (sqlite3.Error, OSError, ForeignFile) as error:
        raise BadSetting(f"HEADRACE_CACHE_FILE: {path} cannot be used: {error}") from None


def rows(site: Site) -> tuple[Sink, ...]:
    """Give the sink of rows when they are kept. It closes after the last call has ended."""
    if site.settings.ledger is None:
        return ()
    dropped = partial(site.metrics.dropped, "ledger")
    failed = partial(site.failed, "ledger")
    told = (dropped, failed, partial(site.metrics.file_replaced, "ledger"), site.log)
    kept = ledger.opened(site.settings.ledger, proxy.__version__, *told)
    waiting = partial(getattr, kept, "waiting")
    site.metrics.watch("headrace_telemetry_queue_length", "ledger", read=waiting)
    site.opened.push_async_callback(asyncio.to_thread, kept.close)
    return (kept,)
