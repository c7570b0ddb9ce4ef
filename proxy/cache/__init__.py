"""Answers given before.

No store exists yet: ``Forgetful`` finds nothing and keeps nothing, and every response says
``x-headrace-cache: bypass``.
"""

from __future__ import annotations

from proxy.ports import Answer, Keep
from proxy.types import Call, Chunk, Plan


class Forgetful:
    """Finds nothing, keeps nothing."""

    async def find(self, plan: Plan, call: Call) -> Answer | None:
        return None

    def keep(self, plan: Plan, call: Call) -> Keep:
        return self

    async def feed(self, chunk: Chunk) -> None:
        return None
