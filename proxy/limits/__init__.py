"""Admission of calls by the limits of a policy.

A call claims its estimated usage of all limits atomically before it is forwarded: either all
claims fit and are charged, or none is. When the call has ended, actual usage replaces the estimate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Self, TypeVar

from proxy.call.record import Record
from proxy.errors import GuardBlocked, LimitStoreUnavailable, ProxyError
from proxy.limits.backfill import BudgetBackfill
from proxy.limits.claims import (
    estimate_claims,
    estimate_cost,
    estimate_hidden_output,
    list_actual_or_claimed_usage,
    list_non_user_budget_charges,
)
from proxy.limits.stores.store import CounterStore
from proxy.runtime.fair_queue import LARGE_BYTES, Offload
from proxy.runtime.frozen import frozen
from proxy.types import EPOCH, Call, Plan
from proxy.types.guard import UNPRICED_MESSAGE, CostCap, GuardResult, Verdict, is_service
from proxy.types.limit import (
    FLAGS_INDEX,
    READING_LENGTH,
    Claim,
    CounterState,
    Limit,
    LimitDecision,
)

COST_FINDING = "cost"
MILLISECOND = timedelta(milliseconds=1)
T = TypeVar("T")


@frozen
class Limiter:
    """Admits calls by counters in ``store``.

    Attributes:
        on_warning: Called for each counter that a call takes past its ``warn_at``.
        backfill: Restores new or lost budget counters from the ledger.
        offload: Estimates the claims of large bodies.
    """

    store: CounterStore
    on_warning: Callable[[CounterState], None]
    backfill: BudgetBackfill | None = None
    offload: Offload = Offload()  # immutable
    _in_flight: dict[str, Reservation] = field(default_factory=dict)

    def get_reserved_amounts_by_scope(self, limit: Limit, since_ms: int) -> dict[str, int]:
        """Return the amounts of a limit that calls in flight have reserved, by scope.

        Counts calls started since ``since_ms`` (UTC), also under earlier policies.
        """
        amounts: dict[str, int] = {}
        for reservation in self._in_flight.values():
            if reservation.started_ms >= since_ms:
                for claim in reservation.claims:
                    if claim.limit.key == limit.key:
                        amounts[claim.scope] = amounts.get(claim.scope, 0) + claim.amount
        return amounts

    def make_reservation(self, plan: Plan, call: Call, record: Record) -> Reservation:
        """Return a context manager that admits the call on entry."""
        record.hidden_output = partial(estimate_hidden_output, plan, call)
        started_ms = (record.started_at - EPOCH) // MILLISECOND
        return Reservation(limiter=self, plan=plan, call=call, record=record, started_ms=started_ms)


NO_CLAIMS = LimitDecision(admitted=True, claims=(), readings=())


@dataclass(slots=True)
class Reservation:
    """Context manager that reserves the claims of a call, and settles them on exit.

    Entering raises ``LimitExceeded``, ``BudgetExceeded``, ``LimitStoreUnavailable``, or
    ``GuardBlocked`` if a cost cap is exceeded. Nothing is charged then.

    A call over its budget is admitted for a cached response only. Its refusal is deferred until the
    cache has no response.

    ``started_ms`` is the start of the call as in its ledger row, in milliseconds of UTC.
    """

    limiter: Limiter
    plan: Plan
    call: Call
    record: Record
    started_ms: int = 0
    _decision: LimitDecision = NO_CLAIMS
    _deferred_refusal: ProxyError | None = None
    _refused_decision: LimitDecision | None = None
    _is_refused: bool = False
    _attempts: int = 0
    _id: str = ""

    @property
    def claims(self) -> Sequence[Claim]:
        return self._decision.claims

    async def __aenter__(self) -> Self:
        if self.plan.guards.cost_caps:
            cost = await self._run_estimate(estimate_cost)
            check_cost_caps(self.plan.guards.cost_caps, cost, self.record)
        if not self.plan.limits:
            return self
        if self.call.size <= LARGE_BYTES:
            claims = estimate_claims(self.plan, self.call)
        else:
            claims = await self._run_estimate(estimate_claims)
        try:
            await self._reserve(claims)
        except asyncio.CancelledError:  # the store may have charged the call
            if self._attempts:
                await self.limiter.store.settle_unused(self._id)
            raise
        if self._decision.claims:
            self.limiter._in_flight[self._id] = self
        return self

    async def _run_estimate(self, estimate: Callable[[Plan, Call], T]) -> T:
        job, scheduling_key = partial(estimate, self.plan, self.call), self.call.scheduling_key
        return await self.limiter.offload.run(self.call.size, job, scheduling_key)

    def raise_deferred_refusal(self) -> None:
        """Raise the deferred refusal of a call over its budget. Call it if the cache misses."""
        if self._deferred_refusal is not None:
            self._is_refused = True
            self.record.limit_decision = self._refused_decision
            raise self._deferred_refusal

    async def __aexit__(self, *exc_info: object) -> None:
        """Settle actual usage, also of a cancelled call. A refused call has used nothing."""
        store, claims = self.limiter.store, self._decision.claims
        if not claims:
            return
        try:
            if self._is_refused:
                await store.settle_unused(self._id)
            else:
                usage = list_actual_or_claimed_usage(claims, self.record)
                self.record.charges = list_non_user_budget_charges(self._decision, usage)
                if self.limiter.backfill is not None:
                    self.limiter.backfill.add_spend(self.record.charges, self.started_ms)
                await store.settle(self._id, usage)
        finally:
            del self.limiter._in_flight[self._id]

    async def _reserve(self, claims: Sequence[Claim]) -> None:
        """Reserve all claims.

        A call that exceeds only usage-based limits reserves the other claims, for a cached
        response. It is refused at once if the plan has no cache or a guard calls a paid service.
        """
        decision = await self._decide_after_backfill(claims)
        error = None if decision.admitted else self._make_refusal_error(decision, claims)
        if error is None:
            self._decision = decision
            return
        guards = self.plan.guards.input
        if self.plan.cache is None or any(is_service(rule.detector) for rule in guards):
            raise error
        free_claims = tuple(claim for claim in claims if not claim.limit.kind.is_usage_based)
        self.record.limit_decision, self.record.is_over_budget = None, True
        self._deferred_refusal, self._refused_decision = error, decision
        if free_claims:
            free_decision = await self._decide_after_backfill(free_claims)
            if not free_decision.admitted:
                self.record.limit_decision = decision
                raise error
            self._decision = free_decision

    def _make_refusal_error(
        self, decision: LimitDecision, claims: Sequence[Claim]
    ) -> ProxyError | None:
        refusal = decision.longest_refusal
        if refusal is None:
            return None
        limit = next(claim.limit for claim in claims if claim.limit.name == refusal.limit.name)
        if decision.is_store_unavailable and limit.on_store_error == "closed":
            return LimitStoreUnavailable(limit.name, refusal.retry_after_s)
        if limit is not refusal.limit:  # a local share of the limit: report the whole limit instead
            refusal = replace(refusal, limit=limit, remaining=None)
        return limit.kind.make_error(refusal, self.started_ms)

    async def _decide_after_backfill(self, claims: Sequence[Claim]) -> LimitDecision:
        """Request the store's decision, again if a fresh budget has earlier spend in the ledger."""
        backfill = self.limiter.backfill
        if backfill is not None:  # calls wait for a running backfill
            await backfill.wait_for_earlier_spend(claims)
        decision = await self._request_decision(claims)
        if backfill is not None and decision.admitted:
            backfill.track_budgets(decision, self.started_ms)
            if await backfill.wait_for_earlier_spend(decision.claims):
                await self.limiter.store.settle_unused(self._id)
                decision = await self._request_decision(claims)
        self.record.limit_decision = decision
        return decision

    async def _request_decision(self, claims: Sequence[Claim]) -> LimitDecision:
        """Request a decision under a new id, because the previous id may be settled later."""
        self._attempts += 1
        self._id = f"{self.call.head.call_id}-{self._attempts}"
        decision = await self.limiter.store.admit(self._id, claims)
        if decision.admitted and any(decision.readings[FLAGS_INDEX::READING_LENGTH]):
            for state in decision.counter_states:
                if state.is_warned:
                    self.limiter.on_warning(state)
        return decision


def check_cost_caps(cost_caps: Sequence[CostCap], cost: int | None, record: Record) -> None:
    """Record the result of each cost cap. Raise ``GuardBlocked`` if one blocks the call.

    ``cost`` is the estimated maximum in nano-USD. If it is None (no price is known), the guard has
    failed and its ``on_error`` decides.
    """
    record.add_guard_results("input", [_make_cap_result(cap, cost) for cap in cost_caps])
    for cap in cost_caps:
        if cost is None and cap.fails_closed:
            raise GuardBlocked(
                UNPRICED_MESSAGE.format(cap.name), guard=cap.name, kind="could_not_check"
            )
        if cost is not None and cost > cap.max_nano_usd and cap.enforces:
            raise GuardBlocked(cap.message, guard=cap.name, kind=COST_FINDING)


def _make_cap_result(cap: CostCap, cost: int | None) -> GuardResult:
    is_exceeded = cost is not None and cost > cap.max_nano_usd
    verdict: Verdict = "failed" if cost is None else "passed"
    if is_exceeded:
        verdict = "blocked" if cap.action == "block" else "flagged"
    return GuardResult(
        guard=cap.name,
        verdict=verdict,
        shadow=cap.shadow,
        findings={COST_FINDING: 1} if is_exceeded else {},
        score=float(is_exceeded),
        bytes=0,
        fields=0,
        seconds=0.0,
        error="unpriced" if cost is None else None,
        kind=cap.kind,
        action=cap.action,
    )
