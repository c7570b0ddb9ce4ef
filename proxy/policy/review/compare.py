"""Two revisions side by side: what one would send or do otherwise than the other, by kind and by
the rule that makes the difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

from proxy.dialects.bounds import BOUNDS
from proxy.dialects.upstream_request import parameters
from proxy.errors import ProxyError
from proxy.frozen import frozen
from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.review.explain import bound_text
from proxy.types import Call, ModelCall, Plan, Target
from proxy.types.target import titles

Kind = Literal[
    "key", "refusal", "deployment", "tags", "targets", "parameters", "routing", "limits", "cache",
    "guards",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
Outcome = Plan | ProxyError
Origins = Mapping[str, str]
Way = tuple[str, str]
"""A kind and a rule."""


@frozen
class Divergence:
    """One way in which two decisions differ. ``rule`` is the one behind it, as ``policy/rule``, or
    nothing where no rule is."""

    kind: Kind
    was: str
    now: str
    rule: str = ""


def decided(snapshot: Snapshot, key: VirtualKey, call: Call) -> Outcome:
    """Return the plan, or the refusal, as a value."""
    try:
        return decide(snapshot, key, call)
    except ProxyError as error:
        return error


def other_key(name: str, was: str | None, now: str | None) -> Divergence:
    """Return that one side refuses a key that the other lets in; each says why it refuses it."""
    return Divergence("key", was or f"key {name}", now or f"key {name}")


def divergences(call: Call, was: Outcome, now: Outcome) -> list[Divergence]:
    """Return in what two outcomes of one call differ; nothing where they do the same with it."""
    if isinstance(was, ProxyError) or isinstance(now, ProxyError):
        before, after = _refused(was), _refused(now)
        if before == after:
            return []
        rule = _refuser(was, now)
        return [Divergence(kind="refusal", was=before, now=after, rule=rule)]
    return list(_of_plans(call, was, now))


def by_way(found: Iterable[Divergence]) -> dict[Way, str]:
    """Return what changes in each way, so that a call counts once in it, however many models it
    asks."""
    ways: dict[Way, dict[str, None]] = {}
    for each in found:
        ways.setdefault((each.kind, each.rule), {})[f"{each.was} -> {each.now}"] = None
    return {way: "; ".join(changes) for way, changes in ways.items()}


def _of_plans(call: Call, was: Plan, now: Plan) -> Iterator[Divergence]:
    if _refused(was) != _refused(now):
        yield Divergence(
            kind="refusal", was=_refused(was), now=_refused(now), rule=_refuser(was, now)
        )
    if was.deployment != now.deployment:
        yield Divergence("deployment", str(was.deployment), str(now.deployment))
    if was.tags != now.tags:
        yield Divergence("tags", _tags(was), _tags(now))
    for before, after in zip(was.model_calls, now.model_calls, strict=True):
        yield from _of_legs(call, before, after)
    if _routing(was) != _routing(now):
        yield Divergence("routing", _routing(was), _routing(now))
    yield from _parts("limits", "limit", (_limits(was), was.by), (_limits(now), now.by))
    if _cache(was) != _cache(now):
        yield Divergence(
            kind="cache", was=_cache(was), now=_cache(now), rule=_behind(was.by, now.by, "cache")
        )
    yield from _parts("guards", "guard", (_guards(was), was.by), (_guards(now), now.by))


def _of_legs(call: Call, was: ModelCall, now: ModelCall) -> Iterator[Divergence]:
    """Yield where one model of a call would go otherwise, or with other parameters."""
    if titles(was.targets) != titles(now.targets):
        away = sorted(each for each in {*was.by, *now.by} if each.startswith("left out "))
        rule = _behind(was.by, now.by, "targets", "model", "fallback", *away)
        yield Divergence(
            kind="targets", was=titles(was.targets), now=titles(now.targets), rule=rule
        )
    found = [each for one, other in _pairs(was, now) for each in _sent(call, was, one, now, other)]
    yield from dict.fromkeys(found)


def _pairs(was: ModelCall, now: ModelCall) -> Iterator[tuple[Target, Target]]:
    """Yield the targets whose requests are compared: the first ones, and those of later ones that
    both have, where rules change them otherwise than the first."""
    yield was.targets[0], now.targets[0]
    if was.others or now.others:
        before = {target.title: target for target in was.targets}
        yield from ((before[each.title], each) for each in now.targets if each.title in before)


def _sent(
    call: Call, was: ModelCall, one: Target, now: ModelCall, other: Target
) -> Iterator[Divergence]:
    """Yield where two targets would get other parameters, in OpenAI's form."""
    before, after = (
        parameters(call, target, model_call.changes_for(target))
        for model_call, target in ((was, one), (now, other))
    )
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            rule = _behind(was.by, now.by, *_changers(name))
            yield Divergence(
                kind="parameters",
                was=_parameter(name, before, was),
                now=_parameter(name, after, now),
                rule=rule,
            )


def _changers(name: str) -> tuple[str, ...]:
    """Return the effects of rules that may change a parameter, under any of its names."""
    names = BOUNDS if name in BOUNDS else (name,)
    return tuple(f"{does} {each}" for does in ("cap", "set") for each in names)


def _parts(
    kind: Kind,
    effect: str,
    was: tuple[dict[str, str], Origins],
    now: tuple[dict[str, str], Origins],
) -> Iterator[Divergence]:
    """Yield the named parts of two plans that are not the same in both."""
    before, after = was[0], now[0]
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            rule = _behind(was[1], now[1], f"{effect} {name}", f"no {effect} {name}")
            yield Divergence(
                kind=kind, was=before.get(name, "none"), now=after.get(name, "none"), rule=rule
            )


def _behind(was: Origins, now: Origins, *effects: str) -> str:
    """Return the rule that makes a difference: one that is behind an effect in one of the two
    alone, else the one behind it now."""
    for effect in effects:
        if now.get(effect) != was.get(effect):
            return now.get(effect) or was[effect]
    return next((now[effect] for effect in effects if effect in now), "")


def _refused(outcome: Outcome) -> str:
    if isinstance(outcome, ProxyError):
        return f"{outcome.status} {outcome.code}"
    return f"{outcome.refusal.status} by rule" if outcome.refusal else "allowed"


def _refuser(was: Outcome, now: Outcome) -> str:
    """Return the rule that refuses now, else the one that did."""
    for outcome in (now, was):
        if isinstance(outcome, Plan) and outcome.refusal is not None:
            return outcome.refusal.rule
    return ""


def _tags(plan: Plan) -> str:
    return ", ".join(f"{tag}={value}" for tag, value in plan.tags.items()) or "none"


def _parameter(name: str, body: Mapping[str, Any], model_call: ModelCall) -> str:
    """Return a parameter in words. A text is shown only where a rule has set it: one of a client
    is nobody else's business."""
    value = body.get(name)
    if value is None:
        return f"no {name}"
    sets = (changes.set for changes in (model_call.changes, *model_call.others.values()))
    ours = isinstance(value, (bool, int, float)) or any(name in each for each in sets)
    return f"{name} {value}" if ours else f"{name} as requested"


def _limits(plan: Plan) -> dict[str, str]:
    return {bound.limit.name: bound_text(bound) for bound in plan.bounds}


def _cache(plan: Plan) -> str:
    rule = plan.cache
    if rule is None:
        return "off"
    text = f"{rule.ttl:g} s in {rule.store}"
    if rule.semantic is None:
        return text
    return f"{text}, {rule.semantic}"


def _guards(plan: Plan) -> dict[str, str]:
    stages = (("input", plan.guards.input), ("output", plan.guards.output))
    texts = {
        f"{rule.name}": f"{stage} {rule.name} {'shadow ' if rule.shadow else ''}{rule.action} "
        f"{rule.digest[:6]}"
        for stage, rules in stages
        for rule in rules
    }
    texts |= {each.name: f"input {each.name} {each.digest[:6]}" for each in plan.guards.ceilings}
    return texts


def _routing(plan: Plan) -> str:
    retries = f"{plan.retry.times} retries" if plan.retry else "no retries"
    hedge = f"hedge after {plan.hedge_after:g} s" if plan.hedge_after else "no hedge"
    return f"{retries}, {hedge}"
