"""Connections of policies, limits and the event loop to metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b

from proxy.limits.stores.store import CounterStore, StoreUnavailable
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.store import Result
from proxy.runtime.frozen import frozen
from proxy.settings import Settings
from proxy.telemetry.decisions import Decisions
from proxy.telemetry.metrics import Metrics
from proxy.types.limit import Claim

READ_S = 1.0
LAG_EVERY_S = 0.25


@frozen
class LimitGauges:
    """Gauges of limits, read when metrics are scraped. ``utc`` returns seconds since 1970."""

    metrics: Metrics
    store: CounterStore
    utc: Callable[[], float]

    async def look(self) -> None:
        """Read the counters within ``READ_S``. After a timeout the previous values stay."""
        claims = [Claim(limit, scope, 0) for limit, scope in self.metrics.roster.counters]
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(READ_S):
                standings = await self.store.read(claims) if claims else ()
                self.metrics.stand(standings, self.utc())


def secrets(metrics: Metrics, settings: Settings) -> None:
    """Set fingerprints of the secrets that all replicas must share."""
    ids = settings.id_secrets
    texts = {"ids": ids[0] if ids else "", "accepted": "\0".join(sorted(ids))}
    if settings.redis is not None:
        texts["cache"] = settings.cache_secret or ""
    metrics.secrets({use: _fingerprint(text) for use, text in texts.items()})


def _fingerprint(secret: str) -> str:
    """Return a digest of 32 bits, which distinguishes secrets and does not reveal them."""
    if not secret:
        return "none"
    text = secret.encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=4, person=b"headrace print").hexdigest()


class Enforcement:
    """Activates policies. Slow work runs in the thread that reads the policies; ``build`` does
    that work and returns the steps that remain for the event loop."""

    def __init__(self, build: Callable[[Snapshot], Iterable[Callable[[], None]]]) -> None:
        self._build = build
        self._rest: dict[str, tuple[Callable[[], None], ...]] = {}

    def prepare(self, snapshot: Snapshot) -> None:
        """Do the slow work for a snapshot, once per revision."""
        if snapshot.revision not in self._rest:
            self._rest = {snapshot.revision: tuple(self._build(snapshot))}

    def tell(self, result: Result, snapshot: Snapshot) -> None:
        """Run the remaining steps once the revision is active."""
        if result == "in_force":
            for enforce in self._rest[snapshot.revision]:
                enforce()


def policies(
    metrics: Metrics, enforcement: Enforcement, decisions: Iterable[Decisions]
) -> Callable[[Result, Snapshot], None]:
    """Return a callback that counts policy reads, logs their results as decisions, and activates
    policies."""

    def tell(result: Result, snapshot: Snapshot) -> None:
        metrics.reloaded(result)
        if result != "unchanged":
            for decision_log in decisions:
                decision_log.policy(result, snapshot.revision)
        enforcement.tell(result, snapshot)

    return tell


class LoopLag:
    """Reports the delay of an event loop timer every ``LAG_EVERY_S`` seconds while entered."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell

    async def __aenter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._schedule()

    async def __aexit__(self, *exc_info: object) -> None:
        self._timer.cancel()

    def _schedule(self) -> None:
        due_at = self._loop.time() + LAG_EVERY_S
        self._timer = self._loop.call_at(due_at, self._on_timer, due_at)

    def _on_timer(self, due_at: float) -> None:
        self._tell(max(0.0, self._loop.time() - due_at))
        self._schedule()
