"""What a call claims of its limits before it is forwarded, and what it turns out to have used.

The estimate errs on the high side: the prompt's characters / 4, and for each choice of each prompt
as many tokens as the request allows, or ``ASSUMED_TOKENS`` where it allows any number. Money is
estimated for the dearest target whose price is known. What is not used is given back when the call
ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from proxy.dialects.changing import BOUNDS, changed
from proxy.record import Record
from proxy.types import Call, Json, Leg, Plan
from proxy.types.limit import Claim
from proxy.usage import CHARS_PER_TOKEN, Price, Tokens, in_force, micro_usd, prompt_length

ASSUMED_TOKENS = 1024


def claims_of(plan: Plan, call: Call) -> tuple[Claim, ...]:
    """Give the claims of a call, one for each counter, in the order of its limits."""
    said, weights = _said(plan, call), _weights(plan, call)
    whole = {kind: sum(each) for kind, each in weights.items()}
    claims: list[Claim] = []
    for bound in plan.bounds:
        limit, per = bound.limit, bound.per
        if "model" not in per:
            claims.append(Claim(limit, _scope(per, said), whole.get(limit.kind, 1)))
            continue
        each = weights.get(limit.kind)
        for model, legs in _models(plan).items():
            amount = sum([each[leg] for leg in legs]) if each else 1
            claims.append(Claim(limit, _scope(per, {**said, "model": model}), amount))
    return tuple(claims)


def whose_each(plan: Plan, call: Call) -> Iterator[dict[str, str]]:
    """Give whose each claim of a call is, in the order of its claims."""
    said = _said(plan, call)
    for bound in plan.bounds:
        for model in _models(plan) if "model" in bound.per else ("",):
            of = {**said, "model": model}
            yield {name: of.get(name, "") for name in bound.per}


def _models(plan: Plan) -> dict[str, list[int]]:
    """Give which legs ask which model: a limit per model has a counter for each."""
    models: dict[str, list[int]] = {}
    for index, leg in enumerate(plan.legs):
        models.setdefault(leg.model, []).append(index)
    return models


def _scope(per: Sequence[str], said: Mapping[str, str]) -> str:
    """Name a counter by whose it is; what a call does not have is one value too."""
    if len(per) == 1:
        return f"{per[0]}:{said.get(per[0], '')}"
    return "|".join([f"{name}:{said.get(name, '')}" for name in per])


def _said(plan: Plan, call: Call) -> dict[str, str]:
    said = {f"tag.{name}": value for name, value in plan.tags.items()}
    said["key"] = plan.key
    said["deployment"] = plan.deployment or ""
    said["user"] = str(call.door.user or call.body.get("user") or "")
    return said


def _weights(plan: Plan, call: Call) -> dict[str, list[int]]:
    """Give what each leg may use, by the kinds of limits that do not count calls. It is worked
    out once for all limits, and not at all where none asks."""
    kinds = {bound.limit.kind for bound in plan.bounds}
    if kinds.isdisjoint(("tokens", "usd")):
        return {}
    sizes = [estimated(call, leg) for leg in plan.legs]
    weights = {"tokens": [sum(size) for size in sizes]}
    if "usd" in kinds:
        legs = zip(plan.legs, sizes, strict=True)
        weights["usd"] = [_cost(call, plan, leg, size) or 0 for leg, size in legs]
    return weights


def predicted(plan: Plan, call: Call) -> int | None:
    """Give the micro-USD that a call may cost by estimate: of each leg that of its dearest target.

    None as soon as a leg has no target with a known price.
    """
    costs = [_cost(call, plan, leg, estimated(call, leg)) for leg in plan.legs]
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


def _cost(call: Call, plan: Plan, leg: Leg, size: tuple[int, int]) -> int | None:
    """Give the micro-USD of the dearest target, those that a guard may route to among them; None
    where no target has a known price."""
    tokens, day = Tokens(input=size[0], output=size[1]), call.door.at.date()
    costs = [_at(target.prices, day, tokens) for target in (*leg.targets, *plan.guards.detours)]
    return max([cost for cost in costs if cost is not None], default=None)


def _at(prices: Sequence[Price], day: date, tokens: Tokens) -> int | None:
    price = in_force(prices, day)
    cost = price.cost(tokens) if price else None
    return None if cost is None else micro_usd(cost)


def actuals(claims: Sequence[Claim], record: Record) -> list[int]:
    """Give what a call used of each claim, now that it has ended.

    A request stays one whatever became of it. Where a cost is unknown its estimate stands.
    """
    bills = record.bills()
    used = {
        "requests": 1,
        "concurrency": 0,
        "tokens": sum([bill.usage.tokens.total for bill in bills]),
    }
    known = [bill.whole for bill in bills if bill.whole is not None]  # as the ledger has it
    if len(known) == len(bills):
        used["usd"] = sum(known)
    return [used.get(claim.limit.kind, claim.amount) for claim in claims]
