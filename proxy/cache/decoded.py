"""The answers that were read last, for those who ask again: what many ask is decoded once.

The store stays the judge of what is kept: an answer is found only by the very value that the store
has given for its key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from proxy.cache.cached_answer import CachedAnswer

MOST = 64
LARGEST = 16 * 1024  # bytes of text: decoded it takes some ten times as much


class DecodedAnswers:
    """At most ``MOST`` answers of up to ``LARGEST`` bytes each; the one that was asked for longest
    ago goes first."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, tuple[bytes, CachedAnswer]] = OrderedDict()

    def find(self, name: Hashable, value: bytes) -> CachedAnswer | None:
        """Return the answer that was read from a value of the store under a name, or None. The name
        has the key, and all else that an answer is read by."""
        if name not in self._answers:
            return None
        known, answer = self._answers[name]
        if known != value:
            return None
        self._answers.move_to_end(name)
        return answer

    def keep(self, name: Hashable, value: bytes, answer: CachedAnswer) -> None:
        """Add an answer."""
        if answer.size > LARGEST:
            return
        self._answers[name] = value, answer
        self._answers.move_to_end(name)
        if len(self._answers) > MOST:
            self._answers.popitem(last=False)
