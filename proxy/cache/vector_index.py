"""Embeddings of cached prompts in the memory of this process, compared by cosine.

Vectors are compared within a space, whose prompts differ in the last user message only. A space has
at most ``MAX_VECTORS``. Only the ``CANDIDATES`` with the most equal signs are multiplied.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import mul
from typing import Any

from proxy.runtime.frozen import frozen

MAX_VECTORS = 512
MAX_NUMBERS = 8192
CANDIDATES = 4
ENTRY_BYTES = 800  # of an entry without its numbers


@frozen
class Vector:
    """Vector of length 1, with one bit of ``signs`` per number.

    Vectors of different models or lengths never match.
    """

    model: str
    numbers: array[float]
    signs: int

    @property
    def size(self) -> int:
        return ENTRY_BYTES + len(self.numbers) * self.numbers.itemsize + len(self.numbers) // 8

    def is_comparable(self, vector: Vector) -> bool:
        return self.model == vector.model and len(self.numbers) == len(vector.numbers)

    def cosine(self, vector: Vector) -> float:
        cosine: float = sum(map(mul, self.numbers, vector.numbers))
        return round(cosine, 6)


def parse_vector(model: str, document: Any) -> Vector:
    """Parse a response with one embedding. Raises ``ValueError``."""
    try:
        [item] = document["data"]
        numbers = item["embedding"]
        if type(numbers) is not list or len(numbers) > MAX_NUMBERS:
            raise ValueError("not a list of numbers, or too many")
        length = math.hypot(*numbers)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError("not an embedding") from error
    if not 0 < length < math.inf:
        raise ValueError("no direction")
    signs = int("".join("1" if number > 0 else "0" for number in numbers), 2)
    return Vector(model, array("f", [number / length for number in numbers]), signs)


@dataclass(slots=True)
class VectorIndex:
    """Vectors by space and cache key.

    Beyond ``max_bytes``, the oldest vector of the least recently used space is evicted.
    ``on_change`` gets the number of vectors and their bytes.
    """

    max_bytes: int
    on_change: Callable[[int, int], None]
    _spaces: OrderedDict[Hashable, dict[bytes, Vector]] = field(default_factory=OrderedDict)
    _entries: int = 0
    _size: int = 0

    def find(self, space: Hashable, vector: Vector, threshold: float) -> list[bytes]:
        """Return the cache keys of the vectors that match, nearest first."""
        if space not in self._spaces:
            return []
        self._spaces.move_to_end(space)
        vectors = self._spaces[space].items()
        comparable = (pair for pair in vectors if vector.is_comparable(pair[1]))
        closest = nsmallest(
            CANDIDATES, comparable, key=lambda pair: (vector.signs ^ pair[1].signs).bit_count()
        )
        cosines = sorted(((vector.cosine(match), key) for key, match in closest), reverse=True)
        return [key for cosine, key in cosines if cosine >= threshold]

    def add(self, space: Hashable, key: bytes, vector: Vector) -> None:
        """Add a vector, or replace the one of its key."""
        self.drop(space, key)
        vectors = self._spaces.setdefault(space, {})
        self._spaces.move_to_end(space)
        if len(vectors) == MAX_VECTORS:
            self.drop(space, next(iter(vectors)))
        vectors[key] = vector
        self._change(1, vector.size)
        while self._size > self.max_bytes:
            oldest = next(iter(self._spaces))
            self.drop(oldest, next(iter(self._spaces[oldest])))

    def drop(self, space: Hashable, key: bytes) -> None:
        """Remove a vector if it exists."""
        vectors = self._spaces.get(space, {})
        vector = vectors.pop(key, None)
        if vector is not None:
            if not vectors:
                del self._spaces[space]
            self._change(-1, -vector.size)

    def _change(self, entries: int, size: int) -> None:
        self._entries += entries
        self._size += size
        self.on_change(self._entries, self._size)
