"""The answer to ``GET /models``: what a key may use, said by policy itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Self

from proxy.ports import HandOn
from proxy.types import Chunk, Head

WHOLE = Head(streamed=False)


@dataclass(slots=True)
class ModelList:
    """The models that a key may use: policy itself is the answer."""

    names: tuple[str, ...]
    head: Head = WHOLE

    async def chunks(self, hand_on: HandOn | None = None) -> AsyncIterator[Sequence[Chunk]]:
        models = [
            {"id": name, "object": "model", "created": 0, "owned_by": "headrace"}
            for name in self.names
        ]
        yield (Chunk({"object": "list", "data": models}, last=True),)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *left_by: object) -> None:
        return None
