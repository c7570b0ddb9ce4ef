"""Requests several models at once. Each gives one frame, in the order in which they finish;
failures come last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Self

from proxy.errors import ProxyError, UpstreamInvalid
from proxy.ports import HandOn, Review, UpstreamResponse
from proxy.runtime.freed import drop_tracebacks
from proxy.types import ResponseHead
from proxy.types.events import Fault, Frame
from proxy.upstream.retry import most_useful

Begin = Callable[[], Awaitable[UpstreamResponse]]


@dataclass(slots=True)
class FanOut:
    """The responses of all model calls. Entering starts them, leaving cancels those that run.

    A failed model call gives a `Fault`, once ``review`` has redacted its message. If all fail, the
    most useful failure is raised.
    """

    begin: Sequence[Begin]
    review: Review
    head: ResponseHead
    _done: asyncio.Queue[tuple[int, Frame | ProxyError]] = field(default_factory=asyncio.Queue)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def frames(self, hand_on: HandOn | None = None) -> AsyncIterator[Sequence[Frame]]:
        failures: list[tuple[int, ProxyError]] = []
        for remaining in range(len(self.begin) - 1, -1, -1):
            model_call, result = await self._done.get()
            if isinstance(result, ProxyError):
                failures.append((model_call, result))
                continue
            last = remaining == 0 and not failures
            yield (result._replace(raw=None, model_call=model_call, last=last),)
        if len(failures) == len(self.begin):
            raise most_useful([error for _, error in sorted(failures, key=itemgetter(0))])
        for remaining, failure in zip(range(len(failures) - 1, -1, -1), failures, strict=True):
            model_call, error = failure
            await self.review(error)
            fault = Fault(error.message, error.client_code)
            yield (Frame((fault,), model_call=model_call, last=remaining == 0),)

    async def _run(self, model_call: int) -> None:
        """Take the last frame of a response, or its failure."""
        try:
            async with await self.begin[model_call]() as answer:
                last = [frames[-1] async for frames in answer.frames() if frames][-1:]
            if not last:
                raise UpstreamInvalid("The upstream sent an empty response.")
        except ProxyError as error:
            drop_tracebacks(error)
            self._done.put_nowait((model_call, error))
            return
        self._done.put_nowait((model_call, last[0]))

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._tasks = [self._group.create_task(self._run(at)) for at in range(len(self.begin))]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)
