"""The page that tries a request: how it would be decided, what guards find, and what it may cost.

Nothing is sent, counted or stored. Guards that call a service are not asked.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import zip_longest
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from proxy.console import Data, InvalidQuery, PageThread, parse_query
from proxy.console.limits import make_limit_row, read_states
from proxy.console.series import Sources
from proxy.dialects.wire.strict_json import MAX_VALUES, count_body_values, read_json
from proxy.errors import ProxyError
from proxy.errors.words import quote
from proxy.limits.claims import estimate_claims, estimate_cost
from proxy.money.usage import NANO_PER_USD
from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.compare import compare_snapshots
from proxy.policy.review.explain import explain, explain_future_call
from proxy.policy.review.sample_call import build_sample_call
from proxy.types import Call, Plan
from proxy.types.guard import GuardRule
from proxy.types.limit import Claim

if TYPE_CHECKING:
    from proxy.guards.engine import Engine
    from proxy.guards.text.walk import Path, Texts

MAX_HEADERS = 64
MAX_TEXTS = 200
RESULT_FIELDS = ("guard", "verdict", "action", "shadow", "findings", "error")


class Trial(BaseModel):
    """A request to try, and the time at which it would arrive."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    path: Annotated[str, Field(pattern="^/")] | None = None
    headers: Annotated[dict[str, str], Field(max_length=MAX_HEADERS)] = Field(default_factory=dict)
    body: dict[str, Any]
    at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))


def parse_trial(body: bytes) -> Trial:
    """Parse a body as the data listener does. Raises ``InvalidQuery`` and ``BadRequest``."""
    count_body_values(body, MAX_VALUES)
    return parse_query(Trial, read_json(body))


async def run_trial(sources: Sources, thread: PageThread, trial: Trial) -> Data:
    """Return the decisions under the active policies, and under the candidate if there is one.

    Raises ``InvalidQuery`` and ``RequestError``.
    """
    active = sources.policies.current
    candidate = None if sources.candidate is None else sources.candidate.get_snapshot()

    async def decide_under(snapshot: Snapshot) -> Data:
        result, claims = await thread.run(_preview_decision, snapshot, trial)
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
        page["differences"] = await thread.run(_list_differences, active, candidate, trial)
    return page


def _preview_decision(snapshot: Snapshot, trial: Trial) -> tuple[Data, Sequence[Claim]]:
    """Return the decisions on a trial without its limits, and what it would claim of these."""
    key = snapshot.find_key(trial.key)
    if key is None:
        raise InvalidQuery(f"There is no key {quote(trial.key)}.")
    call = _make_call(snapshot, trial)
    is_rejected = snapshot.find_rejection_reason(key.name, call.head.received_at) is not None
    explanation = (explain_future_call if is_rejected else explain)(snapshot, key, call)
    data: Data = {**explanation.to_json(), "costs": [], "guards": None}
    try:
        plan = None if is_rejected else decide(snapshot, key, call)
    except ProxyError:
        plan = None
    if plan is None:
        return data, ()
    data["guards"] = asyncio.run(_inspect_request(plan, call))
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
            yield {
                "target": target.id,
                "max_usd": None if cost is None else cost / NANO_PER_USD,
            }


async def _inspect_request(plan: Plan, call: Call) -> Data:
    """Return the verdicts of the input guards, and the inspected texts with marked findings."""
    from proxy.guards.engine import Engine, bind_to_prompt  # noqa: PLC0415  # loads all guards
    from proxy.guards.run import find_opaque_refusal  # noqa: PLC0415
    from proxy.guards.text.walk import walk_passthrough_request, walk_request  # noqa: PLC0415

    engine = Engine(time.thread_time)
    walk = walk_request if call.head.passthrough is None else walk_passthrough_request
    texts = await engine.read_texts(walk, call.body, call.size)
    rules = bind_to_prompt(plan.guards.input_stage, call.body)
    inspection = await engine.inspect(rules.detectors, texts)
    marked = await _mark_findings(engine, rules.detectors, texts)
    blocked = find_opaque_refusal(texts, plan.guards) or inspection.blocked
    return {
        "blocked": blocked and {"guard": blocked.guard, "message": blocked.message},
        "results": [
            {name: getattr(result, name) for name in RESULT_FIELDS} for result in inspection.results
        ],
        "not_asked": [rule.name for rule in rules.services],
        "opaque": sorted({part.kind for part in texts.opaque}),
        "texts": [
            {
                "path": ".".join(map(str, text.path)),
                "parts": marked.get(text.path, [{"text": text.text}]),
                "sent": inspection.changes.get(text.path, text.text),
            }
            for text in texts.texts[:MAX_TEXTS]
            if text.path in marked or text.kind == "content"
        ],
    }


async def _mark_findings(
    engine: Engine, detectors: Sequence[GuardRule], texts: Texts
) -> dict[Path, list[Data]]:
    """Return the texts with findings, in parts: plain ones, and those that a guard found."""
    nonce = token_hex(8)

    def mark(rule: GuardRule, kind: str, text: str) -> str:
        return f"<{nonce}|{rule.name}|{kind}|{text}|{nonce}>"

    masking = [replace(rule, action="mask", shadow=False, restore=False) for rule in detectors]
    inspection = await engine.inspect(masking, texts, mark)
    pattern = re.compile(rf"<{nonce}\|([^|]*)\|([^|]*)\|(.*?)\|{nonce}>", re.DOTALL)
    marked: dict[Path, list[Data]] = {}
    for path, text in inspection.changes.items():
        first, *rest = pattern.split(text)
        marked[path] = [{"text": first}]
        for start in range(0, len(rest), 4):
            guard, kind, found, following = rest[start : start + 4]
            marked[path] += {"text": found, "guard": guard, "kind": kind}, {"text": following}
    return marked
