"""The answers that were read last, for those who ask again: what many ask is decoded once.

The store stays the judge of what is kept: an answer is found only by the very value that the store
has given for its key.
"""

from __future__ import annotations

from collections import OrderedDict

from proxy.cache.cached_answer import CachedAnswer

MOST = 64
LARGEST = 16 * 1024  # bytes of text: decoded it takes some ten times as much


class DecodedAnswers:
    """At most ``MOST`` answers of up to ``LARGEST`` bytes each; the one that was asked for longest
    ago goes first."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[bytes, int], tuple[bytes, CachedAnswer]] = OrderedDict()

    def find(self, key: bytes, value: bytes, max_bytes: int) -> CachedAnswer | None:
        """Return what a value of the store was read as within a bound, None if it was not."""
        name = key, max_bytes
        if name not in self._answers:
            return None
        known, answer = self._answers[name]
        if known != value:
            return None
        self._answers.move_to_end(name)
        return answer

    def keep(self, key: bytes, value: bytes, max_bytes: int, answer: CachedAnswer) -> None:
        """Take what a value was read as."""
        if answer.size > LARGEST:
            return
        self._answers[key, max_bytes] = value, answer
        self._answers.move_to_end((key, max_bytes))
        if len(self._answers) > MOST:
            self._answers.popitem(last=False)
