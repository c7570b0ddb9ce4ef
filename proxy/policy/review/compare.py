"""Decides calls under two policy snapshots and lists the differences, by kind and by rule.

``CandidateSink`` compares each call of a running proxy with a candidate policy when the call ends.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from proxy.call.record import Record
from proxy.dialects.requests.upstream_request import apply_overrides
from proxy.errors import ProxyError, Unauthorized
from proxy.errors.words import format_count, shorten
from proxy.fields.token_bounds import OUTPUT_LIMIT_FIELDS
from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.files.source import Rejection
from proxy.policy.review import MAX_CALLS, MAX_UNAUTHORIZED
from proxy.policy.review.decision import CallExplanation, Decision
from proxy.policy.review.explain import describe_limit
from proxy.runtime.frozen import frozen
from proxy.types import Call, ModelCall, Plan, Target
from proxy.types.target import join_target_ids

Kind = Literal[
    "key", "refusal", "deployment", "tags", "targets", "parameters", "routing", "limits", "cache",
    "guards",
]  # fmt: skip
Change = tuple[Kind, str]
"""Kind and rule of a difference."""
DIFFERENCE_KINDS: tuple[Kind, ...] = get_args(Kind)
ComparisonResult = Literal["same", "differs"]
PlanOrError = Plan | ProxyError
RulesByEffect = Mapping[str, str]
MAX_EXAMPLE_CHARS = 500
MAX_EXAMPLES = 5
MAX_CHANGES = 1000


@frozen
class Difference:
    """A difference between two decisions. ``rule`` is its cause as ``policy/rule``, or empty."""

    kind: Kind
    before: str
    after: str
    rule: str = ""

    @property
    def text(self) -> str:
        return f"{self.before} -> {self.after}"


def decide_call(snapshot: Snapshot, key: VirtualKey, call: Call) -> PlanOrError:
    try:
        return decide(snapshot, key, call)
    except ProxyError as error:
        return error


def make_key_difference(
    key_name: str, old_reason: str | None, new_reason: str | None
) -> Difference:
    """Return the difference for a key. A reason is None if a snapshot accepts the key."""
    return Difference("key", old_reason or f"key {key_name}", new_reason or f"key {key_name}")


def compare_snapshots(
    old: Snapshot,
    new: Snapshot,
    call: Call,
    key: VirtualKey,
    *,
    credential: str | None = None,
    is_admitted: bool = False,
) -> list[Difference]:
    """Return the differences between the decisions of two snapshots on a call.

    If the call ``is_admitted``, ``old`` has accepted its key before, so the key is not checked.
    """
    received_at = call.head.received_at
    old_reason = None if is_admitted else old.find_rejection_reason(key.name, received_at)
    new_reason = new.find_rejection_reason(key.name, received_at, credential)
    if old_reason is not None or new_reason is not None:
        return [make_key_difference(key.name, old_reason, new_reason)]
    return compare_decisions(
        call, decide_call(old, key, call), decide_call(new, new.keys[key.name], call)
    )


def compare_decisions(
    call: Call, old_decision: PlanOrError, new_decision: PlanOrError
) -> list[Difference]:
    """Return the differences between two decisions on a call."""
    if isinstance(old_decision, Plan) and isinstance(new_decision, Plan):
        return list(_compare_plans(call, old_decision, new_decision))
    old, new = _describe_status(old_decision), _describe_status(new_decision)
    rule = _find_refusing_rule(old_decision, new_decision)
    return [] if old == new else [Difference(kind="refusal", before=old, after=new, rule=rule)]


@dataclass(slots=True)
class ChangeCount:
    """Number of calls with a change, and the last ones as request id and change."""

    calls: int = 0
    examples: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=MAX_EXAMPLES))


class ChangeTally:
    """Counts calls by the kind and the rule of their differences. The latest change is the last.

    Drops the oldest change if there are more than ``MAX_CHANGES``, and then ``is_truncated``.
    """

    def __init__(self) -> None:
        self.by_change: OrderedDict[Change, ChangeCount] = OrderedDict()
        self.is_truncated = False

    def count_changes(self, request_id: str, differences: Iterable[Difference]) -> list[Change]:
        """Count a call and return its changes, each once."""
        texts: dict[Change, dict[str, None]] = defaultdict(dict)
        for difference in differences:
            texts[difference.kind, difference.rule][difference.text] = None
        for change, unique_texts in texts.items():
            count = self.by_change.setdefault(change, ChangeCount())
            count.calls += 1
            count.examples.append((request_id, shorten("; ".join(unique_texts), MAX_EXAMPLE_CHARS)))
            self.by_change.move_to_end(change)
            if len(self.by_change) > MAX_CHANGES:
                self.by_change.popitem(last=False)
                self.is_truncated = True
        return list(texts)


def _compare_plans(call: Call, old_plan: Plan, new_plan: Plan) -> Iterator[Difference]:
    old_texts = dict(_describe_model_independent_parts(old_plan))
    new_texts = dict(_describe_model_independent_parts(new_plan))
    model_calls = zip(old_plan.model_calls, new_plan.model_calls, strict=True)
    differences = [d for pair in model_calls for d in _compare_model_calls(call, *pair)]
    for kind, name in sorted({*old_texts, *new_texts}):
        old, new = (texts.get((kind, name), "none") for texts in (old_texts, new_texts))
        if old == new:
            continue
        if kind == "refusal":
            rule = _find_refusing_rule(old_plan, new_plan)
        else:
            effect = f"{kind.removesuffix('s')} {name}" if name else kind
            rule = _find_causing_rule(
                old_plan.rule_by_effect, new_plan.rule_by_effect, effect, f"no {effect}"
            )
        differences.append(Difference(kind=kind, before=old, after=new, rule=rule))
    yield from sorted(differences, key=lambda difference: DIFFERENCE_KINDS.index(difference.kind))


def _describe_model_independent_parts(plan: Plan) -> Iterator[tuple[tuple[Kind, str], str]]:
    """Yield the parts of a plan that do not depend on a model: kind and name, and a text."""
    yield ("refusal", ""), _describe_status(plan)
    yield ("deployment", ""), str(plan.deployment)
    yield ("tags", ""), ", ".join(f"{tag}={value}" for tag, value in plan.tags.items()) or "none"
    retries = f"{plan.retry.times} retries" if plan.retry else "no retries"
    hedge = f"hedge after {plan.hedge_after:g} s" if plan.hedge_after else "no hedge"
    yield ("routing", ""), f"{retries}, {hedge}"
    for scoped in plan.limits:
        yield ("limits", scoped.name), describe_limit(scoped)
    cache = "off"
    if plan.cache is not None:
        cache = f"{plan.cache.ttl:g} s in {plan.cache.store}"
        cache += f", {plan.cache.semantic}" if plan.cache.semantic is not None else ""
    yield ("cache", ""), cache
    for stage, guard in plan.guards.by_stage:
        action = f"{'shadow ' if guard.shadow else ''}{guard.action}"
        yield ("guards", guard.name), f"{stage} {guard.name} {action} {guard.digest[:6]}"


def _compare_model_calls(
    call: Call, old_call: ModelCall, new_call: ModelCall
) -> Iterator[Difference]:
    old, new = join_target_ids(old_call.targets), join_target_ids(new_call.targets)
    if old != new:
        effects = {*old_call.rule_by_effect, *new_call.rule_by_effect}
        left_out = sorted(effect for effect in effects if effect.startswith("left out "))
        effects_on_targets = "targets", "model", "fallback", *left_out
        rule = _find_causing_rule(
            old_call.rule_by_effect, new_call.rule_by_effect, *effects_on_targets
        )
        yield Difference(kind="targets", before=old, after=new, rule=rule)
    pairs = [(old_call.targets[0], new_call.targets[0])]
    if old_call.target_overrides or new_call.target_overrides:
        by_id = {target.id: target for target in old_call.targets}
        pairs += [(by_id[t.id], t) for t in new_call.targets if t.id in by_id]
    changes = (d for pair in pairs for d in _compare_parameters(call, old_call, new_call, *pair))
    yield from dict.fromkeys(changes)


def _compare_parameters(
    call: Call, old_call: ModelCall, new_call: ModelCall, old_target: Target, new_target: Target
) -> Iterator[Difference]:
    """Yield the parameters, in OpenAI's format, that two targets would get with other values."""
    old = apply_overrides(call, old_target, old_call.get_overrides(old_target))
    new = apply_overrides(call, new_target, new_call.get_overrides(new_target))
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            names = OUTPUT_LIMIT_FIELDS if name in OUTPUT_LIMIT_FIELDS else (name,)
            effects = [f"{effect} {alias}" for effect in ("cap", "set") for alias in names]
            yield Difference(
                kind="parameters",
                before=_describe_parameter(name, old, old_call),
                after=_describe_parameter(name, new, new_call),
                rule=_find_causing_rule(old_call.rule_by_effect, new_call.rule_by_effect, *effects),
            )


def _describe_parameter(name: str, body: Mapping[str, Any], model_call: ModelCall) -> str:
    """Return a parameter with its value. Text of a client is never shown."""
    value = body.get(name)
    if value is None:
        return f"no {name}"
    changes = (model_call.overrides, *model_call.target_overrides.values())
    is_set_by_rule = any(name in overrides.set for overrides in changes)
    is_shown = is_set_by_rule or isinstance(value, (bool, int, float))
    return f"{name} {value}" if is_shown else f"{name} as requested"


def _find_causing_rule(old_rules: RulesByEffect, new_rules: RulesByEffect, *effects: str) -> str:
    """Return the rule behind the first effect that changed, otherwise the first new rule."""
    for effect in effects:
        if new_rules.get(effect) != old_rules.get(effect):
            return new_rules.get(effect) or old_rules[effect]
    return next((new_rules[effect] for effect in effects if effect in new_rules), "")


def _describe_status(decision: PlanOrError) -> str:
    if isinstance(decision, ProxyError):
        return f"{decision.status} {decision.code}"
    return f"{decision.refusal.status} by rule" if decision.refusal else "allowed"


def _find_refusing_rule(old_decision: PlanOrError, new_decision: PlanOrError) -> str:
    """Return the rule that refuses the call, of the new policies if one does, else of the old."""
    refusals = (plan.refusal for plan in (new_decision, old_decision) if isinstance(plan, Plan))
    return next((refusal.rule for refusal in refusals if refusal is not None), "")


class CandidateSink:
    """Sink that decides each call under a candidate snapshot too, and counts the differences.

    ``count`` gets the kind and the rule of each change of a call, or ``same`` and an empty rule.
    ``get_rejection`` returns the last reload of the candidate, if it was rejected.
    """

    name: ClassVar[str] = "candidate"

    def __init__(
        self,
        get_snapshot: Callable[[], Snapshot],
        count: Callable[[str, str], None],
        get_rejection: Callable[[], Rejection | None] = lambda: None,
    ) -> None:
        self.get_snapshot = get_snapshot
        self.get_rejection = get_rejection
        self._count = count
        self._tally = ChangeTally()
        self._results: OrderedDict[str, ComparisonResult] = OrderedDict()

    def find_result(self, span_id: str) -> ComparisonResult | None:
        """Return the result for the call with this span, None if it is not stored."""
        return self._results.get(span_id)

    def emit(self, record: Record) -> None:
        differences = self._compare(record)
        if differences is None or record.head is None:
            return
        self._results[record.ids.server_span] = "differs" if differences else "same"
        if len(self._results) > MAX_CALLS + MAX_UNAUTHORIZED:
            self._results.popitem(last=False)
        for kind, rule in self._tally.count_changes(record.head.request_id, differences):
            self._count(kind, rule)
        if not differences:
            self._count("same", "")

    def _compare(self, record: Record) -> list[Difference] | None:
        """Return the differences for a call, or None if no policy decided it."""
        head, call, snapshot = record.head, record.call, self.get_snapshot()
        if head is None or head.internal_key is not None:  # the candidate has no internal keys
            return None
        try:
            key = snapshot.identify(head).key
        except Unauthorized:
            key = None
        if call is None:
            if key is None or not isinstance(record.error, Unauthorized):
                return None
            return [make_key_difference(key.name, "unknown", None)]
        decision = record.original_plan or record.plan or record.error
        if decision is None:
            return None
        if key is None:
            name = str(record.key)
            reason = snapshot.find_rejection_reason(name, head.received_at, record.credential)
            return [make_key_difference(name, None, reason or "unknown")]
        return compare_decisions(call, decision, decide_call(snapshot, key, call))

    def explain_latest_changes(self) -> CallExplanation:
        """Return the changes that affected calls, the latest first, each with its last calls."""
        decisions = [
            Decision(
                kind,
                f"differs for {format_count(count.calls, 'call')}",
                f"because of rule {rule}" if rule else None,
                parts=tuple(
                    Decision("call", request_id, text)
                    for request_id, text in reversed(count.examples)
                ),
            )
            for (kind, rule), count in reversed(self._tally.by_change.items())
        ]
        return CallExplanation(self.get_snapshot().revision, tuple(decisions))
