"""What a call claims of its limits before it is forwarded, and what it turns out to have used.

The estimate errs on the high side: every value of the request, and for each choice of each prompt
as many tokens as the request allows, or ``ASSUMED_TOKENS`` where it allows any number. Money is
estimated for the most expensive target with a known price, at its highest rates. What is
not used is given back when the call ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.call.attempts import Attempt
from proxy.call.billing import Billing, BudgetCharge
from proxy.call.record import Record
from proxy.dialects import DIALECTS
from proxy.dialects.bounds import answers_of, max_reasoning_tokens
from proxy.dialects.upstream_request import parameters, translate_request
from proxy.errors import InvalidField
from proxy.limits.most_expensive import highest_cost
from proxy.money.estimate import (
    NO_ESTIMATES,
    NOTHING_HIDDEN,
    HiddenOutput,
    estimate_quarters,
    to_tokens,
)
from proxy.money.usage import price_on
from proxy.types import (
    UNBILLED,
    UNCHANGED,
    Call,
    Json,
    ModelCall,
    ParameterOverrides,
    Plan,
    Target,
)
from proxy.types.limit import MAX_AMOUNT, CallSize, Claim, ClaimTemplate, LimitKind
from proxy.types.outcome import READING, WAIT, LimitDecision
from proxy.types.reasoning import is_reasoning_model
from proxy.types.way import MODEL_FREE_METHODS

A_USER = "\0user\0"  # stands in a scope for who calls: no name of the policy has such a character
ONLY = (0,)  # the index of the model call of nearly every call
Weights = dict[LimitKind, list[int]]


def estimate_claims(plan: Plan, call: Call) -> tuple[Claim, ...]:
    """Return the claims of a call, one for each counter, in the order of its limits."""
    templates = plan.claim_templates
    if not templates:
        templates[:] = _templates(plan)  # large calls do so beside the loop, at the same time
    weights = _weights(plan, call, templates)
    return tuple([each.claim or _claim(each, weights, plan, call) for each in templates])


def _uses_nothing(call: Call) -> bool:
    """True if a call that is passed on puts no model to work, whatever it is asked for."""
    return call.head.passthrough is not None and call.head.method in MODEL_FREE_METHODS


def _is_free(plan: Plan, call: Call) -> bool:
    """True if a call is known to cost nothing, whoever of its targets is asked."""
    day = call.head.received_at.date()
    targets = [target for leg in plan.model_calls for target in leg.targets]
    prices = [price_on(target.prices, day) for target in (*targets, *plan.guards.route_targets)]
    return bool(prices) and all(price is not None and price.is_free for price in prices)


def _claim(template: ClaimTemplate, weights: Weights, plan: Plan, call: Call) -> Claim:
    """Return what one call claims of a counter that others claim otherwise."""
    _, limit, scope, personal, legs = template
    amount = 1
    if limit.kind in weights:
        amounts = weights[limit.kind]
        amount = (
            amounts[0] if legs == ONLY else min(sum([amounts[leg] for leg in legs]), MAX_AMOUNT)
        )
    if personal:
        scope = scope.replace(A_USER, str(call.head.user or call.body.get("user") or ""))
    endpoint = call.head.endpoint
    is_free = limit.kind.is_usage_based and (
        endpoint in UNBILLED or (endpoint == "passthrough" and _uses_nothing(call))
    )
    if not amount and limit.is_budget:
        is_free = is_free or _is_free(plan, call)
    return Claim(limit, scope, amount, is_per_user=personal, is_count_only=is_free)


def _templates(plan: Plan) -> list[ClaimTemplate]:
    """Return what all calls of a plan claim, by whose each counter is: a limit per model has one
    for each model that legs ask first, whatever name the client has for it."""
    labels = {f"tag.{name}": value for name, value in plan.tags.items()}
    labels |= {"key": plan.key, "deployment": plan.deployment or "", "user": A_USER}
    models: dict[str, list[int]] = {}
    for index, leg in enumerate(plan.model_calls):
        models.setdefault(leg.targets[0].model, []).append(index)
    everything = {"": list(range(len(plan.model_calls)))}
    templates: list[ClaimTemplate] = []
    for bound in plan.limits:
        limit, personal = bound.limit, "user" in bound.per
        for model, legs in (models if "model" in bound.per else everything).items():
            scope = _scope(bound.per, {**labels, "model": model})
            varies = personal or limit.kind.is_usage_based
            claim = None if varies else Claim(limit, scope, 1, is_per_user=personal)
            templates.append(
                ClaimTemplate(
                    claim=claim,
                    limit=limit,
                    scope=scope,
                    personal=personal,
                    model_calls=tuple(legs),
                )
            )
    return templates


def _scope(per: Sequence[str], labels: Mapping[str, str]) -> str:
    """Name a counter by whose it is; what a call does not have is one value too."""
    return "|".join([f"{name}:{labels.get(name, '')}" for name in per])


def _weights(plan: Plan, call: Call, templates: Sequence[ClaimTemplate]) -> Weights:
    """Return what each leg may use, by the kind of limit: estimated once for all limits, and not at
    all where no limit counts it."""
    weights: Weights = {}
    sizes: list[list[CallSize]] = []
    for template in templates:
        kind = template.limit.kind
        if kind.is_usage_based and kind not in weights:
            sizes = sizes or [_sizes(call, plan, leg) for leg in plan.model_calls]
            day = call.head.received_at.date()
            weights[kind] = [kind.estimate(leg_sizes, day) for leg_sizes in sizes]
    return weights


def estimate_cost(plan: Plan, call: Call) -> int | None:
    """Return the nano-USD that a call may cost by estimate: the most expensive target of each leg.

    None as soon as a leg has no target with a known price.
    """
    day = call.head.received_at.date()
    costs = [highest_cost(_sizes(call, plan, leg), day) for leg in plan.model_calls]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def _sizes(call: Call, plan: Plan, leg: ModelCall) -> list[CallSize]:
    """Return what each target of a leg may use, those that a guard may route to among them. One
    that cannot be asked may use nothing: its client is told why, not of a limit."""
    targets = leg.targets
    if plan.guards.route_targets:
        targets += tuple(plan.guards.route_targets)
    if plan.passed is not None:
        return [_passed_size(call, target, plan.passed.most_cost) for target in targets]
    if len(targets) == 1:
        only = _size(call, targets[0], leg.overrides_for(targets[0]))
        return [only or CallSize(targets[0], prompt=0, output=0, body={})]
    sizes: dict[tuple[str | None, ...], CallSize | None] = {}
    found: list[CallSize] = []
    for target in targets:
        own = target.id if target.id in leg.target_overrides else None
        form = target.upstream.name, target.endpoint, own  # its bodies differ in the model's name
        if form not in sizes:
            sizes[form] = _size(call, target, leg.overrides_for(target))
        if (size := sizes[form]) is not None:
            found.append(size._replace(target=target))
    return found or [CallSize(target, prompt=0, output=0, body={}) for target in targets]


def estimated(
    call: Call, target: Target, changes: ParameterOverrides = UNCHANGED
) -> tuple[int, int] | None:
    """Return the tokens of the prompt and the most that the answers may have, by the very body that
    the target would get; None where it cannot be asked."""
    size = _size(call, target, changes)
    return (size.prompt, size.output) if size else None


def _size(call: Call, target: Target, changes: ParameterOverrides) -> CallSize | None:
    if call.head.endpoint in UNBILLED:  # it costs nothing, and no model reads it
        return CallSize(target, prompt=0, output=0, body={})
    if call.head.passthrough is not None:
        return _passed_size(call, target, None)
    asked, spoken = DIALECTS[call.head.dialect], DIALECTS[target.upstream.dialect]
    try:
        sent = translate_request(call, target, asked, spoken, changes)
    except InvalidField:
        return None
    known = _known_sizes(call, sent.body) if call.field_quarters else NO_ESTIMATES
    prompt = min(to_tokens(estimate_quarters(sent.body, known)), MAX_AMOUNT)
    answers = min(sent.max_output_tokens, MAX_AMOUNT)
    return CallSize(target, prompt, output=answers, body=sent.body)


def _passed_size(call: Call, target: Target, most_cost: int | None) -> CallSize:
    """Return what a call that is passed on may use: its JSON, and a token at the least, as none at
    all would fit what is spent; nothing at all where it only looks something up."""
    if _uses_nothing(call):
        return CallSize(target, prompt=0, output=0, body=call.body, fixed_cost=0)
    prompt = min(to_tokens(estimate_quarters(call.body, call.field_quarters)), MAX_AMOUNT)
    return CallSize(target, max(1, prompt), output=0, body=call.body, fixed_cost=most_cost)


def _known_sizes(call: Call, body: Json) -> Mapping[str, int]:
    """Return the estimates of the fields that are sent as they came."""
    fields = call.field_quarters.items()
    return {name: size for name, size in fields if body.get(name) is call.body.get(name)}


def hidden_output(plan: Plan, call: Call, attempt: Attempt) -> HiddenOutput:
    """Return what a model may have written for an attempt without sending it, from the request to
    its first text, or to the end without one: thoughts, and all of an answer that is not streamed.
    A stream of a model that does not reason hides nothing."""
    if call.head.passthrough is not None:
        return NOTHING_HIDDEN
    leg, meter = plan.model_calls[attempt.model_call], attempt.meter
    body = parameters(call, attempt.target, leg.overrides_for(attempt.target))
    if call.stream and DIALECTS[attempt.target.upstream.dialect].server.streams:
        reported_thought = meter.reported is not None and meter.reported.reasoning
        if not (
            reported_thought
            or is_reasoning_model(attempt.target.model, body)
            or max_reasoning_tokens(body)
        ):
            return NOTHING_HIDDEN
    sent = attempt.started if attempt.sent_at is None else attempt.sent_at
    until = attempt.ended if meter.text_at is None else meter.text_at
    seconds = 0.0 if until is None else max(0.0, until - sent)
    return HiddenOutput(seconds, answers_of(body), attempt.most_answered)


def charges_of(decided: LimitDecision, used: Sequence[int]) -> list[BudgetCharge]:
    """Return what a call was charged of budgets that no user has for itself, by what it has used of
    each claim. A budget in shadow that would have refused it was not charged."""
    return [
        BudgetCharge(claim.limit.name, claim.scope, used[index])
        for index, claim in enumerate(decided.claims)
        if claim.limit.is_budget
        and used[index]
        and not claim.is_per_user
        and not decided.readings[index * READING + WAIT]
    ]


def actual_usage(claims: Sequence[Claim], record: Record) -> list[int]:
    """Return what a call used of each claim, now that it has ended.

    Where that is unknown its estimate stands, or what is known of it, if that is more.
    """
    billing = record.billing
    tokens = None if billing.source == "unknown" else billing.tokens
    cost = billing.cost
    used: dict[LimitKind, int | None] = {}
    for claim in claims:
        kind = claim.limit.kind
        if kind not in used:
            used[kind] = kind.actual(tokens, cost)
    return [
        max(claim.amount, _known(claim, billing))
        if (amount := used[claim.limit.kind]) is None
        else amount
        for claim in claims
    ]


def _known(claim: Claim, billing: Billing) -> int:
    """Return what a call is known to have used of a claim; more of it is not known."""
    cost = sum([bill.cost or 0 for bill in billing.bills])
    return claim.limit.kind.actual(billing.tokens, cost) or 0
