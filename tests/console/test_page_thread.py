"""The thread of the pages: few jobs wait, and those of lost requests are skipped."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from proxy.console import MAX_JOBS, PageThread, TooManyPages
from tests.doubles import PATIENCE_S


async def test_bounds_waiting_jobs_and_skips_cancelled_ones() -> None:
    release, started = threading.Event(), asyncio.Event()
    loop, ran = asyncio.get_running_loop(), list[int]()

    def block() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(PATIENCE_S)

    with PageThread("test") as thread:
        first = asyncio.create_task(thread.run(block))
        await started.wait()  # the loop goes on while the job runs
        waiting = [
            asyncio.create_task(thread.run(partial(ran.append, number)))
            for number in range(MAX_JOBS - 1)
        ]
        await asyncio.sleep(0)
        with pytest.raises(TooManyPages):
            await thread.run(lambda: None)
        for task in waiting[1:]:
            task.cancel()
        await asyncio.gather(*waiting[1:], return_exceptions=True)
        last = asyncio.create_task(thread.run(partial(ran.append, -1)))
        release.set()
        await asyncio.gather(first, waiting[0], last)

    assert ran == [0, -1]
