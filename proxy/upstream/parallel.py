"""Parallel requests of a call: one per requested model, and hedged requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Self

from proxy.call.attempts import AttemptReason
from proxy.errors import ProxyError, UpstreamInvalid
from proxy.ports import Feed, RedactError, UpstreamResponse
from proxy.runtime.deferred_free import drop_tracebacks
from proxy.types import ResponseHead
from proxy.types.events import Fault, Frame
from proxy.upstream.errors import choose_most_useful_error
from proxy.upstream.response import HttpUpstreamResponse

OpenResponse = Callable[[], Awaitable[UpstreamResponse]]
OpenHedged = Callable[[AttemptReason], Awaitable[HttpUpstreamResponse]]
HedgeTask = asyncio.Task["HttpUpstreamResponse | ProxyError"]


@dataclass(slots=True)
class FramePerModelResponse:
    """Responses of several model calls. Entering starts them, leaving cancels those that run.

    Returns one frame per model call as they finish, failures last: a ``Fault`` whose message
    ``redact_error`` has redacted. If all fail, raises the most useful failure.
    """

    open_responses: Sequence[OpenResponse]
    redact_error: RedactError
    head: ResponseHead
    _results: asyncio.Queue[tuple[int, Frame | ProxyError]] = field(default_factory=asyncio.Queue)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def frames(self, feed: Feed | None = None) -> AsyncIterator[Sequence[Frame]]:
        failures: list[tuple[int, ProxyError]] = []
        for remaining in range(len(self.open_responses) - 1, -1, -1):
            model_call, result = await self._results.get()
            if isinstance(result, ProxyError):
                failures.append((model_call, result))
                continue
            is_last = remaining == 0 and not failures
            yield (result._replace(raw=None, model_call=model_call, last=is_last),)
        if len(failures) == len(self.open_responses):
            raise choose_most_useful_error(
                [error for _, error in sorted(failures, key=itemgetter(0))]
            )
        for remaining, failure in zip(range(len(failures) - 1, -1, -1), failures, strict=True):
            model_call, error = failure
            await self.redact_error(error)
            fault = Fault(error.message, error.client_code)
            yield (Frame((fault,), model_call=model_call, last=remaining == 0),)

    async def _queue_last_frame(self, model_call: int) -> None:
        """Put the last frame of a response, or its failure, into the results."""
        result: Frame | ProxyError | None = None
        try:
            async with await self.open_responses[model_call]() as response:
                async for frames in response.frames():
                    result = frames[-1] if frames else result
            if result is None:
                raise UpstreamInvalid("The upstream sent an empty response.")
        except ProxyError as error:
            drop_tracebacks(error)
            result = error
        self._results.put_nowait((model_call, result))

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        indexes = range(len(self.open_responses))
        self._tasks = [self._group.create_task(self._queue_last_frame(index)) for index in indexes]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)


async def open_hedged(
    open_first: OpenHedged,
    open_second: OpenHedged,
    delay_s: float,
    may_hedge: Callable[[], bool],
    *,
    has_fallback: bool,
) -> HttpUpstreamResponse:
    """Return the response that begins first. If all fail, raise the most useful failure.

    The second request starts after ``delay_s`` if ``may_hedge`` returns True, or when the first
    fails if it ``has_fallback``. Both may cost: the slower one is cancelled and marked as lost.
    """
    tasks: list[HedgeTask] = []
    winner: HedgeTask | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks.append(group.create_task(_open_or_return_error(open_first, "first")))
            await asyncio.wait(tasks, timeout=delay_s)
            if not tasks[0].done() and may_hedge():
                tasks.append(group.create_task(_open_or_return_error(open_second, "hedge")))
            winner = await _wait_for_winner(tasks)
            can_fall_back = has_fallback and len(tasks) == 1
            if winner is None and can_fall_back and not _is_final_failure(tasks[0]):
                tasks.append(group.create_task(_open_or_return_error(open_second, "fallback")))
                winner = await _wait_for_winner(tasks)
            for task in tasks:
                if task is not winner:
                    task.cancel()
    except asyncio.CancelledError as error:
        winner = None  # None: the winner is closed with the others
        drop_tracebacks(error)  # the frame of the task group refers to the call
        raise
    finally:
        await _close_as_lost_hedges([task for task in tasks if task is not winner])
    if winner is not None and isinstance(response := winner.result(), HttpUpstreamResponse):
        return response
    results = [task.result() for task in tasks if not task.cancelled()]
    raise choose_most_useful_error([result for result in results if isinstance(result, ProxyError)])


async def _open_or_return_error(
    open_response: OpenHedged, reason: AttemptReason
) -> HttpUpstreamResponse | ProxyError:
    try:
        return await open_response(reason)
    except ProxyError as failure:
        drop_tracebacks(failure)
        return failure


async def _wait_for_winner(tasks: list[HedgeTask]) -> HedgeTask | None:
    """Return the first task with a response, None if all fail or one failure excludes a retry."""
    pending = set(tasks)
    while pending:
        finished, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in finished and not isinstance(task.result(), ProxyError):
                return task
        if any(_is_final_failure(task) for task in finished):
            return None
    return None


def _is_final_failure(task: HedgeTask) -> bool:
    result = task.result()
    return isinstance(result, ProxyError) and result.is_final


async def _close_as_lost_hedges(losers: list[HedgeTask]) -> None:
    """Close responses that had begun, and mark their attempts as lost hedges."""
    for task in losers:
        if not task.cancelled() and task.exception() is None:
            response = task.result()
            if isinstance(response, HttpUpstreamResponse):
                response.open_attempt.attempt.lost_hedge = True
                async with response:
                    pass
