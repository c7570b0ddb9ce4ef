"""Bodies as JSON: small ones at once, large ones beside the loop, which others wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from proxy.dialects.strict import read_json
from proxy.offload import Offload
from proxy.types import Json

MOST_VALUES = 100_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parsing:
    """How bodies are read: with so many values at the most, large ones by ``offload``."""

    most_values: int = MOST_VALUES
    offload: Offload = Offload()  # noqa: RUF009  # it is frozen

    async def read(self, raw: bytes, make: Callable[[Json], T], caller: object) -> T:
        """Return what ``make`` makes of a caller's body. Raises ``BadRequest``, and what ``make``
        raises."""
        return await self.offload.run(len(raw), partial(self._made, raw, make), caller)

    def _made(self, raw: bytes, make: Callable[[Json], T]) -> T:
        return make(read_json(raw, self.most_values))
