"""Stores the last calls without their texts, and explains them on request.

``explain`` decides a call again, from the stored facts and under the revision that was active then,
so the explanation always matches the decision. The stored text of clients is bounded.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar

from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.errors import BlockedByUpstream, ProxyError, UpstreamRejected
from proxy.errors.words import MAX_NAME, MAX_WORDS, first_items
from proxy.fields.token_bounds import COUNT_TYPES
from proxy.money.usage import format_usd
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review import MAX_CALLS, MAX_UNAUTHORIZED
from proxy.policy.review.compare import compare_snapshots
from proxy.policy.review.decision import CallExplanation, Decision, DecisionState
from proxy.policy.review.explain import explain
from proxy.policy.schema.rules import CapConfig, SetConfig
from proxy.types import Call, RequestHead, StateRef
from proxy.types.guard import GuardResults
from proxy.types.limit import Claim, Limit, LimitDecision
from proxy.types.passthrough import make_sample_request

CallId = tuple[str, str | None]
"""A request id, and the name of the key that used it."""
MAX_CLIENT_VALUE_BYTES = 16 * 1024
"""Maximum size of the stored values of the client of one call."""
MAX_UNMEASURED_TEXTS = 8  # this many texts of MAX_NAME characters are smaller
STORED_PARAMETERS = frozenset(
    {*SetConfig.model_fields, *CapConfig.model_fields, *COUNT_TYPES, "user"}
)
STORED_OF_HEAD = (
    "dialect", "endpoint", "route", "request_id", "call_id", "deployment", "tags", "user",
    "bypass_cache", "received_at", "method",
)  # fmt: skip
STORED_OF_CALL = ("requested_models", "deployment", "stream", "background")
STORED_OF_ATTEMPT = (
    "target.id", "status", "error", "cause", "lost_hedge", "started", "ended", "reason",
    "system_text",
)  # fmt: skip
read_head, read_call = attrgetter(*STORED_OF_HEAD), attrgetter(*STORED_OF_CALL)
read_attempt = attrgetter(*STORED_OF_ATTEMPT)
read_skip, read_claim = attrgetter("target.id", "reason"), attrgetter("limit", "amount")

DECISION_STATES: Mapping[str, DecisionState] = {
    "blocked": "refused",
    "not_applicable": "not_applied",
}
"""States of the verdicts of guards that are not ``applied``."""


@dataclass(slots=True, init=False)
class StrippedCall:
    """A call that is decided like the original, without prompt and credentials.

    - ``head``, ``call``: values of the listed fields, so that no new field is stored by accident.
    - ``parameters``: short parameters that rules may change.
    - ``has_random_draw``: the deployment of ``state_ref`` was drawn among several.
    """

    head: tuple[Any, ...]
    call: tuple[Any, ...]
    parameters: dict[str, Any]
    headers: Mapping[str, str]
    state_ref: StateRef | None
    has_random_draw: bool

    def restore(self) -> Call:
        fields = dict(zip(STORED_OF_HEAD, self.head, strict=True))
        if self.state_ref is not None and self.has_random_draw:
            fields["deployment"] = self.state_ref.deployment
        if fields["endpoint"] == "passthrough":
            fields["passthrough"] = make_sample_request(fields["route"])
        head = RequestHead(**fields, headers=self.headers)
        fields = dict(zip(STORED_OF_CALL, self.call, strict=True))
        return Call(head, self.parameters, state_ref=self.state_ref, **fields)


@dataclass(slots=True, init=False)
class PastCall:
    """A call that has ended. Its texts are built only if it is explained.

    ``call`` is None if the call failed before its body was read, or if the call is ``too_large``.
    ``attempts``, ``skips`` and ``limits`` are values without targets, because a target would keep
    old credentials in memory. ``limits`` are limits and the amounts that the call reserved.
    """

    revision: str | None
    span_id: str
    key: str | None
    credential: str | None
    call: StrippedCall | None
    too_large: bool
    outcome: str
    status: int | None
    error: str | None
    cost: int | None
    attempts: Sequence[tuple[Any, ...]]
    skips: Sequence[tuple[str, str]]
    limits: Sequence[tuple[Limit, int]]
    readings: Sequence[int]
    guards: Sequence[Decision]


class CallHistory:
    """Sink that stores the last calls.

    ``find_snapshot`` returns the snapshot of a recent revision, ``candidate`` the candidate
    snapshot.
    """

    name: ClassVar[str] = "past"

    def __init__(
        self,
        find_snapshot: Callable[[str], Snapshot | None],
        candidate: Callable[[], Snapshot] | None = None,
    ) -> None:
        self._find_snapshot = find_snapshot
        self._candidate = candidate
        self._calls: OrderedDict[CallId, PastCall] = OrderedDict()
        self._unauthorized: OrderedDict[CallId, PastCall] = OrderedDict()

    def emit(self, record: Record) -> None:
        if record.head is None or not record.is_reported:
            return
        snapshot = self._find_snapshot(record.revision or "")
        headers = snapshot.headers if snapshot is not None else frozenset[str]()
        calls, max_calls = self._calls, MAX_CALLS
        if record.key is None:  # these calls must not push out those of a key
            calls, max_calls = self._unauthorized, MAX_UNAUTHORIZED
        call_id = record.head.request_id, record.key
        if call_id in calls:  # clients may reuse a request id
            del calls[call_id]
        calls[call_id] = _make_past_call(record, headers)
        if len(calls) > max_calls:
            calls.popitem(last=False)

    def list_callers(self, request_id: str) -> list[str]:
        """Return the names of the keys that used a request id, the last one first."""
        return [key for id_, key in reversed(self._calls) if id_ == request_id and key]

    def explain(self, request_id: str, caller: str | None = None) -> CallExplanation | None:
        """Explain the last call with a request id, of the key ``caller`` or of the last caller.

        Return None if the call is unknown or no longer stored.
        """
        callers = self.list_callers(request_id)
        key = caller if caller is not None or not callers else callers[0]
        past = self._find_past_call(request_id, key)
        return None if past is None else self._explain(past)

    def explain_span(
        self, request_id: str, key: str | None, span_id: str
    ) -> CallExplanation | None:
        """Explain the call with this span. Return None if it is no longer stored.

        Only the last call of a key with a request id is stored.
        """
        past = self._find_past_call(request_id, key)
        return self._explain(past) if past is not None and past.span_id == span_id else None

    def _find_past_call(self, request_id: str, key: str | None) -> PastCall | None:
        return (self._unauthorized if key is None else self._calls).get((request_id, key))

    def _explain(self, past: PastCall) -> CallExplanation:
        decisions = (*self._explain_past_call(past), _describe_outcome(past))
        return CallExplanation(past.revision or "none", decisions)

    def _explain_past_call(self, past: PastCall) -> Iterator[Decision]:
        snapshot = self._find_snapshot(past.revision or "")
        if snapshot is None:
            reason = "the policy revision is no longer in memory"
            yield Decision("result", "unknown", reason, state="not_applied")
            return
        if past.too_large:
            reason = "the request is too large to be kept"
            yield Decision("result", "unknown", reason, state="not_applied")
            return
        key = snapshot.find_key(past.key)
        if key is None or past.call is None:
            yield Decision("key", key.name if key else "unknown")
            return
        call = past.call.restore()
        yield from explain(snapshot, key, call).decisions
        if call.state_ref is not None:
            reason = "this target stores the state that the call uses"
            yield Decision("pinned to", call.state_ref.target, reason)
        if self._candidate is None:
            return
        candidate = self._candidate()
        differences = compare_snapshots(
            snapshot, candidate, call, key, credential=past.credential, is_admitted=True
        )
        parts = tuple(
            Decision(d.kind, d.text, f"by {d.rule}" if d.rule else None)
            for d in first_items(differences)
        )
        text = "different decision" if parts else "same decision"
        yield Decision("candidate", text, f"revision {candidate.revision}", parts=parts)


def _make_past_call(record: Record, headers: frozenset[str]) -> PastCall:
    summary = record.summary or summarize(record)
    call, decision = record.call, record.limit_decision
    past = PastCall()
    past.revision = record.revision
    past.span_id = summary.server_span
    past.key = record.key
    past.credential = record.credential
    past.call = strip_call(call, headers) if call is not None else None
    past.too_large = call is not None and past.call is None
    past.outcome = summary.outcome
    past.status = record.status
    past.error = _describe_without_upstream_text(record.error) if record.error is not None else None
    past.cost = summary.cost if record.attempts else None
    past.attempts = [*map(read_attempt, record.attempts[:MAX_WORDS])]
    past.skips = [*map(read_skip, record.skips[:MAX_WORDS])] if record.skips else ()
    past.limits = [*map(read_claim, decision.claims[:MAX_WORDS])] if decision is not None else ()
    past.readings = decision.readings if decision is not None else ()
    verdicts = summary.all_verdicts
    past.guards = first_items(_explain_unpassed(verdicts)) if verdicts else ()
    return past


def strip_call(call: Call, headers: frozenset[str]) -> StrippedCall | None:
    """Return what decides a call, with the given ``headers``. None if its text is too large."""
    head, body, state_ref, parameters = call.head, call.body, call.state_ref, {}
    for name in body:
        if name in STORED_PARAMETERS:
            value = body[name]
            is_text = isinstance(value, str) and len(value) <= MAX_NAME
            if is_text or type(value) in (int, float, bool):
                parameters[name] = value
    stripped = StrippedCall()
    stripped.head = read_head(head)
    stripped.call = read_call(call)
    stripped.parameters = parameters
    stripped.headers = {}
    if headers:
        stripped.headers = {name: head.headers[name] for name in headers if name in head.headers}
    stripped.state_ref = None if state_ref is None else replace(state_ref, id="")
    stripped.has_random_draw = state_ref is not None and state_ref.deployment in head.alternatives
    return None if _are_client_values_too_large(call, stripped) else stripped


def _are_client_values_too_large(call: Call, stripped: StrippedCall) -> bool:
    tags, headers, parameters = call.head.tags, stripped.headers, stripped.parameters
    models = call.requested_models
    if not (tags or headers) and len(models) + len(parameters) <= MAX_UNMEASURED_TEXTS:
        return False
    texts = [*models, call.deployment, call.head.deployment, call.head.user]
    for group in (parameters.values(), headers.values(), *tags):
        texts += group
    return sum(map(sys.getsizeof, texts)) > MAX_CLIENT_VALUE_BYTES


def _describe_without_upstream_text(error: ProxyError) -> str:
    """Return the message of an error. Omit an upstream's message: it may quote a prompt."""
    is_from_upstream = isinstance(error, UpstreamRejected | BlockedByUpstream)
    if error.upstream_message is None and not is_from_upstream:
        return error.message
    status = error.upstream_status
    return error.code if status is None else f"{error.code}, upstream status {status}"


def _explain_unpassed(verdicts: GuardResults) -> Iterator[Decision]:
    for stage, result in verdicts:
        if result.verdict != "passed":
            findings = first_items(result.findings.items())
            counts = ", ".join(f"{kind}: {count}" for kind, count in findings)
            shadow = " (shadow mode)" if result.shadow else ""
            text = f"{stage} {result.guard} {result.verdict}{shadow}"
            state = "shadow" if result.shadow else DECISION_STATES.get(result.verdict, "applied")
            yield Decision("guard", text, result.error or counts or None, state=state)


def _describe_outcome(past: PastCall) -> Decision:
    attempts = (*map(_describe_attempt, past.attempts), *map(_describe_skip, past.skips))
    parts = (*_describe_limits(past), *past.guards, *attempts)
    cost = None if past.cost is None else f"{format_usd(past.cost)} USD"
    reason = ", ".join(text for text in (past.error, cost) if text) or None
    text = f"{past.outcome}, status {past.status}"
    state: DecisionState = "applied" if past.outcome == "success" else "refused"
    return Decision("outcome", text, reason, parts=parts, state=state)


def _describe_limits(past: PastCall) -> Iterator[Decision]:
    claims = [Claim(limit, "", amount) for limit, amount in past.limits]
    decision = LimitDecision(True, claims, past.readings)
    states = list(
        zip(claims, decision.pair_limit_refusals(), decision.get_used_amounts(), strict=True)
    )
    is_rejected = any(refuses and not limit.shadow for _, (limit, refuses), _ in states)
    for claim, (limit, refuses), used in states:
        text, state = _describe_limit_result(limit, refuses=refuses, is_rejected=is_rejected)
        figure = limit.kind.format_number
        reason = f"this call reserved {figure(claim.amount)}; "
        reason += f"{figure(used)} of {figure(limit.capacity)} used"
        yield Decision("limit", f"{limit.name} {text}", reason, state=state)


def _describe_limit_result(
    limit: Limit, *, refuses: bool, is_rejected: bool
) -> tuple[str, DecisionState]:
    if refuses and limit.shadow:
        return "would reject (shadow mode)", "shadow"
    if refuses:
        return "rejected the call", "refused"
    return ("not exceeded", "not_applied") if is_rejected else ("admitted", "applied")


def _describe_attempt(attempt: tuple[Any, ...]) -> Decision:
    target, status, error, cause, lost_hedge, started, ended, why, system_text = attempt
    result = f"failed with {error}" if error else f"returned status {status}"
    cause_note = f" ({cause})" if cause else ""
    hedge_note = ", another attempt was faster" if lost_hedge else ""
    reason = f"{why}, {((ended or started) - started) * 1000:.0f} ms"
    reason += f", {system_text}" if system_text else ""
    text = f"{target} {result}{cause_note}{hedge_note}"
    return Decision("attempt", text, reason, state="refused" if error else "applied")


def _describe_skip(skip: tuple[str, str]) -> Decision:
    target, reason = skip
    return Decision("attempt", f"{target} skipped", reason, state="not_applied")
