"""The last calls, kept without their texts so that they can still be explained.

A call is kept as the facts that it was decided by, and explained when somebody asks, by deciding it
again under the revision that was in force then. So keeping one costs next to nothing, and what is
explained cannot differ from what was decided.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from proxy.attempts import Attempt
from proxy.dialects import MAX_NAME
from proxy.dialects.bounds import NUMBERS
from proxy.errors import ProxyError, UpstreamDenied, UpstreamRefused
from proxy.policy.compare import decided, divergences, other_key
from proxy.policy.explain import amount_text, explain
from proxy.policy.explanation import Explanation, Reason
from proxy.policy.schema.rules import Cap, Set
from proxy.policy.snapshot import Key, Snapshot
from proxy.record import Record, Skip
from proxy.types import Call
from proxy.types.outcome import Outcome
from proxy.usage import usd_text

MAX_CALLS = 1000
MAX_STRANGERS = 20
FACTS = frozenset({*Set.model_fields, *Cap.model_fields, *NUMBERS, "user"})


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left of a call: ``call`` is None where it was refused before its body was read."""

    revision: str | None
    key: str | None
    credential: str | None
    call: Call | None
    ended: str
    error: str | None
    cost: int | None
    attempts: tuple[Attempt, ...]
    skips: tuple[Skip, ...]
    admission: Outcome | None


class Past:
    """The sink that keeps calls. ``find`` gives the snapshot of a revision that is not too old,
    ``candidate`` that of a candidate, where there is one."""

    def __init__(
        self,
        find: Callable[[str], Snapshot | None],
        candidate: Callable[[], Snapshot] | None = None,
    ) -> None:
        self._find = find
        self._candidate = candidate
        self._calls: OrderedDict[str, Kept] = OrderedDict()
        self._strangers: OrderedDict[str, Kept] = OrderedDict()

    def begin(self, record: Record) -> None:
        return None

    def end(self, record: Record) -> None:
        if record.door is None or not record.told:
            return
        call = record.call
        if call is not None:
            snapshot = self._find(record.revision or "")
            call = without_texts(call, snapshot.headers if snapshot else frozenset())
        calls, most = self._calls, MAX_CALLS
        if record.key is None:  # who is nobody pushes out nobody but others of the kind
            calls, most = self._strangers, MAX_STRANGERS
        calls[record.door.request_id] = Kept(
            record.revision,
            record.key,
            record.credential,
            call,
            f"{record.outcome}, status {record.status}",
            _said(record.error),
            record.cost if record.attempts else None,
            tuple(record.attempts),
            tuple(record.skips),
            record.admission,
        )
        if len(calls) > most:
            calls.popitem(last=False)

    def explain(self, request_id: str) -> Explanation | None:
        """Explain a call by its request id; of several with the same id the last. None when it is
        not known, or no longer."""
        kept = self._calls.get(request_id) or self._strangers.get(request_id)
        if kept is None:
            return None
        snapshot = self._find(kept.revision or "")
        key = snapshot.key_named(kept.key) if snapshot else None
        if snapshot is None:
            why = "the revision it was decided by is no longer kept"
            told = Explanation(kept.revision or "none", (Reason("decided", "unknown", why),))
        elif key is None or kept.call is None:
            said = f"key {kept.key}" if key else "no known key"
            told = Explanation(snapshot.revision, (Reason("identity", said),))
        else:
            told = explain(snapshot, key, kept.call)
            told = replace(
                told, reasons=(*told.reasons, *self._otherwise(snapshot, key, kept, kept.call))
            )
        return replace(told, reasons=(*told.reasons, _happened(kept)))

    def _otherwise(self, snapshot: Snapshot, key: Key, kept: Kept, call: Call) -> Iterator[Reason]:
        """Say what the candidate decides otherwise."""
        if self._candidate is None:
            return
        candidate = self._candidate()
        lapse = candidate.lapse_of(key.name, call.door.at, kept.credential)
        if lapse is not None:
            found = [other_key(key.name, None, lapse)]
        else:
            other = candidate.keys[key.name]
            found = divergences(call, decided(snapshot, key, call), decided(candidate, other, call))
        parts = tuple(
            Reason(each.kind, f"{each.was} -> {each.now}", f"by {each.rule}" if each.rule else None)
            for each in found
        )
        said = "decides otherwise" if parts else "decides the same"
        yield Reason("candidate", said, f"revision {candidate.revision}", parts=parts)


def _said(error: ProxyError | None) -> str | None:
    """Return what an error says; of an upstream's words, which may quote the question, nothing."""
    if isinstance(error, UpstreamRefused | UpstreamDenied):
        status = (
            "" if error.upstream_status is None else f", upstream status {error.upstream_status}"
        )
        return f"{error.code}{status}"
    return error.message if error is not None else None


def without_texts(call: Call, headers: frozenset[str]) -> Call:
    """Give a call as the facts that policy decides by: no prompt, no credential, no header but
    those that a rule looks at."""
    door = replace(
        call.door,
        credential=None,
        headers={name: call.door.headers[name] for name in headers if name in call.door.headers},
    )
    facts = {name: call.body[name] for name in FACTS & call.body.keys()}
    body = {name: value for name, value in facts.items() if _short(value)}
    return replace(call, door=door, body=body)


def _short(value: object) -> bool:
    """True for what a parameter may be; a long text, a list or an object is none."""
    return len(value) <= MAX_NAME if isinstance(value, str) else isinstance(value, (int, float))


def _happened(kept: Kept) -> Reason:
    parts = (*_limits(kept.admission), *_attempts(kept.attempts), *_skips(kept.skips))
    cost = None if kept.cost is None else f"{usd_text(kept.cost)} USD"
    why = ", ".join(said for said in (kept.error, cost) if said) or None
    return Reason("happened", kept.ended, why, parts=parts)


def _limits(admission: Outcome | None) -> Iterator[Reason]:
    """Yield of each limit what the call claimed, and where its counter stood then."""
    if admission is None:
        return
    for claim, standing in zip(admission.claims, admission.standings, strict=True):
        limit = standing.limit
        said = "refused" if standing.refuses else "admitted"
        used = f"{amount_text(limit, standing.used)} of {amount_text(limit, limit.capacity)} used"
        why = f"the call claimed {amount_text(limit, claim.amount)}, {used}"
        yield Reason("limit", f"{limit.name}: {said}", why)


def _attempts(attempts: tuple[Attempt, ...]) -> Iterator[Reason]:
    for attempt in attempts:
        took = (attempt.ended or attempt.started) - attempt.started
        ended = attempt.error or f"status {attempt.status}"
        lost = ", lost to a faster one" if attempt.lost else ""
        name = attempt.target.title
        yield Reason("attempt", f"{name}: {ended}{lost}", f"{attempt.why}, {took * 1000:.0f} ms")


def _skips(skips: tuple[Skip, ...]) -> Iterator[Reason]:
    for skip in skips:
        yield Reason("attempt", f"{skip.target.title}: not asked", skip.reason)
