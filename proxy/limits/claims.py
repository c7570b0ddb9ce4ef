"""What a call claims of its limits before it is forwarded, and what it turns out to have used.

The estimate errs on the high side: the prompt's characters / 4, and for each choice of each prompt
as many tokens as the request allows, or ``ASSUMED_TOKENS`` where it allows any number. Money is
estimated for the dearest target. What is not used is given back when the call ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from proxy.dialects.changing import BOUNDS, changed
from proxy.record import Record
from proxy.types import Bound, Call, Json, Leg, Plan
from proxy.types.limit import Claim
from proxy.usage import CHARS_PER_TOKEN, Tokens, in_force, micro_usd, prompt_length

ASSUMED_TOKENS = 1024


def claims_of(plan: Plan, call: Call) -> tuple[Claim, ...]:
    """Give the claims of a call, one for each counter, in the order of its limits."""
    return tuple(claim for bound in plan.bounds for claim in _claims(bound, plan, call))


def _claims(bound: Bound, plan: Plan, call: Call) -> Iterator[Claim]:
    """A limit per model has a counter for each model of the call, any other counts all together."""
    if "model" not in bound.per:
        yield Claim(bound.limit, _scope(bound, plan, call, ""), _amount(bound, call, plan.legs))
        return
    for model in dict.fromkeys(leg.model for leg in plan.legs):
        legs = [leg for leg in plan.legs if leg.model == model]
        yield Claim(bound.limit, _scope(bound, plan, call, model), _amount(bound, call, legs))


def _scope(bound: Bound, plan: Plan, call: Call, model: str) -> str:
    """Name a counter by what the limit is per; what a call does not have is one value too."""
    return "|".join(f"{n}:{v}" for n, v in whose(bound, plan, call, model).items())


def whose(bound: Bound, plan: Plan, call: Call, model: str = "") -> dict[str, str]:
    """Give the values of what a limit is per."""
    said = {
        "key": plan.key,
        "deployment": plan.deployment or "",
        "model": model,
        "user": str(call.door.user or call.body.get("user") or ""),
    }
    tags = plan.tags
    return {n: said[n] if n in said else tags.get(n.removeprefix("tag."), "") for n in bound.per}


def whose_each(plan: Plan, call: Call) -> Iterator[dict[str, str]]:
    """Give whose each claim of a call is, in the order of its claims."""
    for bound in plan.bounds:
        models = dict.fromkeys(leg.model for leg in plan.legs) if "model" in bound.per else ("",)
        yield from (whose(bound, plan, call, model) for model in models)


def _amount(bound: Bound, call: Call, legs: Sequence[Leg]) -> int:
    kind = bound.limit.kind
    if kind in ("requests", "concurrency"):
        return 1
    if kind == "tokens":
        return sum(sum(estimated(call, leg)) for leg in legs)
    return sum(_cost(call, leg) for leg in legs)


def estimated(call: Call, leg: Leg) -> tuple[int, int]:
    """Give the tokens of the prompt and the most that the answers of one leg may have."""
    body = changed(call.door.endpoint, call.body, leg.changes)
    prompt = -(-prompt_length(body) // CHARS_PER_TOKEN)
    if call.door.endpoint == "embeddings":
        return prompt, 0
    said = [body[name] for name in BOUNDS if body.get(name) is not None]
    each = min(said) if said else ASSUMED_TOKENS
    choices = max(body.get("n") or 1, body.get("best_of") or 1)
    return prompt, int(each) * int(choices) * _prompts(body)


def _prompts(body: Json) -> int:
    """Count the prompts of a legacy call; a list of numbers is one prompt in tokens."""
    prompt = body.get("prompt")
    return len(prompt) if isinstance(prompt, list) and isinstance(prompt[0], (str, list)) else 1


def _cost(call: Call, leg: Leg) -> int:
    """Give micro-USD; a target without a known price is taken to cost nothing beforehand."""
    prompt, answer = estimated(call, leg)
    tokens = Tokens(input=prompt, output=answer)
    costs = [_at(target.prices, call.door.at.date(), tokens) for target in leg.targets]
    return max(costs, default=0)


def _at(prices: Sequence[object], day: date, tokens: Tokens) -> int:
    price = in_force(prices, day)  # type: ignore[arg-type]
    cost = price.cost(tokens) if price else None
    return micro_usd(cost) if cost is not None else 0


def actuals(claims: Sequence[Claim], record: Record) -> list[int]:
    """Give what a call used of each claim, now that it has ended.

    A request stays one whatever became of it. Where a cost is unknown its estimate stands.
    """
    tokens, cost = record.tokens.total, record.cost
    used = {"requests": 1, "concurrency": 0, "tokens": tokens}
    return [
        used.get(claim.limit.kind, claim.amount if cost is None else micro_usd(cost))
        for claim in claims
    ]
