"""Why a call is decided as it is: the plan of ``decide``, with each decision's reason and place.

Nothing here decides: what holds, what wins and what is tried is read off the plan that the same
code gives the call. Header values are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from proxy.dialects.upstream_request import rule_changes
from proxy.errors import BadField, ProxyError, Unauthorized
from proxy.limits.claims import claims_of, predicted
from proxy.policy.decide import decide
from proxy.policy.decide.provenance import DecidedPlan, RuleOutcome
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.review.explanation import CallExplanation, Reason
from proxy.types import Call, Json, Plan, ScopedLimit
from proxy.types.guard import Guarding, GuardRule
from proxy.types.limit import Claim
from proxy.types.target import titles
from proxy.usage import Price, in_force, usd_text
from proxy.words import MAX_LISTED, counted

if TYPE_CHECKING:
    from proxy.types.passthrough import PassedPath

NOT_EVALUATED = "guards are listed, not evaluated"
EMPTY_TEXTS: Mapping[str, Json] = {
    "chat": {"messages": [{"role": "user", "content": ""}]},
    "completions": {"prompt": ""},
    "embeddings": {"input": ""},
    "responses": {"input": ""},
}
OPAQUE = "guards cannot inspect them; `opaque: allow` accepts them"


def explain(
    snapshot: Snapshot, key: VirtualKey, call: Call, *, is_over: bool = True
) -> CallExplanation:
    """Explain a call of a key, whatever becomes of it. One that is over was looked at by guards."""
    return CallExplanation(snapshot.revision, tuple(_reasons(snapshot, key, call, is_over)))


def explain_of_key(snapshot: Snapshot, key: VirtualKey, call: Call) -> CallExplanation:
    """Explain a call that is yet to come: a key that is not in force then is refused, as calls of
    the past were not, whatever became of their key since."""
    lapse = snapshot.lapse_of(key.name, call.head.at)
    if lapse is None:
        return explain(snapshot, key, call, is_over=False)
    error = Unauthorized()
    text = lapse if lapse.startswith("expired") else f"is {lapse}"
    rejected = _rejected(error, f"key {key.name} {text}")
    return CallExplanation(snapshot.revision, (_identity(snapshot, key), rejected))


def _reasons(snapshot: Snapshot, key: VirtualKey, call: Call, is_over: bool) -> Iterator[Reason]:
    yield _identity(snapshot, key)
    try:
        plan = decide(snapshot, key, call)
    except ProxyError as error:
        yield _rejected(error, error.message)
        return
    if isinstance(plan, DecidedPlan):
        origin = plan.origin_of_deployment()
        yield Reason(about="deployment", decided=str(plan.deployment), why=origin.why, at=origin.at)
        yield _tags(plan)
        if plan.passed is not None and call.head.passed is not None:
            method = call.head.method
            text = f"{method} {plan.passed.route}"
            yield Reason("passthrough", text, _retry_text(plan.passed, method))
        for index in range(len(plan.model_calls[:MAX_LISTED])):
            yield from _model_call(plan, index, call)
        if left := plan.model_calls[MAX_LISTED:]:
            yield Reason("models", f"{len(left)} more, not shown")
        yield from (_guarded(plan, call), _limits(plan, call), _cached(plan), *_captured(plan))
    yield _outcome(plan, call, is_over)


def _identity(snapshot: Snapshot, key: VirtualKey) -> Reason:
    return Reason("key", key.name, at=snapshot.at("keys", key.name))


def _rejected(error: ProxyError, why: str) -> Reason:
    return Reason("result", f"rejected with {error.status} {error.code}", why)


def _tags(plan: DecidedPlan) -> Reason:
    parts = []
    for tag, value in plan.tags.items():
        why, at = plan.origin_of_tag(tag)
        parts.append(Reason(about="tag", decided=f"{tag}={value}", why=why, at=at))
    parts += [
        Reason("tag", f"{tag[:64]!a} dropped", _why_dropped(plan, tag))
        for tag in plan.basis.dropped
    ]
    return Reason("tags", str(len(plan.tags)), parts=tuple(parts))


def _why_dropped(plan: DecidedPlan, tag: str) -> str:
    rule = plan.basis.snapshot.tags.get(tag)
    if rule is None:
        return "the policies do not declare this tag"
    if not rule.caller:
        return "clients may not set this tag; to allow it, add `caller: true` to the tag"
    return "clients may not set this value, or the key or deployment sets another one"


def _limits(plan: DecidedPlan, call: Call) -> Reason:
    claims = _known_claims(plan, call)
    parts = []
    for bound in plan.bounds:
        limit = bound.limit
        amounts = [each.amount for each in claims if each.limit is limit]
        at = plan.place_of_limit(limit.name)
        why = f"this call reserves {limit.kind.figure(sum(amounts))}" if amounts else None
        parts.append(Reason(about="limit", decided=bound_text(bound), why=why, at=at))
    return Reason("limits", str(len(parts)), parts=tuple(parts))


def _model_call(plan: DecidedPlan, index: int, call: Call) -> Iterator[Reason]:
    model_call = plan.model_calls[index]
    text = f"{model_call.model[:64]!a}: " if len(plan.model_calls) > 1 else ""
    rules = tuple(_rule(plan, index, outcome) for outcome in plan.outcomes_of_rules(index))
    applied = len(model_call.rules)
    verb = "applies" if applied == 1 else "apply"
    yield Reason("rules", f"{text}{applied} of {len(rules)} {verb}", parts=rules)
    yield from _parameters(plan, index, call, text)
    targets = tuple(_targets(plan, index, call))
    yield Reason("targets", f"{text}{len(model_call.targets)}", parts=targets)


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
    """Yield the parameters of the request to the first target that the rules change."""
    target = plan.model_calls[index].targets[0]
    if not _has_texts(call):  # a past call, whose texts are not kept
        call = replace(call, body={**call.body, **EMPTY_TEXTS.get(call.head.endpoint, {})})
    try:
        changes = rule_changes(call, target, plan.model_calls[index].changes_for(target))
    except BadField as error:
        yield Reason("parameters", f"{text}not supported by {target.title}", str(error))
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


def _targets(plan: DecidedPlan, index: int, call: Call) -> Iterator[Reason]:
    for target, (why, at) in plan.origins_of_targets(index):
        price = _priced(in_force(target.prices, call.head.at.date()))
        yield Reason(about="target", decided=target.title, why=f"{why}; {price}", at=at)
    for target, reason in plan.left_out(index):
        yield Reason("target", f"{target.title} excluded", reason)


def _retry_text(path: PassedPath, method: str) -> str:
    if path.may_repeat(method):
        return "retried after a failure"
    return "retried only if the upstream did not receive the request"


def _excluded_roles(rule: GuardRule) -> str | None:
    excluded = sorted(rule.roles_left_out)
    return f"except {', '.join(excluded)}" if excluded else None


def _guarded(plan: Plan, call: Call) -> Reason:
    parts = []
    for stage, rules in (("input", plan.guards.input), ("output", plan.guards.output)):
        for rule in rules:
            to = f" to {titles(rule.to)}" if rule.to else ""
            does = f"{rule.action}{to}{', shadow mode' if rule.shadow else ''}"
            where = sorted(rule.roles or ()) + sorted(rule.fields or ())
            narrowed = f"only {', '.join(where)}" if where else _excluded_roles(rule)
            parts.append(Reason("guard", f"{stage} {rule.name}: {does}", narrowed))
    for each in plan.guards.ceilings:
        shadow = ", shadow mode" if each.shadow else ""
        text = f"input {each.name}: {each.action} above {usd_text(each.most)} USD{shadow}"
        parts.append(Reason("guard", text, _foreseen(plan, call)))
    if rejects_opaque(plan.guards):
        parts.append(Reason("guard", "images, audio and files: rejected", OPAQUE))
    guards = plan.guards
    count = len(guards.input) + len(guards.output) + len(guards.ceilings)
    return Reason("guards", str(count), parts=tuple(parts))


def rejects_opaque(guards: Guarding) -> bool:
    """Return True if requests with content that guards cannot inspect are rejected."""
    return not guards.opaque and any(rule.enforces for rule in guards.input)


def _has_texts(call: Call) -> bool:
    """A call of the past has none, so what it claims cannot be told any more."""
    return any(name in call.body for name in ("messages", "prompt", "input"))


def _known_claims(plan: Plan, call: Call) -> Sequence[Claim]:
    """Return what a call claims, as far as its texts are not needed to tell it."""
    if _has_texts(call):
        return claims_of(plan, call)
    if plan.passed is None or plan.passed.most_cost is None:
        return ()
    return [each for each in claims_of(plan, call) if each.limit.is_budget]


def _foreseen(plan: Plan, call: Call) -> str | None:
    if not _has_texts(call):
        return None
    cost = predicted(plan, call)
    if cost is None:
        return "the maximum cost of this call is unknown"
    return f"this call may cost up to {usd_text(cost)} USD"


def _cached(plan: Plan) -> Reason:
    rule = plan.cache
    if rule is None:
        return Reason("cache", "off")
    text = f"responses are cached for {rule.ttl:g} s in {rule.store}"
    if len(plan.model_calls) > 1:
        return Reason("cache", "skipped", "calls with several models are not cached")
    if rule.semantic is not None:
        text += f"; {rule.semantic}"
    return Reason("cache", text, f"namespace {rule.namespace}" if rule.namespace else None)


def _captured(plan: Plan) -> list[Reason]:
    capture = plan.guards.capture
    if capture is None:
        return []
    share = f"{capture.share:.0%} of traces include the text of prompt and response"
    return [Reason("capture", share, f"up to {capture.max_chars} characters each, redacted")]


def bound_text(bound: ScopedLimit) -> str:
    """Return the name of a limit, what it allows, and whose it is."""
    limit = bound.limit
    per = f", per {' and '.join(bound.per)}" if bound.per else ", across all keys"
    shadow = ", shadow mode" if limit.shadow else ""
    return f"{limit.name}: {limit.kind.allowance(limit)}{per}{shadow}"


def _priced(price: Price | None) -> str:
    if price is None:
        return "price unknown"
    known = {"input": price.input, "output": price.output}
    text = ", ".join(f"{kind} {usd}" for kind, usd in known.items() if usd is not None)
    return f"USD per million tokens: {text}"


def _outcome(plan: Plan, call: Call, is_over: bool) -> Reason:
    """Return where the call goes, or that a limit would refuse it if nothing else was used."""
    if plan.listing is not None:
        names = counted(len(plan.listing), "name")
        return Reason("result", "list the models of the key", names)
    if plan.refusal is not None:
        text = f"rejected with {plan.refusal.status} by rule {plan.refusal.rule}"
        return Reason("result", text, plan.refusal.message)
    claims = _known_claims(plan, call)
    over = [each.limit for each in claims if each.amount > each.limit.capacity]
    refusing = next((limit.name for limit in over if not limit.shadow), None)
    if refusing is not None:
        why = "this call exceeds the whole limit"
        if plan.cache is not None:
            why += "; a cached response is still served"
        return Reason("result", f"rejected with 429 by limit {refusing}", why)
    first = " and ".join(leg.targets[0].title for leg in plan.model_calls[:MAX_LISTED])
    if left := plan.model_calls[MAX_LISTED:]:
        first += f" and {len(left)} more"
    acts = not is_over and any(rule.enforces for rule in plan.guards.input)
    notes = [*call.warnings, *plan.warnings, *([NOT_EVALUATED] if acts else [])]
    return Reason("result", f"route to {first}", "; ".join(notes) or None)
