"""Many calls' questions in one round trip: what is asked while a trip is under way joins the next.

One trip runs at a time, so the order in which questions are asked is that in which they are
answered, and the busier a store is, the less each question costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from proxy.limits.store import StoreUnavailable

MOST_WAITING = 10_000
BATCH = 64
Reply = Sequence[int] | StoreUnavailable


@dataclass(frozen=True, slots=True)
class Question:
    """One call's: the keys it touches, the first of which is its own, and what to do, as JSON."""

    keys: tuple[str, ...]
    text: str


Trip = Callable[[Sequence[Question]], Awaitable[Sequence[Reply]]]


@dataclass(slots=True)
class Batcher:
    """Entering starts the trips; leaving makes the last ones and stops.

    ``trip`` answers several questions at once, in order, each perhaps by ``StoreUnavailable``.
    Those that wait behind a trip that failed fail with it, so nobody waits for two time-outs.
    """

    trip: Trip
    _waiting: list[tuple[Question, asyncio.Future[Sequence[int]]]] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _open: bool = True

    def put(self, question: Question) -> asyncio.Future[Sequence[int]]:
        """Have a question asked, whether or not anybody waits. Raises ``StoreUnavailable``."""
        if not self._open or len(self._waiting) >= MOST_WAITING:
            raise StoreUnavailable("no more questions are taken")
        reply: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, reply))
        self._wake.set()
        return reply

    async def _run(self) -> None:
        while self._open or self._waiting:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            if not batch:
                continue
            replies = await self.trip([question for question, _ in batch])
            for (_, future), reply in zip(batch, replies, strict=True):
                _give(future, reply)
            if isinstance(replies[-1], StoreUnavailable):
                behind, self._waiting = self._waiting, []
                for _, future in behind:
                    _give(future, replies[-1])

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._group.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open = False
        self._wake.set()
        await self._group.__aexit__(None, None, None)


def _give(future: asyncio.Future[Sequence[int]], reply: Reply) -> None:
    if future.done():  # who asked was cancelled
        return
    if isinstance(reply, StoreUnavailable):
        future.set_exception(StoreUnavailable(*reply.args))
        future.exception()  # seen: nobody may be waiting for it
    else:
        future.set_result(reply)
