"""Explains how a call is decided: each decision of its plan, with the reason and the file and line.

Reads the plan that ``decide`` returns and decides nothing itself. Header values are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.errors import ProxyError, Unauthorized
from proxy.errors.words import MAX_LISTED, format_count
from proxy.limits.claims import estimate_claims, estimate_cost
from proxy.money.usage import format_usd
from proxy.policy.decide import DecidedPlan, decide
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.files.source import KeyPath
from proxy.policy.review.decision import CallExplanation, Decision, DecisionState, group_decisions
from proxy.policy.review.explain_model_call import explain_model_call, has_texts
from proxy.types import Call, Plan, ScopedLimit
from proxy.types.guard import CostCap, GuardPlan, GuardRule
from proxy.types.limit import Claim
from proxy.types.target import join_target_ids


def explain(
    snapshot: Snapshot, key: VirtualKey, call: Call, *, is_past: bool = True
) -> CallExplanation:
    """Explain the decision on a call of a key.

    ``is_past`` is False if the call was not made, so that no guard has inspected it.
    """
    return CallExplanation(snapshot.revision, tuple(_explain_call(snapshot, key, call, is_past)))


def explain_future_call(snapshot: Snapshot, key: VirtualKey, call: Call) -> CallExplanation:
    """Explain a call that was not made yet. A revoked or expired key is rejected."""
    reason = snapshot.find_rejection_reason(key.name, call.head.received_at)
    if reason is None:
        return explain(snapshot, key, call, is_past=False)
    text = reason if reason.startswith("expired") else f"is {reason}"
    rejected = _make_rejection(Unauthorized(), f"key {key.name} {text}")
    return CallExplanation(snapshot.revision, (_explain_key(snapshot, key), rejected))


def _explain_call(
    snapshot: Snapshot, key: VirtualKey, call: Call, is_past: bool
) -> Iterator[Decision]:
    yield _explain_key(snapshot, key)
    try:
        plan = decide(snapshot, key, call)
    except ProxyError as error:
        yield _make_rejection(error, error.message)
        return
    if isinstance(plan, DecidedPlan):
        yield _explain_deployment(plan)
        yield _explain_tags(plan)
        if plan.passthrough is not None and call.head.passthrough is not None:
            method, reason = call.head.method, "retried after a failure"
            if not plan.passthrough.may_repeat(method):
                reason = "retried only if the upstream did not receive the request"
            yield Decision("passthrough", f"{method} {plan.passthrough.route}", reason)
        for index in range(len(plan.model_calls[:MAX_LISTED])):
            yield from explain_model_call(plan, index)
        if hidden_calls := plan.model_calls[MAX_LISTED:]:
            yield Decision("models", f"{len(hidden_calls)} more, not shown")
        yield from (_explain_guards(plan, call), _explain_limits(plan, call), _explain_cache(plan))
        if (capture := plan.guards.capture) is not None:
            text = f"{capture.share:.0%} of traces include the text of prompt and response"
            yield Decision("capture", text, f"up to {capture.max_chars} characters each, redacted")
    yield _explain_result(plan, call, is_past)


def _explain_key(snapshot: Snapshot, key: VirtualKey) -> Decision:
    return Decision("key", key.name, source=snapshot.find_location("keys", key.name))


def _make_rejection(error: ProxyError, reason: str) -> Decision:
    text = f"rejected with {error.status} {error.code}"
    return Decision("result", text, reason, state="refused")


def _explain_deployment(plan: DecidedPlan) -> Decision:
    deployment, call = plan.basis.key_deployment.deployment, plan.basis.call
    if call.head.deployment is not None:
        reason = "named in a request header"
    elif call.deployment is not None:
        reason = "named by the suffix of the model name"
    elif call.requested_models and deployment.names.issuperset(call.requested_models):
        reason = "requested by its name as the model"
    elif (
        deployment.is_default
        and len(plan.basis.key.find_deployments_serving_all(call.requested_models)) > 1
    ):
        reason = "the default of this key's deployments that serve the request"
    else:
        reason = "the only deployment of this key that serves the request"
    source = plan.basis.snapshot.find_location("deployments", deployment.name)
    return Decision("deployment", deployment.name, reason, source=source)


def _explain_tags(plan: DecidedPlan) -> Decision:
    key, deployment = plan.basis.key, plan.basis.key_deployment.deployment
    parts = []
    for tag, value in plan.tags.items():
        reason = "set by the client"
        path: KeyPath = ("tags", tag)
        if tag in key.tags:
            reason, path = "set by the key", ("keys", key.name, "tags", tag)
        elif tag in deployment.tags:
            reason = "set by the deployment"
            path = ("deployments", deployment.name, "tags", tag)
        source = plan.basis.snapshot.find_location(*path)
        parts.append(Decision("tag", f"{tag}={value}", reason, source=source))
    for tag in plan.basis.dropped_tags:
        rule = plan.basis.snapshot.tags.get(tag)
        if rule is None:
            reason = "the policies do not declare this tag"
        elif not rule.set_by_clients:
            reason = "clients may not set this tag; to allow it, add `caller: true` to the tag"
        else:
            reason = "clients may not set this value, or the key or deployment sets another one"
        parts.append(Decision("tag", f"{tag[:64]!a} dropped", reason, state="not_applied"))
    return group_decisions("tags", str(len(plan.tags)), parts)


def _explain_limits(plan: DecidedPlan, call: Call) -> Decision:
    claims, snapshot = _estimate_claims_if_known(plan, call), plan.basis.snapshot
    parts = []
    for scoped in plan.limits:
        limit = scoped.limit
        amounts = [claim.amount for claim in claims if claim.limit is limit]
        source = snapshot.find_location(*snapshot.limit_paths.get(limit.name, ()))
        reason = f"this call reserves {limit.kind.format_number(sum(amounts))}" if amounts else None
        state: DecisionState = "shadow" if limit.shadow else "applied"
        parts.append(Decision("limit", describe_limit(scoped), reason, source=source, state=state))
    return group_decisions("limits", str(len(parts)), parts)


def _explain_guards(plan: DecidedPlan, call: Call) -> Decision:
    guards, snapshot = plan.guards, plan.basis.snapshot
    parts = []
    for stage, rules in (("input", guards.input), ("output", guards.output)):
        for rule in rules:
            to = f" to {join_target_ids(rule.route_targets)}" if rule.route_targets else ""
            action = f"{rule.action}{to}{', shadow mode' if rule.shadow else ''}"
            included = sorted(rule.roles or ()) + sorted(rule.fields or ())
            scope = f"only {', '.join(included)}" if included else None
            if not included and rule.excluded_roles:
                scope = f"except {', '.join(sorted(rule.excluded_roles))}"
            parts.append(_explain_guard(f"{stage} {rule.name}: {action}", scope, rule, snapshot))
    for cap in guards.cost_caps:
        shadow = ", shadow mode" if cap.shadow else ""
        text = f"input {cap.name}: {cap.action} above {format_usd(cap.max_nano_usd)} USD{shadow}"
        reason = None
        if has_texts(call):
            cost = estimate_cost(plan, call)
            reason = "the maximum cost of this call is unknown"
            reason = reason if cost is None else f"this call may cost up to {format_usd(cost)} USD"
        parts.append(_explain_guard(text, reason, cap, snapshot))
    if rejects_opaque_content(guards):
        reason = "guards cannot inspect them; `opaque: allow` accepts them"
        parts.append(Decision("guard", "images, audio and files: rejected", reason))
    count = len(guards.by_stage)
    return group_decisions("guards", str(count), parts)


def _explain_guard(
    result: str, reason: str | None, guard: GuardRule | CostCap, snapshot: Snapshot
) -> Decision:
    source = snapshot.find_location(*guard.path)
    state: DecisionState = "shadow" if guard.shadow else "applied"
    return Decision("guard", result, reason, source=source, state=state)


def rejects_opaque_content(guards: GuardPlan) -> bool:
    """Return True if requests with content that guards cannot inspect are rejected."""
    return not guards.allows_opaque and any(rule.enforces for rule in guards.input)


def _estimate_claims_if_known(plan: Plan, call: Call) -> Sequence[Claim]:
    """Return the claims of a call, or those that do not depend on its texts if it has none."""
    if has_texts(call):
        return estimate_claims(plan, call)
    if plan.passthrough is None or plan.passthrough.max_cost is None:
        return ()
    return [claim for claim in estimate_claims(plan, call) if claim.limit.is_budget]


def _explain_cache(plan: Plan) -> Decision:
    rule = plan.cache
    if rule is None:
        return Decision("cache", "off", state="not_applied")
    if len(plan.model_calls) > 1:
        reason = "calls with several models are not cached"
        return Decision("cache", "skipped", reason, state="not_applied")
    text = f"responses are cached for {rule.ttl:g} s in {rule.store}"
    text += f"; {rule.semantic}" if rule.semantic is not None else ""
    return Decision("cache", text, f"namespace {rule.namespace}" if rule.namespace else None)


def describe_limit(scoped: ScopedLimit) -> str:
    """Return the name of a limit, its amount and its scope."""
    limit = scoped.limit
    per = f", per {' and '.join(scoped.per)}" if scoped.per else ", across all keys"
    shadow = ", shadow mode" if limit.shadow else ""
    return f"{limit.name}: {limit.kind.describe(limit)}{per}{shadow}"


def _explain_result(plan: Plan, call: Call, is_past: bool) -> Decision:
    if plan.model_list is not None:
        names = format_count(len(plan.model_list), "name")
        return Decision("result", "answered with the models of the key", names)
    if plan.refusal is not None:
        text = f"rejected with {plan.refusal.status} by rule {plan.refusal.rule}"
        return Decision("result", text, plan.refusal.message, state="refused")
    for claim in _estimate_claims_if_known(plan, call):
        if claim.amount > claim.limit.capacity and not claim.limit.shadow:
            cache_note = "; a cached response is still served" if plan.cache is not None else ""
            reason = f"this call alone is larger than the limit{cache_note}"
            text = f"rejected with 429 by limit {claim.limit.name}"
            return Decision("result", text, reason, state="refused")
    route = " and ".join(m.targets[0].id for m in plan.model_calls[:MAX_LISTED])
    if hidden_calls := plan.model_calls[MAX_LISTED:]:
        route += f" and {len(hidden_calls)} more"
    notes = [*call.warnings, *plan.warnings]
    if not is_past and any(rule.enforces for rule in plan.guards.input):
        notes.append("guards are listed, not evaluated")
    return Decision("result", f"route to {route}", "; ".join(notes) or None)
