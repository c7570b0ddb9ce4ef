"""Models of one's own run in threads of theirs, in turns, behind a queue that has an end."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import ExitStack

import pytest

from proxy.guards.model_pool import CALLS, THREADS, ModelPool
from proxy.types.guard import Busy


async def test_one_caller_fills_the_queue_of_a_model_for_itself_alone() -> None:
    pool = ModelPool()
    with ExitStack() as calls:
        for caller, most in (("a", CALLS), ("b", CALLS // 2)):
            for _ in range(most):
                calls.enter_context(pool.call(caller))
        for caller in ("a", "b"):
            with pytest.raises(Busy), pool.call(caller):
                raise AssertionError
        with pool.call("c") as aside:
            assert await aside(lambda: 7) == 7
    with pool.call("a") as aside:
        assert await aside(lambda: 7) == 7


async def test_one_who_asks_for_much_makes_another_wait_for_one_turn_alone() -> None:
    pool, order = ModelPool(threads=1), list[str]()
    begun, held = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(begun.set)
        held.wait(30)

    async def work(caller: str) -> None:
        with pool.call(caller) as aside:
            await aside(lambda: order.append(caller))

    with pool.call("busy") as first:
        holding = asyncio.create_task(first(hold))
        await begun.wait()
        waiting = [asyncio.create_task(work("busy")) for _ in range(20)]
        waiting.append(asyncio.create_task(work("other")))
        await asyncio.sleep(0)
        held.set()
        await asyncio.gather(holding, *waiting)

    assert order.index("other") <= 1


async def test_two_models_do_not_wait_for_each_other() -> None:
    one, other, held = ModelPool(), ModelPool(), threading.Event()
    with one.call("a") as aside, other.call("a") as beside:
        holding = [asyncio.create_task(aside(lambda: held.wait(30))) for _ in range(THREADS)]
        await asyncio.sleep(0)
        assert await beside(lambda: "judged") == "judged"
        held.set()
        assert await asyncio.gather(*holding) == [True] * THREADS


async def test_threads_end_with_the_pool() -> None:
    pool = ModelPool()
    with pool.call("a") as aside:
        thread = await aside(threading.current_thread)
    assert thread.is_alive()

    del pool, aside
    gc.collect()
    await asyncio.to_thread(thread.join, 10)

    assert not thread.is_alive()
