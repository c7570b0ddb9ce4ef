"""What a call claims of its limits before it is forwarded, and what it turns out to have used.

The estimate errs on the high side: every value of the request, and for each choice of each prompt
as many tokens as the request allows, or ``ASSUMED_TOKENS`` where it allows any number. Money is
estimated for the most expensive target with a known price, at its highest rates. What is
not used is given back when the call ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.attempts import Attempt
from proxy.billing import BudgetCharge
from proxy.dialects import DIALECTS
from proxy.dialects.bounds import most_thought
from proxy.dialects.upstream_request import parameters, translated
from proxy.errors import BadField
from proxy.estimate import body_quarters, whole_tokens
from proxy.limits.most_expensive import highest_cost
from proxy.record import Record
from proxy.types import UNCHANGED, Call, Changes, Json, ModelCall, Plan, Target, Translated
from proxy.types.limit import MOST, CallSize, Claim, LimitKind
from proxy.types.outcome import READING, WAIT, Outcome
from proxy.types.reasoning import reasons

WRITTEN_PER_SECOND = 50  # tokens: what models of today write, of a whole second


def claims_of(plan: Plan, call: Call) -> tuple[Claim, ...]:
    """Return the claims of a call, one for each counter, in the order of its limits."""
    labels, weights = _labels(plan, call), _weights(plan, call)
    whole = {kind: min(sum(amounts), MOST) for kind, amounts in weights.items()}
    claims: list[Claim] = []
    for bound in plan.bounds:
        limit, per, personal = bound.limit, bound.per, "user" in bound.per
        if "model" not in per:
            amount = whole.get(limit.kind, 1)
            claims.append(Claim(limit, _scope(per, labels), amount, personal=personal))
            continue
        amounts = weights.get(limit.kind)
        for model, legs in _models(plan).items():
            amount = min(sum([amounts[leg] for leg in legs]), MOST) if amounts else 1
            scope = _scope(per, {**labels, "model": model})
            claims.append(Claim(limit, scope, amount, personal=personal))
    return tuple(claims)


def _models(plan: Plan) -> dict[str, list[int]]:
    """Return the indexes of the legs by the model of their first target, whatever name the client
    has for it: a limit per model has a counter for each."""
    models: dict[str, list[int]] = {}
    for index, leg in enumerate(plan.model_calls):
        models.setdefault(leg.targets[0].model, []).append(index)
    return models


def _scope(per: Sequence[str], labels: Mapping[str, str]) -> str:
    """Name a counter by whose it is; what a call does not have is one value too."""
    if len(per) == 1:
        [name] = per
        return f"{name}:{labels[name]}" if name in labels else f"{name}:"
    return "|".join([f"{name}:{labels.get(name, '')}" for name in per])


def _labels(plan: Plan, call: Call) -> dict[str, str]:
    labels = {f"tag.{name}": value for name, value in plan.tags.items()}
    labels["key"] = plan.key
    labels["deployment"] = plan.deployment or ""
    labels["user"] = str(call.head.user or call.body.get("user") or "")
    return labels


def _weights(plan: Plan, call: Call) -> dict[LimitKind, list[int]]:
    """Return what each leg may use, by the kind of limit: estimated once for all limits, and not at
    all where no limit counts it."""
    kinds = {bound.limit.kind for bound in plan.bounds if bound.limit.kind.estimated}
    sizes = [_sizes(call, plan, leg) for leg in plan.model_calls] if kinds else []
    day = call.head.at.date()
    return {kind: [kind.weigh(leg_sizes, day) for leg_sizes in sizes] for kind in kinds}


def predicted(plan: Plan, call: Call) -> int | None:
    """Return the nano-USD that a call may cost by estimate: the most expensive target of each leg.

    None as soon as a leg has no target with a known price.
    """
    day = call.head.at.date()
    costs = [highest_cost(_sizes(call, plan, leg), day) for leg in plan.model_calls]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def _sizes(call: Call, plan: Plan, leg: ModelCall) -> list[CallSize]:
    """Return what each target of a leg may use, those that a guard may route to among them. One
    that cannot be asked may use nothing: its client is told why, not of a limit."""
    sizes: dict[tuple[str | None, ...], CallSize | None] = {}
    found: list[CallSize] = []
    targets = (*leg.targets, *plan.guards.detours)
    for target in targets:
        own = target.title if target.title in leg.others else None
        form = target.upstream.name, target.endpoint, own  # its bodies differ in the model's name
        if form not in sizes:
            sizes[form] = _size(call, target, leg.changes_for(target))
        if (size := sizes[form]) is not None:
            found.append(size._replace(target=target))
    return found or [CallSize(target, prompt=0, answers=0, body={}) for target in targets]


def estimated(call: Call, target: Target, changes: Changes = UNCHANGED) -> tuple[int, int] | None:
    """Return the tokens of the prompt and the most that the answers may have, by the very body that
    the target would get; None where it cannot be asked."""
    size = _size(call, target, changes)
    return (size.prompt, size.answers) if size else None


def _sent(call: Call, target: Target, changes: Changes) -> Translated | None:
    asked, spoken = DIALECTS[call.head.dialect], DIALECTS[target.upstream.dialect]
    try:
        return translated(call, target, asked, spoken, changes)
    except BadField:
        return None


def _size(call: Call, target: Target, changes: Changes) -> CallSize | None:
    sent = _sent(call, target, changes)
    if sent is None:
        return None
    prompt = min(whole_tokens(body_quarters(sent.body, _known(call, sent.body))), MOST)
    answers = min(sent.most_answered, MOST)
    return CallSize(target, prompt, answers=answers, body=sent.body)


def _known(call: Call, body: Json) -> Mapping[str, int]:
    """Return the estimates of the fields that are sent as they came."""
    fields = call.quarters.items()
    return {name: size for name, size in fields if body.get(name) is call.body.get(name)}


def hidden_tokens(plan: Plan, call: Call, attempt: Attempt) -> int:
    """Return the tokens that a model may have written for an attempt without showing any: for one
    that reasons all that the call claims; for a whole answer that was given up, by its client or as
    its time was over, as many as are written in that time; else none."""
    leg, reported = plan.model_calls[attempt.leg], attempt.meter.reported
    changes = leg.changes_for(attempt.target)
    body = parameters(call, attempt.target, changes)
    reported_thought = reported is not None and reported.reasoning
    if reported_thought or reasons(attempt.target.model, body) or most_thought(body):
        most = MOST
    else:
        most = 0 if _streams(call, attempt.target) else _unseen(attempt)
    return min(most, attempt.most_answered)


def _streams(call: Call, target: Target) -> bool:
    """True if what a target writes is seen as it is written."""
    return call.stream and DIALECTS[target.upstream.dialect].server.streams


def _unseen(attempt: Attempt) -> int:
    """Return the tokens of a whole answer that may have been written before it was given up."""
    if attempt.sent is None or attempt.ended is None or not attempt.is_given_up:
        return 0
    return int(attempt.ended - attempt.sent) * WRITTEN_PER_SECOND


def charges_of(decided: Outcome, used: Sequence[int]) -> list[BudgetCharge]:
    """Return what a call was charged of budgets that no user has for itself, by what it has used of
    each claim. A budget in shadow that would have refused it was not charged."""
    return [
        BudgetCharge(claim.limit.name, claim.scope, used[index])
        for index, claim in enumerate(decided.claims)
        if claim.limit.is_budget
        and used[index]
        and not claim.personal
        and not decided.readings[index * READING + WAIT]
    ]


def actuals(claims: Sequence[Claim], record: Record) -> list[int]:
    """Return what a call used of each claim, now that it has ended.

    Where that is unknown its estimate stands.
    """
    billing = record.billing
    tokens, cost = billing.tokens, billing.cost
    used: list[int] = []
    for claim in claims:
        amount = claim.limit.kind.used(tokens, cost)
        used.append(claim.amount if amount is None else amount)
    return used
