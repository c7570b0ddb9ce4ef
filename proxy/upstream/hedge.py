"""Two requests for one answer: the second is asked when the first is slow, the slower is dropped.

This may cost twice. The one that lost is cancelled, which closes its connection, and its attempt is
marked so that what it may have cost is booked as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.call.attempts import AttemptReason
from proxy.errors import ProxyError
from proxy.runtime.freed import drop_tracebacks
from proxy.runtime.frozen import frozen
from proxy.upstream.forwarded import HttpUpstreamResponse
from proxy.upstream.retry import most_useful

Run = asyncio.Task["HttpUpstreamResponse | ProxyError"]
Begin = Callable[[AttemptReason], Awaitable[HttpUpstreamResponse]]


@frozen
class HedgedRequest:
    """How the second joins in: ``after`` seconds if it ``may`` then, and when the first has failed
    if it is a ``spare`` that would be asked next in any case."""

    after: float
    may: Callable[[], bool]
    spare: bool

    async def run(self, first: Begin, second: Begin) -> HttpUpstreamResponse:
        """Return the answer that begins first. When all fail, the most useful failure is raised."""
        runs: list[Run] = []
        winner: Run | None = None
        try:
            async with asyncio.TaskGroup() as group:
                runs.append(group.create_task(_settled(first, "first")))
                await asyncio.wait(runs, timeout=self.after)
                if not runs[0].done() and self.may():
                    runs.append(group.create_task(_settled(second, "hedge")))
                winner = await _winner(runs)
                if winner is None and self.spare and len(runs) == 1 and not _is_final(runs[0]):
                    runs.append(group.create_task(_settled(second, "fallback")))
                    winner = await _winner(runs)
                for run in runs:
                    if run is not winner:
                        run.cancel()
        except asyncio.CancelledError as left:
            winner = None  # nobody takes it: it is closed with the others
            drop_tracebacks(left)  # the group's own frame holds what it passes on, and the call
            raise
        finally:
            await _close([run for run in runs if run is not winner])
        if winner is not None and isinstance(answer := winner.result(), HttpUpstreamResponse):
            return answer
        outcomes = [run.result() for run in runs if not run.cancelled()]
        raise most_useful([outcome for outcome in outcomes if isinstance(outcome, ProxyError)])


async def _settled(begin: Begin, why: AttemptReason) -> HttpUpstreamResponse | ProxyError:
    try:
        return await begin(why)
    except ProxyError as failure:
        drop_tracebacks(failure)
        return failure


async def _winner(runs: list[Run]) -> Run | None:
    """Wait for an answer, or until all have failed, or one so that no other may answer."""
    waiting = set(runs)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for run in runs:
            if run in done and not _failed(run):
                return run
        if any(_is_final(run) for run in done):
            return None
    return None


def _is_final(run: Run) -> bool:
    outcome = run.result()
    return isinstance(outcome, ProxyError) and outcome.is_final


def _failed(run: Run) -> bool:
    return isinstance(run.result(), ProxyError)


async def _close(runs: list[Run]) -> None:
    """Leave answers that had begun and are not wanted."""
    for run in runs:
        if not run.cancelled() and run.exception() is None:
            answer = run.result()
            if isinstance(answer, HttpUpstreamResponse):
                answer.asked.attempt.lost_hedge = True
                async with answer:
                    pass
