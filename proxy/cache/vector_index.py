"""Vectors of answered questions, in this process: which of them are near a new one.

Questions are compared within a space only: who asks, what surrounds the question and what policy
makes of it are the same for all of a space. Bounded by bytes: within a space what was put first
goes first, of spaces the one that was used longest ago.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proxy.cache.fingerprint import Fingerprint
from proxy.ports import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROWS = 4096  # of one space; looking through them takes a tenth of a millisecond
ENTRY_BYTES = 700  # what an entry takes beside its vector and its words
WORD_BYTES = 40
SPACE_BYTES = 1000
LOOKED_AT = 32  # of the questions that are near enough, the nearest


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An answered question: the key that its answer is kept under, and ``until`` when."""

    key: bytes
    fingerprint: Fingerprint
    until: float

    @property
    def size(self) -> int:
        return ENTRY_BYTES + WORD_BYTES * (len(self.fingerprint.asks) + len(self.fingerprint.words))


@dataclass(slots=True)
class Space:
    """Entries and their vectors, row by row; the rows beyond are room to grow into."""

    rows: NDArray[np.float32]
    entries: list[IndexEntry] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)
    size: int = field(init=False)
    oldest: int = 0

    def __post_init__(self) -> None:
        self.size = SPACE_BYTES + self.rows.nbytes

    def put(self, entry: IndexEntry, vector: NDArray[np.float32], most: int) -> None:
        """Take an entry in place of the one with its key, of the oldest, or beside the others."""
        row = self.places.get(entry.key)
        if row is None and len(self.entries) < most:
            row = len(self.entries)
            self._grow()
            self.entries.append(entry)
            self.size += entry.size
        else:
            if row is None:
                row, self.oldest = self.oldest % most, (self.oldest + 1) % most
            del self.places[self.entries[row].key]
            self.size += entry.size - self.entries[row].size
            self.entries[row] = entry
        self.rows[row] = vector
        self.places[entry.key] = row

    def _grow(self) -> None:
        import numpy as np  # noqa: PLC0415  # an extra

        if len(self.entries) == len(self.rows):
            self.size += self.rows.nbytes
            self.rows = np.concatenate((self.rows, self.rows))

    def drop(self, key: bytes) -> None:
        """Let the last row take the place of one that goes."""
        row = self.places.pop(key, None)
        if row is None:
            return
        self.size -= self.entries[row].size
        last = self.entries.pop()
        if row < len(self.entries):
            self.entries[row] = last
            self.rows[row] = self.rows[len(self.entries)]
            self.places[last.key] = row

    def near(self, vector: NDArray[np.float32], least: float) -> Iterator[tuple[float, IndexEntry]]:
        scores = self.rows[: len(self.entries)] @ vector
        found = (scores >= least).nonzero()[0]
        for row in sorted(found, key=lambda row: -float(scores[row]))[:LOOKED_AT]:
            yield min(1.0, float(scores[row])), self.entries[row]


_Name = tuple[Hashable, int]  # a space, for vectors of one length


class VectorIndex:
    """The spaces of a process. ``on_change`` gets the number of entries and their bytes, ``now``
    returns seconds."""

    def __init__(
        self, max_bytes: int, now: Callable[[], float], on_change: Callable[[int, int], None]
    ) -> None:
        self._max_bytes = max_bytes
        self._now = now
        self._on_change = on_change
        self._spaces: OrderedDict[_Name, Space] = OrderedDict()
        self._entries = self._size = 0

    def near(self, space: Hashable, vector: Vector, least: float) -> list[tuple[float, IndexEntry]]:
        """Return the entries of a space with a score of ``least`` or more, the nearest first."""
        name = (space, len(vector))
        found = self._spaces.get(name)
        if found is None:
            return []
        self._spaces.move_to_end(name)
        now = self._now()
        return [each for each in found.near(_row(vector), least) if each[1].until > now]

    def put(self, space: Hashable, entry: IndexEntry, vector: Vector) -> None:
        """Take an entry. What it takes the place of, and what there is no room for, goes."""
        most = min(ROWS, (self._max_bytes - SPACE_BYTES) // (2 * len(vector) + entry.size))
        if most < 1:
            return
        name, row = (space, len(vector)), _row(vector)
        found = self._taken(name) or Space(row.reshape(1, -1).copy())
        found.put(entry, row, most)
        self._give_back(name, found)
        while self._size > self._max_bytes:
            self._taken(next(iter(self._spaces)))
        self._on_change(self._entries, self._size)

    def drop(self, space: Hashable, vector: Vector, key: bytes) -> None:
        """Let go of an entry whose answer is there no more."""
        name = (space, len(vector))
        found = self._taken(name)
        if found is not None:
            found.drop(key)
            if found.entries:
                self._give_back(name, found)
            self._on_change(self._entries, self._size)

    def _taken(self, name: _Name) -> Space | None:
        """Take a space out, and count it no longer."""
        found = self._spaces.pop(name, None)
        if found is not None:
            self._entries -= len(found.entries)
            self._size -= found.size
        return found

    def _give_back(self, name: _Name, space: Space) -> None:
        """Put a space in as the one that was used last."""
        self._spaces[name] = space
        self._entries += len(space.entries)
        self._size += space.size


def _row(vector: Vector) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415  # an extra

    return np.frombuffer(vector, np.float32)
