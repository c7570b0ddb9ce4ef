"""The last calls, kept without their texts so that they can still be explained.

A call is kept as the facts that it was decided by, and explained when somebody asks, by deciding it
again under the revision that was in force then. So keeping one costs next to nothing, and what is
explained cannot differ from what was decided. Each fact that is kept is named here, and all of a
call are of a bounded size: what a stranger wrote is nowhere else to be found after it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from proxy import summary
from proxy.attempts import Attempt
from proxy.dialects.bounds import NUMBERS
from proxy.errors import ProxyError, UpstreamDenied, UpstreamRefused
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.review.compare import decided, divergences, other_key
from proxy.policy.review.explain import explain
from proxy.policy.review.explanation import CallExplanation, Reason
from proxy.policy.schema.rules import Cap, Set
from proxy.record import Record
from proxy.types import Call, Endpoint, Json, Pin, RequestHead
from proxy.types.guard import Verdicts
from proxy.types.limit import Claim, Limit
from proxy.types.outcome import READING, WAIT, Outcome
from proxy.usage import usd_text
from proxy.words import MAX_NAME, MAX_WORDS, few

if TYPE_CHECKING:
    from proxy.types.passthrough import PassedRequest

Name = tuple[str, str | None]  # the request id, and the name of the key that has used it
ClaimedLimit = tuple[Limit, int]
"""A limit, and what the call claimed of it."""
CountedLimit = tuple[Limit, int, int, bool]
"""A limit: what the call claimed of it, what of it was used then, and whether it refused."""
MAX_CALLS = 1000
MAX_STRANGERS = 20
MAX_BYTES = 16 * 1024  # of all that a client wrote of one call and that is kept
FEW = 8  # words of MAX_NAME characters, beside three names, take less in whatever alphabet
NUMERIC = frozenset({bool, int, float})
PARAMETERS = frozenset({*Set.model_fields, *Cap.model_fields, *NUMBERS, "user"})


class Tried(NamedTuple):
    """An attempt: where by its title, as its target would keep an old revision's credentials; why,
    how it ended, and how long it took."""

    target: str
    why: str
    status: int | None
    error: str | None
    cause: str | None
    system_text: str | None
    seconds: float
    lost: bool


class Skipped(NamedTuple):
    """A target that was not asked, by its title, and why."""

    target: str
    reason: str


class GuardFound(NamedTuple):
    """A guard of a call that did not just pass: its verdict, and what it found or why it failed."""

    name: str
    verdict: str
    detail: str | None


@dataclass(slots=True, init=False)
class AskedFacts:
    """A call as the facts that policy decides by: no prompt, no credential, no header but those
    that a rule looks at. Of one that is passed on there is the ``method``, and of its path the
    route alone. Of its ``pin`` there is not what the provider calls it."""

    dialect: str
    endpoint: Endpoint
    route: str
    request_id: str
    nonce: str
    head_deployment: str | None
    tags: tuple[tuple[str, str | None], ...]
    user: str | None
    refresh: bool
    headers: Mapping[str, str]
    at: datetime
    parameters: Json
    models: tuple[str, ...]
    deployment: str | None
    stream: bool
    method: str
    pin: Pin | None
    background: bool

    def call(self) -> Call:
        """Return them as a call that can be decided again."""
        head = RequestHead(
            dialect=self.dialect,
            endpoint=self.endpoint,
            route=self.route,
            request_id=self.request_id,
            nonce=self.nonce,
            deployment=self.head_deployment,
            tags=self.tags,
            user=self.user,
            refresh=self.refresh,
            headers=self.headers,
            at=self.at,
            method=self.method,
            passed=self._passed() if self.endpoint == "passthrough" else None,
        )
        return Call(
            head=head,
            body=self.parameters,
            models=self.models,
            deployment=self.deployment,
            stream=self.stream,
            pin=self.pin,
            background=self.background,
        )

    def _passed(self) -> PassedRequest:
        from proxy.types.passthrough import sample_request  # noqa: PLC0415  # few calls are such

        return sample_request(self.route)


@dataclass(slots=True, init=False)
class PastCall:
    """What is left of a call: ``asked`` is None where it was refused before its body was read, and
    where its facts are more than are kept, of which ``too_large`` tells."""

    revision: str | None
    key: str | None
    credential: str | None
    asked: AskedFacts | None
    too_large: bool
    outcome: str
    status: int | None
    error: str | None
    cost: int | None
    attempts: Sequence[Tried]
    skips: Sequence[Skipped]
    limits: Sequence[ClaimedLimit]
    readings: Sequence[int]
    guards: Sequence[GuardFound]


class CallHistory:
    """The sink that keeps calls. ``find`` gives the snapshot of a revision that is not too old,
    ``candidate`` that of a candidate, where there is one."""

    name: ClassVar[str] = "past"

    def __init__(
        self,
        find: Callable[[str], Snapshot | None],
        candidate: Callable[[], Snapshot] | None = None,
    ) -> None:
        self._find = find
        self._candidate = candidate
        self._calls: OrderedDict[Name, PastCall] = OrderedDict()
        self._strangers: OrderedDict[Name, PastCall] = OrderedDict()

    def end(self, record: Record) -> None:
        if record.head is None or not record.reported:
            return
        snapshot = self._find(record.revision or "")
        headers = snapshot.headers if snapshot is not None else frozenset[str]()
        calls, most = self._calls, MAX_CALLS
        if record.key is None:  # who is nobody pushes out nobody but others of the kind
            calls, most = self._strangers, MAX_STRANGERS
        name = record.head.request_id, record.key  # whose id another key uses keeps its own
        if name in calls:  # a client may use an id again
            del calls[name]
        calls[name] = _kept(record, headers)
        if len(calls) > most:
            calls.popitem(last=False)

    def callers(self, request_id: str) -> list[str]:
        """Return the names of the keys by which calls of this id were made, the last one first."""
        return [key for known, key in reversed(self._calls) if known == request_id and key]

    def explain(self, request_id: str, caller: str | None = None) -> CallExplanation | None:
        """Explain a call by its request id and the name of its key, without one the last caller's.
        Of several calls of one key with the same id it is the last. None when it is not known, or
        no longer."""
        callers = self.callers(request_id)
        by = caller if caller is not None or not callers else callers[0]
        calls = self._strangers if by is None else self._calls
        kept = calls.get((request_id, by))
        if kept is None:
            return None
        snapshot = self._find(kept.revision or "")
        key = snapshot.key_named(kept.key) if snapshot else None
        if snapshot is None:
            unknown = Reason("result", "unknown", "the policy revision is no longer in memory")
            explanation = CallExplanation(kept.revision or "none", (unknown,))
        elif kept.too_large:
            unknown = Reason("result", "unknown", "the request is too large to be kept")
            explanation = CallExplanation(snapshot.revision, (unknown,))
        elif key is None or kept.asked is None:
            name = str(kept.key) if key else "unknown"
            explanation = CallExplanation(snapshot.revision, (Reason("key", name),))
        else:
            call = kept.asked.call()
            explanation = explain(snapshot, key, call)
            others = (*_pinned(kept.asked), *self._otherwise(snapshot, key, kept, call))
            explanation = replace(explanation, reasons=(*explanation.reasons, *others))
        return replace(explanation, reasons=(*explanation.reasons, _happened(kept)))

    def _otherwise(
        self, snapshot: Snapshot, key: VirtualKey, kept: PastCall, call: Call
    ) -> Iterator[Reason]:
        """Yield what the candidate decides otherwise."""
        if self._candidate is None:
            return
        candidate = self._candidate()
        lapse = candidate.lapse_of(key.name, call.head.at, kept.credential)
        if lapse is not None:
            found = [other_key(key.name, None, lapse)]
        else:
            other = candidate.keys[key.name]
            found = divergences(call, decided(snapshot, key, call), decided(candidate, other, call))
        parts = tuple(
            Reason(each.kind, f"{each.was} -> {each.now}", f"by {each.rule}" if each.rule else None)
            for each in few(found)
        )
        text = "different decision" if parts else "same decision"
        yield Reason("candidate", text, f"revision {candidate.revision}", parts=parts)


def _pinned(asked: AskedFacts) -> Iterator[Reason]:
    """Yield why none of the other targets is asked of a call that leans on what one keeps."""
    if asked.pin is not None:
        yield Reason(
            "pinned to", asked.pin.target, "this target stores the state that the call uses"
        )


def _error_text(error: ProxyError) -> str:
    """Return the message of an error, but not an upstream's, which may quote the prompt."""
    if error.upstream_message is not None or isinstance(error, UpstreamRefused | UpstreamDenied):
        status = (
            "" if error.upstream_status is None else f", upstream status {error.upstream_status}"
        )
        return f"{error.code}{status}"
    return error.message


def _kept(record: Record, headers: frozenset[str]) -> PastCall:
    facts, call, attempts = record.facts or summary.facts_of(record), record.call, record.attempts
    claims = record.admission.claims[:MAX_WORDS] if record.admission is not None else ()
    asked = None if call is None else facts_of(call, headers)
    too_large = asked is not None and _may_be_large(asked) and _size(asked) > MAX_BYTES
    kept = PastCall()
    kept.revision = record.revision
    kept.key = record.key
    kept.credential = record.credential
    kept.asked = None if too_large else asked
    kept.too_large = too_large
    kept.outcome = facts.outcome
    kept.status = record.status
    kept.error = _error_text(record.error) if record.error is not None else None
    kept.cost = facts.cost if attempts else None
    kept.attempts = [_tried(each) for each in attempts[:MAX_WORDS]] if attempts else ()
    kept.skips = [Skipped(each.target.title, each.reason) for each in record.skips[:MAX_WORDS]]
    kept.limits = [(claim.limit, claim.amount) for claim in claims]
    kept.readings = record.admission.readings if record.admission is not None else ()
    kept.guards = few(_found(facts.each_verdict)) if facts.each_verdict else ()
    return kept


def facts_of(call: Call, headers: frozenset[str]) -> AskedFacts:
    """Return what is kept of a call, with those of these headers that it has."""
    head, body, pin = call.head, call.body, call.pin
    named = pin.deployment if pin and pin.deployment in head.alternatives else head.deployment
    parameters = {}
    for name in body:
        if name in PARAMETERS:
            value = body[name]
            if type(value) in NUMERIC or (isinstance(value, str) and len(value) <= MAX_NAME):
                parameters[name] = value
    asked = AskedFacts()
    asked.dialect = head.dialect
    asked.endpoint = head.endpoint
    asked.route = head.route
    asked.request_id = head.request_id
    asked.nonce = head.nonce
    asked.head_deployment = named
    asked.tags = head.tags
    asked.user = head.user
    asked.refresh = head.refresh
    asked.headers = {name: head.headers[name] for name in headers if name in head.headers}
    asked.at = head.at
    asked.parameters = parameters
    asked.models = call.models
    asked.deployment = call.deployment
    asked.stream = call.stream
    asked.method = head.method
    asked.pin = None if pin is None else replace(pin, id="")
    asked.background = call.background
    return asked


def _may_be_large(asked: AskedFacts) -> bool:
    """False of a call with few words: each of them is as long as a name is."""
    return bool(asked.tags or asked.headers) or len(asked.models) + len(asked.parameters) > FEW


def _size(asked: AskedFacts) -> int:
    """Return the bytes of what a client wrote, as far as it is kept."""
    words = [*asked.models, asked.deployment, asked.head_deployment, asked.user]
    words += asked.parameters.values()
    for texts in (asked.headers.values(), *asked.tags):
        words += texts
    return sum(map(sys.getsizeof, words))


def _tried(attempt: Attempt) -> Tried:
    return Tried(
        target=attempt.target.title,
        why=attempt.why,
        status=attempt.status,
        error=attempt.error,
        cause=attempt.cause,
        system_text=attempt.system_text,
        seconds=(attempt.ended or attempt.started) - attempt.started,
        lost=attempt.lost,
    )


def _counted(kept: PastCall) -> list[CountedLimit]:
    claims = [Claim(limit, "", amount) for limit, amount in kept.limits]
    used, waits = Outcome(True, claims, kept.readings).used(), kept.readings[WAIT::READING]
    return [
        (claim.limit, claim.amount, used[index], waits[index] != 0)
        for index, claim in enumerate(claims)
    ]


def _found(verdicts: Verdicts) -> Iterator[GuardFound]:
    """Yield what guards said who did not just pass, as the log line says it: no text, only counts
    by kind."""
    for stage, result in verdicts:
        if result.verdict == "passed":
            continue
        counts = ", ".join(f"{kind}: {count}" for kind, count in few(result.findings.items()))
        verdict = f"{result.verdict} (shadow mode)" if result.shadow else result.verdict
        yield GuardFound(f"{stage} {result.guard}", verdict, result.error or counts or None)


def _happened(kept: PastCall) -> Reason:
    guards = (Reason("guard", f"{name} {verdict}", detail) for name, verdict, detail in kept.guards)
    parts = (*_limits(_counted(kept)), *guards, *_attempts(kept.attempts), *_skips(kept.skips))
    cost = None if kept.cost is None else f"{usd_text(kept.cost)} USD"
    why = ", ".join(text for text in (kept.error, cost) if text) or None
    return Reason("outcome", f"{kept.outcome}, status {kept.status}", why, parts=parts)


def _limits(limits: Sequence[CountedLimit]) -> Iterator[Reason]:
    """Yield of each limit what the call claimed, and where its counter stood then."""
    fits = (
        "not exceeded"
        if any(refuses and not limit.shadow for limit, _, _, refuses in limits)
        else "admitted"
    )
    for limit, claimed, amount, refuses in limits:
        refused = "would reject (shadow mode)" if limit.shadow else "rejected the call"
        text = refused if refuses else fits
        figure = limit.kind.figure
        used = f"{figure(amount)} of {figure(limit.capacity)} used"
        yield Reason(
            "limit", f"{limit.name} {text}", f"this call reserved {figure(claimed)}; {used}"
        )


def _attempts(attempts: Sequence[Tried]) -> Iterator[Reason]:
    for target, why, status, error, cause, system_text, seconds, is_lost in attempts:
        lost = ", another attempt was faster" if is_lost else ""
        ended = f"failed with {error}" if error else f"returned status {status}"
        ended += f" ({cause})" if cause else ""
        detail = f"{why}, {seconds * 1000:.0f} ms" + (f", {system_text}" if system_text else "")
        yield Reason("attempt", f"{target} {ended}{lost}", detail)


def _skips(skips: Sequence[Skipped]) -> Iterator[Reason]:
    for skip in skips:
        yield Reason("attempt", f"{skip.target} skipped", skip.reason)
