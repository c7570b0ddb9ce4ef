"""Claims of a call on its limits before it is forwarded, and its actual usage afterwards.

An estimate is an upper bound. It includes the whole request, and the maximum output tokens of each
choice of each prompt (``ASSUMED_TOKENS`` without a maximum). Cost assumes the most expensive target
with a known price. Settlement returns the unused amount.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.call.attempts import Attempt, BudgetCharge
from proxy.call.record import Record
from proxy.dialects import DIALECTS
from proxy.dialects.requests.upstream_request import apply_overrides, translate_request
from proxy.errors import InvalidField
from proxy.fields.token_bounds import count_total_choices, max_reasoning_tokens
from proxy.limits.kinds.usd import estimate_highest_cost
from proxy.money.estimate import NOTHING_HIDDEN, HiddenOutput, estimate_body_quarters, to_tokens
from proxy.money.usage import find_price_on
from proxy.types import UNBILLED_ENDPOINTS, Call, ModelCall, ParameterOverrides, Plan, Target
from proxy.types.endpoints import MODEL_FREE_METHODS
from proxy.types.limit import (
    MAX_AMOUNT,
    READING_LENGTH,
    WAIT_INDEX,
    CallSize,
    Claim,
    ClaimTemplate,
    LimitDecision,
    LimitKind,
)
from proxy.types.providers import is_reasoning_call

USER_PLACEHOLDER = "\0user\0"  # stands for the user in a scope; no policy name contains NUL
AmountsByKind = dict[LimitKind, list[int]]
"""Estimated amount of each model call, by kind of limit."""


def estimate_claims(plan: Plan, call: Call) -> tuple[Claim, ...]:
    """Return the claims of a call, one for each counter, in the order of its limits."""
    templates = plan.claim_templates
    if not templates:  # one assignment, so that threads can run this concurrently
        templates[:] = _make_claim_templates(plan)
    amounts = _estimate_amounts(plan, call, templates)
    return tuple(
        [template.claim or _make_claim(template, amounts, plan, call) for template in templates]
    )


def _runs_no_model(call: Call) -> bool:
    return call.head.passthrough is not None and call.head.method in MODEL_FREE_METHODS


def _is_free(plan: Plan, call: Call) -> bool:
    """Return True if every target is known to cost nothing."""
    day = call.head.received_at.date()
    targets = [target for model_call in plan.model_calls for target in model_call.targets]
    prices = [
        find_price_on(target.prices, day) for target in (*targets, *plan.guards.route_targets)
    ]
    return bool(prices) and all(price is not None and price.is_free for price in prices)


def _make_claim(template: ClaimTemplate, amounts: AmountsByKind, plan: Plan, call: Call) -> Claim:
    """Return the claim of a call whose amount or scope differs between calls."""
    _, limit, scope, is_per_user, model_calls = template
    amount = 1
    if limit.kind in amounts:
        by_call = amounts[limit.kind]
        if len(model_calls) == 1:  # saves a call of a comprehension
            amount = by_call[model_calls[0]]
        else:
            amount = min(sum([by_call[model_call] for model_call in model_calls]), MAX_AMOUNT)
    if is_per_user:
        user = str(call.head.user or call.body.get("user") or "")
        scope = scope.replace(USER_PLACEHOLDER, user)
    endpoint = call.head.endpoint
    is_free = limit.kind.is_usage_based and (
        endpoint in UNBILLED_ENDPOINTS or (endpoint == "passthrough" and _runs_no_model(call))
    )
    if not amount and limit.is_budget:
        is_free = is_free or _is_free(plan, call)
    return Claim(limit, scope, amount, is_per_user=is_per_user, is_count_only=is_free)


def _make_claim_templates(plan: Plan) -> list[ClaimTemplate]:
    """Return the parts of claims that all calls of a plan share.

    A limit per model has one counter for the model of each first target, whatever name the client
    uses for it.
    """
    labels = {f"tag.{name}": value for name, value in plan.tags.items()}
    labels |= {"key": plan.key, "deployment": plan.deployment or "", "user": USER_PLACEHOLDER}
    calls_by_model: dict[str, list[int]] = {}
    for index, model_call in enumerate(plan.model_calls):
        calls_by_model.setdefault(model_call.targets[0].model, []).append(index)
    all_calls = {"": list(range(len(plan.model_calls)))}
    templates: list[ClaimTemplate] = []
    for bound in plan.limits:
        limit, is_per_user = bound.limit, "user" in bound.per
        groups = calls_by_model if "model" in bound.per else all_calls
        for model, indexes in groups.items():
            labels["model"] = model
            scope = "|".join([f"{name}:{labels.get(name, '')}" for name in bound.per])
            claim = None
            if not is_per_user and not limit.kind.is_usage_based:
                claim = Claim(limit, scope, 1)
            templates.append(
                ClaimTemplate(
                    claim, limit, scope, is_per_user=is_per_user, model_calls=tuple(indexes)
                )
            )
    return templates


def _estimate_amounts(plan: Plan, call: Call, templates: Sequence[ClaimTemplate]) -> AmountsByKind:
    """Estimate each usage-based kind once for all its limits."""
    amounts: AmountsByKind = {}
    sizes: list[list[CallSize]] = []
    for template in templates:
        kind = template.limit.kind
        if kind.is_usage_based and kind not in amounts:
            sizes = sizes or [
                _estimate_sizes(call, plan, model_call) for model_call in plan.model_calls
            ]
            day = call.head.received_at.date()
            amounts[kind] = [kind.estimate(target_sizes, day) for target_sizes in sizes]
    return amounts


def estimate_cost(plan: Plan, call: Call) -> int | None:
    """Return the nano-USD that a call may cost at the most expensive target of each model call.

    Returns None if a model call has no target with a known price.
    """
    day = call.head.received_at.date()
    total = 0
    for model_call in plan.model_calls:
        cost = estimate_highest_cost(_estimate_sizes(call, plan, model_call), day)
        if cost is None:
            return None
        total += cost
    return total


def _estimate_sizes(call: Call, plan: Plan, model_call: ModelCall) -> list[CallSize]:
    """Return the size at each target, including targets that a guard may route to.

    Omits targets that cannot express the request, unless there is no other.
    """
    targets = model_call.targets
    if plan.guards.route_targets:
        targets += tuple(plan.guards.route_targets)
    if plan.passthrough is not None:
        return [
            _estimate_passthrough_size(call, target, plan.passthrough.max_cost)
            for target in targets
        ]
    sizes: list[CallSize] = []
    if len(targets) == 1:
        size = estimate_size(call, targets[0], model_call.get_overrides(targets[0]))
        sizes = [size] if size is not None else []
    else:
        size_by_form: dict[tuple[str | None, ...], CallSize | None] = {}
        for target in targets:
            overrides = target.id if target.id in model_call.target_overrides else None
            # Otherwise the requests differ in their model only.
            form = target.upstream.name, target.endpoint, overrides
            if form not in size_by_form:
                size_by_form[form] = estimate_size(call, target, model_call.get_overrides(target))
            if (size := size_by_form[form]) is not None:
                sizes.append(size._replace(target=target))
    return sizes or [CallSize(target, prompt=0, output=0, body={}) for target in targets]


def estimate_size(call: Call, target: Target, overrides: ParameterOverrides) -> CallSize | None:
    """Return the size in tokens of the request that a target gets.

    Returns None if the target's dialect cannot express the request.
    """
    if call.head.endpoint in UNBILLED_ENDPOINTS:
        return CallSize(target, prompt=0, output=0, body={})
    if call.head.passthrough is not None:
        return _estimate_passthrough_size(call, target, None)
    try:
        request = translate_request(call, target, overrides)
    except InvalidField:
        return None
    field_quarters = {  # estimates of the fields that are sent unchanged
        name: quarters
        for name, quarters in call.field_quarters.items()
        if request.body.get(name) is call.body.get(name)
    }
    prompt = min(to_tokens(estimate_body_quarters(request.body, field_quarters)), MAX_AMOUNT)
    output = min(request.max_output_tokens, MAX_AMOUNT)
    return CallSize(target, prompt, output=output, body=request.body)


def _estimate_passthrough_size(call: Call, target: Target, fixed_cost: int | None) -> CallSize:
    """Return the size of a passthrough call: the tokens of its JSON, at least one.

    A call that runs no model has no size.
    """
    if _runs_no_model(call):
        return CallSize(target, prompt=0, output=0, body=call.body, fixed_cost=0)
    prompt = min(to_tokens(estimate_body_quarters(call.body, call.field_quarters)), MAX_AMOUNT)
    return CallSize(target, max(1, prompt), output=0, body=call.body, fixed_cost=fixed_cost)


def estimate_hidden_output(plan: Plan, call: Call, attempt: Attempt) -> HiddenOutput:
    """Return the output that a model may have generated for an attempt without sending it.

    Covers the time from the request to the first text: reasoning, and all output that is not
    streamed. A stream of a model that does not reason hides nothing.
    """
    if call.head.passthrough is not None:
        return NOTHING_HIDDEN
    model_call, meter = plan.model_calls[attempt.model_call], attempt.meter
    body = apply_overrides(call, attempt.target, model_call.get_overrides(attempt.target))
    if call.stream and DIALECTS[attempt.target.upstream.dialect].server.can_stream:
        has_reasoned = meter.reported is not None and meter.reported.reasoning
        may_have_reasoned = is_reasoning_call(attempt.target.model, body)
        if not (has_reasoned or may_have_reasoned or max_reasoning_tokens(body)):
            return NOTHING_HIDDEN
    sent_at = attempt.started if attempt.sent_at is None else attempt.sent_at
    text_at = attempt.ended if meter.text_at is None else meter.text_at
    seconds = 0.0 if text_at is None else max(0.0, text_at - sent_at)
    return HiddenOutput(seconds, count_total_choices(body), attempt.max_output_tokens)


def list_non_user_budget_charges(
    decision: LimitDecision, usage: Sequence[int]
) -> list[BudgetCharge]:
    """Return a charge for each budget of a call, except budgets per user.

    ``usage`` has the amount for each claim of ``decision``. Budgets in shadow mode that would have
    refused the call were not charged.
    """
    return [
        BudgetCharge(claim.limit.name, claim.scope, usage[index])
        for index, claim in enumerate(decision.claims)
        if claim.limit.is_budget
        and usage[index]
        and not claim.is_per_user
        and not decision.readings[index * READING_LENGTH + WAIT_INDEX]
    ]


def list_actual_or_claimed_usage(claims: Sequence[Claim], record: Record) -> list[int]:
    """Return the usage of an ended call for each claim.

    Unknown usage is the claimed amount, or the known part of the usage if that is more.
    """
    billing = record.billing
    tokens, cost = None if billing.usage_source == "unknown" else billing.tokens, billing.cost
    usage: list[int] = []
    usage_by_kind: dict[LimitKind, int | None] = {}
    for claim in claims:
        kind = claim.limit.kind
        if kind not in usage_by_kind:
            usage_by_kind[kind] = kind.get_used_amount(tokens, cost)
        amount = usage_by_kind[kind]
        if amount is None:
            known_cost = sum([bill.cost or 0 for bill in billing.bills])
            amount = max(claim.amount, kind.get_used_amount(billing.tokens, known_cost) or 0)
        usage.append(amount)
    return usage
