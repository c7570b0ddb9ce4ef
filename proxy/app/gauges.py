"""What joins the policies, the limits and the parts of a process to its metrics."""

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
    """What is looked up when metrics are scraped. ``utc`` gives seconds since 1970."""

    metrics: Metrics
    store: CounterStore
    utc: Callable[[], float]

    async def look(self) -> None:
        """Look where limits stand, within ``READ_S``; else what was seen last stays."""
        claims = [Claim(limit, scope, 0) for limit, scope in self.metrics.roster.counters]
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(READ_S):
                standings = await self.store.read(claims) if claims else ()
                self.metrics.stand(standings, self.utc())


def secrets(metrics: Metrics, settings: Settings) -> None:
    """Show fingerprints of the secrets that all replicas must share."""
    ids = settings.id_secrets
    texts = {"ids": ids[0] if ids else "", "accepted": "\0".join(sorted(ids))}
    if settings.redis is not None:
        texts["cache"] = settings.cache_secret or ""
    metrics.secrets({use: _fingerprint(text) for use, text in texts.items()})


def _fingerprint(secret: str) -> str:
    """Return 32 bits of a digest, which tell secrets apart and do not reveal one."""
    if not secret:
        return "none"
    text = secret.encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=4, person=b"headrace print").hexdigest()


class Enforcement:
    """The work of putting policies in force, most of it done in the thread that reads them.

    ``build`` returns the rest of that work for a snapshot, which the event loop does.
    """

    def __init__(self, build: Callable[[Snapshot], Iterable[Callable[[], None]]]) -> None:
        self._build = build
        self._rest: dict[str, tuple[Callable[[], None], ...]] = {}

    def prepare(self, snapshot: Snapshot) -> None:
        """Do what takes long for a snapshot, unless it is done for its revision."""
        if snapshot.revision not in self._rest:
            self._rest = {snapshot.revision: tuple(self._build(snapshot))}

    def tell(self, result: Result, snapshot: Snapshot) -> None:
        """Do the rest once a revision is in force."""
        if result == "in_force":
            for enforce in self._rest[snapshot.revision]:
                enforce()


def policies(
    metrics: Metrics, enforcement: Enforcement, decisions: Iterable[Decisions]
) -> Callable[[Result, Snapshot], None]:
    """Count readings of the policies, seal what came of them, and put them in force."""

    def tell(result: Result, snapshot: Snapshot) -> None:
        metrics.reloaded(result)
        if result != "unchanged":
            for decision_log in decisions:
                decision_log.policy(result, snapshot.revision)
        enforcement.tell(result, snapshot)

    return tell


class LoopLag:
    """Reports every ``LAG_EVERY_S`` seconds, while entered, how late the event loop ran a timer."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell

    async def __aenter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ask()

    async def __aexit__(self, *exc_info: object) -> None:
        self._timer.cancel()

    def _ask(self) -> None:
        due_at = self._loop.time() + LAG_EVERY_S
        self._timer = self._loop.call_at(due_at, self._woken, due_at)

    def _woken(self, due_at: float) -> None:
        self._tell(max(0.0, self._loop.time() - due_at))
        self._ask()
