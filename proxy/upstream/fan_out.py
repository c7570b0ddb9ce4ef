"""Several models asked at once: one frame for each, in the order in which they finish, but
last those that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Self

from proxy.errors import ProxyError
from proxy.freed import let_frames_go
from proxy.ports import Answer, HandOn, Review
from proxy.types import Head
from proxy.types.events import Fault, Frame
from proxy.upstream.retry import most_useful

Begin = Callable[[], Awaitable[Answer]]


@dataclass(slots=True)
class FanOut:
    """The answers of all legs. Entering asks them all; leaving stops those still at work.

    A model that fails gives a fault, once ``review`` has looked at what it says. When
    all fail the most useful failure is raised: whoever reads the answer looks at that one.
    """

    begin: Sequence[Begin]
    review: Review
    head: Head
    _done: asyncio.Queue[tuple[int, Frame | ProxyError]] = field(default_factory=asyncio.Queue)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def chunks(self, hand_on: HandOn | None = None) -> AsyncIterator[Sequence[Frame]]:
        failures: list[tuple[int, ProxyError]] = []
        for remaining in range(len(self.begin) - 1, -1, -1):
            leg, part = await self._done.get()
            if isinstance(part, ProxyError):
                failures.append((leg, part))
                continue
            last = remaining == 0 and not failures
            yield (part._replace(raw=None, model_call=leg, last=last),)
        if len(failures) == len(self.begin):
            raise most_useful([error for _, error in sorted(failures, key=itemgetter(0))])
        for remaining, (leg, error) in zip(range(len(failures) - 1, -1, -1), failures, strict=True):
            await self.review(error)
            last = remaining == 0
            fault = Fault(error.message, error.client_code)
            yield (Frame((fault,), model_call=leg, last=last),)

    async def _ask(self, leg: int) -> None:
        try:
            async with await self.begin[leg]() as answer:
                parts = [chunks[-1] async for chunks in answer.chunks()]
        except ProxyError as error:
            let_frames_go(error)
            self._done.put_nowait((leg, error))
            return
        self._done.put_nowait((leg, parts[-1]))

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._tasks = [self._group.create_task(self._ask(leg)) for leg in range(len(self.begin))]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)
