"""The lag of the event loop: seen where something held it up."""

from __future__ import annotations

import asyncio
import time

from proxy.emit.lag import EVERY_S, LoopLag


async def test_a_loop_that_is_held_up_is_seen() -> None:
    told: list[float] = []
    seen = asyncio.Event()

    def tell(late: float) -> None:
        told.append(late)
        seen.set()

    async with LoopLag(tell):
        until = time.monotonic() + EVERY_S + 0.1
        while time.monotonic() < until:
            pass
        await seen.wait()

    assert told[0] >= 0.09


async def test_nothing_is_asked_for_once_it_is_left() -> None:
    told: list[float] = []

    lag = LoopLag(told.append)
    async with lag:
        timer = lag._timer

    assert timer.cancelled()
