"""Turns: nobody who asks for many keeps others waiting, and none is lost."""

from __future__ import annotations

import asyncio

from proxy.runtime.fair_queue import MAX_CHARGED, FairSemaphore, Places
from tests.doubles import PATIENCE_S


async def take(turns: FairSemaphore, caller: str, order: list[str]) -> None:
    async with turns.of(caller):
        order.append(caller)
        await asyncio.sleep(0)


async def test_one_who_asks_for_one_is_next_to_one_who_asks_for_many() -> None:
    turns, order = FairSemaphore(1), list[str]()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for caller in "aaaaaaaaabac":
            group.create_task(take(turns, caller, order))

    assert "".join(order) == "abacaaaaaaaa"


async def test_no_turn_is_lost_with_one_who_leaves() -> None:
    turns, order = FairSemaphore(1), list[str]()
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


async def work(turns: FairSemaphore, caller: str, seconds: float, order: list[str]) -> None:
    async with turns.of(caller) as turn:
        order.append(caller)
        turn.charge(seconds)
        await asyncio.sleep(0)


async def test_caller_with_less_work_is_served_first() -> None:
    """Turns of a caller that take three times as long come a third as often."""
    turns, order = FairSemaphore(1), list[str]()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(work(turns, "large", 3, order))
        for _ in range(8):
            group.create_task(work(turns, "small", 1, order))

    assert order[:9].count("small") >= 6


async def test_caller_saves_no_turns_while_away() -> None:
    """A caller who worked alone for long is not behind one who comes now."""
    turns, order = FairSemaphore(2), list[str]()
    await turns.take("holder")
    for _ in range(100):
        await work(turns, "busy", 1, order)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for caller in [*"nbnbnbnbnbnbnbnbnbnb"]:
            group.create_task(work(turns, {"n": "new", "b": "busy"}[caller], 1, order))
    turns.give_back("holder")

    assert order[100:110].count("new") in (4, 5, 6)


async def test_charges_of_idle_turns_are_forgotten() -> None:
    turns = FairSemaphore(1)
    for number in range(3 * MAX_CHARGED):
        async with turns.of(number) as turn:
            turn.charge(1)

    assert not turns._charged


def test_places_of_all_callers_are_bounded_and_each_has_one() -> None:
    places = Places(32)
    taken_items: list[int] = []
    for caller in range(100):
        taken_items.append(0)
        while not places.is_full(caller):
            places.take(caller)
            taken_items[caller] += 1

    assert (taken_items[:3], min(taken_items), sum(taken_items)) == ([32, 16, 10], 1, 187)
    places.give_back(99)
    assert not places.is_full("another")
