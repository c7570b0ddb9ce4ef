"""A turn on the loop ends after so much work, whatever was waited for in between."""

from __future__ import annotations

import asyncio

from proxy.turn import TURN_S, LoopTurn
from tests.guardrails.doubles import Ticks


def worked(turn: LoopTurn, clock: Ticks, seconds: float) -> bool:
    clock.now += seconds
    return turn.is_over()


def test_it_is_over_after_so_much_work_in_all() -> None:
    clock = Ticks()
    turn = LoopTurn(clock)
    turn.begin()

    assert not worked(turn, clock, TURN_S * 0.6)
    assert worked(turn, clock, TURN_S * 0.6)


def test_waiting_is_no_work() -> None:
    clock = Ticks()
    turn = LoopTurn(clock)

    for _ in range(10):
        clock.now += 1.0
        turn.begin()
        assert not worked(turn, clock, TURN_S / 20)


async def test_others_run_while_it_rests_and_then_another_turn_begins() -> None:
    clock = Ticks()
    turn = LoopTurn(clock)
    turn.begin()
    others = asyncio.Event()
    asyncio.get_running_loop().call_soon(others.set)
    assert worked(turn, clock, 2 * TURN_S)

    await turn.rest()

    assert others.is_set()
    assert not worked(turn, clock, TURN_S / 2)
