"""Many calls' questions in one round trip: what is asked while a trip is under way joins the next.

One trip runs at a time, so the order in which questions are asked is that in which they are
answered, and the busier a store is, the less each question costs. A question that nobody waits for
rides along with the next that somebody does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from proxy.limits.stores.store import StoreUnavailable
from proxy.runtime.frozen import frozen

MOST_WAITING = 10_000
BATCH = 64
LINGER_S = 0.005
Reply = Sequence[int] | StoreUnavailable
Callback = Callable[[Reply], None]


@frozen
class ScriptCall:
    """One call's: the keys it touches, the first of which is its own, and what to do, as JSON."""

    keys: tuple[str, ...]
    text: str


Flush = Callable[[Sequence[ScriptCall]], Awaitable[Sequence[Reply]]]


@dataclass(slots=True)
class Batcher:
    """Entering starts the trips; leaving makes the last ones and stops.

    ``flush`` answers several questions at once, in order, each perhaps by ``StoreUnavailable``.
    Those that wait behind a trip that failed fail with it, so nobody waits for two time-outs.
    """

    flush: Flush
    _waiting: list[tuple[ScriptCall, Callback]] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _late: asyncio.TimerHandle | None = None
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _open: bool = True

    def put(self, question: ScriptCall) -> asyncio.Future[Sequence[int]]:
        """Have a question asked now. Raises ``StoreUnavailable``."""
        reply: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        self._join(question, partial(_give, reply))
        self._wake.set()
        return reply

    def piggyback(self, question: ScriptCall, callback: Callback) -> None:
        """Have a question asked with the next that is ``put``, and before it; by itself after
        ``LINGER_S``. Raises ``StoreUnavailable``."""
        self._join(question, callback)
        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(LINGER_S, self._leave)

    def _leave(self) -> None:
        self._late = None
        self._wake.set()

    def _join(self, question: ScriptCall, callback: Callback) -> None:
        if not self._open or len(self._waiting) >= MOST_WAITING:
            raise StoreUnavailable("no more questions are taken")
        self._waiting.append((question, callback))

    async def _run(self) -> None:
        while self._open or self._waiting:
            await self._wake.wait()
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            if self._open and not self._waiting:
                self._wake.clear()
            if not batch:
                continue
            replies = await self.flush([question for question, _ in batch])
            for (_, callback), reply in zip(batch, replies, strict=True):
                callback(reply)
            if isinstance(replies[-1], StoreUnavailable):
                behind, self._waiting = self._waiting, []
                for _, callback in behind:
                    callback(replies[-1])

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._group.create_task(self._run())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._open = False
        if self._late is not None:
            self._late.cancel()
        self._wake.set()
        await self._group.__aexit__(None, None, None)


def _give(future: asyncio.Future[Sequence[int]], reply: Reply) -> None:
    if future.done():  # who asked was cancelled
        return
    if isinstance(reply, StoreUnavailable):
        future.set_exception(StoreUnavailable(str(reply), reply.trip))
        future.exception()  # seen: nobody may be waiting for it
    else:
        future.set_result(reply)
