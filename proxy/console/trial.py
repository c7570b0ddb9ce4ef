"""The page that tries a request: how it would be decided, what guards find, and what it may cost.

Nothing is sent, counted or stored. Guards that call a service are not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from proxy.console import InvalidQuery
from proxy.console.overview import Data
from proxy.console.page_thread import PageThread
from proxy.errors import ProxyError
from proxy.errors.words import quoted
from proxy.limits.claims import estimate_claims, estimate_cost
from proxy.limits.stores.store import CounterStore, StoreUnavailable
from proxy.money.usage import NANO, price_on
from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.review.compare import compare_snapshots
from proxy.policy.review.explain import explain, preview
from proxy.policy.review.sample_call import sample_call
from proxy.types import Call, Plan, Target
from proxy.types.limit import Claim

MAX_HEADERS = 64
NOTHING: Data = {"costs": [], "guards": None}
"""The parts of a rejected request."""
READ_S = 1.0


class Trial(BaseModel):
    """A request to try, and the time at which it would arrive."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    path: Annotated[str, Field(pattern="^/")] | None = None
    headers: Annotated[dict[str, str], Field(max_length=MAX_HEADERS)] = Field(default_factory=dict)
    body: dict[str, Any]
    at: AwareDatetime | None = None


def read_trial(data: Any) -> Trial:
    """Read the form of the page. Raises ``InvalidQuery``, which names the field."""
    try:
        return Trial.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or "The request"
        raise InvalidQuery(f"{field}: {problem['msg']}.") from None


@dataclass(frozen=True, slots=True)
class TryPage:
    """Decides trials under the active policies and the candidate, if there is one."""

    active: Callable[[], Snapshot]
    counters: CounterStore
    thread: PageThread
    candidate: Callable[[], Snapshot] | None = None

    async def run(self, trial: Trial, now: datetime) -> Data:
        """Return the decisions on a trial. Raises ``InvalidQuery`` and ``RequestError``."""
        active = self.active()
        candidate = self.candidate() if self.candidate is not None else None
        trial = trial.model_copy(update={"at": trial.at or now})
        result, claims = await self.thread.run(partial(_decide, active, trial))
        result["limits"] = await self._limits(claims, active)
        page: Data = {"active": result, "candidate": None, "differences": []}
        if candidate is None or trial.key not in candidate.keys:
            return page
        result, claims = await self.thread.run(partial(_decide, candidate, trial))
        result["limits"] = await self._limits(claims, candidate)
        differences = await self.thread.run(partial(_differences, active, candidate, trial))
        return {**page, "candidate": result, "differences": differences}

    async def _limits(self, claims: Sequence[Claim], snapshot: Snapshot) -> list[Data]:
        """Return what the call would claim of each limit, and what is used of it."""
        used: list[int | None] = [None] * len(claims)
        if claims:
            queries = [replace(claim, amount=0) for claim in claims]
            try:
                async with asyncio.timeout(READ_S):
                    states = await self.counters.read(queries)
                used = [0 if state.is_fresh else state.used for state in states]
            except (TimeoutError, StoreUnavailable):
                pass
        return [
            {
                "name": claim.limit.name,
                "scope": claim.scope or "all calls",
                "kind": claim.limit.kind.name,
                "claim": claim.amount,
                "used": amount,
                "capacity": claim.limit.capacity,
                "mode": "shadow" if claim.limit.shadow else "enforce",
                "source": snapshot.source_of(*snapshot.limits.get(claim.limit.name, ())),
            }
            for claim, amount in zip(claims, used, strict=True)
        ]


def _decide(snapshot: Snapshot, trial: Trial) -> tuple[Data, Sequence[Claim]]:
    """Return the decisions on a trial without its limits, and what it would claim of these."""
    from proxy.console.trial_guards import inspect_request  # noqa: PLC0415  # loads all guards

    key, call = _key(snapshot, trial.key), _call(snapshot, trial)
    if snapshot.rejection_reason(key.name, call.head.received_at) is not None:
        return {**preview(snapshot, key, call).data(), **NOTHING}, ()
    data = explain(snapshot, key, call).data()
    try:
        plan = decide(snapshot, key, call)
    except ProxyError:
        return {**data, **NOTHING}, ()
    guards = asyncio.run(inspect_request(plan, call))
    costs = list(_costs(plan, call))
    return {**data, "costs": costs, "guards": guards}, estimate_claims(plan, call)


def _differences(active: Snapshot, candidate: Snapshot, trial: Trial) -> list[Data]:
    call = _call(active, trial)
    differences = compare_snapshots(active, candidate, call, active.keys[trial.key])
    return [
        {"kind": d.kind, "before": d.before, "after": d.after, "rule": d.rule} for d in differences
    ]


def _key(snapshot: Snapshot, name: str) -> VirtualKey:
    key = snapshot.key_named(name)
    if key is None:
        raise InvalidQuery(f"There is no key {quoted(name)}.")
    return key


def _call(snapshot: Snapshot, trial: Trial) -> Call:
    at = trial.at or datetime.now(UTC)
    return sample_call(
        dict(trial.body), trial.headers, at, trial.path, passthrough=snapshot.passthrough
    )


def _costs(plan: Plan, call: Call) -> Iterator[Data]:
    """Yield the targets in the order in which they are tried, each with the maximum cost."""
    day = call.head.received_at.date()
    for model_call in plan.model_calls:
        for target in model_call.targets:
            alone = replace(model_call, targets=(target,), pool_size=1)
            cost = estimate_cost(replace(plan, model_calls=(alone,)), call)
            yield {"target": target.id, "max_usd": None if cost is None else cost / NANO} | _prices(
                target, day
            )


def _prices(target: Target, day: date) -> Data:
    price = price_on(target.prices, day)
    if price is None:
        return {"input": None, "output": None}
    return {
        name: None if value is None else float(value)
        for name, value in (("input", price.input), ("output", price.output))
    }
