"""A second folder of policies, decided beside the one in force for every call, and obeyed by none.

What it would decide otherwise is counted by kind and rule, with the last calls of each as examples.
The candidate decides after a call has ended, so that it takes nothing from its time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar

from proxy.errors import Unauthorized
from proxy.policy.decide import InForce
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.review.compare import Divergence, Way, by_way, decided, divergences, other_key
from proxy.policy.review.explanation import CallExplanation, Reason
from proxy.record import Record
from proxy.types import RequestHead
from proxy.words import counted, word

MAX_WAYS = 200
EXAMPLES = 5
MAX_EXAMPLE = 500
Tell = Callable[[str, str], None]


class Candidate:
    """The sink that decides once more. ``current`` gives the candidate's snapshot; ``tell`` hears
    of each call, by the kind and rule of each divergence, or of ``same`` and nothing."""

    name: ClassVar[str] = "candidate"

    def __init__(self, current: Callable[[], Snapshot], tell: Tell) -> None:
        self.current = current
        self._tell = tell
        self._seen: OrderedDict[Way, list[Reason]] = OrderedDict()
        self._counts: dict[Way, int] = {}

    def end(self, record: Record) -> None:
        found = self._divergences(record)
        if found is None or record.head is None:
            return
        if not found:
            self._tell("same", "")
        for way, change in by_way(found).items():
            self._tell(*way)
            self._note(record.head.request_id, way, change)

    def _divergences(self, record: Record) -> list[Divergence] | None:
        """Decide the call once more; None for one that no policy decided."""
        head, call = record.head, record.call
        if head is None or head.internal_key is not None:  # no virtual key has it
            return None
        key = _known(self.current(), head)
        if call is None:
            stranger = isinstance(record.error, Unauthorized) and key is not None
            return [other_key(key.name, "unknown", None)] if stranger and key else None
        was = record.decided or record.plan or record.error
        if was is None:
            return None
        if key is None:
            name = str(record.key)
            lapse = self.current().lapse_of(name, head.at, record.credential)
            return [other_key(name, None, lapse or "unknown")]
        return divergences(call, was, decided(self.current(), key, call))

    def _note(self, request_id: str, way: Way, change: str) -> None:
        self._counts[way] = self._counts.get(way, 0) + 1
        examples = self._seen.setdefault(way, [])
        self._seen.move_to_end(way)
        short = word(change, MAX_EXAMPLE)  # with tags that a caller wrote
        examples.append(Reason("call", request_id, short))
        del examples[:-EXAMPLES]
        if len(self._seen) > MAX_WAYS:
            gone, _ = self._seen.popitem(last=False)
            del self._counts[gone]

    def explain(self) -> CallExplanation:
        """Return the ways in which the candidate differs, each with its last examples."""
        reasons = [
            Reason(
                kind,
                f"differs for {counted(self._counts[kind, rule], 'call')}",
                f"changed by rule {rule}" if rule else None,
                parts=tuple(reversed(examples)),
            )
            for (kind, rule), examples in reversed(self._seen.items())
        ]
        return CallExplanation(self.current().revision, tuple(reasons))


def _known(snapshot: Snapshot, head: RequestHead) -> VirtualKey | None:
    try:
        return InForce(snapshot).identify(head).known
    except Unauthorized:
        return None
