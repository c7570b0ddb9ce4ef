"""Work on large bodies is done by a thread, and work on small ones at once."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from proxy.runtime.fair_queue import FairSemaphore
from proxy.runtime.offload import LARGE_BYTES, Offload


async def test_only_work_on_large_bodies_leaves_the_loop() -> None:
    with ThreadPoolExecutor(1, "bodies") as executor:
        offload = Offload(executor)

        small = await offload.run(LARGE_BYTES, threading.current_thread, "a")
        large = await offload.run(LARGE_BYTES + 1, threading.current_thread, "a")

    assert small is threading.current_thread()
    assert large.name.startswith("bodies")


@pytest.mark.parametrize("size", [0, LARGE_BYTES + 1])
async def test_what_the_work_raises_comes_through(size: int) -> None:
    def failing() -> None:
        raise LookupError("why")

    with pytest.raises(LookupError, match="why"):
        await Offload().run(size, failing, "a")


async def test_one_who_asks_for_much_holds_another_up_for_one_piece_of_work() -> None:
    result: list[str] = []
    with ThreadPoolExecutor(1, "bodies") as executor:
        offload = Offload(executor, FairSemaphore(1))
        async with asyncio.TaskGroup() as group:
            for caller in ["greedy"] * 50 + ["other"]:
                work = partial(result.append, caller)
                group.create_task(offload.run(LARGE_BYTES + 1, work, caller))

    assert len(result) == 51
    assert result.index("other") <= 1
