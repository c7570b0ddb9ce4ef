"""Turns: nobody who asks for many keeps others waiting, and none is lost."""

from __future__ import annotations

import asyncio

from proxy.turns import Turns
from tests.doubles import PATIENCE_S


async def take(turns: Turns, caller: str, order: list[str]) -> None:
    async with turns.of(caller):
        order.append(caller)
        await asyncio.sleep(0)


async def test_one_who_asks_for_one_is_next_to_one_who_asks_for_many() -> None:
    turns, order = Turns(1), list[str]()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for caller in "aaaaaaaaabac":
            group.create_task(take(turns, caller, order))

    assert "".join(order) == "abacaaaaaaaa"


async def test_no_turn_is_lost_with_one_who_leaves() -> None:
    turns, order = Turns(1), list[str]()
    await turns.take("a")
    tasks = [asyncio.ensure_future(take(turns, caller, order)) for caller in "bbcd"]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.sleep(0)
    turns.give_back("a")
    tasks[1].cancel()  # to whom it is given already
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*tasks, return_exceptions=True)
        await take(turns, "e", order)

    assert order == ["d", "e"]
