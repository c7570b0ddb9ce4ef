"""Answers in a plain dictionary: the store that ``tests/recipes/test_recipes.py`` adds.

It promises nothing: all is gone with the process, and nothing bounds it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Acme:
    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] = {}

    async def get(self, key: bytes) -> bytes | None:
        return self._entries.get(key)

    def save(self, key: bytes, value: bytes, ttl_s: float) -> None:
        self._entries[key] = value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entries.clear()
