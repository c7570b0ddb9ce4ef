"""The timer of a connection, by a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from proxy.upstream.wire.deadline_timer import DeadlineTimer


class Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when, self.callback = when, callback
        self.is_over = False

    def cancel(self) -> None:
        self.is_over = True


class Clock:
    """A loop's clock and its timers. ``made`` counts these."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.made = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        self.made += 1
        self.timers.append(Timer(when, callback))
        return self.timers[-1]

    def pass_until(self, moment: float) -> None:
        """Let time pass, and make the calls that are due."""
        while timers := [item for item in self.timers if not item.is_over and item.when <= moment]:
            timer = min(timers, key=lambda item: item.when)
            timer.is_over = True
            self.now = max(self.now, timer.when)
            timer.callback()
        self.now = moment


def alarm(clock: Clock, rung: list[float]) -> DeadlineTimer:
    return DeadlineTimer(cast("asyncio.AbstractEventLoop", clock), lambda: rung.append(clock.now))


@pytest.mark.parametrize(
    ("expected", "ends", "rings"),
    [((10.0, 20.0, 15.0), False, [15.0]), ((10.0,), True, [])],
    ids=["last", "ended"],
)
def test_rings_once_at_last_moment(
    expected: tuple[float, ...], ends: bool, rings: list[float]
) -> None:
    clock, rung = Clock(), list[float]()
    timer = alarm(clock, rung)
    for moment in expected:
        timer.set(moment)
    if ends:
        timer.close()

    clock.pass_until(100)

    assert rung == rings


def test_what_is_expected_later_and_later_takes_one_timer_until_that_rings() -> None:
    clock, rung = Clock(), list[float]()
    timer = alarm(clock, rung)
    for second in range(9):
        clock.pass_until(second)
        timer.set(second + 10.0)

    assert clock.made == 1
    clock.pass_until(100)
    assert (rung, clock.made) == ([18.0], 2)


def test_it_may_be_expected_sooner() -> None:
    clock, rung = Clock(), list[float]()
    timer = alarm(clock, rung)
    timer.set(10)
    timer.set(1)

    clock.pass_until(2)
    assert rung == [1.0]

    timer.set(5)
    clock.pass_until(100)
    assert rung == [1.0, 5.0]
