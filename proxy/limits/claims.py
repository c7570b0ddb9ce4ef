"""What a call claims of its limits before it is forwarded, and what it turns out to have used.

The estimate errs on the high side: the prompt's characters / 4, and for each choice of each prompt
as many tokens as the request allows, or ``ASSUMED_TOKENS`` where it allows any number. Money is
estimated for the dearest target whose price is known. What is not used is given back when the call
ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

from proxy.dialects.changing import BOUNDS, changed
from proxy.record import Record
from proxy.types import Bound, Call, Json, Leg, Plan
from proxy.types.limit import Claim
from proxy.usage import CHARS_PER_TOKEN, Price, Tokens, in_force, micro_usd, prompt_length

ASSUMED_TOKENS = 1024


def claims_of(plan: Plan, call: Call) -> tuple[Claim, ...]:
    """Give the claims of a call, one for each counter, in the order of its limits."""
    weighing = any(bound.limit.kind in ("tokens", "usd") for bound in plan.bounds)
    sizes = [estimated(call, leg) for leg in plan.legs] if weighing else [(0, 0)] * len(plan.legs)
    said = _said(plan, call)
    claims: list[Claim] = []
    for bound in plan.bounds:
        for model, legs in _counted(bound, plan):
            scope = "|".join([f"{name}:{value}" for name, value in _of(bound, said, model)])
            claims.append(Claim(bound.limit, scope, _amount(bound, call, plan, sizes, legs)))
    return tuple(claims)


def whose_each(plan: Plan, call: Call) -> Iterator[dict[str, str]]:
    """Give whose each claim of a call is, in the order of its claims."""
    said = _said(plan, call)
    for bound in plan.bounds:
        for model, _ in _counted(bound, plan):
            yield dict(_of(bound, said, model))


def _counted(bound: Bound, plan: Plan) -> list[tuple[str, range | list[int]]]:
    """A limit per model has a counter for each model of the call, any other counts all together.

    Gives the model, and which legs count.
    """
    every = range(len(plan.legs))
    if "model" not in bound.per:
        return [("", every)]
    models = dict.fromkeys(leg.model for leg in plan.legs)
    return [(model, [i for i in every if plan.legs[i].model == model]) for model in models]


def _said(plan: Plan, call: Call) -> dict[str, str]:
    tags = {f"tag.{name}": value for name, value in plan.tags.items()}
    return tags | {
        "key": plan.key,
        "deployment": plan.deployment or "",
        "user": str(call.door.user or call.body.get("user") or ""),
    }


def _of(bound: Bound, said: Mapping[str, str], model: str) -> list[tuple[str, str]]:
    """Give the values of what a limit is per; what a call does not have is one value too."""
    return [(name, model if name == "model" else said.get(name, "")) for name in bound.per]


def _amount(
    bound: Bound, call: Call, plan: Plan, sizes: Sequence[tuple[int, int]], legs: Iterable[int]
) -> int:
    kind = bound.limit.kind
    if kind in ("requests", "concurrency"):
        return 1
    if kind == "tokens":
        return sum([sum(sizes[leg]) for leg in legs])
    return sum([_cost(call, plan.legs[leg], sizes[leg]) or 0 for leg in legs])


def predicted(plan: Plan, call: Call) -> int | None:
    """Give the micro-USD that a call may cost by estimate: of each leg that of its dearest target.

    None as soon as a leg has no target with a known price.
    """
    costs = [_cost(call, leg, estimated(call, leg)) for leg in plan.legs]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


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


def _cost(call: Call, leg: Leg, size: tuple[int, int]) -> int | None:
    """Give the micro-USD of the dearest target; None where no target has a known price."""
    tokens, day = Tokens(input=size[0], output=size[1]), call.door.at.date()
    costs = [_at(target.prices, day, tokens) for target in leg.targets]
    return max([cost for cost in costs if cost is not None], default=None)


def _at(prices: Sequence[Price], day: date, tokens: Tokens) -> int | None:
    price = in_force(prices, day)
    cost = price.cost(tokens) if price else None
    return None if cost is None else micro_usd(cost)


def actuals(claims: Sequence[Claim], record: Record) -> list[int]:
    """Give what a call used of each claim, now that it has ended.

    A request stays one whatever became of it. Where a cost is unknown its estimate stands.
    """
    whole = [bill.whole for bill in record.bills()]  # as the ledger has it
    known = [cost for cost in whole if cost is not None]
    cost = sum(known) if len(known) == len(whole) else None
    used = {"requests": 1, "concurrency": 0, "tokens": record.tokens.total}
    return [used.get(claim.limit.kind, claim.amount if cost is None else cost) for claim in claims]
