"""Decides calls under two policy snapshots and lists the differences, by kind and by rule."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from proxy.dialects.bounds import BOUNDS
from proxy.dialects.upstream_request import parameters
from proxy.errors import ProxyError
from proxy.errors.words import word
from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.review.explain import limit_text
from proxy.runtime.frozen import frozen
from proxy.types import Call, ModelCall, Plan, Target
from proxy.types.target import titles

Kind = Literal[
    "key", "refusal", "deployment", "tags", "targets", "parameters", "routing", "limits", "cache",
    "guards",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
Decision = Plan | ProxyError
RulesByEffect = Mapping[str, str]
MAX_EXAMPLE_CHARS = 500


@frozen
class Difference:
    """A difference between two decisions. ``rule`` is its cause, as ``policy/rule``, or empty."""

    kind: Kind
    before: str
    after: str
    rule: str = ""

    @property
    def text(self) -> str:
        return f"{self.before} -> {self.after}"


def decide_call(snapshot: Snapshot, key: VirtualKey, call: Call) -> Decision:
    """Return the plan of a call, or the error that rejects it."""
    try:
        return decide(snapshot, key, call)
    except ProxyError as error:
        return error


def key_difference(name: str, before: str | None, after: str | None) -> Difference:
    """Return the difference for a key that one snapshot rejects, for the given reason."""
    return Difference("key", before or f"key {name}", after or f"key {name}")


def compare_snapshots(
    old: Snapshot,
    new: Snapshot,
    call: Call,
    key: VirtualKey,
    *,
    credential: str | None = None,
    is_admitted: bool = False,
) -> list[Difference]:
    """Decide a call under two snapshots. ``old`` accepts the key of a call that ``is_admitted``."""
    received_at = call.head.received_at
    before = None if is_admitted else old.lapse_of(key.name, received_at)
    after = new.lapse_of(key.name, received_at, credential)
    if before is not None or after is not None:
        return [key_difference(key.name, before, after)]
    return compare(call, decide_call(old, key, call), decide_call(new, new.keys[key.name], call))


def compare(call: Call, before: Decision, after: Decision) -> list[Difference]:
    """Return the differences between two decisions on a call."""
    if isinstance(before, Plan) and isinstance(after, Plan):
        return list(_compare_plans(call, before, after))
    old, new = _status(before), _status(after)
    rule = _refusing_rule(before, after)
    return [] if old == new else [Difference(kind="refusal", before=old, after=new, rule=rule)]


@dataclass(slots=True)
class ChangeCount:
    """Number of calls with a change, and examples: the request id and the change of a call."""

    calls: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)


class ChangeTally:
    """Counts calls by the kind and the rule of their differences.

    Keeps the first ``max_examples`` calls of each change, or with ``keep_newest`` the last ones.
    Drops the oldest change if there are more than ``max_changes``.
    """

    def __init__(
        self, max_examples: int, *, max_changes: int = 100_000, keep_newest: bool = False
    ) -> None:
        self.by_change: OrderedDict[tuple[Kind, str], ChangeCount] = OrderedDict()
        self._max_examples = max_examples
        self._max_changes = max_changes
        self._keep_newest = keep_newest

    def add(self, request_id: str, differences: Iterable[Difference]) -> list[tuple[Kind, str]]:
        """Count a call and return its changes, each once."""
        texts: dict[tuple[Kind, str], dict[str, None]] = {}
        for difference in differences:
            texts.setdefault((difference.kind, difference.rule), {})[difference.text] = None
        for change, unique_texts in texts.items():
            count = self.by_change.setdefault(change, ChangeCount())
            count.calls += 1
            if self._keep_newest:
                self.by_change.move_to_end(change)
            if self._keep_newest or len(count.examples) < self._max_examples:
                text = word("; ".join(unique_texts), MAX_EXAMPLE_CHARS)
                count.examples.append((request_id, text))
                del count.examples[: -self._max_examples]
            if len(self.by_change) > self._max_changes:
                self.by_change.popitem(last=False)
        return list(texts)


def _compare_plans(call: Call, before: Plan, after: Plan) -> Iterator[Difference]:
    old_texts, new_texts = dict(_plan_texts(before)), dict(_plan_texts(after))
    model_calls = zip(before.model_calls, after.model_calls, strict=True)
    differences = [each for pair in model_calls for each in _compare_model_calls(call, *pair)]
    for kind, name in sorted({*old_texts, *new_texts}):
        old, new = (texts.get((kind, name), "none") for texts in (old_texts, new_texts))
        if old == new:
            continue
        if kind == "refusal":
            rule = _refusing_rule(before, after)
        else:
            effect = f"{kind.removesuffix('s')} {name}" if name else kind
            rule = _cause(before.rule_by_effect, after.rule_by_effect, effect, f"no {effect}")
        differences.append(Difference(kind=kind, before=old, after=new, rule=rule))
    yield from sorted(differences, key=lambda each: KINDS.index(each.kind))


def _plan_texts(plan: Plan) -> Iterator[tuple[tuple[Kind, str], str]]:
    """Yield the parts of a plan that do not depend on a model: kind and name, and a text."""
    yield ("refusal", ""), _status(plan)
    yield ("deployment", ""), str(plan.deployment)
    yield ("tags", ""), ", ".join(f"{tag}={value}" for tag, value in plan.tags.items()) or "none"
    retries = f"{plan.retry.times} retries" if plan.retry else "no retries"
    hedge = f"hedge after {plan.hedge_after:g} s" if plan.hedge_after else "no hedge"
    yield ("routing", ""), f"{retries}, {hedge}"
    for scoped in plan.limits:
        yield ("limits", scoped.limit.name), limit_text(scoped)
    cache = "off"
    if plan.cache is not None:
        cache = f"{plan.cache.ttl:g} s in {plan.cache.store}"
        cache += f", {plan.cache.semantic}" if plan.cache.semantic is not None else ""
    yield ("cache", ""), cache
    for stage, rules in (("input", plan.guards.input), ("output", plan.guards.output)):
        for rule in rules:
            action = f"{'shadow ' if rule.shadow else ''}{rule.action}"
            yield ("guards", rule.name), f"{stage} {rule.name} {action} {rule.digest[:6]}"
    for cap in plan.guards.cost_caps:
        yield ("guards", cap.name), f"input {cap.name} {cap.digest[:6]}"


def _compare_model_calls(call: Call, before: ModelCall, after: ModelCall) -> Iterator[Difference]:
    """Yield the differences in the targets of a model, and in their parameters."""
    if titles(before.targets) != titles(after.targets):
        left_out = sorted(
            each
            for each in {*before.rule_by_effect, *after.rule_by_effect}
            if each.startswith("left out ")
        )
        rule = _cause(
            before.rule_by_effect, after.rule_by_effect, "targets", "model", "fallback", *left_out
        )
        old, new = titles(before.targets), titles(after.targets)
        yield Difference(kind="targets", before=old, after=new, rule=rule)
    pairs = [(before.targets[0], after.targets[0])]
    if (
        before.target_overrides or after.target_overrides
    ):  # rules change later targets in another way than the first
        by_title = {target.id: target for target in before.targets}
        pairs += [(by_title[each.id], each) for each in after.targets if each.id in by_title]
    found = (each for pair in pairs for each in _compare_parameters(call, before, after, *pair))
    yield from dict.fromkeys(found)


def _compare_parameters(
    call: Call, before: ModelCall, after: ModelCall, old_target: Target, new_target: Target
) -> Iterator[Difference]:
    """Yield the parameters, in OpenAI's form, that two targets would get with other values."""
    old = parameters(call, old_target, before.overrides_for(old_target))
    new = parameters(call, new_target, after.overrides_for(new_target))
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            names = BOUNDS if name in BOUNDS else (name,)
            effects = [f"{effect} {alias}" for effect in ("cap", "set") for alias in names]
            yield Difference(
                kind="parameters",
                before=_parameter(name, old, before),
                after=_parameter(name, new, after),
                rule=_cause(before.rule_by_effect, after.rule_by_effect, *effects),
            )


def _parameter(name: str, body: Mapping[str, Any], model_call: ModelCall) -> str:
    """Return a parameter with its value. The text of a client is never shown."""
    value = body.get(name)
    if value is None:
        return f"no {name}"
    changes = (model_call.overrides, *model_call.target_overrides.values())
    is_set_by_rule = any(name in each.set for each in changes)
    is_shown = is_set_by_rule or isinstance(value, (bool, int, float))
    return f"{name} {value}" if is_shown else f"{name} as requested"


def _cause(before: RulesByEffect, after: RulesByEffect, *effects: str) -> str:
    """Return the rule behind the first effect that changed, otherwise the rule in ``after``."""
    for effect in effects:
        if after.get(effect) != before.get(effect):
            return after.get(effect) or before[effect]
    return next((after[effect] for effect in effects if effect in after), "")


def _status(decision: Decision) -> str:
    if isinstance(decision, ProxyError):
        return f"{decision.status} {decision.code}"
    return f"{decision.refusal.status} by rule" if decision.refusal else "allowed"


def _refusing_rule(before: Decision, after: Decision) -> str:
    """Return the rule that refuses the call in ``after``, otherwise in ``before``."""
    refusals = (each.refusal for each in (after, before) if isinstance(each, Plan))
    return next((refusal.rule for refusal in refusals if refusal is not None), "")
