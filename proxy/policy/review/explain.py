"""Explains how a call is decided: each decision of its plan, with the reason and the file and line.

Reads the plan that ``decide`` returns and decides nothing itself. Header values are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proxy.dialects.upstream_request import rule_changes
from proxy.errors import InvalidField, ProxyError, Unauthorized
from proxy.errors.words import MAX_LISTED, counted
from proxy.limits.claims import estimate_claims, estimate_cost
from proxy.money.usage import price_on, usd_text
from proxy.policy.decide import decide
from proxy.policy.decide.provenance import DecidedPlan, RuleOutcome
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.runtime.frozen import frozen
from proxy.types import Call, Json, Plan, ScopedLimit
from proxy.types.guard import GuardPlan
from proxy.types.limit import Claim
from proxy.types.target import titles

EMPTY_TEXTS: Mapping[str, Json] = {
    "chat": {"messages": [{"role": "user", "content": ""}]},
    "completions": {"prompt": ""},
    "embeddings": {"input": ""},
    "responses": {"input": ""},
}


@frozen
class Reason:
    """A decision: its subject, its result, the reason, and the ``file:line`` that declares it."""

    about: str
    decided: str
    why: str | None = None
    at: str | None = None
    parts: tuple[Reason, ...] = ()

    def data(self) -> dict[str, Any]:
        data = {"about": self.about, "decided": self.decided, "why": self.why, "at": self.at}
        parts = {"parts": [part.data() for part in self.parts]} if self.parts else {}
        return {name: value for name, value in data.items() if value is not None} | parts

    def line(self, heading: str = "") -> str:
        """Return one line of text, without the subject below a heading such as ``rules``."""
        about = "" if f"{self.about}s" == heading else f"{self.about}: "
        why = f" ({self.why})" if self.why else ""
        at = f"  [{self.at}]" if self.at else ""
        return f"{about}{self.decided}{why}{at}"


@frozen
class CallExplanation:
    """All decisions on a call, in the order in which they are made."""

    revision: str
    reasons: tuple[Reason, ...]

    def data(self) -> dict[str, Any]:
        decisions = [reason.data() for reason in self.reasons]
        return {"revision": self.revision, "decisions": decisions}

    def text(self) -> str:
        return "\n".join([f"policy revision {self.revision}", *_tree(self.reasons, "")])


def _tree(reasons: Sequence[Reason], indent: str, heading: str = "") -> Iterator[str]:
    for number, reason in enumerate(reasons, start=1):
        is_last = number == len(reasons)
        yield f"{indent}{'└─' if is_last else '├─'} {reason.line(heading)}"
        yield from _tree(reason.parts, f"{indent}{'  ' if is_last else '│ '} ", reason.about)


def explain(
    snapshot: Snapshot, key: VirtualKey, call: Call, *, is_over: bool = True
) -> CallExplanation:
    """Explain a call of a key. The guards have inspected a call that ``is_over``."""
    return CallExplanation(snapshot.revision, tuple(_reasons(snapshot, key, call, is_over)))


def preview(snapshot: Snapshot, key: VirtualKey, call: Call) -> CallExplanation:
    """Explain a call that was not made yet. A revoked or expired key is rejected."""
    lapse = snapshot.lapse_of(key.name, call.head.received_at)
    if lapse is None:
        return explain(snapshot, key, call, is_over=False)
    text = lapse if lapse.startswith("expired") else f"is {lapse}"
    rejected = _rejected(Unauthorized(), f"key {key.name} {text}")
    return CallExplanation(snapshot.revision, (_key(snapshot, key), rejected))


def _reasons(snapshot: Snapshot, key: VirtualKey, call: Call, is_over: bool) -> Iterator[Reason]:
    yield _key(snapshot, key)
    try:
        plan = decide(snapshot, key, call)
    except ProxyError as error:
        yield _rejected(error, error.message)
        return
    if isinstance(plan, DecidedPlan):
        origin = plan.origin_of_deployment()
        yield Reason(about="deployment", decided=str(plan.deployment), why=origin.why, at=origin.at)
        yield _tags(plan)
        if plan.passed is not None and call.head.passthrough is not None:
            method, why = call.head.method, "retried after a failure"
            if not plan.passed.may_repeat(method):
                why = "retried only if the upstream did not receive the request"
            yield Reason("passthrough", f"{method} {plan.passed.route}", why)
        for index in range(len(plan.model_calls[:MAX_LISTED])):
            yield from _model_call(plan, index, call)
        if more := plan.model_calls[MAX_LISTED:]:
            yield Reason("models", f"{len(more)} more, not shown")
        yield from (_guards(plan, call), _limits(plan, call), _cache(plan))
        if (capture := plan.guards.capture) is not None:
            text = f"{capture.share:.0%} of traces include the text of prompt and response"
            yield Reason("capture", text, f"up to {capture.max_chars} characters each, redacted")
    yield _result(plan, call, is_over)


def _key(snapshot: Snapshot, key: VirtualKey) -> Reason:
    return Reason("key", key.name, at=snapshot.at("keys", key.name))


def _rejected(error: ProxyError, why: str) -> Reason:
    return Reason("result", f"rejected with {error.status} {error.code}", why)


def _tags(plan: DecidedPlan) -> Reason:
    parts = []
    for tag, value in plan.tags.items():
        why, at = plan.origin_of_tag(tag)
        parts.append(Reason(about="tag", decided=f"{tag}={value}", why=why, at=at))
    for tag in plan.basis.dropped:
        rule = plan.basis.snapshot.tags.get(tag)
        if rule is None:
            why = "the policies do not declare this tag"
        elif not rule.caller:
            why = "clients may not set this tag; to allow it, add `caller: true` to the tag"
        else:
            why = "clients may not set this value, or the key or deployment sets another one"
        parts.append(Reason("tag", f"{tag[:64]!a} dropped", why))
    return Reason("tags", str(len(plan.tags)), parts=tuple(parts))


def _limits(plan: DecidedPlan, call: Call) -> Reason:
    claims, snapshot = _computable_claims(plan, call), plan.basis.snapshot
    parts = []
    for scoped in plan.limits:
        limit = scoped.limit
        amounts = [claim.amount for claim in claims if claim.limit is limit]
        at = snapshot.at(*snapshot.limits.get(limit.name, ()))
        why = f"this call reserves {limit.kind.figure(sum(amounts))}" if amounts else None
        parts.append(Reason(about="limit", decided=limit_text(scoped), why=why, at=at))
    return Reason("limits", str(len(parts)), parts=tuple(parts))


def _model_call(plan: DecidedPlan, index: int, call: Call) -> Iterator[Reason]:
    model_call = plan.model_calls[index]
    text = f"{model_call.model[:64]!a}: " if len(plan.model_calls) > 1 else ""
    rules = tuple(_rule(plan, index, outcome) for outcome in plan.outcomes_of_rules(index))
    applied = len(model_call.rules)
    verb = "applies" if applied == 1 else "apply"
    yield Reason("rules", f"{text}{applied} of {len(rules)} {verb}", parts=rules)
    yield from _parameters(plan, index, call, text)
    targets = []
    for target, (why, at) in plan.origins_of_targets(index):
        price = price_on(target.prices, call.head.received_at.date())
        if price is None:
            cost = "price unknown"
        else:
            prices = {"input": price.input, "output": price.output}
            known = ", ".join(f"{kind} {usd}" for kind, usd in prices.items() if usd is not None)
            cost = f"USD per million tokens: {known}"
        targets.append(Reason(about="target", decided=target.id, why=f"{why}; {cost}", at=at))
    for target, why in plan.left_out(index):
        targets.append(Reason("target", f"{target.id} excluded", why))
    yield Reason("targets", f"{text}{len(model_call.targets)}", parts=tuple(targets))


def _rule(plan: DecidedPlan, index: int, outcome: RuleOutcome) -> Reason:
    rule, at, why = outcome
    verb = "does not apply"
    if why is None and rule.shadow:
        verb = "would apply"
        why = f"shadow mode: {'; '.join(text for _, text in rule.effects())}"
    elif why is None:
        verb = "applies"
        effects = ((text, plan.overruled(index, rule, effect)) for effect, text in rule.effects())
        why = "; ".join(f"{text} ({but})" if but else text for text, but in effects)
    return Reason(about="rule", decided=f"{rule.name} {verb}", why=why, at=at)


def _parameters(plan: DecidedPlan, index: int, call: Call, text: str) -> Iterator[Reason]:
    """Yield the parameters of the request to the first target that rules change."""
    target = plan.model_calls[index].targets[0]
    if not _has_texts(call):
        call = replace(call, body={**call.body, **EMPTY_TEXTS.get(call.head.endpoint, {})})
    try:
        changes = rule_changes(call, target, plan.model_calls[index].overrides_for(target))
    except InvalidField as error:
        yield Reason("parameters", f"{text}not supported by {target.id}", str(error))
        return
    parts = [
        Reason(
            "parameter",
            f"{name}: {'removed' if new is None else new}",
            f"without rules: {'not set' if old is None else old}",
        )
        for name, (old, new) in changes.items()
    ]
    if parts:
        yield Reason("parameters", f"{text}{len(parts)} changed", parts=tuple(parts))


def _guards(plan: Plan, call: Call) -> Reason:
    guards = plan.guards
    parts = []
    for stage, rules in (("input", guards.input), ("output", guards.output)):
        for rule in rules:
            to = f" to {titles(rule.route_targets)}" if rule.route_targets else ""
            action = f"{rule.action}{to}{', shadow mode' if rule.shadow else ''}"
            included = sorted(rule.roles or ()) + sorted(rule.fields or ())
            scope = f"only {', '.join(included)}" if included else None
            if not included and rule.roles_left_out:
                scope = f"except {', '.join(sorted(rule.roles_left_out))}"
            parts.append(Reason("guard", f"{stage} {rule.name}: {action}", scope))
    for cap in guards.cost_caps:
        shadow = ", shadow mode" if cap.shadow else ""
        text = f"input {cap.name}: {cap.action} above {usd_text(cap.max_nano_usd)} USD{shadow}"
        why = None
        if _has_texts(call):
            cost = estimate_cost(plan, call)
            why = "the maximum cost of this call is unknown"
            why = why if cost is None else f"this call may cost up to {usd_text(cost)} USD"
        parts.append(Reason("guard", text, why))
    if rejects_opaque(guards):
        why = "guards cannot inspect them; `opaque: allow` accepts them"
        parts.append(Reason("guard", "images, audio and files: rejected", why))
    count = len(guards.input) + len(guards.output) + len(guards.cost_caps)
    return Reason("guards", str(count), parts=tuple(parts))


def rejects_opaque(guards: GuardPlan) -> bool:
    """Return True if requests with content that guards cannot inspect are rejected."""
    return not guards.opaque and any(rule.enforces for rule in guards.input)


def _has_texts(call: Call) -> bool:
    """Return True if the texts of a call are known. The texts of past calls are not stored."""
    return any(name in call.body for name in ("messages", "prompt", "input"))


def _computable_claims(plan: Plan, call: Call) -> Sequence[Claim]:
    """Return the claims of a call, or those that do not depend on its texts if it has none."""
    if _has_texts(call):
        return estimate_claims(plan, call)
    if plan.passed is None or plan.passed.most_cost is None:
        return ()
    return [claim for claim in estimate_claims(plan, call) if claim.limit.is_budget]


def _cache(plan: Plan) -> Reason:
    rule = plan.cache
    if rule is None:
        return Reason("cache", "off")
    if len(plan.model_calls) > 1:
        return Reason("cache", "skipped", "calls with several models are not cached")
    text = f"responses are cached for {rule.ttl:g} s in {rule.store}"
    text += f"; {rule.semantic}" if rule.semantic is not None else ""
    return Reason("cache", text, f"namespace {rule.namespace}" if rule.namespace else None)


def limit_text(scoped: ScopedLimit) -> str:
    """Return the name of a limit, its amount and its scope."""
    limit = scoped.limit
    per = f", per {' and '.join(scoped.per)}" if scoped.per else ", across all keys"
    shadow = ", shadow mode" if limit.shadow else ""
    return f"{limit.name}: {limit.kind.describe(limit)}{per}{shadow}"


def _result(plan: Plan, call: Call, is_over: bool) -> Reason:
    """Return the route of a call, or its rejection by a rule or by a limit that it exceeds."""
    if plan.model_list is not None:
        names = counted(len(plan.model_list), "name")
        return Reason("result", "list the models of the key", names)
    if plan.refusal is not None:
        text = f"rejected with {plan.refusal.status} by rule {plan.refusal.rule}"
        return Reason("result", text, plan.refusal.message)
    for claim in _computable_claims(plan, call):
        if claim.amount > claim.limit.capacity and not claim.limit.shadow:
            cached = "; a cached response is still served" if plan.cache is not None else ""
            why = f"this call exceeds the whole limit{cached}"
            return Reason("result", f"rejected with 429 by limit {claim.limit.name}", why)
    first = " and ".join(each.targets[0].id for each in plan.model_calls[:MAX_LISTED])
    if more := plan.model_calls[MAX_LISTED:]:
        first += f" and {len(more)} more"
    notes = [*call.warnings, *plan.warnings]
    if not is_over and any(rule.enforces for rule in plan.guards.input):
        notes.append("guards are listed, not evaluated")
    return Reason("result", f"route to {first}", "; ".join(notes) or None)
