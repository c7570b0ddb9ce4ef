"""Two revisions side by side: what one decides otherwise than the other, by kind and by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from proxy.errors import ProxyError
from proxy.policy import decide_for
from proxy.policy.snapshot import Key, Snapshot
from proxy.types import Call, Leg, Plan

Kind = Literal[
    "key", "refusal", "deployment", "tags", "targets", "parameters", "routing", "limits", "cache",
    "guards",
]  # fmt: skip
KINDS: tuple[Kind, ...] = (
    "key", "refusal", "deployment", "tags", "targets", "parameters", "routing", "limits", "cache",
    "guards",
)  # fmt: skip
Outcome = Plan | ProxyError


@dataclass(frozen=True, slots=True)
class Divergence:
    """One way in which two decisions differ. ``rule`` is the one behind it, as ``policy/rule``, or
    nothing where no rule is."""

    kind: Kind
    was: str
    now: str
    rule: str = ""


def decided(snapshot: Snapshot, key: Key, call: Call) -> Outcome:
    """Give the plan, or the refusal, as a value."""
    try:
        return decide_for(snapshot, key, call)
    except ProxyError as error:
        return error


def divergences(was: Outcome, now: Outcome) -> list[Divergence]:
    """Say in what two outcomes of one call differ; nothing when they do not."""
    if isinstance(was, ProxyError) or isinstance(now, ProxyError):
        said = _refused(was), _refused(now)
        return [] if said[0] == said[1] else [Divergence("refusal", *said, _refuser(was, now))]
    return list(_of_plans(was, now))


def _of_plans(was: Plan, now: Plan) -> Iterator[Divergence]:
    if _refused(was) != _refused(now):
        yield Divergence("refusal", _refused(was), _refused(now), _refuser(was, now))
    if was.deployment != now.deployment:
        yield Divergence("deployment", str(was.deployment), str(now.deployment))
    if was.tags != now.tags:
        yield Divergence("tags", _listed(was), _listed(now))
    rule = _rule(was, now)
    for kind, before, after in (
        ("targets", _each(was, _targets), _each(now, _targets)),
        ("parameters", _each(was, _changes), _each(now, _changes)),
        ("routing", _routing(was), _routing(now)),
        ("limits", _limits(was), _limits(now)),
        ("cache", _cache(was), _cache(now)),
        ("guards", _guards(was), _guards(now)),
    ):
        if before != after:
            yield Divergence(kind, before, after, rule)  # type: ignore[arg-type]  # of KINDS


def _refused(outcome: Outcome) -> str:
    if isinstance(outcome, ProxyError):
        return f"{outcome.status} {outcome.code}"
    return f"{outcome.refusal.status} by a rule" if outcome.refusal else "allowed"


def _refuser(was: Outcome, now: Outcome) -> str:
    """Name the rule that refuses now, else the one that did."""
    for outcome in (now, was):
        if isinstance(outcome, Plan) and outcome.refusal is not None:
            return outcome.refusal.rule
    return ""


def _rule(was: Plan, now: Plan) -> str:
    """Name the first rule that came, else the first that went; a rule may also have changed."""
    came = [rule for rule in now.rules if rule not in was.rules]
    went = [rule for rule in was.rules if rule not in now.rules]
    return next(iter([*came, *went]), "")


def _listed(plan: Plan) -> str:
    return ", ".join(f"{tag}={value}" for tag, value in plan.tags.items()) or "none"


def _each(plan: Plan, said: Callable[[Leg], str]) -> str:
    return " | ".join(said(leg) for leg in plan.legs)


def _targets(leg: Leg) -> str:
    return ", ".join(f"{t.upstream.name}/{t.model}" for t in leg.targets)


def _changes(leg: Leg) -> str:
    values = [f"{name} {value}" for name, value in sorted(leg.changes.set.items())]
    caps = [f"{name} at most {most}" for name, most in sorted(leg.changes.cap.items())]
    return ", ".join([*values, *caps]) or "unchanged"


def _limits(plan: Plan) -> str:
    said = (f"{each.limit.name} {each.limit.amount}" for each in plan.bounds)
    return ", ".join(said) or "none"


def _cache(plan: Plan) -> str:
    rule = plan.cache
    if rule is None:
        return "off"
    said = f"{rule.ttl:g} s in {rule.store}"
    if rule.semantic is None:
        return said
    how = "noted" if rule.semantic.shadow else "taken"
    return f"{said}, other wordings {how} from {rule.semantic.threshold:g}"


def _guards(plan: Plan) -> str:
    said = [
        f"{stage} {rule.name} {'shadow ' if rule.shadow else ''}{rule.action} {rule.digest[:6]}"
        for stage, rules in (("input", plan.guards.input), ("output", plan.guards.output))
        for rule in rules
    ]
    said += [f"input {each.name} {each.digest[:6]}" for each in plan.guards.ceilings]
    return ", ".join(said) or "none"


def _routing(plan: Plan) -> str:
    retries = f"{plan.retry.times} retries" if plan.retry else "no retry"
    hedge = f"hedge after {plan.hedge_after:g} s" if plan.hedge_after else "no hedge"
    return f"{retries}, {hedge}"
