"""Fingerprints of answered questions, in this process: which one says the same as a new one.

Questions are compared within a space only: who asks, what surrounds the question and what policy
makes of it are the same for all of a space. Bounded by bytes: what was used longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from proxy.cache.fingerprint import Fingerprint
from proxy.frozen import frozen

ENTRY_BYTES = 900  # what an entry takes beside its words, with its place in the index
WORD_BYTES = 60
ORDERS = 8  # of the same words that are kept beside each other; the oldest goes first


@frozen
class IndexEntry:
    """An answered question: the key that its answer is kept under, and ``until`` when."""

    key: bytes
    fingerprint: Fingerprint
    until: float

    @property
    def size(self) -> int:
        return ENTRY_BYTES + WORD_BYTES * (len(self.fingerprint.asks) + len(self.fingerprint.words))


class WordIndex:
    """The entries of a process. ``on_change`` gets their number and their bytes, ``now`` returns
    seconds."""

    def __init__(
        self, max_bytes: int, now: Callable[[], float], on_change: Callable[[int, int], None]
    ) -> None:
        self._max_bytes = max_bytes
        self._now = now
        self._on_change = on_change
        self._groups: OrderedDict[Hashable, tuple[IndexEntry, ...]] = OrderedDict()
        self._entries = self._size = 0

    def find(self, space: Hashable, fingerprint: Fingerprint) -> bytes | None:
        """Return the key of the newest entry of a space that says the same; None without one."""
        name = _group(space, fingerprint)
        entries, now = self._groups.get(name, ()), self._now()
        if entries:
            self._groups.move_to_end(name)
        found = (
            entry.key
            for entry in reversed(entries)
            if entry.until > now and entry.fingerprint.same_as(fingerprint)
        )
        return next(found, None)

    def put(self, space: Hashable, entry: IndexEntry) -> None:
        """Take an entry, in place of the one with its key. What there is no room for goes."""
        name = _group(space, entry.fingerprint)
        others = tuple(each for each in self._groups.get(name, ()) if each.key != entry.key)
        self._set(name, (*others, entry)[-ORDERS:])
        while self._size > self._max_bytes:
            self._set(next(iter(self._groups)), ())
        self._on_change(self._entries, self._size)

    def drop(self, space: Hashable, fingerprint: Fingerprint, key: bytes) -> None:
        """Let go of an entry whose answer is there no more."""
        name = _group(space, fingerprint)
        self._set(name, tuple(each for each in self._groups.get(name, ()) if each.key != key))
        self._on_change(self._entries, self._size)

    def _set(self, name: Hashable, entries: tuple[IndexEntry, ...]) -> None:
        """Have these entries alone in a group, as the one that was used last."""
        gone = self._groups.pop(name, ())
        self._entries += len(entries) - len(gone)
        self._size += sum(each.size for each in entries) - sum(each.size for each in gone)
        if entries:
            self._groups[name] = entries


def _group(space: Hashable, fingerprint: Fingerprint) -> Hashable:
    return space, fingerprint.asks, fingerprint.untied
