"""The page that tries a request: how it would be decided, what guards find, and what it may cost.

Nothing is sent, counted or stored. Guards that call a service are not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from proxy.console import Data, InvalidQuery, PageThread
from proxy.console.limits import make_limit_row, read_states
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
from proxy.types import Call, Plan
from proxy.types.limit import Claim

MAX_HEADERS = 64


class Trial(BaseModel):
    """A request to try, and the time at which it would arrive."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    path: Annotated[str, Field(pattern="^/")] | None = None
    headers: Annotated[dict[str, str], Field(max_length=MAX_HEADERS)] = Field(default_factory=dict)
    body: dict[str, Any]
    at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))


async def run_trial(sources: Sources, thread: PageThread, trial: Trial) -> Data:
    """Return the decisions under the active policies, and under the candidate if there is one.

    Raises ``InvalidQuery`` and ``RequestError``.
    """
    active = sources.snapshot
    candidate = None if sources.candidate is None else sources.candidate.get_snapshot()

    async def decide_under(snapshot: Snapshot) -> Data:
        result, claims = await thread.run(partial(_preview_decision, snapshot, trial))
        counters = [replace(claim, amount=0) for claim in claims]
        states = await read_states(sources.counters, counters) or ()
        limits = [
            {**make_limit_row(claim.limit, claim.scope, snapshot, state), "claim": claim.amount}
            for claim, state in zip_longest(claims, states)
        ]
        return {**result, "limits": limits}

    page: Data = {"active": await decide_under(active), "candidate": None, "differences": []}
    if candidate is not None and trial.key in candidate.keys:
        page["candidate"] = await decide_under(candidate)
        page["differences"] = await thread.run(partial(_list_differences, active, candidate, trial))
    return page


def _preview_decision(snapshot: Snapshot, trial: Trial) -> tuple[Data, Sequence[Claim]]:
    """Return the decisions on a trial without its limits, and what it would claim of these."""
    from proxy.console.trial_guards import inspect_request  # noqa: PLC0415  # loads all guards

    key = snapshot.find_key(trial.key)
    if key is None:
        raise InvalidQuery(f"There is no key {quote(trial.key)}.")
    call = _make_call(snapshot, trial)
    is_rejected = snapshot.find_rejection_reason(key.name, call.head.received_at) is not None
    explanation = (explain_future_call if is_rejected else explain)(snapshot, key, call)
    data: Data = {**explanation.to_json(), "costs": [], "guards": None}
    if is_rejected:
        return data, ()
    try:
        plan = decide(snapshot, key, call)
    except ProxyError:
        return data, ()
    data["guards"] = asyncio.run(inspect_request(plan, call))
    data["costs"] = list(_make_max_cost_rows(plan, call))
    return data, estimate_claims(plan, call)


def _list_differences(active: Snapshot, candidate: Snapshot, trial: Trial) -> list[Data]:
    call = _make_call(active, trial)
    differences = compare_snapshots(active, candidate, call, active.keys[trial.key])
    return [asdict(difference) for difference in differences]


def _make_call(snapshot: Snapshot, trial: Trial) -> Call:
    body, passthrough = dict(trial.body), snapshot.passthrough
    return build_sample_call(body, trial.headers, trial.at, trial.path, passthrough=passthrough)


def _make_max_cost_rows(plan: Plan, call: Call) -> Iterator[Data]:
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
