"""The page that tries a request: how it would be decided, what guards find, and what it may cost.

Nothing is sent, counted or stored. Guards that call a service are not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from proxy.console import Data, InvalidQuery
from proxy.console.limits import LimitStates, make_limit_row
from proxy.console.page_thread import PageThread
from proxy.console.series import Sources
from proxy.errors import ProxyError
from proxy.errors.words import quote
from proxy.limits.claims import estimate_claims, estimate_cost
from proxy.money.usage import NANO_PER_USD, find_price_on
from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.compare import compare_snapshots
from proxy.policy.review.explain import explain, explain_future_call
from proxy.policy.review.sample_call import build_sample_call
from proxy.runtime.frozen import frozen
from proxy.types import Call, Plan
from proxy.types.limit import Claim, CounterState

MAX_HEADERS = 64
REJECTED_PARTS: Data = {"costs": [], "guards": None}
"""The parts of a rejected request."""


class Trial(BaseModel):
    """A request to try, and the time at which it would arrive."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    path: Annotated[str, Field(pattern="^/")] | None = None
    headers: Annotated[dict[str, str], Field(max_length=MAX_HEADERS)] = Field(default_factory=dict)
    body: dict[str, Any]
    at: AwareDatetime | None = None


@frozen
class TrialPage:
    """Decides trials under the active policies and the candidate, if there is one."""

    sources: Sources
    limits: LimitStates
    thread: PageThread

    async def run(self, trial: Trial, now: datetime) -> Data:
        """Return the decisions on a trial. Raises ``InvalidQuery`` and ``RequestError``."""
        active, source = self.sources.snapshot, self.sources.candidate
        candidate = None if source is None else source.current()
        trial = trial.model_copy(update={"at": trial.at or now})
        page: Data = {"active": await self._make_result(active, trial)}
        if candidate is None or trial.key not in candidate.keys:
            return {**page, "candidate": None, "differences": []}
        page["candidate"] = await self._make_result(candidate, trial)
        job = partial(_list_differences, active, candidate, trial)
        return {**page, "differences": await self.thread.run(job)}

    async def _make_result(self, snapshot: Snapshot, trial: Trial) -> Data:
        result, claims = await self.thread.run(partial(_preview_decision, snapshot, trial))
        counters = [replace(claim, amount=0) for claim in claims]
        states: Sequence[CounterState | None] | None = await self.limits.read_states(counters)
        limits = [
            {**make_limit_row(claim.limit, claim.scope, snapshot, state), "claim": claim.amount}
            for claim, state in zip(claims, states or [None] * len(claims), strict=True)
        ]
        return {**result, "limits": limits}


def _preview_decision(snapshot: Snapshot, trial: Trial) -> tuple[Data, Sequence[Claim]]:
    """Return the decisions on a trial without its limits, and what it would claim of these."""
    from proxy.console.trial_guards import inspect_request  # noqa: PLC0415  # loads all guards

    key = snapshot.find_key(trial.key)
    if key is None:
        raise InvalidQuery(f"There is no key {quote(trial.key)}.")
    call = _make_call(snapshot, trial)
    if snapshot.find_rejection_reason(key.name, call.head.received_at) is not None:
        return {**explain_future_call(snapshot, key, call).to_json(), **REJECTED_PARTS}, ()
    data = explain(snapshot, key, call).to_json()
    try:
        plan = decide(snapshot, key, call)
    except ProxyError:
        return {**data, **REJECTED_PARTS}, ()
    guards = asyncio.run(inspect_request(plan, call))
    costs = list(_make_cost_rows(plan, call))
    return {**data, "costs": costs, "guards": guards}, estimate_claims(plan, call)


def _list_differences(active: Snapshot, candidate: Snapshot, trial: Trial) -> list[Data]:
    call = _make_call(active, trial)
    differences = compare_snapshots(active, candidate, call, active.keys[trial.key])
    return [asdict(difference) for difference in differences]


def _make_call(snapshot: Snapshot, trial: Trial) -> Call:
    at = trial.at or datetime.now(UTC)
    return build_sample_call(
        dict(trial.body), trial.headers, at, trial.path, passthrough=snapshot.passthrough
    )


def _make_cost_rows(plan: Plan, call: Call) -> Iterator[Data]:
    """Yield the targets in the order in which they are tried, each with the maximum cost."""
    for model_call in plan.model_calls:
        for target in model_call.targets:
            alone = replace(model_call, targets=(target,), pool_size=1)
            cost = estimate_cost(replace(plan, model_calls=(alone,)), call)
            price = find_price_on(target.prices, call.head.received_at.date())
            yield {
                "target": target.id,
                "max_usd": None if cost is None else cost / NANO_PER_USD,
                "input": None if price is None or price.input is None else float(price.input),
                "output": None if price is None or price.output is None else float(price.output),
            }
