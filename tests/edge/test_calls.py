"""A stop waits for the calls under way, then ends them and lets them say so."""

from __future__ import annotations

import asyncio

from proxy.edge.calls import Calls
from tests.doubles import PATIENCE_S


async def test_a_call_that_ends_by_itself_is_waited_for() -> None:
    calls, go = Calls(), asyncio.Event()

    async def call() -> str:
        task = calls.begin(asyncio.current_task())
        await go.wait()
        calls.end(task)
        return "done"

    async with asyncio.TaskGroup() as group:
        served = group.create_task(call())
        await asyncio.sleep(0)
        drained = group.create_task(calls.drain(5))
        go.set()

    assert (served.result(), drained.done()) == ("done", True)


async def test_a_call_that_does_not_end_is_cancelled_and_cleans_up() -> None:
    calls, said = Calls(), []

    async def call() -> None:
        task = calls.begin(asyncio.current_task())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            said.append("last words")
            raise
        finally:
            calls.end(task)

    async with asyncio.TaskGroup() as group:
        served = group.create_task(call())
        await asyncio.sleep(0)
        await calls.drain(0)

    assert served.cancelled()
    assert said == ["last words"]


async def test_with_no_call_under_way_there_is_nothing_to_wait_for() -> None:
    async with asyncio.timeout(PATIENCE_S):
        await Calls().drain(60)
