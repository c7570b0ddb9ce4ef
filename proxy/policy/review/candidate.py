"""Decides every call under a candidate snapshot too, and counts the differences.

The candidate has no effect on calls: it decides after they end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from proxy.call.record import Record
from proxy.errors import Unauthorized
from proxy.errors.words import counted
from proxy.policy.decide import ActivePolicy
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.compare import (
    ChangeTally,
    Difference,
    compare,
    decide_call,
    key_difference,
)
from proxy.policy.review.explain import CallExplanation, Reason

MAX_CHANGES = 200
MAX_EXAMPLES = 5


class Candidate:
    """Sink that compares each call with the snapshot that ``current`` returns.

    ``count`` gets the kind and the rule of each change of a call, or ``same`` and an empty rule.
    """

    name: ClassVar[str] = "candidate"

    def __init__(self, current: Callable[[], Snapshot], count: Callable[[str, str], None]) -> None:
        self.current = current
        self._count = count
        self._tally = ChangeTally(MAX_EXAMPLES, max_changes=MAX_CHANGES, keep_newest=True)

    def end(self, record: Record) -> None:
        differences = self._compare(record)
        if differences is None or record.head is None:
            return
        for kind, rule in self._tally.add(record.head.request_id, differences):
            self._count(kind, rule)
        if not differences:
            self._count("same", "")

    def _compare(self, record: Record) -> list[Difference] | None:
        """Return the differences for a call, or None if no policy decided it."""
        head, call, snapshot = record.head, record.call, self.current()
        if head is None or head.internal_key is not None:  # the candidate has no internal keys
            return None
        try:
            key = ActivePolicy(snapshot).identify(head).known
        except Unauthorized:
            key = None
        if call is None:
            if key is None or not isinstance(record.error, Unauthorized):
                return None
            return [key_difference(key.name, "unknown", None)]
        decision = record.original_plan or record.plan or record.error
        if decision is None:
            return None
        if key is None:
            lapse = snapshot.lapse_of(str(record.key), head.received_at, record.credential)
            return [key_difference(str(record.key), None, lapse or "unknown")]
        return compare(call, decision, decide_call(snapshot, key, call))

    def explain(self) -> CallExplanation:
        """Return the changes that calls met, the latest first, each with its last calls."""
        reasons = [
            Reason(
                kind,
                f"differs for {counted(count.calls, 'call')}",
                f"changed by rule {rule}" if rule else None,
                parts=tuple(
                    Reason("call", request_id, text)
                    for request_id, text in reversed(count.examples)
                ),
            )
            for (kind, rule), count in reversed(self._tally.by_change.items())
        ]
        return CallExplanation(self.current().revision, tuple(reasons))
