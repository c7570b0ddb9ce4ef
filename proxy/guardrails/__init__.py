"""Inspection of texts, in and out.

No kind of guard exists yet: ``Unguarded`` passes every text unseen, and a policy that names a
guard is refused when it is loaded, so that nobody believes in one.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.ports import Watch
from proxy.types import Call, Chunk, Plan


class Unguarded:
    """Passes every call, and every chunk as soon as it comes."""

    async def inspect(self, plan: Plan, call: Call) -> Call:
        return call

    def watch(self, plan: Plan) -> Watch:
        return self

    async def feed(self, chunk: Chunk) -> Sequence[Chunk]:
        return (chunk,)
