"""Explains how a call is decided: each decision of its plan, with the reason and the file and line.

Reads the plan that ``decide`` returns and decides nothing itself. Header values are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from proxy.dialects.requests.upstream_request import translate_request
from proxy.dialects.vendors.openai import OPENAI
from proxy.errors import InvalidField, ProxyError, Unauthorized
from proxy.errors.words import MAX_LISTED, format_count
from proxy.limits.claims import estimate_claims, estimate_cost
from proxy.money.usage import find_price_on, format_usd
from proxy.policy.decide import decide
from proxy.policy.decide.provenance import DecidedPlan, RuleOutcome
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.runtime.frozen import frozen
from proxy.types import NO_OVERRIDES, Call, Json, ParameterOverrides, Plan, ScopedLimit, Target
from proxy.types.guard import CostCap, GuardPlan, GuardRule
from proxy.types.limit import Claim
from proxy.types.target import join_target_ids

EMPTY_TEXTS: Mapping[str, Json] = {
    "chat": {"messages": [{"role": "user", "content": ""}]},
    "completions": {"prompt": ""},
    "embeddings": {"input": ""},
    "responses": {"input": ""},
}


DecisionState = Literal["applied", "not_applied", "shadow", "refused"]
"""Effect of a decision on the call. ``refused`` also means that the call or an attempt failed."""


@frozen
class Decision:
    """A decision: its subject, its result, the reason, and the ``file:line`` that declares it."""

    subject: str
    result: str
    reason: str | None = None
    source: str | None = None
    parts: tuple[Decision, ...] = ()
    state: DecisionState = "applied"

    def to_json(self) -> dict[str, Any]:
        data = {"about": self.subject, "decided": self.result, "why": self.reason}
        data |= {"at": self.source, "state": self.state}
        parts = {"parts": [part.to_json() for part in self.parts]} if self.parts else {}
        return {name: value for name, value in data.items() if value is not None} | parts

    def format_line(self, parent_subject: str = "") -> str:
        """Return one line of text. Below ``rules``, the subject ``rule`` is omitted."""
        subject = "" if f"{self.subject}s" == parent_subject else f"{self.subject}: "
        reason = f" ({self.reason})" if self.reason else ""
        source = f"  [{self.source}]" if self.source else ""
        return f"{subject}{self.result}{reason}{source}"


@frozen
class CallExplanation:
    """All decisions on a call, in the order in which they are made."""

    revision: str
    decisions: tuple[Decision, ...]

    def to_json(self) -> dict[str, Any]:
        decisions = [decision.to_json() for decision in self.decisions]
        return {"revision": self.revision, "decisions": decisions}

    def format_tree(self) -> str:
        return "\n".join([f"policy revision {self.revision}", *_draw_tree(self.decisions, "")])


def _draw_tree(
    decisions: Sequence[Decision], indent: str, parent_subject: str = ""
) -> Iterator[str]:
    for number, decision in enumerate(decisions, start=1):
        is_last = number == len(decisions)
        yield f"{indent}{'└─' if is_last else '├─'} {decision.format_line(parent_subject)}"
        yield from _draw_tree(
            decision.parts, f"{indent}{'  ' if is_last else '│ '} ", decision.subject
        )


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
        reason, source = plan.explain_deployment()
        yield Decision("deployment", str(plan.deployment), reason, source=source)
        yield _explain_tags(plan)
        if plan.passthrough is not None and call.head.passthrough is not None:
            method, reason = call.head.method, "retried after a failure"
            if not plan.passthrough.may_repeat(method):
                reason = "retried only if the upstream did not receive the request"
            yield Decision("passthrough", f"{method} {plan.passthrough.route}", reason)
        for index in range(len(plan.model_calls[:MAX_LISTED])):
            yield from _explain_model_call(plan, index, call)
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


def _explain_tags(plan: DecidedPlan) -> Decision:
    parts = []
    for tag, value in plan.tags.items():
        reason, source = plan.explain_tag(tag)
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
    return _group_decisions("tags", str(len(plan.tags)), parts)


def _group_decisions(subject: str, text: str, parts: Sequence[Decision]) -> Decision:
    return Decision(subject, text, parts=tuple(parts), state="applied" if parts else "not_applied")


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
    return _group_decisions("limits", str(len(parts)), parts)


def _explain_model_call(plan: DecidedPlan, index: int, call: Call) -> Iterator[Decision]:
    """Yield the decisions for one of the models that the client requested."""
    model_call = plan.model_calls[index]
    text = f"{model_call.model[:64]!a}: " if len(plan.model_calls) > 1 else ""
    rules = tuple(_explain_rule(plan, index, outcome) for outcome in plan.iter_rule_outcomes(index))
    applied = len(model_call.rules)
    verb = "applies" if applied == 1 else "apply"
    yield _group_decisions("rules", f"{text}{applied} of {len(rules)} {verb}", rules)
    yield from _explain_parameters(plan, index, call, text)
    targets = []
    for target, (reason, source) in plan.iter_target_provenance(index):
        price = find_price_on(target.prices, call.head.received_at.date())
        if price is None:
            cost = "price unknown"
        else:
            prices = {"input": price.input, "output": price.output}
            texts = ", ".join(f"{kind} {usd}" for kind, usd in prices.items() if usd is not None)
            cost = f"USD per million tokens: {texts}"
        targets.append(Decision("target", target.id, f"{reason}; {cost}", source=source))
    for target, reason in plan.iter_excluded_targets(index):
        text = f"{target.id} excluded"
        targets.append(Decision("target", text, reason, state="not_applied"))
    yield Decision("targets", f"{text}{len(model_call.targets)}", parts=tuple(targets))


def _explain_rule(plan: DecidedPlan, index: int, outcome: RuleOutcome) -> Decision:
    rule, source, reason = outcome
    verb = "does not apply"
    state: DecisionState = "not_applied"
    if reason is None and rule.shadow:
        verb, state = "would apply", "shadow"
        reason = f"shadow mode: {'; '.join(text for _, text in rule.iter_effects())}"
    elif reason is None:
        verb, state = "applies", "applied"
        effects = (
            (text, plan.find_overruling_reason(index, rule, effect))
            for effect, text in rule.iter_effects()
        )
        reason = "; ".join(f"{text} ({note})" if note else text for text, note in effects)
    return Decision("rule", f"{rule.name} {verb}", reason, source=source, state=state)


def _diff_with_overrides(
    call: Call, target: Target, changes: ParameterOverrides
) -> dict[str, tuple[Any, Any]]:
    """Return the fields of the request to a target that rules change: name, value before, after.

    Members of objects are named ``thinking.budget_tokens``. A missing field is None. Raise
    ``InvalidField`` if the target's dialect cannot express the call.
    """
    if not changes or call.head.endpoint not in OPENAI.fields:
        return {}
    before, after = (
        dict(_flatten_members(translate_request(call, target, overrides).body))
        for overrides in (NO_OVERRIDES, changes)
    )
    return {
        name: (before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }


def _flatten_members(body: Json, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in body.items():
        if isinstance(value, dict):
            yield from _flatten_members(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _explain_parameters(
    plan: DecidedPlan, index: int, call: Call, prefix: str
) -> Iterator[Decision]:
    """Yield the parameters of the request to the first target that rules change."""
    target = plan.model_calls[index].targets[0]
    if not _has_texts(call):
        call = replace(call, body={**call.body, **EMPTY_TEXTS.get(call.head.endpoint, {})})
    try:
        changes = _diff_with_overrides(call, target, plan.model_calls[index].get_overrides(target))
    except InvalidField as error:
        text = f"{prefix}not supported by {target.id}"
        yield Decision("parameters", text, str(error), state="refused")
        return
    parts = [
        Decision(
            "parameter",
            f"{name}: {'removed' if new is None else new}",
            f"without rules: {'not set' if old is None else old}",
        )
        for name, (old, new) in changes.items()
    ]
    if parts:
        yield Decision("parameters", f"{prefix}{len(parts)} changed", parts=tuple(parts))


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
        if _has_texts(call):
            cost = estimate_cost(plan, call)
            reason = "the maximum cost of this call is unknown"
            reason = reason if cost is None else f"this call may cost up to {format_usd(cost)} USD"
        parts.append(_explain_guard(text, reason, cap, snapshot))
    if rejects_opaque_content(guards):
        reason = "guards cannot inspect them; `opaque: allow` accepts them"
        parts.append(Decision("guard", "images, audio and files: rejected", reason))
    count = len(guards.input) + len(guards.output) + len(guards.cost_caps)
    return _group_decisions("guards", str(count), parts)


def _explain_guard(
    result: str, reason: str | None, guard: GuardRule | CostCap, snapshot: Snapshot
) -> Decision:
    source = snapshot.find_location(*guard.path)
    state: DecisionState = "shadow" if guard.shadow else "applied"
    return Decision("guard", result, reason, source=source, state=state)


def rejects_opaque_content(guards: GuardPlan) -> bool:
    """Return True if requests with content that guards cannot inspect are rejected."""
    return not guards.allows_opaque and any(rule.enforces for rule in guards.input)


def _has_texts(call: Call) -> bool:
    """Return True if the call has its texts. The texts of past calls are not stored."""
    return any(name in call.body for name in ("messages", "prompt", "input"))


def _estimate_claims_if_known(plan: Plan, call: Call) -> Sequence[Claim]:
    """Return the claims of a call, or those that do not depend on its texts if it has none."""
    if _has_texts(call):
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
            cached = "; a cached response is still served" if plan.cache is not None else ""
            reason = f"this call exceeds the whole limit{cached}"
            text = f"rejected with 429 by limit {claim.limit.name}"
            return Decision("result", text, reason, state="refused")
    route = " and ".join(m.targets[0].id for m in plan.model_calls[:MAX_LISTED])
    if hidden_calls := plan.model_calls[MAX_LISTED:]:
        route += f" and {len(hidden_calls)} more"
    notes = [*call.warnings, *plan.warnings]
    if not is_past and any(rule.enforces for rule in plan.guards.input):
        notes.append("guards are listed, not evaluated")
    return Decision("result", f"route to {route}", "; ".join(notes) or None)
