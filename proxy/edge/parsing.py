"""Bodies as JSON: small ones at once, large ones beside the loop, which others wait for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from proxy.dialects.strict import counted, read_json
from proxy.frozen import frozen
from proxy.offload import LARGE_BYTES, Offload
from proxy.types import Json

MOST_VALUES = 100_000
VALUE_BYTES = 192  # that one takes beside its text, with its name and its place in a mapping

T = TypeVar("T")


@frozen
class Parsing:
    """How bodies are read: with so many values at the most, large ones by ``offload``."""

    most_values: int = MOST_VALUES
    offload: Offload = Offload()  # it is frozen

    def read_small(self, raw: bytes, take: Callable[[int], None]) -> Json:
        """Read a body that holds up nobody, once ``take`` has counted what it may take. Raises
        ``BadRequest``, and what ``take`` raises."""
        take(VALUE_BYTES * counted(raw, self.most_values))
        return read_json(raw)

    async def read(
        self, raw: bytes, make: Callable[[Json], T], caller: object, take: Callable[[int], None]
    ) -> T:
        """Return what ``make`` makes of a caller's body, once ``take`` has counted what that may
        take. Raises ``BadRequest``, and what ``make`` and ``take`` raise."""
        if len(raw) <= LARGE_BYTES:
            return make(self.read_small(raw, take))
        count = partial(counted, raw, self.most_values)
        take(VALUE_BYTES * await self.offload.run(len(raw), count, caller))
        return await self.offload.run(len(raw), lambda: make(read_json(raw)), caller)
