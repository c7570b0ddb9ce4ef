"""Admission: what a key, a deployment or a tag may still use.

A call claims an estimate of all its limits in one step before it is forwarded: all fit and are
charged, or one does not and nothing is. When the call has ended, whatever way, each claim is
corrected to what was really used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

from proxy.errors import BudgetExceeded, LimitExceeded, LimitStoreUnavailable, ProxyError
from proxy.limits import economics
from proxy.limits.claims import actuals, claims_of, hidden_tokens, predicted, whose_each
from proxy.limits.store import Store
from proxy.offload import Offload
from proxy.record import Record
from proxy.types import Call, Plan
from proxy.types.guard import asks
from proxy.types.limit import Claim, Limit, rate_text
from proxy.types.outcome import FRESH, READING, Outcome, Refusal, Standing

Recall = Callable[[Limit, Mapping[str, str]], Awaitable[int | None]]
USED = ("tokens", "usd")  # what is counted of an upstream's work, and not of calls
FLAGS = 3  # where they stand in the reading of a claim


@dataclass(frozen=True, slots=True)
class Admission:
    """The limits of the policy over a store of counters.

    ``warned`` hears of each budget or rate that a call took past its ``warn_at``. ``recall`` gives
    the nano-USD that a budget has seen in its window, for counters that begin anew: a new window,
    a process that was started again, a store that has lost them. None where nobody knows.
    ``offload`` is where claims of large bodies are estimated.
    """

    store: Store
    warned: Callable[[Standing], None]
    recall: Recall | None = None
    offload: Offload = Offload()  # noqa: RUF009  # it is frozen
    _recalling: asyncio.Lock = field(default_factory=asyncio.Lock)
    _going: dict[str, Admitted] = field(default_factory=dict)

    def held(self, limit: Limit, since_ms: int) -> dict[str, int]:
        """Give what calls under way hold of a limit by estimate, by whose: those that came since a
        moment, in milliseconds of UTC."""
        found: dict[str, int] = {}
        for each in self._going.values():
            if each.call.door.at.timestamp() * 1000 >= since_ms:
                for claim in each._claims:
                    if claim.limit is limit:
                        found[claim.scope] = found.get(claim.scope, 0) + claim.amount
        return found

    def admit(self, plan: Plan, call: Call, record: Record) -> Admitted:
        record.hidden_tokens = partial(hidden_tokens, plan, call)
        return Admitted(self, plan, call, record)


@dataclass(slots=True)
class Admitted:
    """One call's time under its limits. Entering raises ``LimitExceeded``, ``BudgetExceeded`` or
    ``LimitStoreUnavailable``, or ``GuardBlocked`` for a call that may cost too much, and then
    nothing is charged; leaving settles."""

    admission: Admission
    plan: Plan
    call: Call
    record: Record
    _claims: tuple[Claim, ...] = ()
    _id: str = ""
    _deferred: tuple[ProxyError, Outcome] | None = None

    async def __aenter__(self) -> Self:
        offload = self.admission.offload
        if self.plan.guards.ceilings:
            cost = await offload.run(self.call.size, partial(predicted, self.plan, self.call))
            economics.permit(self.plan.guards.ceilings, cost, self.record)
        if not self.plan.bounds:
            return self
        claims = await offload.run(self.call.size, partial(claims_of, self.plan, self.call))
        self._id = self.call.door.nonce
        outcome = await self._asked(claims)
        if outcome.refusal is not None:
            claims = await self._without_use(claims, outcome)
        if claims:
            self._claims = claims
            self.admission._going[self._id] = self
        return self

    def require_budget(self) -> None:
        """Raise the refusal that was put off: the cache has no answer, so an upstream must be
        asked."""
        if self._deferred is not None:
            error, self.record.admission = self._deferred
            raise error

    async def _asked(self, claims: Sequence[Claim]) -> Outcome:
        try:
            outcome = self.record.admission = await self._decided(claims)
        except asyncio.CancelledError:  # it may have been charged: its client has left meanwhile
            await self.admission.store.release(self._id)
            raise
        if outcome.admitted and any(outcome.readings[FLAGS::READING]):
            for standing in outcome.standings:
                if standing.warned:
                    self.admission.warned(standing)
        return outcome

    async def _without_use(self, claims: Sequence[Claim], first: Outcome) -> tuple[Claim, ...]:
        """Admit a call that is over a budget or a token limit for a kept answer only, and return
        the claims that still hold. Raise the refusal where the plan has no cache, a guard would
        call a paid service first, or another limit refuses too."""
        assert first.refusal is not None  # noqa: S101  # the caller has looked
        error = _refused(first.refusal, store_away=first.store_away)
        rules = self.plan.guards.input
        if self.plan.cache is None or any(asks(rule.detector) for rule in rules):
            raise error
        free = tuple(claim for claim in claims if claim.limit.kind not in USED)
        self.record.admission = None
        self._id += (
            "-cached"  # for all of its claims the store may owe, or be owed, under the other
        )
        if free and not (await self._asked(free)).admitted:
            self.record.admission = first
            raise error
        self._deferred = error, first
        return free

    async def _decided(self, claims: Sequence[Claim]) -> Outcome:
        """Ask the store; once more where a budget that began anew turns out to be used."""
        store, recalling = self.admission.store, self.admission._recalling
        if recalling.locked():  # what a budget has seen is being looked up: nobody overtakes that
            async with recalling:
                pass
        outcome = await store.admit(self._id, claims)
        flags = outcome.readings[FLAGS::READING]
        if not any(flags) or not any(flag & FRESH for flag in flags):
            return outcome
        async with recalling:
            if not await self._recalled(claims, outcome.standings):
                return outcome
            await store.release(self._id)
            self._id += "-again"
            return await store.admit(self._id, claims)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Settle also when the call is cancelled: what was used was used."""
        if self._claims:
            try:
                used = actuals(self._claims, self.record)
                await self.admission.store.settle(self._id, used)
            finally:
                del self.admission._going[self._id]

    async def _recalled(self, claims: Sequence[Claim], standings: Sequence[Standing]) -> bool:
        """Charge budgets whose counters begin anew with what their window has seen. Says whether
        any had seen something, so that the call must be decided again."""
        recall, seen = self.admission.recall, False
        whose_ = whose_each(self.plan, self.call)
        for claim, standing, of in zip(claims, standings, whose_, strict=True):
            if not standing.fresh or recall is None:
                continue
            spent = await recall(claim.limit, of)
            if spent is not None:
                charge = [Claim(claim.limit, claim.scope, spent)]
                name = f"recalled {claim.limit.name} {claim.scope}"
                await self.admission.store.charge(name, charge, whole=True)
                seen = seen or spent > 0
        return seen


def _refused(refusal: Refusal, *, store_away: bool) -> ProxyError:
    limit = refusal.limit
    if store_away and limit.on_store_error == "closed":
        return LimitStoreUnavailable(limit.name, refusal.retry_after_s)
    if limit.kind == "usd":
        return BudgetExceeded(limit.name, refusal.retry_after_s)
    if refusal.retry_after_s is None:
        said = f"The call asks for more {limit.kind} than {limit.name} ever allows at once."
    else:
        said = f"The limit {limit.name} of {rate_text(limit)} is reached."
    return LimitExceeded(said, limit.name, limit.kind, refusal.retry_after_s)
