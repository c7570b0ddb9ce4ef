"""Admission: what a key, a deployment or a tag may still use.

A call claims an estimate of all its limits in one step before it is forwarded: all fit and are
charged, or one does not and nothing is. When the call has ended, whatever way, each claim is
corrected to what was really used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self, TypeVar

from proxy.call.record import Record
from proxy.errors import GuardBlocked, LimitStoreUnavailable, ProxyError
from proxy.limits.backfill import Backfill
from proxy.limits.claims import (
    actual_usage,
    charges_of,
    estimate_claims,
    estimate_cost,
    hidden_output,
)
from proxy.limits.stores.store import CounterStore
from proxy.runtime.frozen import frozen
from proxy.runtime.offload import LARGE_BYTES, Offload
from proxy.types import Call, Plan
from proxy.types.guard import UNPRICED, CostCap, GuardResult, Verdict, is_service
from proxy.types.limit import Claim, Limit, LimitRefusal
from proxy.types.outcome import FLAGS, FRESH, READING, CounterState, LimitDecision

FINDING = "cost"
T = TypeVar("T")


@frozen
class Limiter:
    """The limits of the policy over a store of counters.

    ``is_warned`` hears of each budget or rate that a call took past its ``warn_at``. ``backfill``
    charges budgets whose counters begin anew (a new window, a process that was started again, a
    store that has lost them) with what their window has seen. ``offload`` is where claims of large
    bodies are estimated.
    """

    store: CounterStore
    warned: Callable[[CounterState], None]
    backfill: Backfill | None = None
    offload: Offload = Offload()  # it is frozen
    _in_flight: dict[str, Reservation] = field(default_factory=dict)

    def held(self, limit: Limit, since_ms: int) -> dict[str, int]:
        """Return what calls under way hold of a limit by estimate, by whose: those that came since
        a moment, in milliseconds of UTC, also under policies of before that had the same limit."""
        found: dict[str, int] = {}
        for admitted in self._in_flight.values():
            if admitted.at_ms >= since_ms:
                for claim in admitted.claims:
                    if claim.limit.key == limit.key:
                        found[claim.scope] = found.get(claim.scope, 0) + claim.amount
        return found

    def admit(self, plan: Plan, call: Call, record: Record) -> Reservation:
        record.hidden_output = partial(hidden_output, plan, call)
        return Reservation(limiter=self, plan=plan, call=call, record=record)


@frozen
class ReservedClaims:
    """What the store has ``decided`` of a call's claims, and charged, under which id.

    That of a call which is let in for a kept answer alone has the ``refusal`` that was put off, and
    by what it was ``refused``. It is ``void`` once there turns out to be no such answer.
    """

    id: str
    decided: LimitDecision
    refusal: ProxyError | None = None
    refused: LimitDecision | None = None
    void: bool = False


NOTHING = ReservedClaims("", LimitDecision(admitted=True, claims=(), readings=()))


@dataclass(slots=True)
class Reservation:
    """One call's time under its limits. Entering raises ``LimitExceeded``, ``BudgetExceeded`` or
    ``LimitStoreUnavailable``, or ``GuardBlocked`` for a call that may cost too much, and then
    nothing is charged; leaving settles."""

    limiter: Limiter
    plan: Plan
    call: Call
    record: Record
    _reserved: ReservedClaims = NOTHING
    _asked: int = 0
    _id: str = ""

    @property
    def at_ms(self) -> int:
        """When the call came, in milliseconds of UTC."""
        return int(self.call.head.received_at.timestamp() * 1000)

    @property
    def claims(self) -> Sequence[Claim]:
        """What it holds until it is settled."""
        return self._reserved.decided.claims

    async def __aenter__(self) -> Self:
        if self.plan.guards.cost_caps:
            cost = await self._worked_out(estimate_cost)
            permit(self.plan.guards.cost_caps, cost, self.record)
        if not self.plan.limits:
            return self
        if self.call.size <= LARGE_BYTES:
            claims = estimate_claims(self.plan, self.call)
        else:
            claims = await self._worked_out(estimate_claims)
        try:
            self._reserved = await self._reserve(claims)
        except asyncio.CancelledError:  # it may have been charged: its client has left meanwhile
            if self._asked:
                await self.limiter.store.release(self._id)
            raise
        if self._reserved.decided.claims:
            self.limiter._in_flight[self._reserved.id] = self
        return self

    async def _worked_out(self, work: Callable[[Plan, Call], T]) -> T:
        job, caller = partial(work, self.plan, self.call), self.call.scheduling_key
        return await self.limiter.offload.run(self.call.size, job, caller)

    def require_budget(self) -> None:
        """Raise the refusal that was put off: the cache has no answer, so an upstream must be
        asked."""
        reserved = self._reserved
        if reserved.refusal is not None:
            self._reserved = replace(reserved, void=True)
            self.record.limit_decision = reserved.refused
            raise reserved.refusal

    async def __aexit__(self, *exc_info: object) -> None:
        """Settle also when the call is cancelled: what was used was used. A call that was refused
        after all has used nothing."""
        store, reserved = self.limiter.store, self._reserved
        claims = reserved.decided.claims
        if not claims:
            return
        try:
            if reserved.void:
                await store.release(reserved.id)
            else:
                used = actual_usage(claims, self.record)
                self.record.charges = charges_of(reserved.decided, used)
                await store.settle(reserved.id, used)
        finally:
            del self.limiter._in_flight[reserved.id]

    async def _reserve(self, claims: Sequence[Claim]) -> ReservedClaims:
        """Reserve all claims; for a kept answer only, of a call that is over a budget or a token
        limit, those that still hold. Raise the refusal where the plan has no cache, a guard would
        call a paid service first, or another limit refuses too."""
        decided = await self._decide(claims)
        refusal = None if decided.admitted else decided.refusal
        if refusal is None:
            return ReservedClaims(self._id, decided)
        error = _refused(refusal, claims, self.at_ms, store_away=decided.store_away)
        rules = self.plan.guards.input
        if self.plan.cache is None or any(is_service(rule.detector) for rule in rules):
            raise error
        free = tuple(claim for claim in claims if not claim.limit.kind.is_usage_based)
        self.record.limit_decision, self.record.is_over_budget = None, True
        if not free:
            return replace(NOTHING, refusal=error, refused=decided)
        without = await self._decide(free)
        if not without.admitted:
            self.record.limit_decision = decided
            raise error
        return ReservedClaims(id=self._id, decided=without, refusal=error, refused=decided)

    async def _decide(self, claims: Sequence[Claim]) -> LimitDecision:
        """Ask the store; once more where a budget that began anew turns out to be used."""
        backfill = self.limiter.backfill
        if backfill is not None:  # nobody overtakes a budget that is being backfilled
            await backfill.known(claims)
        decided = await self._ask(claims)
        if backfill is not None and decided.admitted and await self._backfill(backfill, decided):
            await self.limiter.store.release(self._id)
            decided = await self._ask(claims)
        self.record.limit_decision = decided
        return decided

    async def _backfill(self, backfill: Backfill, decided: LimitDecision) -> bool:
        """Have budgets backfilled that begin anew with this call. True if one of its budgets turned
        out to be used, be it that another call began it in the same moment."""
        for index, flags in enumerate(decided.readings[FLAGS::READING]):
            if flags & FRESH:
                backfill.begin(decided.claims[index], self.at_ms)
        return await backfill.known(decided.claims)

    async def _ask(self, claims: Sequence[Claim]) -> LimitDecision:
        """Ask the store under a new id: under the last one it may owe something, or be owed."""
        self._asked += 1
        self._id = f"{self.call.head.call_id}-{self._asked}"
        decided = await self.limiter.store.admit(self._id, claims)
        if decided.admitted and any(decided.readings[FLAGS::READING]):
            for standing in decided.standings:
                if standing.is_warned:
                    self.limiter.warned(standing)
        return decided


def _refused(
    refusal: LimitRefusal, claims: Sequence[Claim], at_ms: int, *, store_away: bool
) -> ProxyError:
    """Return the error for a call. While the store is away a share of a limit refuses: the client
    reads of the whole limit, and not how much of the share is left."""
    limit = next(c.limit for c in claims if c.limit.name == refusal.limit.name)
    if store_away and limit.on_store_error == "closed":
        return LimitStoreUnavailable(limit.name, refusal.retry_after_s)
    if limit is not refusal.limit:
        refusal = replace(refusal, limit=limit, remaining=None)
    return limit.kind.error(refusal, at_ms)


def permit(cost_caps: Sequence[CostCap], cost: int | None, record: Record) -> None:
    """Note what every ceiling says of a call, which may cost so many nano-USD by the same estimate
    that limits claim; None where nobody can tell: then the guard has failed, and ``on_error`` says
    what that means. Raises ``GuardBlocked`` where a ceiling stops the call."""
    record.add_guard_results("input", [_result(ceiling, cost) for ceiling in cost_caps])
    for ceiling in cost_caps:
        name = ceiling.name
        if cost is None and ceiling.fails_closed:
            raise GuardBlocked(UNPRICED.format(name), guard=name, kind="could_not_check")
        if cost is not None and cost > ceiling.max_nano_usd and ceiling.enforces:
            raise GuardBlocked(ceiling.message, guard=name, kind=FINDING)


def _result(ceiling: CostCap, cost: int | None) -> GuardResult:
    verdict: Verdict = "passed"
    if cost is None:
        verdict = "failed"
    elif cost > ceiling.max_nano_usd:
        verdict = "blocked" if ceiling.action == "block" else "flagged"
    found = cost is not None and cost > ceiling.max_nano_usd
    return GuardResult(
        guard=ceiling.name,
        verdict=verdict,
        shadow=ceiling.shadow,
        findings={FINDING: 1} if found else {},
        score=float(found),
        bytes=0,
        fields=0,
        seconds=0.0,
        error="unpriced" if cost is None else None,
        kind=ceiling.kind,
        action=ceiling.action,
    )
