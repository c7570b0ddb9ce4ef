"""Why a call is decided as it is: the plan of ``decide``, with each decision's reason and place.

Nothing here decides: what holds, what wins and what is tried is read off the plan that the same
code gives the call, and a rule that does not hold is asked why. Header values are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.dialects.upstream_request import parameters
from proxy.errors import ProxyError, Unauthorized
from proxy.limits.claims import claims_of, predicted
from proxy.plural import counted
from proxy.policy.decide import decide_for, facts_of, find, join_tags
from proxy.policy.decide.model_calls import CHANGES, EVERY, WHERE, RuledModelCall, rule_model_call
from proxy.policy.decide.pricing import is_priced, payable, unpriced_by
from proxy.policy.decide.rules import PolicyRules, Rule
from proxy.policy.decide.snapshot import Deployment, Reach, Snapshot, VirtualKey
from proxy.policy.files.source import Path_
from proxy.policy.review.explanation import CallExplanation, Reason
from proxy.types import Call, ModelCall, Plan, ScopedLimit, Target
from proxy.types.limit import Limit, rate_text
from proxy.usage import Price, in_force, usd_text
from proxy.words import MAX_LISTED


def explain(snapshot: Snapshot, key: VirtualKey, call: Call) -> CallExplanation:
    """Explain a call of a key, whatever becomes of it."""
    return _Explainer(snapshot, key, call).explanation()


def explain_of_key(snapshot: Snapshot, key: VirtualKey, call: Call) -> CallExplanation:
    """Explain a call that is yet to come: a key that is not in force then is refused, as calls of
    the past were not, whatever became of their key since."""
    lapse = snapshot.lapse_of(key.name, call.head.at)
    if lapse is None:
        return explain(snapshot, key, call)
    explainer, error = _Explainer(snapshot, key, call), Unauthorized()
    text = lapse if lapse.startswith("expired") else f"is {lapse}"
    why = f"the key {key.name} {text}"
    refused = Reason("refused", f"{error.status} {error.code}", why)
    return CallExplanation(snapshot.revision, (explainer.identity(), refused))


class _Explainer:
    def __init__(self, snapshot: Snapshot, key: VirtualKey, call: Call) -> None:
        self.snapshot = snapshot
        self.key = key
        self.call = call

    def explanation(self) -> CallExplanation:
        reasons = [self.identity()]
        try:
            plan = decide_for(self.snapshot, self.key, self.call)
        except ProxyError as error:
            reasons.append(Reason("refused", f"{error.status} {error.code}", error.message))
            return CallExplanation(self.snapshot.revision, tuple(reasons))
        if plan.deployment is not None:
            reach = find(self.key, self.call)
            reasons += [self.deployment(reach), self.tags(reach, plan)]
            facts = facts_of(self.key, self.call, plan.tags)
            for leg in plan.model_calls[:MAX_LISTED]:
                ruled = rule_model_call(reach, self.call, facts, leg.model)
                reasons += self.leg(reach, plan, leg, ruled)
            if left := plan.model_calls[MAX_LISTED:]:
                reasons.append(Reason("models", f"{len(left)} more, which are not explained here"))
            reasons += [_guarded(plan, self.call), self.limits(plan), _cached(plan)]
            reasons += _captured(plan)
        reasons.append(self.outcome(plan))
        return CallExplanation(self.snapshot.revision, tuple(reasons))

    def identity(self) -> Reason:
        return Reason("identity", f"key {self.key.name}", at=self.at("keys", self.key.name))

    def at(self, *path: str | int) -> str | None:
        """Return the location of a part of the policies, or of the nearest one around it."""
        part: Path_ = path
        while part and part not in self.snapshot.places:
            part = part[:-1]
        place = self.snapshot.places.get(part)
        return f"{place.file}:{place.line}" if place else None

    def deployment(self, reach: Reach) -> Reason:
        name, call = reach.deployment.name, self.call
        if call.head.deployment is not None:
            why = "a header names it"
        elif call.deployment is not None:
            why = "the model's name has it as its last part"
        elif call.models == (name,):
            why = "the model asked for is its name"
        else:
            why = "of the key's deployments only this one serves what is asked for"
        return Reason(about="deployment", decided=name, why=why, at=self.at("deployments", name))

    def tags(self, reach: Reach, plan: Plan) -> Reason:
        name = reach.deployment.name
        parts = []
        for tag, value in plan.tags.items():
            if tag in self.key.tags:
                why, at = "the key says so", self.at("keys", self.key.name, "tags", tag)
            elif tag in reach.deployment.tags:
                why, at = "the deployment says so", self.at("deployments", name, "tags", tag)
            else:
                why, at = "the caller may say so", self.at("tags", tag)
            parts.append(Reason(about="tag", decided=f"{tag}={value}", why=why, at=at))
        _, dropped = join_tags(self.snapshot, reach, self.call.head)
        parts += [
            Reason("tag", f"{tag[:64]!a} dropped", "callers may not say it") for tag in dropped
        ]
        return Reason("tags", f"{len(plan.tags)} set", parts=tuple(parts))

    def outcome(self, plan: Plan) -> Reason:
        """Return where the call goes, or that a limit would refuse it if nothing else was used."""
        claims = claims_of(plan, self.call) if _has_texts(self.call) else ()
        over = [each.limit for each in claims if each.amount > each.limit.capacity]
        refusing = next((limit.name for limit in over if not limit.shadow), None)
        if refusing is None or plan.refusal is not None:
            return _outcome(plan)
        why = "the call claims more than that ever allows"
        if plan.cache is not None:
            why += ", but for a kept answer"
        return Reason("decided", f"refused with 429 by {refusing}", why)

    def limits(self, plan: Plan) -> Reason:
        texts = _has_texts(self.call)
        claims = claims_of(plan, self.call) if texts else ()
        parts = []
        for bound in plan.bounds:
            limit = bound.limit
            asked = sum(claim.amount for claim in claims if claim.limit is limit)
            claimed = amount_text(limit, asked)
            at = self.at(*self.snapshot.limits.get(limit.name, ()))
            why = f"the call claims {claimed}" if texts else None
            parts.append(Reason(about="limit", decided=bound_text(bound), why=why, at=at))
        return Reason("limits", f"{len(parts)} count", parts=tuple(parts))

    def leg(
        self, reach: Reach, plan: Plan, leg: ModelCall, ruled: RuledModelCall
    ) -> Iterator[Reason]:
        text = f"{leg.model[:64]!a}: " if len(plan.model_calls) > 1 else ""
        rules = tuple(self.rules(reach.deployment, plan, ruled))
        applied = f"{text}{len(leg.rules)} of {len(rules)} apply"
        yield Reason("rules", applied, parts=rules)
        parameters = tuple(self.parameters(leg))
        if parameters:
            yield Reason("parameters", f"{text}{len(parameters)} changed", parts=parameters)
        targets = tuple(self.targets(reach, plan, leg, ruled))
        yield Reason("targets", f"{text}{leg.targets[0].title} first", parts=targets)

    def rules(self, deployment: Deployment, plan: Plan, ruled: RuledModelCall) -> Iterator[Reason]:
        leg = ruled.model_call
        names = ruled.model_call.targets[0].names | {leg.model, deployment.name}
        facts = facts_of(self.key, self.call, plan.tags)._replace(names=names)
        for section in deployment.sections:
            for index, rule in enumerate(section.rules):
                at = self.at("policies", section.policy, "rules", index)
                if rule.name in leg.rules:
                    does = "; ".join(_won(rule, plan, ruled))
                    yield Reason(about="rule", decided=f"{rule.name} applies", why=does, at=at)
                elif rule.name in leg.would:
                    does = "; ".join(text for _, text in _effects(rule))
                    yield Reason(
                        about="rule",
                        decided=f"{rule.name} would apply",
                        why=f"in shadow: {does}",
                        at=at,
                    )
                else:
                    why = rule.when.missed(facts) or _ended(section, leg)
                    yield Reason(
                        about="rule", decided=f"{rule.name} does not apply", why=why, at=at
                    )

    def parameters(self, leg: ModelCall) -> Iterator[Reason]:
        before = self.call.body
        after = parameters(self.call, leg.targets[0], leg.changes_for(leg.targets[0]))
        for name in sorted({*before, *after} - {"user"}):
            old, new = before.get(name), after.get(name)
            if old != new:
                was = "not said" if old is None else f"asked for: {old}"
                yield Reason("parameter", f"{name}: {'left out' if new is None else new}", was)

    def targets(
        self, reach: Reach, plan: Plan, leg: ModelCall, ruled: RuledModelCall
    ) -> Iterator[Reason]:
        deployment = reach.deployment
        served: tuple[Target, ...] = leg.targets
        fallback = ruled.model_call.targets[ruled.chosen :]
        if unpriced_by(deployment, plan.bounds) is not None:
            served = payable(leg.targets, self.call)
            fallback = payable(fallback, self.call) if served else fallback
        first = len(leg.targets) - len(fallback)
        weighed = (ruled.where.routes or deployment.routes).candidates.weights
        for index, target in enumerate(leg.targets):
            picked = _rule_of(deployment, leg, "targets" if index < first else "fallback")
            at = self.at("deployments", deployment.name, "targets" if index < first else "fallback")
            if picked is not None:
                at = self.at("policies", *picked)
            why = _chosen(leg, index, first, weighed=bool(weighed)) if served else "not asked"
            price = in_force(target.prices, self.call.head.at.date())
            yield Reason(
                about="target", decided=target.title, why=f"{why}; {_priced(price)}", at=at
            )
        for target in ruled.model_call.targets:
            if target not in leg.targets and not is_priced(target, self.call):
                yield Reason("target", f"{target.title} left out", "its price is not known")
        for target, rule in ruled.left_out:
            yield Reason("target", f"{target.title} left out", f"{rule} does not let it be asked")


def _chosen(leg: ModelCall, index: int, first: int, *, weighed: bool) -> str:
    """Return why a target has its place; the ``first`` ones are no fallback."""
    if index >= first:
        return "fallback"
    if leg.pool > 1:
        return "balanced: of the equals the least loaded goes first"
    if index:
        return "next, as it was not drawn"
    return "drawn by weight" if weighed else "the first that serves the model"


def _rule_of(deployment: Deployment, leg: ModelCall, kind: str) -> tuple[str, str, int] | None:
    """Find the rule that said where the leg goes, as a path below ``policies``."""
    winner = leg.by.get(kind)
    for section in deployment.sections:
        for index, rule in enumerate(section.rules):
            if rule.name == winner:
                return (section.policy, "rules", index)
    return None


def _guarded(plan: Plan, call: Call) -> Reason:
    parts = []
    for stage, rules in (("input", plan.guards.input), ("output", plan.guards.output)):
        for rule in rules:
            to = f" to {_titles(rule.to)}" if rule.to else ""
            does = f"would {rule.action}{to}, in shadow" if rule.shadow else f"{rule.action}{to}"
            where = sorted(rule.roles or ()) + sorted(rule.fields or ())
            narrowed = f"only {', '.join(where)}" if where else None
            parts.append(Reason("guard", f"{stage} {rule.name}: {does}", narrowed))
    for each in plan.guards.ceilings:
        does = f"would {each.action}, in shadow" if each.shadow else each.action
        text = f"input {each.name}: {does} above {usd_text(each.most)} USD"
        parts.append(Reason("guard", text, _foreseen(plan, call)))
    if not plan.guards.opaque and any(rule.enforces for rule in plan.guards.input):
        parts.append(Reason("guard", "content that no guard can read is refused"))
    guards = plan.guards
    look = len(guards.input) + len(guards.output) + len(guards.ceilings)
    return Reason("guards", f"{look} look", parts=tuple(parts))


def _has_texts(call: Call) -> bool:
    """A call of the past has none, so what it claims cannot be told any more."""
    return any(name in call.body for name in ("messages", "prompt", "input"))


def _foreseen(plan: Plan, call: Call) -> str | None:
    if not _has_texts(call):
        return None
    cost = predicted(plan, call)
    if cost is None:
        return "what the call may cost is unknown"
    return f"the call may cost {usd_text(cost)} USD"


def _cached(plan: Plan) -> Reason:
    rule = plan.cache
    if rule is None:
        return Reason("cache", "off")
    text = f"answers are kept for {rule.ttl:g} s in {rule.store}"
    if len(plan.model_calls) > 1:
        return Reason("cache", "passed by", "a list of models is not looked up")
    if rule.semantic is not None:
        does = "are noted" if rule.semantic.shadow else "count as the same question"
        text += f"; other wordings {does} from a likeness of {rule.semantic.threshold:g}"
    return Reason("cache", text, f"namespace {rule.namespace}" if rule.namespace else None)


def _captured(plan: Plan) -> list[Reason]:
    capture = plan.guards.capture
    if capture is None:
        return []
    share = f"{capture.share:.0%} of traces show texts"
    return [Reason("capture", share, f"{capture.max_chars} characters a side, redacted")]


def bound_text(bound: ScopedLimit) -> str:
    """Return the name of a limit, what it allows, and whose it is."""
    limit = bound.limit
    per = f" per {' and '.join(bound.per)}" if bound.per else " for all together"
    shadow = ", in shadow" if limit.shadow else ""
    return f"{limit.name}: {_amount(limit)}{per}{shadow}"


def amount_text(limit: Limit, amount: int) -> str:
    """Return so much of what a limit counts, money in USD."""
    return f"{usd_text(amount)} USD" if limit.kind == "usd" else str(amount)


def _amount(limit: Limit) -> str:
    if limit.kind == "usd":
        return f"{amount_text(limit, limit.amount)} each {limit.calendar.unit}"
    return rate_text(limit)


def _titles(targets: Sequence[Target]) -> str:
    return ", ".join(target.title for target in targets)


def _priced(price: Price | None) -> str:
    if price is None:
        return "price unknown"
    known = {"input": price.input, "output": price.output}
    text = ", ".join(f"{kind} {usd}" for kind, usd in known.items() if usd is not None)
    return f"USD per million tokens: {text}"


def _ended(section: PolicyRules, leg: ModelCall) -> str:
    first = next((rule.name for rule in section.rules if rule.name in leg.rules), "")
    return f"{first} came first"


def _effects(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield what a rule does: a key for what could clash, and words."""
    if rule.refusal is not None:
        yield "refusal", f"refuses with {rule.refusal.status}: {rule.refusal.message}"
    if rule.routes is not None:
        yield "targets", f"targets {_titles(rule.routes.targets)}"
    if rule.fallback is not None:
        yield "fallback", f"fallback {_titles(rule.fallback) or 'none'}"
    if rule.model is not None:
        yield "model", f"model {rule.model}"
    if rule.cache is not None:
        yield "cache", "cache" if rule.cache.by else "no cache"
    brought = [each.name for each in (*rule.guards.input, *rule.guards.output)]
    brought += [each.name for each in rule.guards.ceilings]
    lists = (
        ("set", rule.changes.set.items()),
        ("cap", rule.changes.cap.items()),
        ("limit", [(bound.limit.name, "") for bound in rule.bounds]),
        ("no limit", [(name, "") for name in sorted(rule.without)]),
        ("guard", [(name, "") for name in brought]),
        ("no guard", [(name, "") for name in sorted(rule.unguarded)]),
    )
    for does, named in lists:
        yield from ((f"{does} {name}", f"{does} {name} {value}".rstrip()) for name, value in named)


def _won(rule: Rule, plan: Plan, ruled: RuledModelCall) -> Iterator[str]:
    """Yield what a rule does, and for what it does not, whose word counted instead."""
    leg = ruled.model_call
    for effect, text in _effects(rule):
        kind, _, name = effect.partition(" ")
        winner = leg.by.get(effect)
        if (elsewhere := _elsewhere(rule, effect, ruled)) is not None:
            yield f"{text} ({elsewhere})"
        elif kind == "cap":
            caps = [changes.cap.get(name) for changes in (leg.changes, *leg.others.values())]
            yield text if rule.changes.cap[name] in caps else f"{text} (a lower one counts)"
        elif winner is None:
            yield f"{text} (no: {leg.by['targets']} picked the targets)"
        elif winner != rule.name:
            yield f"{text} (no: {winner} came first)"
        elif effect in _still_in_force(plan):
            yield f"{text} (it counts: another model of the list is not let off)"
        else:
            yield text


def _elsewhere(rule: Rule, effect: str, ruled: RuledModelCall) -> str | None:
    """Return why an effect of a rule is none for what is asked first; None where it is one."""
    effects_list = (ruled.where,) if effect.startswith(WHERE) else ruled.first
    if effect.startswith(EVERY) or any(rule.name in effects.rules for effects in effects_list):
        return None
    later = effect.startswith(CHANGES)
    return "for a target that is asked later" if later else "no: another model is asked first"


def _still_in_force(plan: Plan) -> set[str]:
    """Return the effects of ``without`` that a plan has not: what they name is in force in it."""
    guards = plan.guards
    names = [rule.name for rule in (*guards.input, *guards.output)]
    names += [ceiling.name for ceiling in guards.ceilings]
    counting = {f"no limit {bound.limit.name}" for bound in plan.bounds}
    return counting | {f"no guard {name}" for name in names}


def _outcome(plan: Plan) -> Reason:
    if plan.listing is not None:
        names = counted(len(plan.listing), "name")
        return Reason("decided", "the models of the key are listed", names)
    if plan.refusal is not None:
        text = f"refused with {plan.refusal.status} by {plan.refusal.rule}"
        return Reason("decided", text, plan.refusal.message)
    first = " and ".join(leg.targets[0].title for leg in plan.model_calls[:MAX_LISTED])
    if left := plan.model_calls[MAX_LISTED:]:
        first += f" and {len(left)} more"
    return Reason("decided", f"goes to {first}", "; ".join(plan.warnings) or None)
