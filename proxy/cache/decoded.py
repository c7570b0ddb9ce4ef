"""Recently decoded responses, so that a popular response is decoded once.

The store stays authoritative: an entry is used only for the exact value that the store returned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from proxy.cache.cached_answer import CachedAnswer

MOST = 64
LARGEST = 16 * 1024  # bytes of text; decoded about ten times as much


class DecodedAnswers:
    """At most ``MOST`` responses of up to ``LARGEST`` bytes each. The least recently used goes
    first."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, tuple[bytes, CachedAnswer]] = OrderedDict()

    def find(self, name: Hashable, value: bytes) -> CachedAnswer | None:
        """Return the response decoded from a stored value, or None. ``name`` has the key and all
        else that decoding depends on."""
        if name not in self._answers:
            return None
        known, answer = self._answers[name]
        if known != value:
            return None
        self._answers.move_to_end(name)
        return answer

    def keep(self, name: Hashable, value: bytes, answer: CachedAnswer) -> None:
        if answer.size > LARGEST:
            return
        self._answers[name] = value, answer
        self._answers.move_to_end(name)
        if len(self._answers) > MOST:
            self._answers.popitem(last=False)
