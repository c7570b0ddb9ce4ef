"""A shared store that may be away: calls go on, by what each limit's ``on_store_error`` says.

After a few round trips in a row that failed, the only request to it is a ping, now and then. Once
it answers it gets what it missed, by increments: what calls really used, and money spent meanwhile.
Whatever it may have charged stays pending until it has taken what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol

from proxy.frozen import frozen
from proxy.limits.stores.local_fallback import LocalFallback, has_closed
from proxy.limits.stores.lost_counters import LostCounters
from proxy.limits.stores.store import BilledOnce, CounterStore, StoreUnavailable
from proxy.types.limit import Claim
from proxy.types.outcome import READING, WAIT, Outcome, Standing

FAILURES = 3
REST_S = 0.5
MOST_REST_S = 15.0
MOST_PENDING = 100_000
CLOSING_S = 2.0
CLOSING_REST_S = 0.05
AT_ONCE = 64
OnChange = Callable[[Literal["degraded", "recovered"]], None]


class Remote(CounterStore, Protocol):
    """A store that others share."""

    def settle_soon(
        self, request_id: str, actuals: Sequence[int], failed: Callable[[StoreUnavailable], None]
    ) -> None:
        """Settle without anybody waiting; ``failed`` is called if it did not come through."""

    async def ping(self) -> None:
        """See whether it answers. Raises ``StoreUnavailable``."""


@frozen
class InFlight:
    """A call under way, as it was ``decided``. If the shared store was ``asked``, it may have
    charged it; it has where it decided itself, at a moment of the monotonic clock."""

    claims: Sequence[Claim]
    asked: bool
    decided: Outcome | None = None
    shared_at_ms: int | None = None

    def counted(self, actuals: Sequence[int]) -> Sequence[int]:
        """Return what is counted of what was used: nothing by a limit in shadow that would have
        refused the call, be it for the store that is away."""
        waits = self.decided.readings[WAIT::READING] if self.decided is not None else ()
        if not any(waits):
            return actuals
        return [0 if wait else actual for wait, actual in zip(waits, actuals, strict=True)]


@frozen
class PendingCharge:
    """Money to be added to shared budgets, until their windows end (in milliseconds of UTC)."""

    claims: Sequence[Claim]
    ends: int


@dataclass(slots=True)
class FailoverStore:
    """A ``CounterStore``; ``watch`` must go on beside it, or a shared one that was away stays away.
    ``close`` sends the shared one what is pending at the end.

    ``sleep`` and ``chance`` (0 to 1) space the looks, so that instances do not come back all at
    once. ``on_change`` is called when the shared store is lost or back, ``lost_budget`` for each
    counter that it had and has no more: an alarm. ``lost`` counts what there was no room to
    remember: such calls stay charged as estimated, such money is uncharged.
    """

    remote: Remote
    fallback: LocalFallback
    on_change: OnChange
    sleep: Callable[[float], Awaitable[None]]
    chance: Callable[[], float]
    new_id: Callable[[], str]
    lost_budget: Callable[[Claim], None]
    failures: int = FAILURES
    rest_s: float = REST_S
    lost: int = 0
    _failed: int = 0
    _failed_trip: object = None
    _away: bool = False
    _holding: bool = False
    _calls: dict[str, InFlight] = field(default_factory=dict)
    _unsettled: dict[str, Sequence[int]] = field(default_factory=dict)
    _deferred: dict[tuple[str, str, int], PendingCharge] = field(default_factory=dict)
    _unsent: dict[str, PendingCharge] = field(default_factory=dict)
    _billed: BilledOnce = field(default_factory=BilledOnce)
    _untold: dict[str, str] = field(default_factory=dict)  # what was billed meanwhile, and by whom
    _look: asyncio.Event = field(default_factory=asyncio.Event)
    _losses: LostCounters = field(init=False)

    def __post_init__(self) -> None:
        self._losses = LostCounters(self.fallback.monotonic)

    @property
    def degraded(self) -> bool:
        """Whether decisions are made without the shared store."""
        return self._away

    @property
    def certain(self) -> bool:
        return not self._away and not self.pending

    @property
    def under_way(self) -> int:
        """How many calls are admitted and not settled."""
        return len(self._calls)

    @property
    def pending(self) -> int:
        """How many calls the shared store has still to settle, budgets to charge, and names of what
        was billed to hear."""
        charges = len(self._unsettled) + len(self._deferred) + len(self._unsent)
        return charges + len(self._untold)

    async def admit(self, request_id: str, claims: Sequence[Claim]) -> Outcome:
        asked = not self._away
        if asked and (decided := await self._ask(request_id, claims)) is not None:
            return decided
        self._take_over()
        decided = self.fallback.admit(request_id, claims)
        if decided.admitted:
            self._calls[request_id] = InFlight(claims, asked, decided)
        elif asked:
            self._settle_later(request_id, [0] * len(claims))
        return decided

    async def _ask(self, request_id: str, claims: Sequence[Claim]) -> Outcome | None:
        """Return what the shared store decides; None if it does not answer. A limit that is closed
        without it is worth asking again: one slow trip must not refuse a call."""
        for tries in range(self.failures if has_closed(claims) else 1):
            try:
                decided = await self.remote.admit(request_id, claims)
            except StoreUnavailable as error:
                self._fail(error)
                if self._away:
                    break
            except asyncio.CancelledError:  # it may have been charged: the caller releases it
                self._calls[request_id] = InFlight(claims, asked=True)
                raise
            else:
                self._note(decided)
                if decided.admitted:
                    now_ms = int(self.fallback.monotonic() * 1000)
                    self._calls[request_id] = InFlight(
                        claims=claims, asked=True, decided=decided, shared_at_ms=now_ms
                    )
                elif tries:  # a try before may still come through
                    self._settle_later(request_id, [0] * len(claims))
                return decided
        return None

    def _take_over(self) -> None:
        """Hold the places of all calls under way, once for as long as the store is not heard."""
        if not self._holding:
            self._holding = True
            for request_id, call in self._calls.items():
                self.fallback.hold(request_id, call.claims)

    def _note(self, decided: Outcome) -> None:
        self._failed = 0
        self._holding = False
        self.fallback.see(decided)
        for claim in self._losses.find(decided):
            self.lost_budget(claim)

    async def settle(self, request_id: str, actuals: Sequence[int]) -> None:
        """As promised, without waiting for the shared store: it is told before it is asked anything
        else from here; what it cannot be told now, when it is back."""
        call = self._calls.pop(request_id, None)
        if call is None:
            return
        actuals = call.counted(actuals)
        self.fallback.settle(request_id, call.claims, actuals)
        if call.decided is not None and call.shared_at_ms is not None:
            self.fallback.correct(call.decided, call.shared_at_ms, actuals)
        if not call.asked:
            self._defer(call, actuals)
        elif self._away:
            self._settle_later(request_id, actuals)
        else:
            failed = partial(self._missed, request_id, actuals)
            self.remote.settle_soon(request_id, actuals, failed)

    def _missed(self, request_id: str, actuals: Sequence[int], error: StoreUnavailable) -> None:
        self._settle_later(request_id, actuals)
        self._fail(error)

    async def release(self, request_id: str) -> None:
        call = self._calls.get(request_id)
        if call is not None:
            await self.settle(request_id, [0] * len(call.claims))

    async def charge(self, charge_id: str, claims: Sequence[Claim], *, whole: bool = False) -> None:
        """As promised. While the shared store is away this instance's share alone hears of it; what
        has perhaps not come through is charged there when it is back."""
        if not self._away:
            try:
                await self.remote.charge(charge_id, claims, whole=whole)
            except StoreUnavailable as error:
                self._fail(error)
                self._keep_unsent(charge_id, claims)
            else:
                return
        self.fallback.charge(claims, whole=whole)

    def _keep_unsent(self, charge_id: str, claims: Sequence[Claim]) -> None:
        wall = int(self.fallback.utc() * 1000)
        ends = min(claim.limit.calendar.around(wall)[2] for claim in claims)
        self._unsent[charge_id] = PendingCharge(claims, ends)
        self._look.set()

    async def bill_once(self, name: str, owner: str) -> bool:
        """As promised, and without asking for what was billed here. While the shared store is away
        this instance decides alone; what it has billed is told when that is back."""
        if not self._billed.bill(name, owner):
            return False
        if not self._away:
            try:
                return await self.remote.bill_once(name, owner)
            except StoreUnavailable as error:
                self._fail(error)
        if self.pending < MOST_PENDING:
            self._untold[name] = owner
            self._look.set()
        return True

    async def read(self, claims: Sequence[Claim]) -> tuple[Standing, ...]:
        """Return where the shared counters stand; this instance's own share while they are away."""
        if not self._away:
            try:
                return await self.remote.read(claims)
            except StoreUnavailable as error:
                self._fail(error)
        return self.fallback.look(claims).standings

    async def renew(self) -> None:
        """As promised; where the shared store does not answer, it is told as soon as it does."""
        self.fallback.local.renew_now()
        if not self._away:
            try:
                await self.remote.renew()
            except StoreUnavailable as error:
                self._fail(error)
                self._look.set()

    def _fail(self, error: StoreUnavailable) -> None:
        """Count a trip that failed, however many calls were on it."""
        if error.trip is None or error.trip is self._failed_trip:
            return
        self._failed_trip = error.trip
        self._failed += 1
        if self._failed < self.failures or self._away:
            return
        self._away = True
        self._look.set()
        self.on_change("degraded")

    def _settle_later(self, request_id: str, actuals: Sequence[int]) -> None:
        if self.pending >= MOST_PENDING:
            self.lost += 1
            return
        self._unsettled[request_id] = actuals
        self._look.set()

    def _defer(self, call: InFlight, actuals: Sequence[int]) -> None:
        """Add up money by budget and window; of rates, nothing is worth telling so late."""
        wall = int(self.fallback.utc() * 1000)
        for claim, actual in zip(call.claims, actuals, strict=True):
            if not claim.limit.is_budget or not actual:
                continue
            _, begin, ends, _ = claim.limit.calendar.around(wall)
            name = (claim.limit.key, claim.scope, begin)
            before = self._deferred.get(name)
            if before is None and self.pending >= MOST_PENDING:
                self.lost += 1
                continue
            total = actual + (before.claims[0].amount if before else 0)
            self._deferred[name] = PendingCharge([replace(claim, amount=total)], ends)
            self._look.set()

    async def check(self) -> None:
        """See before the first call whether the shared store answers, and tell where it does not:
        ``on_change`` is called as by calls that find it so."""
        for _ in range(self.failures):
            try:
                await self.remote.ping()
            except StoreUnavailable as error:
                self._fail(error)
            else:
                self._failed = 0
                return

    async def watch(self) -> None:
        """Look, after each rest, whether the store is back; tell it what it missed. Never ends."""
        rest = self.rest_s
        while True:
            await self._look.wait()
            await self.sleep(rest * (0.5 + self.chance()))
            try:
                await self.remote.ping()
                await self.remote.renew()
                await self._send_pending()  # last: what becomes pending meanwhile is sent too
            except StoreUnavailable:
                rest = min(MOST_REST_S, rest * 2)
            else:
                rest = self.rest_s
                self._look.clear()
                self._return()

    def _return(self) -> None:
        self._failed = 0
        if self._away:
            self._away = self._holding = False
            self.fallback.forget()
            self.on_change("recovered")

    async def close(self, within_s: float = CLOSING_S) -> None:
        """Send what is pending to the shared store, for at most ``within_s`` seconds; the rest
        stays pending. Call it after ``watch`` has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not await self._try_send_pending() and self.pending:
                    await self.sleep(CLOSING_REST_S)

    async def _try_send_pending(self) -> bool:
        try:
            await self.remote.ping()  # after what was to be settled soon
            await self._send_pending()
        except StoreUnavailable:
            return False
        return True

    async def _send_pending(self) -> None:
        """Send the store what it missed. Raises ``StoreUnavailable``: the rest stays pending."""
        while self.pending:
            for pending in self._deferred.values():
                self._unsent[self.new_id()] = pending
            self._deferred.clear()
            wall = int(self.fallback.utc() * 1000)
            sent = [self._settle(name) for name in list(self._unsettled)[:AT_ONCE]]
            sent += [self._charge(name, wall) for name in list(self._unsent)[:AT_ONCE]]
            sent += [self._tell_billed(name) for name in list(self._untold)[:AT_ONCE]]
            for result in await asyncio.gather(*sent, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result

    async def _settle(self, request_id: str) -> None:
        await self.remote.settle(request_id, self._unsettled[request_id])
        del self._unsettled[request_id]

    async def _charge(self, charge_id: str, wall: int) -> None:
        pending = self._unsent[charge_id]
        if wall < pending.ends:
            await self.remote.charge(charge_id, pending.claims)
        del self._unsent[charge_id]

    async def _tell_billed(self, name: str) -> None:
        await self.remote.bill_once(name, self._untold[name])
        del self._untold[name]
