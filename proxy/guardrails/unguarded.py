"""The gate of a call that no guard looks at: it costs the call next to nothing."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.errors import ProxyError
from proxy.frozen import frozen
from proxy.ports import Watch
from proxy.types import Call, Chunk, Plan


@frozen
class OpenGate:
    """Lets a call pass as it is."""

    plan: Plan
    call: Call

    async def inspect(self) -> tuple[Plan, Call]:
        return self.plan, self.call

    async def review(self, error: ProxyError) -> None:
        """An upstream's words stay as they are."""

    def watch(self, call: Call) -> Watch:
        return OPEN


@frozen
class OpenWatch:
    """Lets an answer pass as it is."""

    again: bool = False

    def feed_at_once(self, chunk: Chunk) -> Sequence[Chunk]:
        return (chunk,)

    async def feed(self, chunk: Chunk) -> Sequence[Chunk]:
        return (chunk,)

    def cut(self) -> Sequence[Chunk]:
        """Nothing was held back."""
        return ()


OPEN = OpenWatch()
