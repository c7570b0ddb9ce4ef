"""A time slice ends after its work bound. One piece of a caller's work runs at a time."""

from __future__ import annotations

import asyncio

from proxy.runtime.fair_queue import SLICE_S, TimeSlice, TimeSlices
from tests.guards.doubles import Ticks


def worked(turn: TimeSlice, clock: Ticks, seconds: float) -> bool:
    clock.now += seconds
    return turn.is_over()


def test_it_is_over_after_so_much_work_in_all() -> None:
    clock = Ticks()
    turn = TimeSlice(clock)
    turn.begin()

    assert not worked(turn, clock, SLICE_S * 0.6)
    assert worked(turn, clock, SLICE_S * 0.6)


def test_waiting_is_no_work() -> None:
    clock = Ticks()
    turn = TimeSlice(clock)

    for _ in range(10):
        clock.now += 1.0
        turn.begin()
        assert not worked(turn, clock, SLICE_S / 20)


async def test_others_run_while_it_rests_and_then_another_turn_begins() -> None:
    clock = Ticks()
    turn = TimeSlice(clock)
    turn.begin()
    other_event = asyncio.Event()
    asyncio.get_running_loop().call_soon(other_event.set)
    assert worked(turn, clock, 2 * SLICE_S)

    await turn.rest()

    assert other_event.is_set()
    assert not worked(turn, clock, SLICE_S / 2)


async def rounds(turns: TimeSlices, caller: str, went_on: list[str], *, times: int = 1) -> None:
    for _ in range(times):
        await turns.rest(caller)
        went_on.append(caller)


async def test_of_one_caller_s_work_one_piece_goes_on_in_a_round() -> None:
    turns, went_on = TimeSlices(), list[str]()
    tasks = [asyncio.ensure_future(rounds(turns, "search", went_on, times=3)) for _ in range(50)]
    other_task = asyncio.ensure_future(rounds(turns, "support", went_on, times=3))

    await other_task

    assert went_on.count("search") <= 4  # fifty times as many where all go on at once
    await asyncio.gather(*tasks)
    assert went_on.count("search") == 150


async def test_work_that_was_cancelled_as_it_rested_holds_up_nobody() -> None:
    turns, went_on = TimeSlices(), list[str]()
    remaining = asyncio.ensure_future(rounds(turns, "search", went_on))
    stays = asyncio.ensure_future(rounds(turns, "search", went_on))
    await asyncio.sleep(0)
    remaining.cancel()

    await stays

    assert went_on == ["search"]
    await asyncio.gather(remaining, return_exceptions=True)
    assert remaining.cancelled()
